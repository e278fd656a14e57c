"""``hdpmf train``: fit a model on all ratings and save it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hdpmf.cli.model import one_round
from hdpmf.cli.shared import options
from hdpmf.cli.shared.inputs import Settings, Source
from hdpmf.cli.shared.output import (
    claim_fields,
    claim_sentence,
    epochs_progress,
    hdpmf_version,
    print_json,
    print_lines,
)
from hdpmf.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from hdpmf.ratings import Ratings


def train(
    method: options.Method,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where to save; an earlier model is replaced.")
    ],
    train: options.TrainFile = None,
    data: options.DatasetName = None,
    scale: options.Scale = None,
    step: options.Step = None,
    column: options.Columns = None,
    factors: options.Factors = 10,
    lr: options.LearningRate = None,
    reg: options.Reg = 0.01,
    epochs: options.Epochs = 100,
    solver: options.Solver = "batch",
    validation_fraction: Annotated[
        float | None,
        typer.Option(
            "--validation-fraction",
            metavar="F",
            help="Keep this part of the ratings out of training and measure on it.",
            rich_help_panel=options.MODEL_PANEL,
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            "--patience",
            metavar="N",
            help="End when validation has not improved for N epochs, and keep the best.",
            rich_help_panel=options.MODEL_PANEL,
        ),
    ] = None,
    epsilon: options.Epsilon = 1.0,
    h: options.NoiseShare = "auto",
    noise: options.Noise = "epoch",
    threshold: options.Threshold = "mean",
    spec: options.Spec = None,
    uniform_weights: options.UniformWeights = False,
    weights_seed: options.WeightsSeed = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    on: options.On = "cpu",
    items: one_round.Items = None,
    features: one_round.Features = None,
    prior: one_round.Prior = None,
    coding: one_round.Coding = None,
    design: one_round.Design = None,
    labels: one_round.Labels = False,
    patterns: one_round.Patterns = None,
    json: options.Json = False,
) -> None:
    """Train METHOD on all ratings and save the model, what is private apart from what is not."""
    settings = Settings(
        method, factors, lr, reg, epochs, epsilon, solver, h, noise, threshold, seed, threads,
        spec, uniform_weights, weights_seed, on,
    )  # fmt: skip
    extra = one_round.model_params(method, items, features, prior, coding, design, labels, patterns)
    source = Source(train, data, scale, column, step)
    if patience is not None and validation_fraction is None:
        raise ConfigError("--patience needs ratings to validate on; give --validation-fraction as well")
    _check_place(out)

    from hdpmf.methods import METHODS
    from hdpmf.models import make_model

    ratings = source.load()
    learning, validation = _set_aside(ratings, validation_fraction, seed)
    weights = settings.draw_weights(ratings)
    model = make_model(method, **settings.model_params(), **extra, early_stopping=patience)
    with epochs_progress(f"training {METHODS[method].label}", epochs) as after_epoch:
        begin = time.perf_counter()
        model.fit(learning, weights, validation=validation, callbacks=[after_epoch])
        seconds = time.perf_counter() - begin
    validation_mse = None if validation is None else model.score(validation)["mse"]
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
                **claim_fields(model.privacy),
                **settings.record(),
                **one_round.record(model),
                "data": ratings.name,
                "hdpmf_version": hdpmf_version(),
            }
        )
        return
    print_lines(
        f"{METHODS[method].label} trained on {len(learning):,} ratings of {ratings.name} "
        f"in {seconds:.2f} s ({epochs_run} epochs)"
    )
    if validation is not None:
        print_lines(f"validation MSE {validation_mse:.4f} on {len(validation):,} ratings")
    for remark in one_round.remarks(model):
        print_lines(remark)
    print_lines(
        f"recommender's part (nothing private): {recommender_part}",
        f"devices' part (PRIVATE, readable by you only): {devices_part}",
        claim_sentence(model.privacy),
    )


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
