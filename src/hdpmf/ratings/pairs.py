"""Ready-made training and test files."""

from __future__ import annotations

import os
from collections.abc import Mapping

from hdpmf.ratings.duplicates import Duplicates
from hdpmf.ratings.ids import merge
from hdpmf.ratings.item_table import ItemTable
from hdpmf.ratings.scale import ScaleLike
from hdpmf.ratings.table import Ratings


def alike(first: Ratings, second: Ratings) -> tuple[Ratings, Ratings]:
    """Two tables read from text, with ids of one kind: text where either has an id that is no plain integer."""
    if first.users.is_integer != second.users.is_integer:
        first, second = first.with_text_ids(users=True), second.with_text_ids(users=True)
    if first.items.is_integer != second.items.is_integer:
        first, second = first.with_text_ids(items=True), second.with_text_ids(items=True)
    return first, second


def share_indexes(train: Ratings, test: Ratings, item_table: ItemTable | None = None) -> tuple[Ratings, Ratings]:
    """Bring two tables into one id space, so that their codes mean the same thing."""
    users = merge(train.users, test.users, "user")
    items = merge(train.items, test.items, "item")
    first, second = train.reindex(users, items), test.reindex(users, items)
    if item_table is not None:
        first, second = first.describe(item_table), second.describe(item_table)
    return first, second


def read_split(
    train_path: str | os.PathLike[str],
    test_path: str | os.PathLike[str],
    *,
    scale: ScaleLike | None = None,
    columns: Mapping[str, str] | None = None,
    separator: str | None = None,
    header: bool | None = None,
    duplicates: Duplicates = "error",
    implicit: bool | None = False,
) -> tuple[Ratings, Ratings]:
    """Read a training and a test file into one id space; the arguments are those of `Ratings.read`.

    Users and items that only one of the files has are in both indexes.
    """
    train, test = (
        Ratings.read(
            path,
            scale=scale,
            columns=columns,
            separator=separator,
            header=header,
            duplicates=duplicates,
            implicit=implicit,
        )
        for path in (train_path, test_path)
    )
    return share_indexes(*alike(train, test))
