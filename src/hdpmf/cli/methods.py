"""``hdpmf methods`` and ``hdpmf prior``: describe methods; learn or show population priors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from hdpmf.cli.options.common import (
    DATASET_NAMES,
    DatasetName,
    Seed,
    Threads,
    argument,
    command,
    option,
)
from hdpmf.cli.output import Block, Result, Table, progress_bar
from hdpmf.common.methods import METHODS, Method, method_named
from hdpmf.errors import ConfigError, DatasetError, StorageError


@command
def methods(
    method: Annotated[str | None, argument("Only this one.", "METHOD", words=METHODS)] = None,
    markdown: Annotated[bool, option("Print Markdown, as in the docs.")] = False,
) -> Result:
    """List the methods with the worth of their epsilon, or describe METHOD."""
    chosen = tuple(METHODS.values()) if method is None else (method_named(method),)
    text: Iterator[Block] | list[Block]
    if markdown:
        from hdpmf.common.methods.descriptions import markdown as page

        text = [*page(chosen).splitlines()]
    elif method is not None:
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
    yield from (method.plain.sent, method.plain.stays_open, "")
    against = f"against an observer of: {claim.against}"
    yield f"epsilon: {claim.status.upper()}, {against}; {claim.reason}"
    yield ""
    defaults = {name: method.default(name) for name in method.options}
    rows = [
        (option.flag, "" if defaults[name] is None else str(defaults[name]), option.help)
        for name, option in method.options.items()
        if option.flags
    ]
    yield Table(("option", "default", ""), rows) if rows else "It has no options."


def _method_fields(method: Method) -> dict[str, Any]:
    forms = {"claims": method.plain, "claims_with_labels": method.labelled}
    return {
        "name": method.name,
        "label": method.label,
        "summary": method.summary,
        "family": method.family,
        "views": list(method.views),
        **{
            name: form and {view: asdict(claim) for view, claim in form.claims.items()}
            for name, form in forms.items()
        },
        "options": {
            name: {
                "flags": list(option.flags),
                "default": method.default(name),
                "help": option.help,
            }
            for name, option in method.options.items()
        },
        "fixed": dict(method.fixed),
    }


@command
def learn(
    out: Annotated[Path, option("Where to write the prior (JSON).", "FILE", "--out", "-o")],
    data: DatasetName = None,
    public: Annotated[
        bool,
        option("Declare that these ratings are public: the prior may tell anything about them."),
    ] = False,
    name: Annotated[str | None, option("Its name.", default="the file's name")] = None,
    seed: Seed = 0,
    threads: Threads = None,
) -> Result:
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
    with progress_bar("learning") as advance:
        prior = learn_prior(
            ratings,
            name=name or out.stem,
            origin={"dataset": data, "title": ratings.name, "declared": "public"},
            rng=seed,
            n_threads=threads,
            progress=advance,
        )
    try:
        prior.save(out)
    except OSError as error:
        raise StorageError(f"could not write {out}: {error.strerror}") from error
    fields = {
        "name": prior.name,
        "out": str(out),
        "columns": len(prior.columns),
        "noise": prior.noise,
        "origin": prior.origin,
    }
    text = [
        f"Prior {prior.name!r} over {len(prior.columns)} columns, learned from "
        f"{ratings.name}, written to {out}.",
        f"Use it with: hdpmf evaluate hdp-sum --prior {out} ... (on other data than "
        f"{ratings.name})",
    ]
    return Result(fields, text)


@command
def show(prior: Annotated[str, argument("films, films-100k, or a file.", "NAME|FILE")]) -> Result:
    """Show the origin and the columns of a prior."""
    from hdpmf.models import load_prior

    found = load_prior(prior)
    if found is None:
        raise ConfigError("name a prior")
    columns = list(found.columns)
    fields = {"name": found.name, "origin": found.origin, "columns": columns, "noise": found.noise}
    text = [
        f"Prior {found.name!r}: {len(columns)} columns, noise {found.noise:.3f}",
        *(f"{key}: {value}" for key, value in found.origin.items()),
        f"columns: {', '.join(columns)}",
    ]
    return Result(fields, text)
