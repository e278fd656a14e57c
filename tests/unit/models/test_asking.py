"""Questions that a model cannot answer are errors, with what was wrong; no made-up number comes
back.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hdpmf import HDPMF, MF, GlobalMean, HDPSum, PrivacyWeights, Ratings, UserMean
from hdpmf.errors import ConfigError, PrivacyError, RatingsError, UnknownIdError
from hdpmf.models.result_tables import RecommendedLists
from hdpmf.models.training import FarFromConvergedWarning

TEXT = Ratings.from_arrays(["ann", "ann", "bea", "bea"], ["x", "y", "x", "z"], [5, 3, 4, 1])


@pytest.fixture(scope="module", params=[MF, HDPSum, UserMean, GlobalMean])
def fitted(request, split):
    return request.param().fit(split[0])


@pytest.mark.parametrize(
    "ids", [["1"], "1", np.array(["1"]), np.array(["1"], object), [None], [True]]
)
def test_ids_of_another_kind_are_refused(fitted, split, ids):
    item = split[0].items.ids[0]
    with pytest.raises(RatingsError, match="the model's user ids are integers"):
        fitted.predict(ids, [item])
    with pytest.raises(RatingsError, match="the model's item ids are integers"):
        fitted.predict([split[0].users.ids[0]], ids)


def test_integers_for_text_are_refused():
    model = UserMean().fit(TEXT)
    with pytest.raises(RatingsError, match="user 1: the model's user ids are strings"):
        model.predict([1], ["x"])
    assert model.predict(["carl", "ann"], ["x", "no such item"]).tolist() == [
        3.0,
        4.0,
    ]  # the fallbacks stay


def test_unknown_ids_of_the_right_kind_get_the_fallback(fitted, split):
    assert np.isfinite(fitted.predict([-5], [split[0].items.ids[0]])).all()
    assert np.isfinite(fitted.predict(np.array([-5, 7]), [-9, -8])).all()


def test_one_user_goes_with_many_items(fitted, split):
    train, _ = split
    user, items = train.users.ids[0].item(), train.items.ids[:7]
    assert np.array_equal(fitted.predict(user, items), fitted.predict([user] * 7, items))
    assert np.array_equal(
        fitted.predict(train.users.ids[:5], items[0].item()),
        fitted.predict(train.users.ids[:5], [items[0]] * 5),
    )
    with pytest.raises(RatingsError, match="2 users and 3 items"):
        fitted.predict([1, 2], [1, 2, 3])


def test_another_scale_is_no_test(fitted, split):
    test = split[1]
    hundred = Ratings.from_arrays(test.user_ids, test.item_ids, test.values * 20, scale=(0, 100))
    for ask in (fitted.score, fitted.rank):
        if fitted.can_rank or ask == fitted.score:
            with pytest.raises(RatingsError, match="scale"):
                ask(hundred)
    with pytest.raises(RatingsError, match="user ids of the test ratings are strings"):
        fitted.score(TEXT)


def test_a_stranger_is_named(split):
    model = MF(epochs=2).fit(TEXT)
    with pytest.raises(UnknownIdError, match=r"user 'bob' was not in training, .*fold_in"):
        model.recommend("bob")
    with pytest.raises(UnknownIdError, match=r"user 'bob' \(and 1 others\)"):
        model.recommend(["ann", "bob", "carl"])
    with pytest.raises(
        UnknownIdError, match="user 'bob' was not in training, where user ids are integers"
    ):
        MF(epochs=2).fit(split[0]).recommend("bob")


SEVERAL = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "generator": iter,
    "array": np.array,
    "array of objects": lambda ids: np.array(ids, object),
    "pandas series": lambda ids: pd.Series(ids, index=range(7, 7 + len(ids))),
    "pandas unique": lambda ids: pd.DataFrame({"user": ids})["user"].unique(),
    "pandas index": pd.Index,
    "pandas categories": lambda ids: pd.Series(ids).astype("category"),
    "polars series": pl.Series,
    "arrow array": pa.array,
}


@pytest.fixture(scope="module", params=["integers", "text"])
def lister(request, split):
    return HDPSum(rng=0).fit(split[0].with_text_ids(users=request.param == "text"))


@pytest.mark.parametrize("several", SEVERAL.values(), ids=SEVERAL)
def test_several_users_may_come_in_anything(several, lister):
    model = lister
    wanted = model.devices_.users.ids[[4, 0, 9]].tolist()
    lists = model.recommend(several(wanted), n=2)
    assert isinstance(lists, RecommendedLists)
    assert set(lists) == set(wanted)
    alone = model.recommend(wanted[0], n=2)
    assert [entry.item for entry in lists[wanted[0]]] == [entry.item for entry in alone]
    assert [user for user, _ in model.recommend_each(several(wanted), 2)] == list(lists)
    assert set(model.only_users(several(wanted)).devices_.users.ids.tolist()) == set(wanted)


def test_a_range_of_users_is_several_and_a_single_one_is_one(split):
    model = MF(epochs=2, rng=0).fit(split[0])
    first = split[0].users.ids[0].item()
    assert list(model.recommend(range(first, first + 3), n=1)) == [first, first + 1, first + 2]
    assert list(model.recommend(pd.Series([first]), n=1)) == [first]
    assert model.recommend([], n=1) == {}
    for one in (first, np.int64(first), np.array(first)):
        assert isinstance(model.recommend(one, n=1), list)
    unknown = pd.Series([first, -5], index=[10, 11])
    with pytest.raises(UnknownIdError, match="user -5 was not in training"):
        model.recommend(unknown)


@pytest.mark.parametrize("wrong", [1.0, None, b"ann", {1: 2}, pd.DataFrame({"user": [1]})])
def test_what_is_no_user_is_an_error_of_ours(wrong, split):
    model = MF(epochs=2, rng=0).fit(split[0])
    for ask in (model.recommend, model.only_users, lambda users: model.predict(users, [1])):
        with pytest.raises(RatingsError, match=r"is no user: .* as frame\['user'\]"):
            ask(wrong)


def test_one_number_is_everybodys_weight(split):
    train, _ = split
    model = HDPSum(rng=0).fit(train, 0.5)
    assert set(model.devices_.beta.tolist()) == {0.5}
    assert np.array_equal(
        model.facts_.bias, HDPSum(rng=0).fit(train, PrivacyWeights.uniform(train, 0.5)).facts_.bias
    )
    with pytest.raises(PrivacyError):
        HDPSum(rng=0).fit(train, 1.5)


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({1: 0.5}, r"from_parts\(ratings, users="),
        (pd.DataFrame({"user": [1], "weight": [0.5]}), r"from_frame\(ratings, frame\)"),
        ([0.5, 0.5], "one number for everybody"),
        ("paper", "one number for everybody"),
    ],
)
def test_what_is_no_weight_is_told_what_makes_one(wrong, remedy, split):
    with pytest.raises(ConfigError, match=f"beside ratings is taken for privacy weights.*{remedy}"):
        HDPSum(rng=0).fit(split[0], wrong)


@pytest.mark.parametrize("kind", [MF, HDPSum])
def test_a_known_user_is_not_shrunk(kind, split):
    train, test = split
    model = kind(rng=0).fit(train)
    user = train.users.ids[0].item()
    before = np.diff(model.devices_.rated_start)
    few = test.take(test.user_ids == user)
    with pytest.raises(RatingsError, match=f"user {user} is in the model already"):
        model.fold_in(few)
    assert np.array_equal(np.diff(model.devices_.rated_start), before)
    # Users of the index who have no rating in the table are left alone, whoever they are.
    newcomer = Ratings.from_arrays([10**6] * 3, train.items.ids[:3], [1, 2, 3])
    together = newcomer.reindex(type(train.users)([*train.users.ids.tolist(), 10**6]), train.items)
    assert len(model.fold_in(together)) == 1
    assert np.array_equal(np.diff(model.devices_.rated_start)[:-1], before)
    model.fold_in(few, replace=True)
    assert np.diff(model.devices_.rated_start)[0] == len(few)


@pytest.mark.parametrize("kind", [MF, HDPMF])
def test_few_epochs_warn(kind, world):
    with pytest.warns(
        FarFromConvergedWarning,
        match="after 20 epochs at learning rate 0.01 it is far from converged",
    ):
        kind(epochs=20, rng=0).fit(world)


def test_enough_epochs_do_not_warn(world):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MF(learning_rate=0.03, rng=0).fit(world)
        HDPSum(rng=0).fit(world)


@pytest.mark.parametrize(
    "changes", [{"n_factors": 1500}, {"n_factors": 100_000}, {"n_threads": 100_000}]
)
def test_what_cannot_be_computed_is_refused_at_once(changes, world):
    (name,) = changes
    with pytest.raises(ConfigError, match=f"{name} must be a whole number from 1 to"):
        MF(**changes).fit(world)
