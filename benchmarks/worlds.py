"""hdp-pairs in worlds of many people: accuracy beside no noise, time and memory.

    python benchmarks/worlds.py --people 10000 100000
    python benchmarks/worlds.py --people 1000000 --ratings 20

Worlds are of ``synthetic_world`` (its shape is documented there): 2,000 items, 40 ratings a person
on average, taste that decides as much as on MovieLens (``pull`` 2). Five ratings of each person who
has enough are held out; all people take part, and lists and stars of 20,000 of them are measured.
Epsilon is a whole person's at delta 1e-5, with both servers' noise. At epsilon 10,000 there is no
noise to speak of, and all items are heads.

``recommender`` is what it does after the sums are there: denoising, item facts, the model for
lists. Its memory is the most beyond what was there before, as the system counts it.
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import Any

from hdpmf import HDPPairs, PrivacyWeights, Ratings, make_model
from hdpmf.common.data import synthetic_world
from hdpmf.common.data.item_features import fingerprint
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.models.one_round import wanted_features
from hdpmf.untrusted.recommender.pairs import facts_from_pairs

MEASURED = 20_000
NO_NOISE = 1e4


def peak() -> float:
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def of_some(test: Ratings) -> Ratings:
    """The held-out ratings of the first people."""
    return test.take(test.user_codes < MEASURED)


def accuracy(model: Any, test: Ratings) -> str:
    ndcg = model.rank(test)["ndcg"] if model.can_rank else float("nan")
    mse = model.score(test)["mse"] if model.predicts_ratings else float("nan")
    return f"NDCG@10 {ndcg:.4f}, MSE {mse:.4f}"


def run(model: HDPPairs, train: Ratings, seed: int) -> tuple[HDPPairs, str]:
    """Fit step by step, as parties would: devices' sums, the recommender, devices."""
    weights, plan = PrivacyWeights.uniform(train), model.plan(train)
    began = time.process_time()
    answer = model.answer(plan, train, weights, SeededNoise(seed, stream=3))
    summed = time.process_time()
    before = peak()
    features = wanted_features(model.features, train)
    facts, lists = facts_from_pairs(plan, answer, features, fingerprint(train.items, features))
    made = time.process_time()
    words = (
        f"{plan.heads} heads; rows and sums {summed - began:.1f} s; recommender "
        f"{made - summed:.1f} s, {peak() - before:.0f} MB more; "
    )
    return model.with_model(train, weights, facts, lists), words


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--people", type=int, nargs="+", default=[10_000])
    parser.add_argument("--items", type=int, default=2_000)
    parser.add_argument("--ratings", type=int, default=40, help="of a person, on average")
    parser.add_argument("--heads", type=int, help="as many, and not by the public rule")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, NO_NOISE])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    given = parser.parse_args()
    for people in given.people:
        for seed in given.seeds:
            world = synthetic_world(people, given.items, people * given.ratings, rng=seed, pull=2.0)
            train, test = world.hold_out(5, rng=seed)
            del world
            test = of_some(test)
            for name in ("user-mean", "most-popular"):
                found = accuracy(make_model(name).fit(train), test)
                print(f"{people} people, {seed}: {name}: {found}", flush=True)
            for epsilon in given.epsilons:
                model, words = run(
                    HDPPairs(epsilon, heads=given.heads or "auto", rng=seed), train, seed
                )
                words += f"{accuracy(model, test)}; at most {peak():.0f} MB"
                print(f"{people} people, {seed}: epsilon {epsilon:g}: {words}", flush=True)


if __name__ == "__main__":
    main()
