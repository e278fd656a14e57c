"""Models for lists beside `implicit` and `cornac`: same data, same threads, seconds to the quality
that both reach.

    python benchmarks/lists_peers.py                     # ML-1M, 2 threads; part of make bench
    python benchmarks/lists_peers.py --data ml-100k

Everybody gets who rated what, without values, ten ratings per user held out. Constants of ours and
theirs are the best of a few on ratings held out within the training part. Times are of training
alone and of one run; quality is NDCG@10. A peer that is not installed is left out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from lists import find_data, ratings

RANK = 64
_PASSES = (1, 2, 3, 5, 8, 12, 16)
_SGD_PASSES = (50, 100)


class Point(NamedTuple):
    """How far somebody came."""

    what: str
    seconds: float
    ndcg: float


class Task:
    """Who rated what, and how lists are measured."""

    def __init__(self, train: Any, test: Any) -> None:
        from hdpmf import make_model
        from hdpmf.untrusted.recommender.lists.training import Presence

        self.presence = Presence(train.user_codes, train.item_codes, train.n_users, train.n_items)
        self.matrix = self.presence.matrix
        self._shell, self._test = make_model("most-popular", rng=0).fit(train), test

    def ndcg(self, scores: Callable[[np.ndarray], np.ndarray]) -> float:
        """Of lists by these scores of some users."""
        from hdpmf.models.ranking_metrics import rank

        candidates = self.presence.raters > 0
        places = self._shell.catalogue_.items.find(self._test.items.ids)
        devices = self._shell.devices_
        found = rank(
            devices, candidates, lambda users: np.array(scores(users)), self._test, places, 10
        )
        return float(found.summary()["ndcg"])


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = function()
    return time.perf_counter() - begin, found


def our_bpr(task: Task, threads: int) -> Iterator[Point]:
    """After each of some epochs; it begins as a compressed EASE, and has one thread."""
    from hdpmf.untrusted.recommender.lists.bpr import PairwiseTraining

    seconds, training = _timed(lambda: PairwiseTraining(task.presence))
    for epoch in range(13):
        if epoch in (0, 3, 6, 12):
            yield Point(f"{epoch} epochs", seconds, task.ndcg(_by_model(training.model(), task)))
        seconds += _timed(training.epoch)[0]


def implicit_bpr(task: Task, threads: int, rate: float, reg: float) -> Iterator[Point]:
    """A long run."""
    from implicit.bpr import BayesianPersonalizedRanking

    for number in _SGD_PASSES:
        model = BayesianPersonalizedRanking(
            RANK,
            learning_rate=rate,
            regularization=reg,
            iterations=number,
            num_threads=threads,
            random_state=0,
        )
        seconds, _ = _timed(lambda model=model: model.fit(task.matrix, show_progress=False))
        yield Point(
            f"{number} iterations",
            seconds,
            task.ndcg(_by_factors(model.user_factors, model.item_factors)),
        )


def _cornac_data(task: Task) -> tuple[Any, np.ndarray, np.ndarray]:
    """Its data set, and where it has our users and items."""
    from cornac.data import Dataset

    pairs = zip(task.presence.users.tolist(), task.presence.items.tolist(), strict=True)
    data = Dataset.from_uir([(user, item, 1.0) for user, item in pairs], seed=0)
    users, items = np.zeros(task.presence.n_users, int), np.zeros(task.presence.n_items, int)
    for mapping, places in ((data.uid_map, users), (data.iid_map, items)):
        places[list(mapping.keys())] = list(mapping.values())
    return data, users, items


def cornac_bpr(task: Task, threads: int, rate: float, reg: float) -> Iterator[Point]:
    """A long run."""
    from cornac.models import BPR

    data, users, items = _cornac_data(task)
    for number in _SGD_PASSES:
        model = BPR(
            k=RANK, max_iter=number, learning_rate=rate, lambda_reg=reg, num_threads=threads, seed=0
        )
        seconds, _ = _timed(lambda model=model: model.fit(data))
        vectors = np.column_stack((model.u_factors, np.ones(len(model.u_factors))))[users]
        yield Point(
            f"{number} iterations",
            seconds,
            task.ndcg(
                _by_factors(vectors, np.column_stack((model.i_factors, model.i_biases))[items])
            ),
        )


def our_ease(task: Task, threads: int) -> Iterator[Point]:
    """The whole matrix, and compressed for devices."""
    from hdpmf.untrusted.recommender.lists.training import compress, item_item

    seconds, whole = _timed(lambda: item_item(task.presence))
    yield Point("whole matrix", seconds, task.ndcg(lambda users: task.matrix[users] @ whole.matrix))
    more, small = _timed(lambda: compress(whole, 128, 10))
    yield Point("compressed", seconds + more, task.ndcg(_by_model(small, task)))


def cornac_ease(task: Task, threads: int, reg: float) -> Iterator[Point]:
    """The whole matrix."""
    from cornac.models import EASE

    data, _, items = _cornac_data(task)
    model = EASE(lamb=reg, posB=False, seed=0, verbose=False)
    seconds, _ = _timed(lambda: model.fit(data))
    matrix = np.asarray(model.B)[np.ix_(items, items)]
    yield Point("whole matrix", seconds, task.ndcg(lambda users: task.matrix[users] @ matrix))


def _by_factors(users: np.ndarray, items: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda chosen: users[chosen] @ items.T


def _by_model(model: Any, task: Task) -> Callable[[np.ndarray], np.ndarray]:
    return lambda chosen: model.many(task.matrix[chosen])


Maker = Callable[..., Iterator[Point]]
CONTESTS: dict[str, dict[str, tuple[Maker, list[tuple[float, ...]]]]] = {
    "BPR": {
        "hdpmf": (our_bpr, [()]),
        "implicit": (implicit_bpr, [(0.02, 0.01), (0.05, 0.01)]),
        "cornac": (cornac_bpr, [(0.02, 0.01), (0.05, 0.01)]),
    },
    "EASE": {"hdpmf": (our_ease, [()]), "cornac": (cornac_ease, [(250.0,), (500.0,), (1000.0,)])},
}


def contest(name: str, data: str, threads: int) -> dict[str, Any]:
    """Everybody's way to their best, and the seconds to what all reach."""
    train, test = ratings(data).hold_out(10, rng=0)
    within, task = Task(*train.hold_out(10, rng=100)), Task(train, test)
    found: dict[str, Any] = {}
    for who, (maker, constants) in CONTESTS[name].items():
        if who != "hdpmf" and find_spec(who) is None:
            continue
        best = constants[0]
        if len(constants) > 1:
            best = max(
                constants,
                key=lambda given: max(point.ndcg for point in maker(within, threads, *given)),
            )
        else:
            next(maker(within, threads, *best))  # kernels are compiled before they are timed
        found[who] = {
            "constants": best,
            "points": [point._asdict() for point in maker(task, threads, *best)],
        }
    tops = {who: max(point["ndcg"] for point in of["points"]) for who, of in found.items()}
    common = min(tops.values())
    for of in found.values():
        of["seconds"] = min(point["seconds"] for point in of["points"] if point["ndcg"] >= common)
    return {"contest": name, "ndcg": common, "peers": found}


def run(
    data: str = "ml-1m", threads: int = 2, contests: Sequence[str] = tuple(CONTESTS)
) -> Iterator[dict[str, Any]]:
    """Contests, as they come."""
    find_data()
    for name in contests:
        yield contest(name, data, threads)


def show(found: dict[str, Any]) -> None:
    """Print one contest."""
    ours = found["peers"]["hdpmf"]["seconds"]
    print(
        f"{found['contest']}: seconds to NDCG@10 {found['ndcg']:.4f}, which all reach", flush=True
    )
    for who, of in found["peers"].items():
        ratio = "" if who == "hdpmf" else f"  hdpmf is {of['seconds'] / ours:.1f} times as fast"
        print(f"  {who:9} {of['seconds']:8.3f} s  constants {of['constants']}{ratio}")
        for point in of["points"]:
            print(
                f"    {point['what']:24} {point['seconds']:8.3f} s  {point['ndcg']:.4f}", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--contests", nargs="*", choices=CONTESTS, default=list(CONTESTS))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    for found in run(given.data, given.threads, given.contests):
        if given.json:
            print(json.dumps(found), flush=True)
        else:
            show(found)


if __name__ == "__main__":
    main()
