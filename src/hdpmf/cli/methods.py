"""``hdpmf methods`` and ``demo``: describe methods, and try them all."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.inference import item_fields, list_table
from hdpmf.cli.options.common import (
    argument,
    command,
    make_folder,
    option,
)
from hdpmf.cli.output import Block, Result, Table, privacy_line
from hdpmf.common.methods import METHODS, Method, method_named

if TYPE_CHECKING:
    pass


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

_RECOMMENDING = "hdp-sum"  # the most accurate one that is proved to hide values and presence
_N_RECOMMENDED = 5


@command
def demo(
    out: Annotated[Path, option("Where the plot goes.", "FOLDER", "--out", "-o")] = Path("out")
    / "demo",
    quick: Annotated[bool, option("Little data: to see that it runs.")] = False,
) -> Result:
    """Train every method on synthetic data; print a table and recommendations, save a plot."""
    from hdpmf.common.data import load_dataset
    from hdpmf.common.privacy import PrivacySpec
    from hdpmf.models import compare, make_model
    from hdpmf.models.training import FarFromConvergedWarning

    begin = time.perf_counter()
    make_folder(out)
    world = load_dataset("synthetic", **(_QUICK_WORLD if quick else _WORLD))
    models = {
        name: make_model(name, **({"rng": 0} if "rng" in method.options else {}))
        for name, method in METHODS.items()
        if not method.lists_only
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FarFromConvergedWarning)  # the table says so
        found = compare(models.values(), world, weights=PrivacySpec(), progress=True)
    user = world.users.ids[0].item()
    recommended = models[_RECOMMENDING].recommend(user, _N_RECOMMENDED)
    plot = out / "accuracy.png"
    found.plot().save(plot)
    rows = list(found)
    numbers = ("mse", "mae", "epsilon", "fit_seconds")
    text: list[Block] = [
        Table(
            ("method", *numbers, "epsilon is"),
            [
                (
                    row["model"],
                    *("" if row[name] is None else f"{row[name]:.3f}" for name in numbers),
                    row["epsilon_is"],
                )
                for row in rows
            ],
            numeric=numbers,
            title=found.title,
        ),
        *(
            f"{METHODS[name].label}. {privacy_line(models[name].privacy, 'explain', name)}"
            for name in (_RECOMMENDING, "hdpmf")
        ),
        "",
        list_table(recommended, f"For user {user}, by {METHODS[_RECOMMENDING].label}:"),
        "",
        f"accuracy by method: {plot}",
        f"all of it took {time.perf_counter() - begin:.1f} s",
    ]
    fields = {
        "data": world.name,
        "methods": rows,
        "recommendations": {"user": user, "items": item_fields(recommended)},
        "plot": str(plot),
    }
    return Result(fields, text)
