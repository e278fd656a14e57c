"""Results with many rows (lists, comparisons, tests of pairs) for notebooks, frames and files."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hdpmf.common.base.files import atomic_write
from hdpmf.common.base.progress import frame_of
from hdpmf.common.data import Id
from hdpmf.errors import ConfigError
from hdpmf.private.client.ranking import Recommendation

if TYPE_CHECKING:
    from hdpmf.models.base import Estimator

_SHOWN = 100


class Tabular:
    """Something with rows: a data frame of it, a Parquet file, and a table in a notebook."""

    @abstractmethod
    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row, by the names of the columns."""

    def to_frame(self, kind: Literal["polars", "pandas"] = "polars") -> Any:
        """A data frame of the rows; pandas has to be installed for its own."""
        return frame_of(list(self.rows()), kind)

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write the rows to a Parquet file that only its owner can read."""
        from io import BytesIO

        buffer = BytesIO()
        self.to_frame().write_parquet(buffer)
        atomic_write(path, buffer.getvalue(), mode=0o600)

    def _repr_html_(self) -> str:
        """The first rows, for notebooks."""
        rows = []
        for row in self.rows():
            rows.append(row)
            if len(rows) > _SHOWN:
                break
        if not rows:
            return "<p>nothing</p>"
        head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
        body = "".join(
            "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row.values()) + "</tr>"
            for row in rows[:_SHOWN]
        )
        more = "<p>and more</p>" if len(rows) > _SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else escape(str(value))


class RecommendedList(list[Recommendation], Tabular):
    """One user's list. PRIVATE: it says what they may like, and why."""

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each item."""
        for rank, entry in enumerate(self, start=1):
            yield {
                "rank": rank,
                "item": entry.item,
                "title": entry.title,
                "year": entry.year,
                "genres": "|".join(entry.genres),
                "expected": entry.score,
                "rank_score": entry.rank_score,
                "reason": entry.reason,
            }


class RecommendedLists(dict[Id, RecommendedList], Tabular):
    """The list of each user. PRIVATE: it says what they may like, and why."""

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each item of each user."""
        for user, found in self.items():
            yield from ({"user": user, **row} for row in found.rows())


@dataclass(frozen=True, slots=True)
class PairTest:
    """Two-sided tests whether two models differ, on the same users, folds or seeds.

    Attributes:
        difference: Mean of the first minus the second.
        low: Lower end of the difference's 95 % interval (Student's); ``high`` is its upper end.
        effect: Cohen's d of the pairs: the difference over the deviation of the differences.
        n: Pairs of numbers.
        t_p: Of Student's paired t-test; NaN where it is not defined.
        wilcoxon_p: Of Wilcoxon's signed-rank test; NaN where it is not defined.
        t_holm: The first p, corrected by Holm for all pairs that were tested together.
        wilcoxon_holm: The second p, corrected in the same way.
    """

    first: str
    second: str
    difference: float
    n: int
    t_p: float
    wilcoxon_p: float
    low: float = math.nan
    high: float = math.nan
    effect: float = math.nan
    t_holm: float = math.nan
    wilcoxon_holm: float = math.nan

    @property
    def stars(self) -> int:
        """How sure it is that the first is smaller, by Student's test."""
        return stars_at(self.t_holm) if self.difference < 0 else 0


def stars_at(p: float) -> int:
    """Return the paper's stars: 3 for 99 % confidence, 2 for 95 %, 1 for 90 %, else 0."""
    return sum(p <= level for level in (0.01, 0.05, 0.10))


def all_pairs(samples: Mapping[str, Sequence[float] | np.ndarray]) -> list[PairTest]:
    """Test every pair of samples of equal length, and correct by Holm for testing so many.

    What is not finite in either of two samples is left out of their test.
    """
    plain = [
        _pair(first, second, np.asarray(samples[first], float), np.asarray(samples[second], float))
        for first, second in itertools.combinations(samples, 2)
    ]
    t_holm = holm([test.t_p for test in plain])
    wilcoxon_holm = holm([test.wilcoxon_p for test in plain])
    return [
        replace(test, t_holm=t, wilcoxon_holm=wilcoxon)
        for test, t, wilcoxon in zip(plain, t_holm, wilcoxon_holm, strict=True)
    ]


def _pair(first: str, second: str, a: np.ndarray, b: np.ndarray) -> PairTest:
    if len(a) != len(b):
        raise ConfigError(f"{first} and {second} were not measured on the same things")
    both = np.isfinite(a) & np.isfinite(b)
    differences = a[both] - b[both]
    n = len(differences)
    mean = float(differences.mean()) if n else math.nan
    if n < 2 or bool((differences == differences[0]).all()):
        return PairTest(first, second, mean, n, math.nan, math.nan)  # no spread, so no test
    from scipy.stats import ttest_1samp, wilcoxon

    student = ttest_1samp(differences, 0.0)
    interval = student.confidence_interval(0.95)
    effect = mean / float(differences.std(ddof=1))
    p_values = float(student.pvalue), float(wilcoxon(differences).pvalue)
    return PairTest(
        first, second, mean, n, *p_values, float(interval.low), float(interval.high), effect
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p values for testing several hypotheses (Holm 1979); NaN stays NaN."""
    order = sorted(
        (number for number, p in enumerate(p_values) if not math.isnan(p)),
        key=lambda number: p_values[number],
    )
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for position, number in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - position) * p_values[number]))
        corrected[number] = largest
    return corrected


class PairTests(Tabular):
    """Tests of all pairs of models: a row for each pair."""

    def __init__(self, metric: str, tests: list[PairTest]) -> None:
        self.metric = metric
        self.tests = tests

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each pair with its difference, its 95 % interval and effect size, and p values."""
        for test in self.tests:
            yield {
                "first": test.first,
                "second": test.second,
                f"{self.metric}_difference": test.difference,
                "low": test.low,
                "high": test.high,
                "effect": test.effect,
                "n": test.n,
                "t_p": test.t_p,
                "t_holm": test.t_holm,
                "wilcoxon_p": test.wilcoxon_p,
                "wilcoxon_holm": test.wilcoxon_holm,
            }

    def __str__(self) -> str:
        return text_table(list(self.rows()))

    __repr__ = __str__


class Comparison(Tabular):
    """The result of `compare`: one row per model, the best first.

    Attributes:
        title: What was measured on.
    """

    def __init__(
        self,
        title: str,
        rows: list[dict[str, Any]],
        samples: Mapping[str, Mapping[str, np.ndarray]],
    ) -> None:
        self.title = title
        self._rows = rows
        self._samples = samples

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each model with its errors, its claim and its time."""
        yield from (dict(row) for row in self._rows)

    def __getitem__(self, model: str) -> Mapping[str, Any]:
        for row in self._rows:
            if row["model"] == model:
                return dict(row)
        raise ConfigError(
            f"{model!r} was not compared; there are {', '.join(row['model'] for row in self._rows)}"
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.rows()

    def __len__(self) -> int:
        return len(self._rows)

    def tests(self, metric: str = "mse") -> PairTests:
        """Test every pair of models: does one do better, over the users of the test ratings?

        Two-sided, paired by user: Student's t-test and Wilcoxon's signed-rank test, each corrected
        by Holm for the number of pairs.

        Args:
            metric: ``mse``, ``mae``, or ``ndcg_at_10`` where lists were measured. Models without it
                are left out.

        Raises:
            ConfigError: No two models were measured by it.
        """
        measured = {
            row["model"]: self._samples[row["model"]][metric]
            for row in self._rows
            if metric in self._samples[row["model"]]
        }
        if len(measured) < 2:
            known = dict.fromkeys(name for each in self._samples.values() for name in each)
            raise ConfigError(
                f"no two models were measured by {metric!r} for each user; there are "
                f"{', '.join(known)} (lists=True measures ndcg_at_10)"
            )
        return PairTests(metric, all_pairs(measured))

    def __str__(self) -> str:
        return f"{self.title}\n{text_table(self._rows)}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.title)}</p>{super()._repr_html_()}"


class SearchResult(Tabular):
    """The result of `grid_search`: one row per combination, in the order of trying.

    Attributes:
        by: The measure that chose.
        best: The best combination.
        best_value: Its measure, the mean over the folds.
        model: An unfitted model with the best combination.
    """

    def __init__(
        self,
        by: str,
        rows: list[dict[str, Any]],
        best: dict[str, Any],
        value: float,
        model: Estimator,
    ) -> None:
        self.by = by
        self.best = best
        self.best_value = value
        self.model = model
        self._rows = rows

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each combination with its measures; a message where training diverged."""
        yield from (dict(row) for row in self._rows)

    def __str__(self) -> str:
        chosen = ", ".join(f"{name}={value}" for name, value in self.best.items())
        return f"best by {self.by}: {chosen} ({self.best_value:.4f})\n{text_table(self._rows)}"

    __repr__ = __str__


def text_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as columns of text, under the names of all their values."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = [names, *([_text(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[position]) for line in table) for position in range(len(names))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    )


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
