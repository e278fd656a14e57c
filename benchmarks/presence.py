"""Where the accuracy of hdp-bit comes from, and where it goes: docs/designs.md's tables.

    python benchmarks/presence.py             # without bits, and with them, on four data sets
    python benchmarks/presence.py --noise     # Douban by epsilon
    python benchmarks/presence.py --choice    # how much bits let similarity count

Needs the data sets in ``HDPMF_DATA``. Test MSE over all test ratings, five seeds, on the splits of
benchmarks/designs.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import numpy as np

from designs import TUNED, split
from hdpmf import (
    BiasedMF,
    Estimator,
    HDPBit,
    HDPSum,
    PrivacySpec,
    PrivacyWeights,
    Ratings,
    UserMean,
)
from hdpmf.common.data.item_features import fingerprint
from hdpmf.common.protocol import ItemFacts
from hdpmf.common.protocol.messages import Similarity
from hdpmf.models.one_round import wanted_features
from hdpmf.untrusted.recommender.bits import (
    PATTERNS,
    facts_from_bits,
    rating_patterns,
    similar_items,
)
from hdpmf.untrusted.recommender.lists.training import Presence
from hdpmf.untrusted.recommender.sums import SPREAD

DATA = ("ml-100k", "ml-1m", "douban", "yelp-sample")
BIASED = TUNED | {"yelp-sample": {"learning_rate": 0.01, "reg": 0.4}}
"""For the Yelp sample out of .05, .1, .2, .4, .8 and 1.6, on five ratings per user held out of its
training part (1.1434, 1.1366, 1.1307, 1.1264, 1.1264, 1.1372)."""
MEAN = 3.55  # of star ratings in general
EPSILONS = (1.0, 4.0, 16.0, 1000.0)


def nothing_known(train: Ratings, model: HDPBit) -> ItemFacts:
    """Item facts of a recommender that heard nothing: all items are alike."""
    n = train.n_items
    return ItemFacts(
        catalogue=fingerprint(train.items, wanted_features(model.features, train)),
        mean=MEAN,
        bias=np.zeros(n, np.float32),
        variance=np.full(n, SPREAD, np.float32),
        popularity=np.ones(n, np.float32),
    )


def presence_known(train: Ratings, model: HDPBit) -> ItemFacts:
    """Item facts by who rated what alone, as the fitted model uses it, without any bit."""
    facts = msgspec.structs.replace(nothing_known(train, model), popularity=model.facts_.popularity)
    if not model.n_patterns_:
        return facts
    presence = Presence(train.user_codes, train.item_codes, train.n_users, train.n_items)
    patterns = rating_patterns(train.user_codes, train.item_codes, train.n_items, model.n_patterns_)
    found = similar_items(presence, patterns)
    similarity = Similarity(
        items=found.items.astype(np.int64),
        columns=found.columns.astype(np.float16),
        rest=found.rest.astype(np.float32),
        pull=0.0,
    )
    return msgspec.structs.replace(facts, similarity=similarity)


def mse(model: Estimator, test: Ratings) -> float:
    """Error over all test ratings."""
    return float(model.score(test)["mse"])


def without_bits(train: Ratings, test: Ratings) -> list[float]:
    """Errors without any bit: of one's own mean, own ratings, and who rated what.

    Nothing in them is random but the mean weight.
    """
    weights = PrivacySpec().draw(train, rng=0)
    model = HDPBit(rng=0).fit(train, weights)
    errors = [mse(UserMean().fit(train), test)]
    for facts in (nothing_known(train, model), presence_known(train, model)):
        errors.append(mse(HDPBit(rng=0).with_facts(train, weights, facts), test))
    return errors


def over_seeds(make: Callable[[int], Estimator], test: Ratings, seeds: int) -> np.ndarray:
    """Errors of what is made with each seed."""
    return np.array([mse(make(seed), test) for seed in range(seeds)])


def cell(errors: np.ndarray) -> str:
    """Mean and deviation."""
    spread = f" ({errors.std(ddof=1):.4f})".replace("(0.", "(.") if len(errors) > 1 else ""
    return f"{errors.mean():.4f}{spread}"


def decompose(data: Sequence[str], seeds: int) -> None:
    """Print errors of the user's mean, without bits, and with them."""
    rows = ("user's mean", "own ratings, features", "who rated what, no bit", "`hdp-bit`")
    print("| |", " | ".join((*rows, "share without bits", "`biased-mf`")), "|", flush=True)
    for name in data:
        train, test = split(name)
        own, ratings, presence = without_bits(train, test)
        bits = over_seeds(partial(private, HDPBit, 1.0, train), test, seeds)
        best = over_seeds(partial(biased, name, train), test, seeds)
        share = (own - presence) / (own - bits.mean())
        cells = [*(f"{error:.4f}" for error in (own, ratings, presence)), cell(bits)]
        print(f"| {name} |", " | ".join([*cells, f"{share:.0%}", cell(best)]), "|", flush=True)


def private(kind: type[Estimator], epsilon: float, train: Ratings, seed: int) -> Estimator:
    """Return a model of this kind, fitted with the paper's weights."""
    return kind(epsilon=epsilon, rng=seed).fit(train, PrivacySpec().draw(train, rng=seed))


def biased(data: str, train: Ratings, seed: int) -> Estimator:
    """Return the strongest model without privacy."""
    return BiasedMF(50, epochs=40, rng=seed, **BIASED[data]).fit(train)


def item_means(train: Ratings, test: Ratings) -> float:
    """Error of each item's training mean; the user's where there is none."""
    counts = train.item_counts()
    sums = np.bincount(train.item_codes, train.values, train.n_items)
    predicted = UserMean().fit(train).predict(test.user_ids, test.item_ids)
    known = counts[test.item_codes] > 0
    of_item = sums / np.maximum(counts, 1)
    predicted = np.where(known, of_item[test.item_codes], predicted)
    return float(np.mean((predicted - test.values) ** 2))


def noise(data: str, seeds: int) -> None:
    """Print errors by epsilon beside trivial and open ones, every rating with weight 1."""
    train, test = split(data)
    counts = train.item_counts()
    rated, cold = counts[counts > 0], np.mean(counts[test.item_codes] == 0)
    print(f"{data}: {rated.mean():.1f} ratings per rated item, median {np.median(rated):.0f}")
    print(f"{cold:.0%} of test ratings have an item that training never saw")
    print(f"user's mean {mse(UserMean().fit(train), test):.4f}")
    print(f"item's mean {item_means(train, test):.4f}", flush=True)
    makers = {"biased-mf": partial(biased, data, train)}
    for kind in (HDPSum, HDPBit):
        for epsilon in EPSILONS:
            makers[f"{kind.__name__} {epsilon:g}"] = partial(fitted, kind, epsilon, train)
    for name, make in makers.items():
        print(name, cell(over_seeds(make, test, seeds)), flush=True)


def fitted(kind: type[Estimator], epsilon: float, train: Ratings, seed: int) -> Estimator:
    """Return a model of this kind, fitted with weights of 1."""
    return kind(epsilon=epsilon, rng=seed).fit(train, PrivacyWeights.uniform(train))


def choices(data: Sequence[str], seeds: int) -> None:
    """Print how much bits let similarity count."""
    print("| | epsilon | similarity counts |")
    for name in data:
        train, _ = split(name)
        for epsilon in (0.25, 0.5, 1.0, 4.0):
            counts = []
            for seed in range(seeds):
                release = HDPBit(epsilon, rng=seed).release(
                    train, PrivacySpec().draw(train, rng=seed)
                )
                whole, chosen = (
                    facts_from_bits(release.survey, release.bits, release.features, number)
                    for number in (PATTERNS, None)
                )
                counts.append(0.0 if chosen.similarity is None else share(chosen, whole))
            print(
                f"| {name} | {epsilon:g} |", ", ".join(f"{x:.2f}" for x in counts), "|", flush=True
            )


def share(chosen: ItemFacts, whole: ItemFacts) -> float:
    """Return the variance that similarity has of what it has where it counts fully."""
    return float(np.median(chosen.similarity.rest / whole.similarity.rest))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--choice", action="store_true")
    parser.add_argument("--data", nargs="+", default=DATA, choices=DATA)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    if given.noise:
        noise("douban", given.seeds)
    elif given.choice:
        choices(given.data, given.seeds)
    else:
        decompose(given.data, given.seeds)


if __name__ == "__main__":
    main()
