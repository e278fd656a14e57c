"""``hdpmf methods`` and ``hdpmf prior``: describe methods, and learn or show the population
priors that they use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hdpmf.cli.options.common import DATASET_NAMES, DatasetName, Json, Seed, Threads, completion
from hdpmf.cli.output import print_json, print_lines, print_table, progress_bar
from hdpmf.common.methods import METHODS, Method, method_named
from hdpmf.errors import ConfigError, DatasetError, StorageError


def methods(
    method: Annotated[
        str | None,
        typer.Argument(metavar="METHOD", help="Only this one.", autocompletion=completion(METHODS)),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="As the page of the docs.")] = False,
    json: Json = False,
) -> None:
    """List the methods with what their epsilon is worth, or say everything about METHOD."""
    chosen = tuple(METHODS.values()) if method is None else (method_named(method),)
    if json:
        print_json({"methods": [_fields(known) for known in chosen]})
    elif markdown:
        from hdpmf.common.methods.descriptions import markdown as page

        print_lines(*page(chosen).splitlines())
    elif method is None:
        rows = [
            (known.name, known.claim().status, known.claim().against, known.summary)
            for known in chosen
        ]
        print_table(("method", "epsilon is", "against who sees", "what it is"), rows)
    else:
        _print_method(chosen[0])


def _print_method(method: Method) -> None:
    claim = method.claim()
    print_lines(
        f"{method.label}: {method.summary}", "", method.plain.sent, method.plain.stays_open, ""
    )
    print_lines(
        f"epsilon: {claim.status.upper()}, against an observer of: {claim.against}; {claim.reason}",
        "",
    )
    rows = [
        (known.flag, _default(method, known.name), known.help)
        for known in method.options.values()
        if known.flags
    ]
    if rows:
        print_table(("option", "default", ""), rows)
    else:
        print_lines("It has no options.")


def _default(method: Method, name: str) -> str:
    value = method.default(name)
    return "" if value is None else str(value)


def _fields(method: Method) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "name": method.name,
        "label": method.label,
        "summary": method.summary,
        "family": method.family,
        "views": list(method.views),
        "claims": {view: asdict(claim) for view, claim in method.plain.claims.items()},
        "claims_with_labels": None
        if method.labelled is None
        else {view: asdict(claim) for view, claim in method.labelled.claims.items()},
        "options": {
            name: {"flags": list(known.flags), "default": method.default(name), "help": known.help}
            for name, known in method.options.items()
        },
        "fixed": dict(method.fixed),
    }


app = typer.Typer(
    help="Population priors: what people in general like, from public ratings.",
    no_args_is_help=True,
)


@app.command()
def learn(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write the prior (JSON).")
    ],
    data: DatasetName = None,
    public: Annotated[
        bool,
        typer.Option(
            "--public",
            help="Declare that these ratings are public: the prior may tell anything about them.",
        ),
    ] = False,
    name: Annotated[
        str | None, typer.Option("--name", help="What to call it.", show_default="the file's name")
    ] = None,
    seed: Seed = 0,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Learn a prior from a data set that is declared public."""
    if data is None:
        raise ConfigError(f"say what to learn from: --data NAME, one of {', '.join(DATASET_NAMES)}")
    if not public:
        raise ConfigError(
            "a prior is learned without any protection, so it may only come from public ratings; "
            "if these are public, say so with --public"
        )
    from hdpmf.common.data import load_dataset
    from hdpmf.models.prior_learning import learn_prior

    ratings = load_dataset(data)
    if ratings.item_table is None:
        raise DatasetError(
            f"{ratings.name} has no item features, so there is nothing that a prior could be about"
        )
    origin = {"dataset": data, "title": ratings.name, "declared": "public"}
    with progress_bar("learning") as advance:
        prior = learn_prior(
            ratings,
            name=name or out.stem,
            origin=origin,
            rng=seed,
            n_threads=threads,
            progress=advance,
        )
    try:
        prior.save(out)
    except OSError as error:
        raise StorageError(f"could not write {out}: {error.strerror}") from error
    facts = {
        "name": prior.name,
        "out": str(out),
        "columns": len(prior.columns),
        "noise": prior.noise,
    }
    if json:
        print_json({**facts, "origin": prior.origin})
        return
    print_lines(
        f"Prior {prior.name!r} over {len(prior.columns)} columns, learned from "
        f"{ratings.name}, written to {out}.",
        f"Use it with: hdpmf evaluate hdp-sum --prior {out} ... (on other data than "
        f"{ratings.name})",
    )


@app.command()
def show(
    prior: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="films, films-100k, or a file.")
    ],
    json: Json = False,
) -> None:
    """Say where a prior comes from and what it knows."""
    from hdpmf.models import load_prior

    found = load_prior(prior)
    if found is None:
        raise ConfigError("name a prior")
    if json:
        print_json(
            {
                "name": found.name,
                "origin": found.origin,
                "columns": list(found.columns),
                "noise": found.noise,
            }
        )
        return
    print_lines(
        f"Prior {found.name!r}: {len(found.columns)} columns, noise {found.noise:.3f}",
        *(f"{key}: {value}" for key, value in found.origin.items()),
        f"columns: {', '.join(found.columns)}",
    )
