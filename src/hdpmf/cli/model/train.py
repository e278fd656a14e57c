"""``hdpmf train``: fit a model on all ratings and save it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hdpmf.cli.model.fitting import facts, fit, make, persons, remarks
from hdpmf.cli.model.from_release import TrainingData, train_from_release
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.method_options import ModelOptions
from hdpmf.cli.shared.options import Json, MethodOrNone, Seed, data_option, model_option
from hdpmf.cli.shared.output import claim_sentence, note, print_json, print_lines
from hdpmf.cli.shared.weights import WeightOptions
from hdpmf.errors import ConfigError, StorageError
from hdpmf.methods import METHODS

if TYPE_CHECKING:
    from hdpmf.ratings import Ratings


@grouped
def train(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where to save; an earlier model is replaced.")
    ],
    source: TrainingData,
    options: ModelOptions,
    wishes: WeightOptions,
    method: MethodOrNone = None,
    catalogue: Annotated[
        Path | None,
        data_option(
            "--catalogue",
            metavar="FILE",
            help="The model's items, a public list (CSV, TSV or Parquet): then it does not tell which ones were rated.",
        ),
    ] = None,
    validation_fraction: Annotated[
        float | None,
        model_option(
            "--validation-fraction",
            metavar="F",
            help="Keep this part of the ratings out of training and measure on it.",
        ),
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train METHOD on all ratings and save the model, what is private apart from what is not."""
    if source.from_release is not None:
        if catalogue is not None or validation_fraction is not None:
            raise ConfigError("--catalogue and --validation-fraction are about ratings; a released data set has none")
        _check_place(out)
        train_from_release(source.from_release, method, out, options, wishes, seed, json)
        return
    if method is None:
        raise ConfigError("say what to train: METHOD, or --from-release FILE (hdpmf methods lists the methods)")
    model = make(method, options, seed)
    if "early_stopping" in options.given and validation_fraction is None:
        raise ConfigError("--patience needs ratings to validate on; give --validation-fraction as well")
    _check_place(out)
    ratings = source.load()
    if catalogue is not None:
        ratings = _over(ratings, catalogue)
    if options.items is not None and ratings.item_table is None:
        ratings = _with_titles(ratings, options.items)
    learning, validation = _set_aside(ratings, validation_fraction, seed)
    weights = wishes.draw(learning, seed, source)
    seconds = fit(method, model, learning, weights, validation)
    whole = persons(method, model, learning, weights)
    validation_mse = None if validation is None or validation.implicit else model.score(validation)["mse"]
    model.save(out)

    epochs_run = len(getattr(model, "history_", ()))
    recommender_part, devices_part = out / "recommender", out / "devices"
    if json:
        print_json(
            {
                "method": method,
                "out": str(out),
                "recommender_part": str(recommender_part),
                "devices_part": str(devices_part),
                "n_train": len(learning),
                "n_validation": 0 if validation is None else len(validation),
                "validation_mse": validation_mse,
                "epochs_run": epochs_run,
                "fit_seconds": seconds,
                **wishes.record(seed, source),
                **facts(method, model, seed, ratings.name),
                "epsilon_per_person": None if whole is None else whole.fields(),
            }
        )
        return
    print_lines(
        f"{METHODS[method].label} trained on {len(learning):,} {'choices' if ratings.implicit else 'ratings'} of "
        f"{ratings.name} in {seconds:.2f} s ({epochs_run} epochs)"
    )
    if validation is not None and validation_mse is not None:
        print_lines(f"validation MSE {validation_mse:.4f} on {len(validation):,} ratings")
    print_lines(
        *([wishes.sentence(seed, source)] if "epsilon" in METHODS[method].options else []),
        *remarks(model, whole),
        f"recommender's part (nothing private): {recommender_part}",
        f"devices' part (PRIVATE, readable by you only): {devices_part}",
        claim_sentence(model.privacy),
    )


def _with_titles(ratings: Ratings, items: Path) -> Ratings:
    """The ratings with what the file of features says for people: titles, genres, years."""
    from hdpmf.ratings.item_file import read_item_table

    table = read_item_table(items)
    return ratings.describe(table if ratings.items.is_integer else table.with_text_ids())


def _set_aside(ratings: Ratings, fraction: float | None, seed: int) -> tuple[Ratings, Ratings | None]:
    if fraction is None:
        return ratings, None
    if not 0.0 < fraction < 1.0:
        raise ConfigError(f"--validation-fraction must be above 0 and below 1, not {fraction:g}")
    import numpy as np

    aside = np.random.default_rng(seed).random(len(ratings)) < fraction
    if aside.all() or not aside.any():
        raise ConfigError(f"--validation-fraction {fraction:g} of {len(ratings):,} ratings leaves nothing on one side")
    return ratings.take(~aside), ratings.take(aside)


def _check_place(out: Path) -> None:
    """Refuse before training, not after it."""
    if out.exists() and not (out / "recommender").is_dir() and (not out.is_dir() or any(out.iterdir())):
        raise StorageError(f"{out} exists and is not a saved model; choose a new folder")
    nearest = next(folder for folder in out.absolute().parents if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise StorageError(f"cannot write to {out}: no permission in {nearest}; choose another folder")


def _over(ratings: Ratings, catalogue: Path) -> Ratings:
    from hdpmf.ratings.item_file import over_file

    listed = over_file(ratings, catalogue)
    if len(listed) < len(ratings):
        note(f"{len(ratings) - len(listed):,} ratings of items that are not in {catalogue} are left out.")
    return listed
