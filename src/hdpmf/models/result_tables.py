"""Results with many rows (lists, similar items, comparisons) for notebooks, frames and files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from typing import Any, Literal

import numpy as np

from hdpmf.common.base.files import atomic_write
from hdpmf.common.data import Id
from hdpmf.errors import ConfigError, MissingExtraError, UnknownIdError
from hdpmf.models.input_checks import kind_of
from hdpmf.private.client.ranking import Recommendation
from hdpmf.untrusted.recommender import Catalogue

_SHOWN = 100


class Tabular:
    """Something with rows: a data frame of it, a Parquet file, and a table in a notebook."""

    @abstractmethod
    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row, by the names of the columns."""

    def to_frame(self, kind: Literal["polars", "pandas"] = "polars") -> Any:
        """A data frame of the rows; pandas has to be installed for its own."""
        import polars as pl

        if kind not in ("polars", "pandas"):
            raise ConfigError(f"frames are of polars or pandas, not {kind!r}")
        if kind == "polars":
            return pl.DataFrame(list(self.rows()), infer_schema_length=None)
        if find_spec("pandas") is None:
            raise MissingExtraError(
                'frames of pandas need it: pip install pandas; to_frame("polars") does without'
            )
        return import_module("pandas").DataFrame(list(self.rows()))

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


class RecommendedLists(dict[Id, list[Recommendation]], Tabular):
    """The list of each user. PRIVATE: it says what they may like, and why."""

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each item of each user."""
        for user, found in self.items():
            for rank, entry in enumerate(found, start=1):
                yield {
                    "user": user,
                    "rank": rank,
                    "item": entry.item,
                    "title": entry.title,
                    "year": entry.year,
                    "genres": "|".join(entry.genres),
                    "expected": entry.score,
                    "rank_score": entry.rank_score,
                    "reason": entry.reason,
                }


class Comparison(Tabular):
    """The result of `compare`: one row per model, the best first.

    Attributes:
        title: What was measured on.
    """

    def __init__(self, title: str, rows: list[dict[str, Any]]) -> None:
        self.title = title
        self._rows = rows

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

    def __str__(self) -> str:
        names = list(self._rows[0])
        table = [names, *([_text(row[name]) for name in names] for row in self._rows)]
        widths = [max(len(line[position]) for line in table) for position in range(len(names))]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in table
        )
        return "\n".join([self.title, *lines])

    __repr__ = __str__

    def plot(self) -> Any:
        """Draw the errors as bars, coloured by the status of each epsilon.

        The result shows itself in notebooks; ``.data`` is the PNG.
        """
        from hdpmf.lab.plots import comparison_png

        return Picture(comparison_png(self._rows, self.title))

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.title)}</p>{super()._repr_html_()}"


class Picture:
    """A PNG that notebooks show.

    Attributes:
        data: The file.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to a file."""
        atomic_write(path, self.data)

    def _repr_png_(self) -> bytes:
        return self.data


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
