"""What is known about a data set before it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hdpmf.errors import DatasetError
from hdpmf.ratings.table import Ratings


class Counts(NamedTuple):
    """The size of a data set after loading."""

    users: int
    items: int
    ratings: int

    def __str__(self) -> str:
        return f"{self.users:,} users, {self.items:,} items, {self.ratings:,} ratings"


@dataclass(frozen=True)
class DatasetInfo:
    """One data set of the registry.

    Attributes:
        name: What `load_dataset` calls it.
        title: Its display name, for tables and figures.
        description: One line about it.
        page: Where its owner describes it, or None for what we make ourselves.
        url: Where its owner lets anyone download it, or None.
        files: File or folder names to look for, best first.
        cache_name: The file it is kept in, in the cache.
        counts: What it must have after loading, or None where releases differ.
        checksums: SHA-256 of members after unpacking, by name.
        split: Whether it comes with a ready-made training and test set.
    """

    name: str
    title: str
    description: str
    page: str | None = None
    url: str | None = None
    files: tuple[str, ...] = ()
    cache_name: str = ""
    counts: Counts | None = None
    checksums: dict[str, str] = field(default_factory=dict)
    read: Callable[[DatasetInfo, Path], Ratings] | None = field(default=None, repr=False)
    read_split: Callable[[DatasetInfo, Path], tuple[Ratings, Ratings]] | None = field(default=None, repr=False)

    @property
    def split(self) -> bool:
        """Whether it comes with a ready-made training and test set."""
        return self.read_split is not None

    def how_to_get(self) -> str:
        """Say in one line how to get it."""
        by_hand = f"hdpmf data get {self.name} --from FILE"
        if self.url is None:
            return f"get it from {self.page} and run: {by_hand}"
        return f"run: hdpmf data get {self.name} (or get it from {self.page} and run: {by_hand})"

    def check_counts(self, ratings: Ratings, origin: str) -> None:
        """Compare with what the data set is known to have."""
        found = Counts(ratings.n_users, ratings.n_items, len(ratings))
        if self.counts is not None and found != self.counts:
            raise DatasetError(
                f"{origin} is not {self.title} as we know it: it has {found}; expected {self.counts}. "
                f"To use other ratings, read them with Ratings.read; for {self.title} {self.how_to_get()}"
            )
