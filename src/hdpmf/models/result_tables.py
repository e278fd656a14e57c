"""Results with many rows (lists, similar items, comparisons) for notebooks, frames and files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hdpmf.common.base.files import atomic_write
from hdpmf.common.base.progress import frame_of
from hdpmf.common.data import Id
from hdpmf.errors import ConfigError, UnknownIdError
from hdpmf.models.fitted import kind_of
from hdpmf.private.client.ranking import Recommendation
from hdpmf.untrusted.recommender import Catalogue

if TYPE_CHECKING:
    from hdpmf.models.validation import PairTests

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
        from hdpmf.models.validation import PairTests, all_pairs

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


@dataclass(frozen=True, slots=True)
class SimilarItem:
    """An item that is like another.

    Attributes:
        item: Its id.
        similarity: The cosine of the angle between both items' vectors: 1 for the same direction.
        title: Where known.
    """

    item: Id
    similarity: float
    title: str | None = None


def similar(
    catalogue: Catalogue, vectors: np.ndarray, able: np.ndarray, item: Id, n: int
) -> list[SimilarItem]:
    """The ``n`` able items whose vectors point most nearly where this one's does."""
    if n < 1:
        raise ConfigError(f"n must be at least 1, not {n}")
    items = catalogue.items
    position = int(items.find([item])[0])
    if position < 0:
        raise UnknownIdError(
            f"item {item!r} is none of the model's {len(items):,}, whose ids are {kind_of(items)}"
        )
    lengths = np.linalg.norm(vectors, axis=1)
    if not able[position] or lengths[position] == 0:
        raise ConfigError(
            f"the model learned nothing about item {item!r}, so nothing is known to be like it"
        )
    cosines = vectors @ vectors[position] / np.maximum(lengths * lengths[position], 1e-12)
    cosines[~able | (lengths == 0)] = -np.inf
    cosines[position] = -np.inf
    best = np.argsort(-cosines, kind="stable")[:n]
    table = catalogue.item_table
    rows = np.full(len(vectors), -1) if table is None else table.index.find(catalogue.items.ids)
    return [
        SimilarItem(
            catalogue.items.ids[code].item(),
            float(cosines[code]),
            (table.titles[rows[code]] or None) if table is not None and rows[code] >= 0 else None,
        )
        for code in best.tolist()
        if np.isfinite(cosines[code])
    ]
