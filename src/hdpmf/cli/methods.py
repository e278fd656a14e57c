"""``hdpmf methods`` and ``demo``: describe methods, and try them all."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.inference import item_fields
from hdpmf.cli.options.common import (
    argument,
    command,
    make_folder,
    option,
)
from hdpmf.cli.output import Block, Result, Table, claim_fields, privacy_line, short_claim
from hdpmf.common.base.progress import progress_bar
from hdpmf.common.methods import METHODS, Method, method_named

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings
    from hdpmf.models import Estimator


@command
def methods(
    method: Annotated[str | None, argument("Only this one.", "METHOD", words=METHODS)] = None,
) -> Result:
    """List the methods with the worth of their epsilon, or describe METHOD."""
    chosen = tuple(METHODS.values()) if method is None else (method_named(method),)
    text: Iterator[Block] | list[Block]
    if method is not None:
        text = _description(chosen[0])
    else:
        rows = [
            (known.name, known.claim().status, known.claim().against, known.summary)
            for known in chosen
        ]
        text = [Table(("method", "epsilon is", "against who sees", "what it is"), rows)]
    return Result({"methods": [_method_fields(known) for known in chosen]}, text)


def _description(method: Method) -> Iterator[Block]:
    claim = method.claim()
    yield from (f"{method.label}: {method.summary}", "")
    yield from (method.form.sent, method.form.stays_open, "")
    against = f"against an observer of: {claim.against}"
    yield f"epsilon: {claim.status.upper()}, {against}; {claim.reason}"
    yield ""
    defaults = {name: method.default(name) for name in method.options}
    rows = [
        (option.flag, "" if defaults[name] is None else str(defaults[name]), option.words)
        for name, option in method.options.items()
    ]
    yield Table(("option", "default", ""), rows) if rows else "It has no options."


def _method_fields(method: Method) -> dict[str, Any]:
    return {
        "name": method.name,
        "label": method.label,
        "summary": method.summary,
        "family": method.family,
        "views": list(method.views),
        "claims": {view: asdict(claim) for view, claim in method.form.claims.items()},
        "options": {
            name: {
                "flag": option.flag,
                "default": method.default(name),
                "help": option.help,
            }
            for name, option in method.options.items()
        },
        "fixed": dict(method.fixed),
    }


# Enough ratings per item that the noise of epsilon 1 leaves something to see, few enough to train
# in seconds.
_WORLD: dict[str, Any] = {"n_users": 3_000, "n_items": 800, "n_ratings": 400_000}

_QUICK_WORLD: dict[str, Any] = {"n_users": 300, "n_items": 100, "n_ratings": 9_000}

_SEEDS = (0, 1, 2)

_FACTORS = 10

_EPOCHS = 100

_HELD_OUT = 10

# The most accurate method that is proved to hide both values and presence.
_RECOMMENDING = "hdp-sum"

_N_RECOMMENDED = 5


@command
def demo(
    out: Annotated[Path, option("Where the plot goes.", "FOLDER", "--out", "-o")] = Path("out")
    / "demo",
    quick: Annotated[bool, option("Little data and one seed: to see that it runs.")] = False,
) -> Result:
    """Train every method on synthetic data; print a table and recommendations, save a plot."""
    from hdpmf.common.base.files import atomic_write
    from hdpmf.common.data import load_dataset
    from hdpmf.lab.plots import Bar, accuracy_png

    begin = time.perf_counter()
    make_folder(out)
    world = load_dataset("synthetic", **(_QUICK_WORLD if quick else _WORLD))
    seeds = _SEEDS[:1] if quick else _SEEDS
    total = len(_compared()) * len(seeds)
    with progress_bar("training", total) as advance:
        rows, models = _compare(world, seeds, lambda done: advance(done, total))
    user = world.users.ids[0].item()
    recommended = models[_RECOMMENDING].recommend(user, _N_RECOMMENDED)
    size = f"{world.n_users:,} users, {world.n_items:,} items, {len(world):,} ratings"
    mean = "one seed" if len(seeds) == 1 else f"mean of {len(seeds)} seeds"
    plot = out / "accuracy.png"
    bars = [
        Bar(
            row["label"],
            row["mse"],
            row["mse_sd"],
            row["epsilon"],
            row["epsilon_status"],
            silent=row["method"] == "user-mean",
        )
        for row in rows
    ]
    atomic_write(plot, accuracy_png(bars, f"made-up world of {size}; K = {_FACTORS}; {mean}"))
    seconds = time.perf_counter() - begin

    def text() -> Iterator[Block]:
        title = (
            f"A made-up world: {size}; {_HELD_OUT} of each user's held out, K={_FACTORS}, {mean}"
        )
        yield _comparison(rows, models, title)
        for name in (_RECOMMENDING, "hdpmf"):
            yield f"{METHODS[name].label}. {privacy_line(models[name].privacy, 'explain', name)}"
            yield ""
        yield Table(
            ("expected", "title", "why"),
            [
                (f"{entry.score:.2f}", entry.title or str(entry.item), entry.reason or "")
                for entry in recommended
            ],
            numeric=("expected",),
            title=f"For user {user}, by {METHODS[_RECOMMENDING].label}:",
        )
        yield from ("", f"accuracy by method: {plot}", f"all of it took {seconds:.1f} s")

    fields = {
        "data": world.name,
        "users": world.n_users,
        "items": world.n_items,
        "ratings": len(world),
        "seeds": list(seeds),
        "factors": _FACTORS,
        "epochs": _EPOCHS,
        "methods": rows,
        "recommendations": {
            "user": user,
            "method": _RECOMMENDING,
            "items": item_fields(recommended),
        },
        "plot": str(plot),
        "seconds": seconds,
    }
    return Result(fields, text())


def _comparison(rows: list[dict[str, Any]], models: dict[str, Estimator], title: str) -> Table:
    return Table(
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
            for row in rows
        ],
        numeric=("MSE", "MAE", "fit"),
        title=title,
        strong=[position for position, row in enumerate(rows) if row["method"] == _RECOMMENDING],
    )


def _compared() -> dict[str, Method]:
    """Return the methods that predict ratings."""
    return {name: method for name, method in METHODS.items() if not method.lists_only}


def _compare(
    world: Ratings, seeds: Sequence[int], step: Callable[[int], None]
) -> tuple[list[dict[str, Any]], dict[str, Estimator]]:
    """Fit every method to every seed's split and weights.

    Returns:
        The mean errors, best first, and one fitted model of each method.
    """
    from statistics import fmean, pstdev

    from hdpmf.common.privacy import PrivacySpec
    from hdpmf.models import make_model
    from hdpmf.models.training import FarFromConvergedWarning

    splits = {seed: world.hold_out(_HELD_OUT, rng=seed) for seed in seeds}
    rows: list[dict[str, Any]] = []
    models: dict[str, Estimator] = {}
    done = 0
    for name, method in _compared().items():
        scores = []
        times = []
        for seed, (train, test) in splits.items():
            wanted = {"n_factors": _FACTORS, "rng": seed}
            options = {key: value for key, value in wanted.items() if key in method.options}
            model = make_model(name, **options)
            weights = PrivacySpec().draw(train, seed)
            begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FarFromConvergedWarning)  # the table says so
                model.fit(train, weights)
            times.append(time.perf_counter() - begin)
            scores.append(model.score(test))
            models.setdefault(name, model)
            done += 1
            step(done)
        errors = [float(score["mse"]) for score in scores]
        rows.append(
            {
                "method": name,
                "label": method.label,
                "mse": fmean(errors),
                "mse_sd": pstdev(errors),
                "mae": fmean(float(score["mae"]) for score in scores),
                "fit_seconds": min(times),  # the first fit may have compiled kernels
                **claim_fields(models[name].privacy),
            }
        )
    rows.sort(key=lambda row: float(row["mse"]))
    return rows, models
