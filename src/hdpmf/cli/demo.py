"""``hdpmf demo``: every method on a made-up world, in seconds, with no download."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.options.common import Json, make_folder
from hdpmf.cli.output import (
    claim_fields,
    claim_sentence,
    print_json,
    print_lines,
    print_table,
    progress_bar,
    short_claim,
)
from hdpmf.cli.recommendations import item_fields
from hdpmf.common.methods import METHODS, Method

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings
    from hdpmf.models import Estimator

# Enough ratings per item that the noise of epsilon 1 leaves something to see, few enough to train
# in seconds.
_WORLD: dict[str, Any] = {"n_users": 3_000, "n_items": 800, "n_ratings": 400_000}
_QUICK_WORLD: dict[str, Any] = {"n_users": 300, "n_items": 100, "n_ratings": 9_000}
_SEEDS = (0, 1, 2)
_FACTORS, _EPOCHS = 10, 100
_HELD_OUT = 10
# The most accurate method that is proved to hide both values and presence.
_RECOMMENDING = "hdp-sum"
_N_RECOMMENDED = 5

Step = Callable[[], None]


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the plot goes.")
    ] = Path("out") / "demo",
    quick: Annotated[
        bool, typer.Option("--quick", help="A tiny world and one seed: to see that it runs.")
    ] = False,
    json: Json = False,
) -> None:
    """Train every method on a made-up world; print a table and recommendations, save a plot of
    the accuracy.
    """
    begin = time.perf_counter()
    make_folder(out)

    from hdpmf.common.data import load_dataset

    world = load_dataset("synthetic", **(_QUICK_WORLD if quick else _WORLD))
    seeds = _SEEDS[:1] if quick else _SEEDS
    with progress_bar("training", len(_compared()) * len(seeds)) as advance:
        done = 0

        def step() -> None:
            nonlocal done
            done += 1
            advance(done, len(_compared()) * len(seeds))

        results, models = _compare(world, seeds, step)
    user = world.users.ids[0].item()
    recommended = models[_RECOMMENDING].recommend(user, _N_RECOMMENDED)
    plot = out / "accuracy.png"
    _save_plot(results, world, seeds, plot)
    seconds = time.perf_counter() - begin

    if json:
        print_json(
            {
                "data": world.name,
                **_size(world),
                "seeds": list(seeds),
                "factors": _FACTORS,
                "epochs": _EPOCHS,
                "methods": results,
                "recommendations": {
                    "user": user,
                    "method": _RECOMMENDING,
                    "items": item_fields(recommended),
                },
                "plot": str(plot),
                "seconds": seconds,
            }
        )
        return
    print_table(
        ("method", "MSE", "MAE", "epsilon", "fit", "what it is"),
        [
            (
                row["label"],
                f"{row['mse']:.3f}",
                f"{row['mae']:.3f}",
                short_claim(models[row["method"]].privacy),
                f"{row['fit_seconds']:.2f} s",
                METHODS[row["method"]].summary,
            )
            for row in results
        ],
        numeric=("MSE", "MAE", "fit"),
        title=f"A made-up world: {world.n_users:,} users, {world.n_items:,} items, "
        f"{len(world):,} ratings; "
        f"{_HELD_OUT} of each user's held out, K={_FACTORS}, {_seeds_in_words(len(seeds))}",
        strong=[position for position, row in enumerate(results) if row["method"] == _RECOMMENDING],
    )
    for name in (_RECOMMENDING, "hdpmf"):
        print_lines(f"{METHODS[name].label}. {claim_sentence(models[name].privacy)}", "")
    print_table(
        ("expected", "title", "why"),
        [
            (f"{entry.score:.2f}", entry.title or str(entry.item), entry.reason or "")
            for entry in recommended
        ],
        numeric=("expected",),
        title=f"For user {user}, by {METHODS[_RECOMMENDING].label}:",
    )
    print_lines("", f"accuracy by method: {plot}", f"all of it took {seconds:.1f} s")


def _compared() -> dict[str, Method]:
    """The methods that predict ratings."""
    return {name: method for name, method in METHODS.items() if not method.lists_only}


def _compare(
    world: Ratings, seeds: tuple[int, ...], step: Step
) -> tuple[list[dict[str, Any]], dict[str, Estimator]]:
    """Every method on every seed's split and weights: mean errors best first, and one fitted
    model of each.
    """
    from statistics import fmean, pstdev

    from hdpmf.common.privacy import PrivacySpec
    from hdpmf.models import make_model
    from hdpmf.models.training import FarFromConvergedWarning

    splits = {seed: world.hold_out(_HELD_OUT, rng=seed) for seed in seeds}
    rows: list[dict[str, Any]] = []
    models: dict[str, Estimator] = {}
    for name, method in _compared().items():
        scores, times = [], []
        for seed, (train, test) in splits.items():
            wanted = {"n_factors": _FACTORS, "rng": seed}
            model = make_model(
                name, **{key: value for key, value in wanted.items() if key in method.options}
            )
            weights = PrivacySpec().draw(train, seed)
            begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FarFromConvergedWarning)  # the table says so
                model.fit(train, weights)
            times.append(time.perf_counter() - begin)
            scores.append(model.score(test))
            models.setdefault(name, model)
            step()
        errors = [float(score["mse"]) for score in scores]
        rows.append(
            {
                "method": name,
                "label": method.label,
                "mse": fmean(errors),
                "mse_sd": pstdev(errors),
                "mae": fmean(float(score["mae"]) for score in scores),
                # The fastest: the first one may have had to compile.
                "fit_seconds": min(times),
                **claim_fields(models[name].privacy),
            }
        )
    rows.sort(key=lambda row: float(row["mse"]))
    return rows, models


def _seeds_in_words(count: int) -> str:
    return "one seed" if count == 1 else f"mean of {count} seeds"


def _size(world: Ratings) -> dict[str, int]:
    return {"users": world.n_users, "items": world.n_items, "ratings": len(world)}


def _save_plot(
    results: list[dict[str, Any]], world: Ratings, seeds: tuple[int, ...], path: Path
) -> None:
    from hdpmf.common.base.files import atomic_write
    from hdpmf.lab.plots import accuracy_png

    subtitle = (
        f"made-up world of {world.n_users:,} users, {world.n_items:,} items, "
        f"{len(world):,} ratings; "
        f"K = {_FACTORS}; {_seeds_in_words(len(seeds))}"
    )
    atomic_write(path, accuracy_png(results, subtitle))
