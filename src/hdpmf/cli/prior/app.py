"""``hdpmf prior``: learn a population prior from public ratings, and say what one is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hdpmf.cli.shared.options import DATASET_NAMES, DatasetName, Json, Seed, Threads
from hdpmf.cli.shared.output import print_json, print_lines, progress_bar
from hdpmf.errors import ConfigError, DatasetError, StorageError

app = typer.Typer(help="Population priors: what people in general like, from public ratings.", no_args_is_help=True)


@app.command()
def learn(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write the prior (JSON).")],
    data: DatasetName = None,
    public: Annotated[
        bool,
        typer.Option("--public", help="Declare that these ratings are public: the prior may tell anything about them."),
    ] = False,
    name: Annotated[str | None, typer.Option("--name", help="What to call it.", show_default="the file's name")] = None,
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
    from hdpmf.models.priors.learn import learn_prior
    from hdpmf.ratings import load_dataset

    ratings = load_dataset(data)
    if ratings.item_table is None:
        raise DatasetError(f"{ratings.name} has no item features, so there is nothing that a prior could be about")
    origin = {"dataset": data, "title": ratings.name, "declared": "public"}
    with progress_bar("learning") as advance:
        prior = learn_prior(
            ratings, name=name or out.stem, origin=origin, rng=seed, n_threads=threads, progress=advance
        )
    try:
        prior.save(out)
    except OSError as error:
        raise StorageError(f"could not write {out}: {error.strerror}") from error
    facts = {"name": prior.name, "out": str(out), "columns": len(prior.columns), "noise": prior.noise}
    if json:
        print_json({**facts, "origin": prior.origin})
        return
    print_lines(
        f"Prior {prior.name!r} over {len(prior.columns)} columns, learned from {ratings.name}, written to {out}.",
        f"Use it with: hdpmf evaluate hdp-sum --prior {out} ... (on other data than {ratings.name})",
    )


@app.command()
def show(
    prior: Annotated[str, typer.Argument(metavar="NAME|FILE", help="films, films-100k, or a file.")],
    json: Json = False,
) -> None:
    """Say where a prior comes from and what it knows."""
    from hdpmf.models import load_prior

    found = load_prior(prior)
    if found is None:
        raise ConfigError("name a prior")
    if json:
        print_json({"name": found.name, "origin": found.origin, "columns": list(found.columns), "noise": found.noise})
        return
    print_lines(
        f"Prior {found.name!r}: {len(found.columns)} columns, noise {found.noise:.3f}",
        *(f"{key}: {value}" for key, value in found.origin.items()),
        f"columns: {', '.join(found.columns)}",
    )
