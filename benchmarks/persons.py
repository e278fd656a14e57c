"""Stars and lists at the level of persons: the README's first table and its figure.

    python benchmarks/pairs.py --data ml-100k --ways lists stars 2> pairs.jsonl    # and ml-1m
    python benchmarks/persons.py --data ml-100k ml-1m > persons.jsonl
    python benchmarks/persons.py --show pairs.jsonl persons.jsonl --svg docs/images/persons.svg

Ten ratings per user are held out; seeds are of splits and of noise. Epsilon is anybody's, their
history against none, at delta 1e-5. ``hdp-sum`` has weights 1, sends at most so many ratings of a
person that validation within the first seed's training part likes best, and the epsilon per rating
at which that many cost the person what is asked; ``biased-mf`` has K = 50 and the best of eight
settings, found there as well.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from hdpmf import BiasedMF, HDPSum, Ratings, make_model
from hdpmf.common.privacy.accounting import cost
from lists import find_data, ratings

EPSILONS = (1.0, 2.0, 4.0, 8.0)
LIMITS = (25, 50, 100, 200, 400)

Row = dict[str, Any]


def rating_epsilon(person: float, limit: int) -> float:
    """The epsilon of a rating at which ``limit`` ratings of weight 1 cost a person ``person``."""
    low, high = 0.0, 4.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        spent = cost(
            "hdp-sum",
            "sums",
            unit="user",
            neighbours="presence",
            weight=[1.0] * limit,
            epsilon=middle,
        )
        low, high = (middle, high) if spent.epsilon_at_delta <= person else (low, middle)
    return low


def sums(epsilon: float, limit: int, seed: int) -> HDPSum:
    return HDPSum(rating_epsilon(epsilon, limit), max_ratings=limit, rng=seed)


def factors(setting: tuple[float, float, int], seed: int) -> BiasedMF:
    rate, reg, epochs = setting
    return BiasedMF(50, rate, reg, epochs, rng=seed)


def measure(data: str, seeds: int) -> None:
    """Print a line of JSON for every model and seed."""
    table = ratings(data)
    first, _ = table.hold_out(10, rng=0)
    inner, validation = first.hold_out(10, rng=1)

    def error(model: Any) -> float:
        return float(model.fit(inner).score(validation)["mse"])

    limits = {e: min(LIMITS, key=lambda m: error(sums(e, m, 0))) for e in EPSILONS}
    settings = itertools.product((0.005, 0.01), (0.05, 0.1), (20, 40))
    setting = min(settings, key=lambda s: error(factors(s, 0)))
    print(f"{data}: at most {limits}; biased-mf {setting}", file=sys.stderr)

    for seed in range(seeds):
        train, test = table.hold_out(10, rng=seed)
        models: list[tuple[str, float, Any]] = [
            ("hdp-sum", e, sums(e, limits[e], seed)) for e in EPSILONS
        ]
        models += [(name, 0.0, make_model(name)) for name in ("user-mean", "most-popular")]
        models += [("ease", 0.0, make_model("ease", rng=seed))]
        models += [("biased-mf", 0.0, factors(setting, seed))]
        for way, epsilon, model in models:
            row = {"data": data, "way": way, "epsilon": epsilon, "seed": seed}
            print(json.dumps(row | results(model, train, test)), flush=True)


def results(model: Any, train: Ratings, test: Ratings) -> Row:
    model.fit(train)
    found = {"ndcg": model.rank(test)["ndcg"]} if model.can_rank else {}
    return found | ({"mse": model.score(test)["mse"]} if model.predicts_ratings else {})


NAMES = {
    "lists": "`hdp-pairs`, lists alone",
    "stars": "**`hdp-pairs`**",
    "hdp-sum": "`hdp-sum`, capped",
    "user-mean": "own mean, nothing is sent",
    "most-popular": "most popular, not private",
    "biased-mf": "`biased-mf`, not private",
    "ease": "EASE, not private",
}


def mean(rows: list[Row], data: str, way: str, epsilon: float, metric: str) -> float | None:
    found = [
        row[metric]
        for row in rows
        if (row["data"], row["way"], row["epsilon"]) == (data, way, epsilon) and metric in row
    ]
    return statistics.mean(found) if found else None


def shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}".removeprefix("0")


def table(rows: list[Row], data: str) -> str:
    """MSE and NDCG@10, one below the other, over epsilon."""
    lines = []
    for metric, way in itertools.product(("ndcg", "mse"), NAMES):
        cells = [shown(mean(rows, data, way, e, metric)) for e in EPSILONS]
        cells = cells if any(cells) else [shown(mean(rows, data, way, 0.0, metric))]
        if any(cells):
            lines.append(f"| {data} | {metric} | {NAMES[way]} | {' | '.join(cells)} |")
    return "\n".join(lines)


# Pictures: (metric, its name, lowest, highest), colours that do not need each other's hue.
PANELS = (("ndcg", "NDCG@10"), ("mse", "MSE"))
COLOURS = {"lists": "#0b7a75", "stars": "#d1495b", "hdp-sum": "#3d5a98"}
LEVELS = {
    "most-popular": ("ndcg", "popular"),
    "ease": ("ndcg", "EASE"),
    "user-mean": ("mse", "own mean"),
    "biased-mf": ("mse", "biased MF"),
}
WIDTH, HEIGHT, LEFT, TOP, INNER = 270, 220, 44, 30, (200, 140)


def panel(rows: list[Row], data: str, metric: str, name: str) -> list[str]:
    """One plot: lines over the person's epsilon, and levels of what has none."""
    lines = {
        way: [(i, v) for i, e in enumerate(EPSILONS) if (v := mean(rows, data, way, e, metric))]
        for way in COLOURS
    }
    levels = {
        label: mean(rows, data, way, 0.0, metric)
        for way, (its, label) in LEVELS.items()
        if its == metric
    }
    values = [v for line in lines.values() for _, v in line] + [v for v in levels.values() if v]
    low, high = min(values), max(values)
    low, high = low - (high - low) * 0.08, high + (high - low) * 0.14

    def place(position: float, value: float) -> str:
        x = LEFT + INNER[0] * position / (len(EPSILONS) - 1)
        return f"{x:.1f},{TOP + INNER[1] * (high - value) / (high - low):.1f}"

    drawn = [
        f'<text x="{LEFT}" y="{TOP - 10}" font-weight="bold">{name}, {data.upper()}</text>',
        f'<rect x="{LEFT}" y="{TOP}" width="{INNER[0]}" height="{INNER[1]}" fill="none" '
        'stroke="#999"/>',
    ]
    for i, epsilon in enumerate(EPSILONS):
        x = place(i, low).split(",")[0]
        drawn.append(
            f'<text x="{x}" y="{TOP + INNER[1] + 14}" text-anchor="middle">{epsilon:g}</text>'
        )
    for value in (low + (high - low) * part for part in (0.1, 0.5, 0.9)):
        y = float(place(0, value).split(",")[1]) + 4
        drawn.append(f'<text x="{LEFT - 4}" y="{y:.1f}" text-anchor="end">{shown(value)}</text>')
    for label, level in levels.items():
        if level is None:
            continue
        drawn.append(
            f'<path d="M{place(0, level)} L{place(len(EPSILONS) - 1, level)}" stroke="#777" '
            'stroke-dasharray="4 3"/>'
        )
        x, y = place(0, level).split(",")
        drawn.append(f'<text x="{float(x) + 3}" y="{float(y) - 3:.1f}" fill="#666">{label}</text>')
    for way, line in lines.items():
        if line:
            drawn.append(
                f'<polyline points="{" ".join(place(*p) for p in line)}" fill="none" '
                f'stroke="{COLOURS[way]}" stroke-width="2"/>'
            )
    return drawn


def picture(rows: list[Row]) -> str:
    """All plots side by side, with a legend below."""
    sets = list(dict.fromkeys(row["data"] for row in rows))
    parts = []
    for index, (data, (metric, name)) in enumerate(itertools.product(sets, PANELS)):
        inner = "".join(panel(rows, data, metric, name))
        parts.append(f'<g transform="translate({index * WIDTH} 0)">{inner}</g>')
    names = {"lists": "hdp-pairs, lists alone", "stars": "hdp-pairs", "hdp-sum": "hdp-sum, capped"}
    for index, (way, label) in enumerate(names.items()):
        x = LEFT + index * 190
        parts.append(
            f'<path d="M{x} {HEIGHT - 6} h24" stroke="{COLOURS[way]}" stroke-width="2"/>'
            f'<text x="{x + 30}" y="{HEIGHT - 2}">{label}</text>'
        )
    x, width = LEFT + 3 * 190, WIDTH * len(sets) * len(PANELS)
    parts.append(f'<text x="{x}" y="{HEIGHT - 2}">below: the person\'s epsilon at 1e-5</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">'
        f'<rect width="{width}" height="{HEIGHT}" fill="white"/>' + "\n".join(parts) + "</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["ml-100k"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--show", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    if not given.show:
        find_data()
        for data in given.data:
            measure(data, given.seeds)
        return
    lines = (line for file in given.show for line in file.read_text("utf-8").splitlines())
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    for data in dict.fromkeys(row["data"] for row in rows):
        print(table(rows, data))
    if given.svg:
        given.svg.write_text(picture(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
