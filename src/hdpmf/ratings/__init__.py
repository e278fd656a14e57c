"""Ratings: the validated table, the data sets, the splits and the synthetic world."""

from __future__ import annotations

from hdpmf.ratings.ids import Id, IdIndex
from hdpmf.ratings.item_table import ItemTable
from hdpmf.ratings.pairs import read_split
from hdpmf.ratings.scale import RatingScale
from hdpmf.ratings.table import Ratings

__all__ = ["Id", "IdIndex", "ItemTable", "RatingScale", "Ratings", "read_split"]
