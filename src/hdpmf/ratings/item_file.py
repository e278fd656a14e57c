"""A service's own list of items, from a file."""

from __future__ import annotations

import os

from hdpmf.errors import RatingsError
from hdpmf.ratings.ids import factorise
from hdpmf.ratings.item_features import id_column, read_frame
from hdpmf.ratings.item_table import ItemTable
from hdpmf.ratings.table import Ratings

_TITLES = ("title", "name")
_GENRES = ("genres", "genre", "categories")
_YEARS = ("year",)


def over_file(ratings: Ratings, path: str | os.PathLike[str]) -> Ratings:
    """The ratings of the items that a file lists (`Ratings.over`); ids compare as they are written."""
    table = read_item_table(path)
    if table.index.is_integer != ratings.items.is_integer:
        ratings, table = ratings.with_text_ids(items=True), table.with_text_ids()
    return ratings.over(table)


def read_item_table(path: str | os.PathLike[str]) -> ItemTable:
    """Items from a CSV, TSV or Parquet file with a header.

    The ids are in ``item`` (or ``movieId``, ``id``, ..., else the first column); ``title``, ``genres`` (separated by
    ``|``) and ``year`` are used where they are there, other columns are not.

    Raises:
        RatingsError: It is no such file, or an item is listed twice.
    """
    import polars as pl

    frame = read_frame(path)
    label = os.path.basename(os.fspath(path))
    id_name = id_column(frame.columns)
    index, codes = factorise(frame[id_name], id_name)
    if len(index) < len(codes):
        raise RatingsError(f"{label}: an item is listed twice; keep one row per item")
    plain = {name.lower(): name for name in frame.columns if name != id_name}

    def column(names: tuple[str, ...]) -> pl.Series | None:
        return next((frame[plain[name]] for name in names if name in plain), None)

    titles, genres, years = column(_TITLES), column(_GENRES), column(_YEARS)
    try:
        numbers = None if years is None else years.cast(pl.Int64, strict=True).to_list()
    except pl.exceptions.PolarsError:
        raise RatingsError(f"{label}: the column 'year' has something that is no year") from None
    words = [] if genres is None else genres.cast(pl.String).fill_null("").to_list()
    n = len(codes)
    return ItemTable.build(
        index.ids[codes],
        [""] * n if titles is None else titles.cast(pl.String).fill_null("").to_list(),
        [[word.strip() for word in text.split("|") if word.strip()] for text in words] or [[]] * n,
        [None] * n if numbers is None else numbers,
    )
