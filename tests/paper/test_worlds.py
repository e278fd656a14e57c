"""No method that we recommend is worse than doing without it, on worlds that differ in scale, mean,
sparsity and features. Two of them run every day; the others, and real data, with ``paper``.
``python -m tests.paper.test_worlds`` prints what each has on each (docs/designs.md).

Constants were chosen on other seeds of some of these worlds, on ratings held out within training.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest

from hdpmf import HDPPairs, Ratings, load_dataset, make_model, synthetic_world
from hdpmf.common.model.device_fit import log_popularity
from hdpmf.models.ranking_metrics import rank
from hdpmf.models.validation import measure, ndcg_by_user

Users = dict[str, dict[str, np.ndarray]]

NDCG = "ndcg_at_10"

WORLDS: dict[str, Callable[[int], Ratings]] = {
    "marks": lambda seed: synthetic_world(
        1500, 500, 45_000, rng=seed, scale=(0, 10, 1), mean=7.4, pull=2, features=False
    ),
    "shop": lambda seed: synthetic_world(
        3000, 1000, 24_000, rng=seed, mean=4.4, pull=2, features=False
    ),
    "large-shop": lambda seed: synthetic_world(
        4000, 5000, 40_000, rng=seed, mean=4.4, pull=2, features=False
    ),
    "clicks": lambda seed: synthetic_world(
        1500, 400, 36_000, rng=seed, pull=2, implicit=True, features=False
    ),
    "half-stars": lambda seed: synthetic_world(
        2000, 1500, 120_000, rng=seed, scale=(0.5, 5, 0.5), mean=3.4, pull=2
    ),
    "strict": lambda seed: synthetic_world(1200, 600, 40_000, rng=seed, mean=2.2, pull=1.5),
    "jokes": lambda seed: synthetic_world(
        1500, 140, 80_000, rng=seed, scale=(-10, 10), mean=1.0, pull=1, features=False
    ),
    "few-people": lambda seed: synthetic_world(
        650, 1500, 40_000, rng=seed, scale=(1, 10, 1), mean=5.5, pull=2
    ),
    "ml-100k": lambda _: load_dataset("ml-100k"),
    "douban": lambda _: load_dataset("douban"),
    "yelp-sample": lambda _: load_dataset("yelp-sample"),
}
EVERY_DAY = ("marks", "clicks")
REAL = ("ml-100k", "douban", "yelp-sample")
FEW_FOR_PAIRS = ("douban", "yelp-sample")
"""One person for 67 and for 14 items: pairs of heads are below their noise (docs/lists.md)."""


FALSE = 0.05
"""At most in so many gates of methods as good as what they are held to, any test fails."""

COMPARISONS = 25
"""In a world, at most."""


def _certainly_below(found: np.ndarray, bound: np.ndarray) -> bool:
    """Test, paired over users, whether what is larger the better is below; NaN is no user.

    One-sided, at ``FALSE`` for all comparisons of all worlds together (Bonferroni).
    """
    apart = (found - bound)[np.isfinite(found) & np.isfinite(bound)]
    assert len(apart) > 100
    error = float(apart.std(ddof=1)) / len(apart) ** 0.5
    limit = NormalDist().inv_cdf(FALSE / (COMPARISONS * len(WORLDS)))
    return float(apart.mean()) < limit * error


def _cases() -> list[object]:
    slow = pytest.mark.paper
    return [pytest.param(name, marks=() if name in EVERY_DAY else slow, id=name) for name in WORLDS]


@pytest.fixture(scope="module", params=_cases())
def users(request: pytest.FixtureRequest) -> Users:
    """By method, what every user of one world has: ``mse`` (less is better) and NDCG@10."""
    name = request.param
    if name in REAL:
        request.getfixturevalue("data_folder")
    return found_on(name)


def found_on(name: str) -> Users:
    """Return, by method, what every user of a world has."""
    ratings = WORLDS[name](11)
    train, test = ratings.hold_out(10 if len(ratings) > 25 * ratings.n_users else 3, rng=3)
    wanted = {
        "popular": make_model("most-popular"),
        "sum": make_model("hdp-sum", rng=0),
        "sum-4": make_model("hdp-sum", epsilon=4.0, rng=0),
        "pairs-4": make_model("hdp-pairs", epsilon=4.0, rng=0),
        "pairs-8": make_model("hdp-pairs", epsilon=8.0, rng=0),
    }
    if name not in FEW_FOR_PAIRS:
        wanted["ease"] = make_model("ease", rng=0)
    if not train.implicit:
        wanted |= {
            "user-mean": make_model("user-mean"),
            "bit": make_model("hdp-bit", rng=0),
            "bit-4": make_model("hdp-bit", epsilon=4.0, rng=0),
        }
    found = {
        label: measure(model.fit(train), train, test, lists=True).users
        for label, model in wanted.items()
    }
    for label in ("pairs-4", "pairs-8"):
        found[f"released by {label}"] = {NDCG: _by_released_popularity(wanted[label], test)}
    return found


def _by_released_popularity(model: HDPPairs, test: Ratings) -> np.ndarray:
    """Return the NDCG@10 of each user, were lists by the popularity that the model released."""
    score = log_popularity(model.facts_.popularity.astype(np.float64))
    positions = model.catalogue_.items.find(test.items.ids)
    quality = rank(
        model.devices_,
        model._candidates(),
        lambda block: np.tile(score, (len(block), 1)),
        test,
        positions,
        10,
    )
    return ndcg_by_user(model, test, quality)


def _worse(users: Users, pairs: list[tuple[str, str]], what: str) -> dict[tuple[str, str], object]:
    """Return the pairs in which the first is certainly worse than the second, with both means."""
    sign = -1.0 if what == "mse" else 1.0
    there = [(a, b) for a, b in pairs if all(what in users.get(label, {}) for label in (a, b))]
    assert len(there) <= COMPARISONS // 3
    return {
        (a, b): (float(np.nanmean(users[a][what])), float(np.nanmean(users[b][what])))
        for a, b in there
        if _certainly_below(sign * users[a][what], sign * users[b][what])
    }


def test_no_recommended_method_is_worse_than_the_users_own_mean(users) -> None:
    recommended = ("sum", "sum-4", "bit", "bit-4", "pairs-4", "pairs-8")
    assert not _worse(users, [(label, "user-mean") for label in recommended], "mse")


def test_no_recommended_list_is_below_popular(users) -> None:
    """Nor that of pairs below what the same run released of popularity."""
    held = [(label, "popular") for label in ("sum-4", "bit", "bit-4")]
    if len(users["popular"][NDCG]) >= 1000:
        held += [(label, "popular") for label in ("pairs-4", "pairs-8")]
    held += [(label, f"released by {label}") for label in ("pairs-4", "pairs-8")]
    assert not _worse(users, held, NDCG)


def test_lists_of_pairs_are_a_fifth_above_popular_where_taste_decides(users) -> None:
    """Where EASE, to which nothing is hidden, is at twice popular."""
    popular = users["popular"][NDCG]
    found = {label: users[label][NDCG] for label in ("pairs-4", "pairs-8")}
    if "ease" in users and np.nanmean(users["ease"][NDCG]) >= 2 * np.nanmean(popular):
        below = {label for label, own in found.items() if _certainly_below(own, 1.2 * popular)}
        assert not below or len(popular) < 1000


def test_what_reveals_more_is_not_worse(users) -> None:
    """A larger epsilon, and for lists also who rated what in plain sight."""
    larger = [("sum-4", "sum"), ("bit-4", "bit"), ("pairs-8", "pairs-4")]
    assert not _worse(users, larger, "mse")
    assert not _worse(users, [*larger, ("bit", "sum"), ("bit-4", "sum-4")], NDCG)


def test_the_gate_sees_what_is_worse() -> None:
    """A third of users lose half of what they had: seen at 1,000 users, and no loss is not."""
    rng = np.random.default_rng(0)
    had = rng.exponential(0.05, 1000)
    lost = np.where(rng.random(1000) < 1 / 3, had / 2, had)
    assert _certainly_below(lost, had)
    assert not _certainly_below(had, lost)
    assert not _certainly_below(had, had)
    assert not _certainly_below(had[rng.permutation(1000)], had)


def test_worlds_differ() -> None:
    made = [make(1) for name, make in WORLDS.items() if name not in REAL]
    assert len({str(world.scale) for world in made}) >= 5
    assert len({world.implicit for world in made}) == 2
    assert len({world.item_table is None for world in made}) == 2
    assert np.ptp([len(world) / world.n_users for world in made]) > 40


def _table() -> None:
    """Print the means of all methods on all worlds."""
    labels = ("user-mean", "popular", "sum", "bit", "sum-4", "bit-4", "pairs-4", "pairs-8")
    print(f"| world, MSE / NDCG@10 | {' | '.join(labels)} |\n{'|---' * (len(labels) + 1)}|")
    for name in WORLDS:
        users = found_on(name)
        cells = []
        for own in (users.get(label, {}) for label in labels):
            mse = f"{np.nanmean(own['mse']):.3f}" if "mse" in own else ""
            cells.append(f"{mse} / {np.nanmean(own[NDCG]):.3f}" if NDCG in own else mse)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    _table()
