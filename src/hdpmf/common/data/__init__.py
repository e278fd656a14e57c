"""Ratings: the validated table, the data sets, the splits and the synthetic world."""

from hdpmf.common.data.checks import RatingScale, RngLike, as_generator
from hdpmf.common.data.dataset_formats import Counts, DatasetInfo
from hdpmf.common.data.datasets import (
    cache_folder,
    dataset_info,
    dataset_names,
    fetch_dataset,
    find_dataset,
    load_dataset,
    load_split,
)
from hdpmf.common.data.ids import Id, IdIndex
from hdpmf.common.data.items import ItemFilter, ItemTable
from hdpmf.common.data.splits import read_split
from hdpmf.common.data.synthetic import synthetic_world
from hdpmf.common.data.table import Ratings, RatingsLike, as_ratings

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
    "load_dataset",
    "load_split",
    "read_split",
    "synthetic_world",
]
