"""Privacy wishes from frames and files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.data import Ratings
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.errors import PrivacyError, RatingsError

pairs = st.tuples(st.integers(0, 4), st.integers(0, 4))


@given(
    st.lists(pairs, min_size=1, max_size=15, unique=True),
    st.dictionaries(pairs, st.sampled_from([0.25, 0.5, 1.0])),
)
def test_weights_per_rating(
    rated: list[tuple[int, int]], wished: dict[tuple[int, int], float]
) -> None:
    ratings = Ratings.from_arrays(*zip(*rated, strict=True), [3.0] * len(rated))  # type: ignore[arg-type]
    users, items = [user for user, _ in wished], [item for _, item in wished]
    frame = pl.DataFrame(
        {"user": users, "item": items, "weight": list(wished.values())},
        schema_overrides={"user": pl.Int64},
    )
    named = [pair in wished for pair in rated]
    if not any(named):
        with pytest.raises(PrivacyError):
            PrivacyWeights.from_frame(ratings, frame, missing=0.125)
        return
    weights = PrivacyWeights.from_frame(ratings, frame, missing=0.125).for_ratings(ratings)
    assert weights.tolist() == [wished.get(pair, 0.125) for pair in rated]
    if not all(named):
        with pytest.raises(
            PrivacyError, match=rf"{named.count(False)} of {len(rated)} ratings.*missing=W"
        ):
            PrivacyWeights.from_frame(ratings, frame)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_weights_per_user_and_per_item(kind: Callable[[Any], Any]) -> None:
    ratings = Ratings.from_arrays([1, 1, 7], ["007", "7", "7"], [1, 2, 3])
    users = kind({"customer_id": [7, 1, 9], "weight": [0.5, 0.25, 1.0]})  # nobody knows 9 here
    items = kind({"isbn": ["7", "007"], "weight": [0.5, 1.0]})
    assert PrivacyWeights.from_frame(ratings, users).for_ratings(ratings).tolist() == [
        0.25,
        0.25,
        0.5,
    ]
    assert PrivacyWeights.from_frame(ratings, items).for_ratings(ratings).tolist() == [
        1.0,
        0.5,
        0.5,
    ]
    both = PrivacyWeights.from_frame(ratings, users, items)
    assert both.for_ratings(ratings).tolist() == [0.25, 0.125, 0.25]
    for wrong in ((), (users, users), (users, kind({"user": [1], "item": ["7"], "weight": [1.0]}))):
        with pytest.raises(PrivacyError, match="per user, per item, or both"):
            PrivacyWeights.from_frame(ratings, *wrong)


def test_ids_compare_as_they_are_written(tmp_path: Any) -> None:
    ratings = Ratings.from_arrays([7, 8], [1, 1], [3, 4])
    file = tmp_path / "wishes.csv"
    file.write_text("user,weight\n007,0.25\n7,0.5\n8,1\n")
    assert PrivacyWeights.from_frame(ratings, file).for_ratings(ratings).tolist() == [0.5, 1.0]


def test_who_has_no_rating_needs_no_wish() -> None:
    ratings = Ratings.from_arrays([1, 2], [1, 1], [3, 4]).take(np.array([True, False]))
    weights = PrivacyWeights.from_frame(ratings, pd.DataFrame({"user": [1], "weight": [0.5]}))
    assert weights.for_ratings(ratings).tolist() == [0.5]


@pytest.mark.parametrize("bad", [0.0, -1.0, 1.5, float("nan"), None])
def test_weights_outside_their_range(bad: float | None) -> None:
    ratings = Ratings.from_arrays([1, 2], [1, 1], [3, 4])
    with pytest.raises(
        PrivacyError, match="column 'weight', row 2: a privacy weight must be above 0"
    ):
        PrivacyWeights.from_frame(ratings, pd.DataFrame({"user": [1, 2], "weight": [0.5, bad]}))
    with pytest.raises(PrivacyError, match="not named"):
        PrivacyWeights.from_frame(
            ratings, pd.DataFrame({"user": [1], "weight": [0.5]}), missing=bad or 0.0
        )


def test_what_is_no_frame() -> None:
    with pytest.raises(RatingsError, match="neither a data frame nor a file"):
        PrivacyWeights.from_frame(Ratings.from_arrays([1], [1], [3]), [0.5])
