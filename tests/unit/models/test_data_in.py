"""Frames and matrices go straight into fit, score and rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from hdpmf.common.data import Ratings, as_ratings, synthetic_world
from hdpmf.errors import RatingsError
from hdpmf.models import EASE, HDPMF, Estimator, HDPSum, MostPopular, PrivatePopular, UserMean

WORLD = synthetic_world(n_users=60, n_items=40, n_ratings=1200, rng=0)
TRAIN, TEST = WORLD.hold_out(3, rng=0)


def frame(ratings: Ratings) -> dict[str, Any]:
    return {
        "user": ratings.user_ids,
        "item": ratings.item_ids,
        "rating": ratings.values.astype(float),
    }


def matrix(columns: dict[str, Any]) -> Any:
    return sparse.csr_matrix((columns["rating"], (columns["user"], columns["item"])))


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table, matrix])
@pytest.mark.parametrize(
    "make", [lambda: HDPMF(epochs=3, rng=0), lambda: HDPSum(rng=0), UserMean, EASE]
)
def test_a_frame_gives_what_its_ratings_give(
    kind: Callable[[Any], Any], make: Callable[[], Estimator]
) -> None:
    plain = Ratings.from_arrays(TRAIN.user_ids, TRAIN.item_ids, TRAIN.values)
    by_frame, by_ratings = make().fit(kind(frame(TRAIN))), make().fit(plain)
    if by_ratings.predicts_ratings:
        assert by_frame.score(kind(frame(TEST))) == pytest.approx(by_ratings.score(TEST))
    if by_ratings.can_rank:
        assert by_frame.rank(kind(frame(TEST))) == pytest.approx(by_ratings.rank(TEST))


def test_the_scale_of_a_test_frame_is_the_models() -> None:
    ten = Ratings.of(
        pd.DataFrame(frame(TRAIN)).assign(rating=lambda table: table.rating * 2), scale=(2, 10)
    )
    model = UserMean().fit(ten)
    assert model.score(pd.DataFrame(frame(TEST)).assign(rating=10.0))["n"] == len(TEST)
    with pytest.raises(RatingsError, match=r"off the scale 2..10"):
        model.score(pd.DataFrame(frame(TEST)).assign(rating=1.0))


def test_implicit_feedback_goes_into_methods_for_lists_only() -> None:
    clicks = pd.DataFrame({"user": TRAIN.user_ids, "item": TRAIN.item_ids, "plays": 7})
    clicks = pd.concat([clicks, clicks.head(50)])  # clicked twice: chosen once
    with pytest.warns(UserWarning, match="columns used: user, item; not used: plays"):
        chosen = Ratings.of(clicks, implicit=True)
    assert (chosen.implicit, len(chosen), chosen.values.min()) == (True, len(TRAIN), 1.0)
    with pytest.raises(RatingsError, match=r"HDPMF learns from ratings.*private-popular"):
        HDPMF().fit(chosen)
    with pytest.raises(RatingsError, match=r"no column 'rating'.*implicit=True"):
        HDPMF().fit(clicks)
    held = Ratings.from_arrays(TEST.user_ids, TEST.item_ids, None)
    for model in (MostPopular(), PrivatePopular(epsilon=5.0, rng=0), EASE()):
        with pytest.warns(UserWarning, match="implicit feedback"):
            model.fit(clicks)
        assert 0 < model.rank(held)["ndcg"] <= 1
        with pytest.raises(RatingsError, match="use rank"):
            model.score(held)


def test_ratings_are_taken_as_they_are() -> None:
    assert as_ratings(TRAIN, (0, 100)) is TRAIN


def test_a_matrix_has_rows_of_users_and_columns_of_items() -> None:
    ratings = Ratings.of(sparse.coo_array(np.array([[0, 3.0], [5, 0], [0, 1]])))
    assert list(zip(ratings.user_ids, ratings.item_ids, ratings.values, strict=True)) == [
        (0, 1, 3),
        (1, 0, 5),
        (2, 1, 1),
    ]
    with pytest.raises(RatingsError, match="must hold numbers"):
        Ratings.of(sparse.coo_array(np.array([[1j]])))


@pytest.mark.parametrize("model", [HDPMF(epochs=3, rng=0), HDPSum(rng=0)])
def test_a_frame_of_new_users_is_folded_in(model: HDPMF | HDPSum) -> None:
    model.fit(TRAIN)
    own = frame(TRAIN.take(np.flatnonzero(TRAIN.user_codes == 0)))
    taken = model.fold_in(pd.DataFrame(own).assign(user=12345))
    assert len(taken) == 1
    assert len(model.recommend(12345)) == 10
    with pytest.raises(RatingsError, match="is in the model already"):
        model.fold_in(pd.DataFrame(own))
