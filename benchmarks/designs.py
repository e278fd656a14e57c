"""The accuracy of the one-round designs, as in the tables of docs/designs.md: ``python
benchmarks/designs.py``.

Needs the data sets in ``HDPMF_DATA``. ``--epsilons`` prints the table over epsilon instead;
``--rows TEXT`` only rows whose command has TEXT in it; ``--max-ratings`` the table over how many
ratings a person sends, and what all of a person's ratings cost together; ``--persons`` what they
cost in the whole data sets, and what they would by Renyi divergences alone.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from hdpmf import BiasedMF, HDPBit, HDPSum, PrivacySpec, Ratings, load_dataset, load_split
from hdpmf.common.privacy.accounting import Cost, Setting, person_costs

SEEDS = 5
DATA = ("ml-100k", "ml-1m", "douban")
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)

ROWS = {
    "hdp-sum --no-features": (HDPSum, {"features": False}),
    "hdp-sum --no-features --coding threshold": (
        HDPSum,
        {"features": False, "coding": "threshold"},
    ),
    "hdp-sum": (HDPSum, {}),
    "hdp-bit --patterns 0 --no-features": (HDPBit, {"patterns": 0, "features": False}),
    "hdp-bit --patterns 0": (HDPBit, {"patterns": 0}),
    "hdp-bit --no-features": (HDPBit, {"features": False}),
    "hdp-bit": (HDPBit, {}),
    "biased-mf": (BiasedMF, {"n_factors": 50, "epochs": 40}),
}
TUNED = {
    "ml-100k": {"learning_rate": 0.01, "reg": 0.1},
    "ml-1m": {"learning_rate": 0.005, "reg": 0.05},
    "douban": {"learning_rate": 0.01, "reg": 0.2},
}
"""Of biased-mf, by cross-validation within training (docs/results/csv/hyperparameters.csv)."""
BOUNDED = ("hdp-sum", "hdp-bit")
MOST = (10, 20, 50, 100, None)
OVER_EPSILON = ("hdp-sum", "hdp-bit")


def split(name: str) -> tuple[Ratings, Ratings]:
    """The splits of tests/paper/test_designs.py."""
    return (
        load_split(name) if name == "ml-100k" else load_dataset(name).hold_out(per_user=10, rng=1)
    )


def errors(
    data: str,
    parts: tuple[Ratings, Ratings],
    row: str,
    epsilon: float = 1.0,
    seeds: int = SEEDS,
    **more: Any,
) -> list[float] | None:
    """Test MSE of each seed, or None where the data set has no features for the row."""
    kind, params = ROWS[row]
    train, test = parts
    if kind is BiasedMF:  # neither private nor with features
        fitted = (BiasedMF(rng=seed, **params, **TUNED[data]).fit(train) for seed in range(seeds))
        return [float(model.score(test)["mse"]) for model in fitted]
    if train.item_table is None and params.get("features", True):
        return None
    found = []
    for seed in range(seeds):
        model = kind(epsilon, rng=seed, **params, **more).fit(
            train, PrivacySpec().draw(train, rng=seed)
        )
        found.append(float(model.score(test)["mse"]))
    return found


def whole_persons(parts: tuple[Ratings, Ratings], most: int | None) -> str:
    """What all ratings of the median and of the heaviest person cost in one run of hdp-sum at
    epsilon 1.
    """
    train = parts[0]
    found = person_costs(
        Setting("hdp-sum", max_ratings=most), "sums", train, PrivacySpec().draw(train, rng=0)
    )
    return f"{found.median.cost.in_numbers()} | {found.heaviest.cost.in_numbers()}"


def bounded(rows: str) -> None:
    """The table over how many ratings of a person are sent."""
    splits = {name: split(name) for name in DATA[:2]}
    print("| at most |", " | ".join("all" if most is None else str(most) for most in MOST), "|")
    for name, parts in splits.items():
        for row in (row for row in BOUNDED if rows in row):
            means = [
                np.mean(errors(name, parts, row, seeds=3, max_ratings=most) or [np.nan])
                for most in MOST
            ]
            print(
                f"| {name} `{row}` |",
                " | ".join(f"{mean:.4f}"[1:] for mean in means),
                "|",
                flush=True,
            )
    print("| | at most | median person | heaviest person |")
    for name, parts in splits.items():
        for most in MOST:
            print(
                f"| {name} | {'all' if most is None else most} | {whole_persons(parts, most)} |",
                flush=True,
            )


def persons() -> None:
    """The tables of what all ratings of a person cost: about values, and about presence."""

    def told(found: Cost) -> str:
        return f"{found.pure:.1f}, or {found.epsilon_at_delta:.1f}*"

    print("| | average person | median person | the one with most |")
    for name in DATA:
        ratings = load_dataset(name)
        weights = PrivacySpec().draw(ratings, rng=0)
        for method, view in (("hdp-sum", "sums"), ("hdp-bit", "messages")):
            found = person_costs(Setting(method, scale=ratings.scale), view, ratings, weights)
            people = [
                person
                for person in (found.average, found.median, found.heaviest)
                if person is not None
            ]
            counts = ", ".join(
                f"{person.ratings:,} of {person.weight / person.ratings:.3f}" for person in people
            )
            print(
                f"| {name} `{method}`, values ({counts}) |",
                " | ".join(told(person.cost) for person in people),
                "|",
                flush=True,
            )
            if method == "hdp-sum":
                cells = " | ".join(told(person.presence) for person in people)
                print(f"| {name} `{method}`, presence | {cells} |", flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", action="store_true")
    parser.add_argument("--rows", default="")
    parser.add_argument("--max-ratings", action="store_true")
    parser.add_argument("--persons", action="store_true")
    given = parser.parse_args()
    if given.persons:
        persons()
        return
    if given.max_ratings:
        bounded(given.rows)
        return
    splits = {name: split(name) for name in (DATA[:2] if given.epsilons else DATA)}
    if given.epsilons:
        print("| epsilon |", " | ".join(f"{one:g}" for one in EPSILONS), "|")
        for name, parts in splits.items():
            for row in (row for row in OVER_EPSILON if given.rows in row):
                means = [
                    np.mean(errors(name, parts, row, epsilon) or [np.nan]) for epsilon in EPSILONS
                ]
                print(
                    f"| {name} `{row}` |",
                    " | ".join(f"{mean:.4f}"[1:] for mean in means),
                    "|",
                    flush=True,
                )
        return
    print("| |", " | ".join(splits), "|")
    for row in (row for row in ROWS if given.rows in row):
        cells = []
        for name, parts in splits.items():
            found = errors(name, parts, row)
            spread = "" if found is None else f"{np.std(found, ddof=1):.4f}"[1:]
            cells.append("" if found is None else f"{np.mean(found):.4f} ({spread})")
        print(f"| `{row}` |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
