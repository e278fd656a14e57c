"""Ratings: the validated table, the data sets, the splits and the synthetic world."""

from __future__ import annotations

from hdpmf.ratings.datasets.download import fetch_dataset
from hdpmf.ratings.datasets.info import Counts, DatasetInfo
from hdpmf.ratings.datasets.registry import (
    cache_folder,
    dataset_info,
    dataset_names,
    find_dataset,
    load_dataset,
    load_split,
)
from hdpmf.ratings.ids import Id, IdIndex
from hdpmf.ratings.item_filter import ItemFilter
from hdpmf.ratings.item_table import ItemTable
from hdpmf.ratings.pairs import read_split
from hdpmf.ratings.randomness import RngLike, as_generator
from hdpmf.ratings.scale import RatingScale
from hdpmf.ratings.splits import hold_out, k_fold, leave_one_out, sparsify
from hdpmf.ratings.synthetic import synthetic_world
from hdpmf.ratings.table import Ratings
from hdpmf.ratings.taking import RatingsLike, as_ratings

__all__ = [
    "Counts",
    "DatasetInfo",
    "Id",
    "IdIndex",
    "ItemFilter",
    "ItemTable",
    "RatingScale",
    "Ratings",
    "RatingsLike",
    "RngLike",
    "as_generator",
    "as_ratings",
    "cache_folder",
    "dataset_info",
    "dataset_names",
    "fetch_dataset",
    "find_dataset",
    "hold_out",
    "k_fold",
    "leave_one_out",
    "load_dataset",
    "load_split",
    "read_split",
    "sparsify",
    "synthetic_world",
]
