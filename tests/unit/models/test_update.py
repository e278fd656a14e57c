"""Ratings that come after training: what changes on devices, and that nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hdpmf import BiasedMF, PrivacySpec, Ratings, UserMean, make_model
from hdpmf.common.data import synthetic_world
from hdpmf.common.protocol.codec import encode
from hdpmf.errors import ConfigError, RatingsError
from hdpmf.models.files import public_part

WORLD = synthetic_world(n_users=60, n_items=40, n_ratings=1200, rng=0)
METHODS = ("hdp-sum", "hdp-bit", "hdp-share", "hdpmf", "mf")
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
    return files if release is None else files | {"release": encode(release.bits)}


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


@pytest.mark.parametrize("kind", [UserMean, BiasedMF])
def test_what_cannot_take_them_in_says_so(kind: Any) -> None:
    with pytest.raises(ConfigError, match="fit it again with these"):
        kind().fit(WORLD).update(part(np.arange(3)))
