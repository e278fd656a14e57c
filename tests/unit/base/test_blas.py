"""Linear algebra has one thread where small systems are solved, elsewhere what it had before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  # brings the linear algebra of SciPy, which has threads of its own
from threadpoolctl import threadpool_info, threadpool_limits

from hdpmf import HDPBit, HDPSum
from hdpmf.common.base.threads import Workers, one_blas_thread
from hdpmf.common.data import synthetic_world
from hdpmf.private.client.ranking import ChooseAndLike
from hdpmf.untrusted.recommender.lists.training import Presence, item_item

WORLD = synthetic_world(n_users=150, n_items=60, n_ratings=3000, rng=0)


def threads() -> set[int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def several() -> Iterator[None]:
    """Two threads, whatever this machine has and the environment says."""
    with threadpool_limits(2, user_api="blas"):
        assert threads() == {2}
        yield


def test_one_inside_and_as_before_outside() -> None:
    with one_blas_thread():
        assert threads() == {1}
        with one_blas_thread():
            assert threads() == {1}
        assert threads() == {1}
    assert threads() == {2}
    with Workers(2):
        assert threads() == {1}
    assert threads() == {2}
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        print(1 / 0)
    assert threads() == {2}


@pytest.mark.slow
def test_lists_are_made_with_one_thread_and_handed_out_with_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = HDPSum(rng=0).fit(WORLD)
    inside: list[set[int]] = []
    parts = ChooseAndLike.parts

    def watched(self: ChooseAndLike, *given: object) -> Iterator[object]:
        inside.append(threads())
        yield from parts(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(ChooseAndLike, "parts", watched)
    outside = [threads() for _ in model.recommend_each(WORLD.users.ids)]
    assert len(inside) == 3, "64 people at a time"
    assert inside == [{1}] * 3
    assert outside == [{2}] * WORLD.n_users


def test_nothing_is_solved_or_trained_again_for_each_list(monkeypatch: pytest.MonkeyPatch) -> None:
    model = HDPBit(rng=0).fit(WORLD)
    solved: list[int] = []
    solve = np.linalg.solve

    def counted(*given: np.ndarray) -> np.ndarray:
        solved.append(len(given[0]))
        return solve(*given)

    def never(*given: object, **options: object) -> None:
        raise AssertionError("the model for lists is trained in fit")

    monkeypatch.setattr(np.linalg, "solve", counted)
    monkeypatch.setattr("hdpmf.models.hdp_bit.train_list_model", never)
    assert len(model.recommend(WORLD.users.ids)) == WORLD.n_users
    assert len(solved) <= 1, "what a stranger gets is the same for all"


def test_the_model_for_lists_does_not_depend_on_threads_of_linear_algebra() -> None:
    presence = Presence(*np.random.default_rng(0).integers(0, 700, (2, 40_000)), 700, 700)
    found = []
    for number in (1, 2):
        with threadpool_limits(number, user_api="blas"):
            found.append(item_item(presence))
    assert np.array_equal(found[0].matrix, found[1].matrix)
    assert np.array_equal(found[0].importance, found[1].importance)


def test_the_limit_holds_for_libraries_that_are_loaded_later() -> None:
    code = (
        "from hdpmf.common.base.threads import one_blas_thread\n"
        "from threadpoolctl import threadpool_info\n"
        "with one_blas_thread():\n"
        "    import scipy.linalg\n"
        "    found = [each['num_threads'] for each in threadpool_info()]\n"
        "print(len(found), set(found))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "2"},
    )  # fmt: skip
    assert done.stdout.split(maxsplit=1)[1] == "{1}\n", done.stdout
