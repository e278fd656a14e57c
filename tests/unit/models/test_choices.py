"""Clicks and thumbs: who chose what without ratings, and ratings of two steps."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from hdpmf import HDPSum, PrivacyWeights, Ratings, UserMean, load_model
from hdpmf.common.data import synthetic_world
from hdpmf.common.data.checks import THUMBS, RatingScale
from hdpmf.common.methods import METHODS
from hdpmf.common.model.device_fit import correct_popularity
from hdpmf.common.privacy.accounting import Setting, cost
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.errors import ConfigError, HdpmfError, RatingsError
from hdpmf.models import MostPopular, make_model
from hdpmf.models.privacy_statement import setting_of, statement_of_model

WORLD = synthetic_world(n_users=200, n_items=100, n_ratings=5000, rng=0, pull=2.0)
CLICKS = Ratings.from_arrays(
    WORLD.user_ids,
    WORLD.item_ids,
    None,
    timestamps=WORLD.timestamps,
    item_table=WORLD.item_table,
    name="clicks",
)
TRAIN, TEST = CLICKS.hold_out(5, rng=0)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("user,item\nann,tea\nbob,tea\n", None, None),
        ("1,tea\n2,tea\n", None, None),
        ("1\ttea\t978300760\n2\ttea\t978302109\n", 978300760, 978302109),
        ("1,tea,2020-12-31 10:00:00\n2,tea,2020-12-31\n", None, "unclear"),
        ("1,tea,2020-12-30\n2,tea,2020-12-31\n", 1609286400, 1609372800),
        ("1,tea,7\n2,tea,9\n", None, None),  # counts, which are not read
        ("1,tea,7,978300760\n2,tea,9,978302109\n", 978300760, 978302109),
    ],
)
@pytest.mark.filterwarnings("ignore:.*not used. rating")
def test_files_of_choices(tmp_path: Path, text: str, first: object, last: object) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text(text)
    if last == "unclear":
        with pytest.raises(RatingsError, match="'timestamp', row"):
            Ratings.read(path, implicit=True)
        return
    read = Ratings.read(path, implicit=True)
    assert (read.implicit, len(read), read.n_items) == (True, 2, 1)
    times = [None, None] if read.timestamps is None else read.timestamps.tolist()
    assert times == [first, last]


def test_every_way_to_cut_choices_keeps_them_choices() -> None:
    cuts = [
        CLICKS.hold_out(2),
        CLICKS.hold_out_last(2),
        CLICKS.split(0.2),
        CLICKS.split_by_time(0.2),
        *CLICKS.k_fold(2),
        (CLICKS.sparsify(0.5), CLICKS.min_ratings(3)),
    ]
    assert all(part.implicit for pair in cuts for part in pair)


def test_hdp_sum_learns_what_people_choose_and_more_of_it_than_popularity(tmp_path: Path) -> None:
    model = HDPSum(epsilon=8.0, rng=0).fit(TRAIN)
    assert model.rank(TEST)["ndcg"] > MostPopular().fit(TRAIN).rank(TEST)["ndcg"]
    assert not model.predicts_ratings
    assert model._order().like_weight == 0, "nobody said how they liked it"
    listed = model.recommend(1, 5)
    assert {item.score for item in listed} == {None}
    assert not any("give it" in (item.reason or "") for item in listed)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.rank(TEST) == model.rank(TEST)
    with pytest.raises(ConfigError, match="predicts no ratings; recommend"):
        loaded.predict(1, 1)
    public = load_model(tmp_path / "model", public_only=True)
    new = [(777, 1), (777, 2)]  # read as what the model learned from
    for each in (loaded, public):
        each.fold_in(new)
        each.update([(777, 3)])
        assert len(each.recommend(777, 3)) == 3
    for test in (TEST, WORLD):
        with pytest.raises(RatingsError, match="no ratings to be wrong about; use rank"):
            loaded.score(test)
    model.fit(WORLD)  # stars again
    assert model.predicts_ratings
    assert model.score(WORLD)["mse"] > 0


def test_the_noise_of_choices_is_what_the_claim_says() -> None:
    """Presence costs .75 W epsilon with stars and without: the same claim holds."""
    weights_seen = []

    class Counting(SeededNoise):
        def discrete_laplace(self, scale: Fraction, size: int) -> np.ndarray:
            weights_seen.append(scale)
            return super().discrete_laplace(scale, size)

    import hdpmf.models.one_round as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SeededNoise", Counting)
        model = HDPSum(epsilon=2.0, rng=0).fit(TRAIN)
    assert weights_seen == [Fraction(64) / Fraction(3, 2)]
    setting = setting_of(model)
    assert setting.implicit
    presence = cost(setting, "sums", neighbours="presence")
    assert presence.pure == pytest.approx(0.75 * 2.0)
    assert cost(setting, "sums", neighbours="value").pure == 0
    bounded = replace(setting, max_ratings=5)  # one more pushes others out
    assert cost(bounded, "sums", neighbours="presence").pure == pytest.approx(1.5 * 2.0)
    stars = cost(Setting("hdp-sum", epsilon=2.0), "sums", neighbours="presence")
    assert stars.pure == pytest.approx(presence.pure)
    assert presence.epsilon_at_delta >= stars.epsilon_at_delta
    rows = statement_of_model(model, "clicks", "").people.rows
    assert [row.value.pure for row in rows] == [0] * 7
    assert rows[-1].presence.pure == pytest.approx(1.5 * rows[-1].ratings)


def test_a_limit_holds_for_choices_and_item_weights_are_taken_off() -> None:
    limited = HDPSum(epsilon=1000.0, max_ratings=2, rng=0).fit(TRAIN)
    most = np.minimum(TRAIN.user_counts(), 2).sum()
    assert limited.facts_.popularity.sum() == pytest.approx(most, rel=0.01)
    gamma = np.linspace(0.25, 1.0, TRAIN.n_items)
    weights = PrivacyWeights.from_parts(TRAIN, items=gamma)
    model = HDPSum(epsilon=1.0, rng=0).fit(TRAIN, weights)
    released = model.facts_.popularity.astype(np.float64)
    assert np.allclose(model._popularity(), correct_popularity(released, gamma, 1 / 0.75))


def test_methods_of_stars_refuse_choices_and_name_those_that_take_them() -> None:
    able = {name for name, method in METHODS.items() if method.model.takes_implicit}
    assert able >= {"hdp-sum", "private-popular", "most-popular", "ease", "item-knn", "bpr", "ials"}
    for name in ("mf", "hdpmf", "hdp-bit", "biased-mf", "user-mean", "global-mean"):
        with pytest.raises(
            HdpmfError, match=r"learns from ratings. Methods that take it: .*hdp-sum"
        ):
            make_model(name).fit(TRAIN)


def test_thumbs_are_two_steps(tmp_path: Path) -> None:
    up = WORLD.values >= 4
    frame = pd.DataFrame({"user": WORLD.user_ids, "item": WORLD.item_ids, "rating": up})
    path = tmp_path / "thumbs.csv"
    frame.to_csv(path, index=False, header=False)
    frame.to_parquet(tmp_path / "thumbs.parquet")
    listed = list(frame.itertuples(index=False, name=None))
    for data in (frame, path, tmp_path / "thumbs.parquet", listed):
        thumbs = Ratings.of(data)
        assert (thumbs.scale, thumbs.implicit) == (THUMBS, False)
        assert np.array_equal(thumbs.values, up)
    train, test = thumbs.hold_out(5, rng=0)
    model = HDPSum(epsilon=8.0, rng=0).fit(train)
    assert model.score(test)["mse"] < UserMean().fit(train).score(test)["mse"]
    assert model.rank(test)["ndcg"] > 0
    assert RatingScale(0, 1, 1) == THUMBS
    with pytest.raises(RatingsError, match=r"off the scale 1..5"):
        Ratings.of(frame, scale=(1, 5))


def test_a_matrix_of_booleans_says_who_chose_what() -> None:
    matrix = sparse.csr_matrix(np.array([[True, False], [True, True]]))
    with pytest.raises(RatingsError, match=r"who chose what; say so with .*implicit=True"):
        Ratings.of(matrix)
    assert len(Ratings.of(matrix, implicit=True)) == 3


def test_columns_are_named_once(tmp_path: Path) -> None:
    frame = pd.DataFrame({"buyer": ["a", "a", "b"], "thing": ["x", "y", "x"], "hearts": [1, 5, 4]})
    named = {"user": "buyer", "item": "thing", "rating": "hearts"}
    model = UserMean().fit(Ratings.of(frame, columns=named))
    later = frame.assign(buyer=["c", "c", "d"])
    model.update(later)
    assert model.predict("c", "x") == 3
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    again.update(later.assign(buyer=["e", "e", "f"]))
    assert again.predict("e", "x") == 3
    usual = later.rename(columns={"buyer": "user", "thing": "item", "hearts": "rating"})
    again.update(usual.assign(user=["g", "g", "h"]))
    assert again.predict("g", "x") == 3
