"""Ratings that come after training: what changes on devices, and that nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hdpmf import (
    MF,
    BiasedMF,
    Estimator,
    PrivacySpec,
    PrivacyWeights,
    Ratings,
    UserMean,
    load_model,
    make_model,
)
from hdpmf.common.data import synthetic_world
from hdpmf.errors import ConfigError, RatingsError
from hdpmf.models.baselines import EASE, GlobalMean, ItemKNN, MostPopular, PrivatePopular
from hdpmf.models.files import public_part
from hdpmf.models.privacy_statement import statement_of_model

WORLD = synthetic_world(n_users=60, n_items=40, n_ratings=1200, rng=0)
METHODS = ("hdp-sum", "hdp-pairs", "hdp-bit", "hdpmf", "mf")
OPTIONS: dict[str, dict[str, Any]] = {"hdpmf": {"epochs": 3}, "mf": {"epochs": 3}}


def part(rows: np.ndarray, train: Ratings = WORLD) -> Ratings:
    taken = train.take(rows)
    return Ratings.from_arrays(
        taken.user_ids, taken.item_ids, taken.values, timestamps=taken.timestamps
    )


def fitted(method: str, train: Ratings = WORLD) -> Any:
    weights = PrivacySpec().draw(train, rng=0)
    return make_model(method, rng=0, **OPTIONS.get(method, {})).fit(train, weights)


def public_files(model: Any, folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    public_part(model).write(folder)
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    release = getattr(model, "release_", None)
    return files if release is None else files | {"release": release.digest.encode()}


def own(model: Any, user: int) -> dict[int, float]:
    devices = model.devices_
    position = int(devices.users.find([user])[0])
    here = slice(*devices.rated_start[position : position + 2])
    items = model.catalogue_.items.ids[devices.rated[here]].tolist()
    return dict(zip(items, devices.stars[here].tolist(), strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_nothing_that_the_recommender_holds_changes(method: str, tmp_path: Path) -> None:
    model = fitted(method)
    before, claim = public_files(model, tmp_path / "before"), model.privacy
    known, stranger = int(WORLD.users.ids[0]), 10**6
    items = WORLD.items.ids
    model.update(pd.DataFrame({"user": known, "item": items[:30], "rating": 5.0}))
    model.update(pd.DataFrame({"user": stranger, "item": items[:6], "rating": 1.0}))
    assert public_files(model, tmp_path / "after") == before
    assert model.privacy == claim


@pytest.mark.parametrize("method", METHODS)
def test_ratings_are_added_changed_and_of_new_users(method: str) -> None:
    model = fitted(method)
    known, other, stranger = int(WORLD.users.ids[0]), int(WORLD.users.ids[1]), 10**6
    before, others = own(model, known), own(model, other)
    vectors, beta = model.devices_.vectors.copy(), model.devices_.beta.copy()
    changed = next(iter(before))
    added = next(item for item in model.catalogue_.items.ids.tolist() if item not in before)
    table = pd.DataFrame(
        [(known, changed, 6 - before[changed]), (known, added, 5.0), (stranger, added, 4.0)],
        columns=["user", "item", "rating"],
    )
    assert model.update(table) is model
    assert own(model, known) == pytest.approx(before | {changed: 6 - before[changed], added: 5.0})
    assert own(model, stranger) == {added: 4.0}
    assert own(model, other) == others
    assert not np.allclose(model.devices_.vectors[0], vectors[0])
    assert np.array_equal(model.devices_.vectors[1:-1], vectors[1:])
    assert np.array_equal(model.devices_.beta, np.append(beta, 1.0)), "wishes stay as they were"
    assert added not in [entry.item for entry in model.recommend(known, 40)]
    assert len(model.recommend(stranger, 5)) == 5


@pytest.mark.parametrize("method", METHODS)
def test_later_ratings_count_as_if_they_had_come_in_one_table(method: str) -> None:
    """Who comes with half of their ratings and brings the rest later is where others are."""
    model, whole = fitted(method), fitted(method)
    mine = np.flatnonzero(WORLD.user_codes == 3)
    user = int(WORLD.users.ids[3])
    model.fold_in(part(mine[::2]), replace=True)
    model.update(part(mine[1::2]), 1.0)
    whole.fold_in(part(mine), replace=True)
    assert own(model, user) == pytest.approx(own(whole, user))
    pairs = [user] * 40, WORLD.items.ids
    assert np.allclose(model.predict(*pairs), whole.predict(*pairs), atol=1e-4)


def test_any_scale_and_times_come_through() -> None:
    half = Ratings.from_arrays(
        [1, 1, 2, 2, 3], [10, 11, 10, 12, 11], [0.5, 4.5, 2, 3.5, 5], scale=(0.5, 5, 0.5),
        timestamps=[1, 2, 3, 4, 5],
    )  # fmt: skip
    model = make_model("hdp-sum", rng=0).fit(half)
    model.update(pd.DataFrame({"user": [1], "item": [12], "rating": [3.0]}))
    assert model.devices_.means[0] == pytest.approx((0.5 + 4.5 + 3) / 3)
    late = pd.DataFrame({"user": [1], "item": [12], "rating": [1.0], "timestamp": [9]})
    model.update(late)
    assert model.devices_.means[0] == pytest.approx((0.5 + 4.5 + 1) / 3)
    position = slice(*model.devices_.rated_start[:2])
    times = dict(zip(model.devices_.rated[position], model.devices_.times[position], strict=True))
    assert [times[item] for item in range(3)] == [1, 2, 9]
    assert model.recommend(2, 1, now=100.0)


def test_unknown_items_are_counted_and_left_out() -> None:
    model = fitted("hdp-sum")
    user, item = int(WORLD.users.ids[0]), int(WORLD.items.ids[0])
    table = pd.DataFrame({"user": user, "item": [item, 998, 999], "rating": 3.0})
    with pytest.warns(UserWarning, match="2 ratings are of items that were not in training"):
        model.update(table)
    assert own(model, user)[item] == 3.0
    with pytest.raises(RatingsError, match="none of the rated items was in training"):
        model.update(table.tail(2))
    with pytest.raises(RatingsError, match="off the scale"):
        model.update(table.head(1).assign(rating=9.0))


@pytest.mark.parametrize("method", ["hdp-sum", "hdp-pairs", "hdp-bit", "hdpmf", "private-popular"])
def test_that_an_item_was_rated_does_not_bring_it_into_the_public_part(
    method: str, tmp_path: Path
) -> None:
    model = fitted(method)
    before = public_files(model, tmp_path / "before")
    with pytest.warns(UserWarning, match="2 ratings are of items that were not in training"):
        model.update([(1, 1001, 5.0), (1, 1002, 5.0), (1, int(WORLD.items.ids[0]), 5.0)])
    assert public_files(model, tmp_path / "after") == before


ROWS = np.arange(len(WORLD))
EARLY, LATE = ROWS[ROWS % 5 > 0], ROWS[ROWS % 5 == 0]


@pytest.mark.parametrize(
    "kind", [UserMean, GlobalMean, MostPopular, ItemKNN, EASE, PrivatePopular, BiasedMF, MF]
)
def test_baselines_take_later_ratings_in(kind: Any, tmp_path: Path) -> None:
    options = {"rng": 0} if "rng" in kind().get_params() else {}
    model = kind(**options).fit(part(EARLY)).update(part(LATE))
    whole = kind(**options).fit(WORLD)
    for user in WORLD.users.ids.tolist():
        assert own(model, user) == pytest.approx(own(whole, user))
    pairs = WORLD.user_ids, WORLD.item_ids
    if kind in (UserMean, GlobalMean, MostPopular, ItemKNN, EASE):
        assert np.allclose(model.predict(*pairs), whole.predict(*pairs), atol=1e-5)
    if kind in (MostPopular, ItemKNN, EASE):
        lists = [entry.item for entry in model.recommend(1, 10)]
        assert lists == [entry.item for entry in whole.recommend(1, 10)]
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert np.allclose(again.predict(*pairs), model.predict(*pairs))


@pytest.mark.parametrize("kind", [GlobalMean, EASE])
def test_a_part_of_a_model_keeps_what_it_learned_from_those_who_are_not_there(kind: Any) -> None:
    model = kind().fit(WORLD)
    alone = model.only_users(1).update([(1, int(WORLD.items.ids[0]), 1.0)])
    pairs = [1] * 3, WORLD.items.ids[:3]
    if kind is GlobalMean:
        assert alone.mean_ == model.mean_
        assert np.array_equal(alone.predict(*pairs), model.predict(*pairs))
    else:
        assert np.array_equal(alone.lists_.decode.whole, model.lists_.decode.whole)


def costs(model: Any) -> Any:
    made = statement_of_model(model, "m", "hdpmf")
    return [(row.ratings, row.value, row.presence) for row in made.people.rows], made.people


@pytest.mark.parametrize("method", ["hdp-sum", "hdp-pairs", "hdp-bit", "hdpmf"])
def test_later_ratings_cost_nothing_and_earlier_ones_keep_their_cost(
    method: str, tmp_path: Path
) -> None:
    model = fitted(method)
    before, people = costs(model)
    assert len(before) == 7
    assert "after the training" not in people.note
    user, items = int(WORLD.users.ids[0]), WORLD.items.ids
    model.update(pd.DataFrame({"user": user, "item": items, "rating": 5.0}), 1.0)
    model.fold_in([(10**6, int(item), 3.0) for item in items])
    model.fold_in([(int(WORLD.users.ids[1]), int(items[0]), 3.0)], replace=True)
    rows, people = costs(model)
    assert rows == before
    assert people.users == WORLD.n_users
    assert "What came after the training was not sent" in people.note
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert costs(again)[0] == before
    one = again.only_users([user, 10**6])
    assert costs(one)[1].users == 1
    assert costs(one)[1].rows[0].ratings == (WORLD.user_codes == 0).sum()
    stranger = load_model(tmp_path / "model" / "recommender", public_only=True)
    stranger.fold_in([(5, int(item), 3.0) for item in items])
    found = costs(stranger)[1]
    assert not found.rows
    assert "This model knows no person who was in its training" in found.note


def test_a_method_of_ones_own_that_cannot_says_so() -> None:
    class Own(Estimator):
        def learn(self, train: Ratings, weights: PrivacyWeights) -> None:
            pass

        def expect(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
            return np.full(len(users), 3.0)

    with pytest.raises(ConfigError, match="fit it again with these"):
        Own().fit(WORLD).update(part(np.arange(3)))
