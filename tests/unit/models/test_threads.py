"""One model in many threads: no update is lost, and whoever reads sees one state.

Threads switch as often as they can here; every estimator that takes in later ratings is tried.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

import hdpmf
from hdpmf import Ratings
from hdpmf.common.data import IdIndex
from hdpmf.common.methods import METHODS
from hdpmf.models import Estimator, load_model, make_model
from hdpmf.models.later_ratings import FoldIn, LaterRatings

WORLD = hdpmf.synthetic_world(60, 40, 900, rng=3)
LATER = [
    name for name, method in METHODS.items() if method.model._take_in is not LaterRatings._take_in
]
FOLDING = [name for name in LATER if issubclass(METHODS[name].model, FoldIn)]
SHARED = ("global-mean", "most-popular", "item-knn", "ease", "ials", "bpr")
"""Methods by which anybody's ratings change what others get."""

_BY_ACTIVITY = WORLD.users.ids[np.argsort(WORLD.user_counts(), kind="stable")].tolist()
UPDATED, STILL = _BY_ACTIVITY[:20], _BY_ACTIVITY[20:]
NEW = list(range(1001, 1021))


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Let threads switch after every few steps."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def fitted(name: str) -> Estimator:
    method = METHODS[name]
    options = method.own(epochs=2, n_factors=4, rng=1, n_threads=1, solver="batch")
    if "learning_rate" in method.options:
        options["learning_rate"] = 0.001
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two epochs are few
        return make_model(name, **options).fit(WORLD)


def ratings_of(user: int) -> Ratings:
    items = WORLD.items.ids[np.random.default_rng(abs(user)).permutation(WORLD.n_items)[:3]]
    return Ratings.from_arrays([user] * 3, items, [5.0, 4.0, 1.0])


def in_threads(jobs: list[Callable[[], Any]], read: Callable[[], Any]) -> None:
    """Do jobs in eight threads while two others read; whatever goes wrong is raised."""
    over = Event()

    def reading() -> None:
        while not over.is_set():
            read()

    with ThreadPoolExecutor(10) as pool:
        readers = [pool.submit(reading) for _ in range(2)]
        try:
            for done in [pool.submit(job) for job in jobs]:
                done.result()
        finally:
            over.set()
        for reader in readers:
            reader.result()


def answers(model: Estimator, users: list[int]) -> tuple[Any, ...]:
    """All that a model says to these users."""
    stars = [model.predict(user, WORLD.items.ids).tolist() for user in users]
    lists = [[entry.item for entry in model.recommend(user, 5)] for user in users]
    return (stars, lists) if model.can_rank else (stars,)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow) if one in SHARED else one for one in LATER]
)
def test_no_update_is_lost_and_readers_see_one_state(name: str) -> None:
    model, alone = fitted(name), fitted(name)
    before = model.predict(STILL, WORLD.items.ids[0])

    def read() -> None:
        user = STILL[0]
        if model.can_rank:
            assert len(model.recommend(user, 5)) == 5
        assert np.isfinite(model.score(WORLD)["mse"]) if model.predicts_ratings else True
        stars = model.predict(STILL, WORLD.items.ids[0])
        if name not in SHARED:
            assert stars.tolist() == before.tolist()

    users = UPDATED + NEW if name not in SHARED else UPDATED[:5] + NEW[:5]  # these train anew
    everybody = [ratings_of(user) for user in users]
    in_threads([lambda ratings=ratings: model.update(ratings) for ratings in everybody], read)
    for ratings in everybody:
        alone.update(ratings)
    assert model.devices_.users.ids.tolist() == alone.devices_.users.ids.tolist()
    if model.can_rank:
        assert answers(model, users) == answers(alone, users)
    assert model.devices_.rated.tolist() == alone.devices_.rated.tolist()


@pytest.mark.parametrize("name", LATER)
def test_a_reader_keeps_its_state_while_a_writer_replaces_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newcomer whose id is the first comes amid each read: everybody's position is another."""
    model = fitted(name)
    reads: list[Callable[[], Any]] = [lambda: model.predict(STILL, WORLD.items.ids[0]).tolist()]
    if model.can_rank:
        reads += [lambda: model.recommend(STILL[0], 5), lambda: model.rank(WORLD.take([0, 1]), 5)]
    if model.predicts_ratings:
        reads.append(lambda: model.score(WORLD))
    find, newcomers = IdIndex.find, [0, -1, -2, -3]
    armed = False

    def amid(index: IdIndex, values: Any) -> Any:
        nonlocal armed
        found = find(index, values)
        if armed:
            armed = False
            model.update(ratings_of(newcomers[0]))
        return found

    monkeypatch.setattr(IdIndex, "find", amid)
    for read in reads:
        before, armed = read(), True
        assert read() == before
        assert newcomers.pop(0) in model.devices_.users.ids


@pytest.mark.parametrize("name", FOLDING)
def test_newcomers_fold_in_beside_each_other(name: str) -> None:
    model, alone = fitted(name), fitted(name)
    vectors: dict[int, np.ndarray] = {}

    def fold(user: int) -> None:
        vectors[user] = model.fold_in(ratings_of(user))

    in_threads([lambda user=user: fold(user) for user in NEW], lambda: model.recommend(STILL, 3))
    for user in NEW:
        assert vectors[user].tolist() == alone.fold_in(ratings_of(user)).tolist()
    assert answers(model, NEW) == answers(alone, NEW)


def test_what_fails_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted("biased-mf")
    before = answers(model, STILL[:3])
    monkeypatch.setattr(type(model), "_side", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.update(ratings_of(NEW[0]))
    assert NEW[0] not in model.devices_.users.ids
    monkeypatch.undo()
    assert answers(model, STILL[:3]) == before


def test_a_model_is_saved_and_fitted_again_while_it_serves(tmp_path: Path) -> None:
    model = fitted("hdp-sum")
    users = len(model.devices_.users)
    jobs = [lambda user=user: model.update(ratings_of(user)) for user in NEW]

    def read() -> None:
        saved = tmp_path / str(np.random.default_rng().integers(2**60))
        model.save(saved)
        found = len(load_model(saved).devices_.users)
        assert users <= found <= users + len(NEW)

    in_threads(jobs, read)
    in_threads([lambda: model.fit(WORLD)], lambda: model.recommend(STILL[0], 3))
    assert len(model.devices_.users) == users


_FIRST_LOADS = """
import sys, threading
from pathlib import Path
from hdpmf.models.files import load_model
sys.setswitchinterval(1e-6)
begin = threading.Barrier(8)
def load():
    begin.wait()
    load_model(Path(sys.argv[1]))
threads = [threading.Thread(target=load) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
"""


@pytest.mark.slow
def test_threads_that_load_a_model_first_do_not_crash_each_other(tmp_path: Path) -> None:
    """Without the lock that msgspec needs about four of ten such processes ended by a signal."""
    fitted("hdp-sum").save(tmp_path / "model")
    command = [sys.executable, "-c", _FIRST_LOADS, str(tmp_path / "model")]
    assert [subprocess.run(command, check=False).returncode for _ in range(10)] == [0] * 10
