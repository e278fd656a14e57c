"""Data sets that are one file of user, item and rating: Douban's books, and the sample of Yelp."""

from __future__ import annotations

from pathlib import Path

from hdpmf.ratings.datasets.info import DatasetInfo
from hdpmf.ratings.table import Ratings

# The paper keeps users with at least this many ratings.
MIN_RATINGS = 20


def read_plain(info: DatasetInfo, path: Path) -> Ratings:
    """Read a rating file and keep the users with at least 20 ratings."""
    return Ratings.read(path, scale=(1, 5), name=info.title).min_ratings(MIN_RATINGS)
