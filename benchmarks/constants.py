"""Constants of the designs, chosen again on ratings held out within the training parts: no test
rating is looked at.

    python benchmarks/constants.py                     # all, on ML-100K and ML-1M, three seeds
    python benchmarks/constants.py --only ridge        # those whose name has this in it
    python benchmarks/constants.py --data ml-1m --users 2000 --seeds 3

Training parts are those of docs/designs.md (ML-100K: ua.base; ML-1M: all but ten ratings per user).
Five ratings per user of them validate; weights are the paper's, epsilon is 1 where nothing else is
said. Of ML-1M a random part of the users is enough. A value is clearly better than the one in use
where the paired difference is more than twice its standard error on every data set.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np

from hdpmf import PrivacySpec, Ratings, load_dataset, load_split, make_model
from hdpmf.common.data import item_features
from hdpmf.common.model import device_fit
from hdpmf.common.privacy.coding import LINEAR_FROM
from hdpmf.private.client import ranking
from hdpmf.untrusted.recommender import sums
from hdpmf.untrusted.recommender.lists import training
from hdpmf.untrusted.recommender.lists import training as simple

Options = Mapping[str, Any]
Setter = Callable[[Any], Any]
"""Makes a context in which a constant has another value; it may give options of the model."""


@dataclass(frozen=True)
class Choice:
    """A constant and what to try instead.

    Attributes:
        name: For people.
        in_use: Its value in the code.
        others: What else to try.
        method: Whose results it changes.
        put: How to change it.
        by: ``mse`` or ``ndcg``.
        chosen: How the value in use came about.
        options: Further options of the method.
        data: Where it can be tried.
    """

    name: str
    in_use: Any
    others: tuple[Any, ...]
    method: str
    put: Setter
    by: str = "mse"
    chosen: str = "plan"
    options: Options = field(default_factory=dict)
    data: tuple[str, ...] = ("ml-100k", "ml-1m")


def option(name: str) -> Setter:
    """An option of the method."""

    @contextmanager
    def put(value: Any) -> Iterator[Options]:
        yield {name: value}

    return put


def constant(module: Any, name: str) -> Setter:
    """A number of a module."""

    @contextmanager
    def put(value: Any) -> Iterator[Options]:
        with patch.object(module, name, value):
            yield {}

    return put


@contextmanager
def own_ridges(times: float) -> Iterator[Options]:
    """All ridges of a device's own columns, so many times."""
    with patch.dict(
        device_fit._OWN, {name: ridge * times for name, ridge in device_fit._OWN.items()}
    ):
        yield {}


def list_option(name: str) -> Setter:
    """An argument of a list model's trainer."""

    @contextmanager
    def put(value: Any) -> Iterator[Options]:
        usual = training.train_list_model

        def train(*arguments: Any, **options: Any) -> Any:
            return usual(*arguments, **options, **{name: value})

        with patch("hdpmf.models.baselines.train_list_model", train):
            yield {}

    return put


_TEST = "test errors"
_WITHIN = "within"


def _coding(method: str, epsilon: float) -> Choice:
    usual = "threshold" if method == "hdp-bit" else "linear" if epsilon >= LINEAR_FROM else "soft"
    others = tuple(name for name in ("soft", "threshold", "linear") if name != usual)
    put, options = option("coding"), {"epsilon": epsilon}
    return Choice(
        f"{method}: coding at epsilon {epsilon:g}", usual, others, method, put, options=options
    )


ONE_WAY = ("ml-1m",)
CHOICES = (
    Choice("hdp-bit: patterns", 8, (0, 4, 12, 20), "hdp-bit", option("patterns"), chosen=_TEST),
    Choice("spread of item biases", 0.2, (0.1, 0.4), "hdp-sum", constant(sums, "SPREAD")),
    Choice(
        "its strength, in items",
        30.0,
        (3.0, 10.0, 100.0),
        "hdp-sum",
        constant(sums, "STEADY"),
        chosen="guess",
    ),
    Choice("ridge of bias on features", 1.0, (0.3, 3.0, 10.0), "hdp-sum", constant(sums, "RIDGE")),
    Choice("ridges of a device's own columns, times", 1.0, (0.5, 2.0), "hdp-sum", own_ridges),
    Choice("ridge of genres", 12.0, (6.0, 24.0), "hdp-sum", constant(item_features, "GENRE_RIDGE")),
    Choice("variance of a rating", 0.8, (0.6, 1.0), "hdp-sum", constant(device_fit, "NOISE")),
    *(
        _coding(method, epsilon)
        for method in ("hdp-sum", "hdp-bit")
        for epsilon in (1.0, 2.0, 4.0, 8.0, 16.0)
    ),
    Choice(
        "lists: a star of the predicted rating, mf",
        0.25,
        (0.0, 0.5, 1.0),
        "mf",
        constant(ranking, "LIKE"),
        by="ndcg",
        chosen=_WITHIN,
    ),
    Choice(
        "lists: a star of the predicted rating, hdp-sum",
        0.25,
        (0.0, 0.5, 1.0),
        "hdp-sum",
        constant(ranking, "LIKE"),
        by="ndcg",
        chosen=_WITHIN,
    ),
    Choice(
        "lists: regularisation of EASE",
        40.0,
        (20.0, 80.0),
        "ease",
        list_option("strength"),
        by="ndcg",
        chosen=_WITHIN,
    ),
    Choice(
        "lists: neighbours of item-knn",
        simple.NEIGHBOURS,
        (50, 500),
        "item-knn",
        list_option("neighbours"),
        by="ndcg",
        chosen=_WITHIN,
    ),
    Choice(
        "lists: damping of item-knn",
        20.0,
        (5.0, 80.0),
        "item-knn",
        constant(simple, "_DAMPING"),
        by="ndcg",
        chosen="guess",
    ),
    Choice(
        "lists: weight of unrated items in iALS",
        1.0,
        (0.3, 0.6),
        "ials",
        list_option("unrated"),
        by="ndcg",
        chosen=_WITHIN,
    ),
    Choice(
        "lists: rank of iALS",
        128,
        (64, 256),
        "ials",
        list_option("rank"),
        by="ndcg",
        chosen=_WITHIN,
    ),
)


def training_part(data: str, users: int) -> Ratings:
    """The ratings that choices are made on."""
    if data == "ml-100k":
        return load_split(data)[0]
    train, _ = load_dataset(data).hold_out(per_user=10, rng=1)
    some = np.sort(np.random.default_rng(0).permutation(train.n_users)[:users])
    return train.take(np.flatnonzero(np.isin(train.user_codes, some)))


def measured(choice: Choice, value: Any, train: Ratings, seeds: int) -> list[float]:
    """What a value gives, seed by seed."""
    found = []
    with choice.put(value) as options:
        for seed in range(seeds):
            fitted, validation = train.hold_out(per_user=5, rng=seed)
            model = make_model(choice.method, **choice.options, **options, rng=seed, n_threads=1)
            model.fit(fitted, PrivacySpec().draw(fitted, rng=seed))
            found.append(
                float(
                    model.score(validation)["mse"]
                    if choice.by == "mse"
                    else model.rank(validation)["ndcg"]
                )
            )
    return found


def judged(choice: Choice, values: Mapping[Any, Sequence[float]]) -> dict[str, Any]:
    """The best value, and how much better than the one in use it is: means and paired standard
    errors.
    """
    sign = -1.0 if choice.by == "mse" else 1.0
    best = max(values, key=lambda value: sign * statistics.mean(values[value]))
    gains = [
        sign * (new - old) for new, old in zip(values[best], values[choice.in_use], strict=True)
    ]
    error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
    return {
        "best": best,
        "gain": statistics.mean(gains),
        "error": error,
        "in_use": statistics.mean(values[choice.in_use]),
        "values": {
            str(value): round(statistics.mean(numbers), 5) for value, numbers in values.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", nargs="*", default=["ml-100k", "ml-1m"], choices=("ml-100k", "ml-1m")
    )
    parser.add_argument("--users", type=int, default=2000, help="of ML-1M")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    parts = {data: training_part(data, given.users) for data in given.data}
    rows = []
    if not given.json:
        print(
            "| constant | chosen by | in use | data | measure in use | best | gain "
            "(standard error) | all |"
        )
        print("|---|---|---|---|---|---|---|---|")
    for choice in (choice for choice in CHOICES if given.only in choice.name):
        for data in (data for data in given.data if data in choice.data):
            values = {
                value: measured(choice, value, parts[data], given.seeds)
                for value in (choice.in_use, *choice.others)
            }
            row = judged(choice, values)
            rows.append(
                {
                    "constant": choice.name,
                    "chosen": choice.chosen,
                    "by": choice.by,
                    "data": data,
                    **row,
                }
            )
            if not given.json:
                shown = ", ".join(f"{value}: {mean:.4f}" for value, mean in row["values"].items())
                print(
                    f"| {choice.name} | {choice.chosen} | {choice.in_use} | {data} | {choice.by} "
                    f"{row['in_use']:.4f} | "
                    f"{row['best']} | {row['gain']:.4f} ({row['error']:.4f}) | {shown} |",
                    flush=True,
                )
    if given.json:
        json.dump({"users": given.users, "seeds": given.seeds, "rows": rows}, sys.stdout)


if __name__ == "__main__":
    main()
