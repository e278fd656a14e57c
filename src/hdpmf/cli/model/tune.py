"""``hdpmf tune``: the paper's cross-validation for one method."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hdpmf.cli.shared import options
from hdpmf.cli.shared.inputs import Settings, Source
from hdpmf.cli.shared.output import claim_fields, claim_sentence, hdpmf_version, print_json, print_lines, print_table
from hdpmf.cli.shared.running import Backend, Jobs, command_line, done_fields, finite, resumable
from hdpmf.errors import ConfigError


def tune(
    method: options.Method,
    train: options.TrainFile = None,
    data: options.DatasetName = None,
    scale: options.Scale = None,
    column: options.Columns = None,
    factors: options.Factors = 10,
    folds: Annotated[int, typer.Option("--folds", metavar="N", help="Folds.", rich_help_panel=options.MODEL_PANEL)] = 5,
    lr_grid: Annotated[
        str | None,
        typer.Option(
            "--lr-grid",
            metavar="A,B,...",
            help="Learning rates to try.",
            show_default="the paper's for sequential, 0.1,0.05,0.01,0.005 for batch",
            rich_help_panel=options.MODEL_PANEL,
        ),
    ] = None,
    reg_grid: Annotated[
        str | None,
        typer.Option(
            "--reg-grid",
            metavar="A,B,...",
            help="Regularisations to try.",
            show_default="0.01,0.001",
            rich_help_panel=options.MODEL_PANEL,
        ),
    ] = None,
    epochs: options.Epochs = 100,
    solver: options.Solver = "batch",
    epsilon: options.Epsilon = 1.0,
    spec: options.Spec = None,
    seed: options.Seed = 0,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Results; a stopped command goes on from there.",
            rich_help_panel=options.RUN_PANEL,
        ),
    ] = Path("out") / "tune",
    jobs: Jobs = None,
    backend: Backend = "loky",
    on: options.On = "auto",
    json: options.Json = False,
) -> None:
    """Choose METHOD's learning rate and regularisation by cross-validation, on all cores.

    With --data the test ratings of the split (ten per user) are left alone; with --train the whole file is used.
    """
    Source(train, data, scale, column)  # refuses what does not fit together
    settings = Settings(method, factors, None, 0.0, epochs, epsilon, solver, "auto", "epoch", "mean", seed, None, spec)
    privacy: dict[str, float] = settings.record()["spec"]
    lrs, regs = _numbers(lr_grid, "--lr-grid"), _numbers(reg_grid, "--reg-grid")

    from hdpmf.cli.shared.inputs import _pairs
    from hdpmf.experiments import tune as cross_validate
    from hdpmf.experiments import watch
    from hdpmf.methods import METHODS
    from hdpmf.models import make_model

    words: dict[str, Any] = {
        "data": data, "factors": factors, "folds": folds, "lr_grid": lr_grid, "reg_grid": reg_grid,
        "epochs": epochs, "solver": solver, "epsilon": epsilon, "spec": list(spec or ()), "seed": seed,
        "backend": backend, "on": None if on == "auto" else on,
    }  # fmt: skip
    here = command_line("hdpmf", "tune", method, train=train, out=out, **words)
    with resumable(here), watch() as progress:
        tuned = cross_validate(
            method,
            str(data) if train is None else train,
            n_factors=factors,
            learning_rates=lrs,
            regs=regs,
            folds=folds,
            epochs=epochs,
            epsilon=epsilon,
            solver=solver,
            privacy=privacy,
            scale=scale,
            columns=dict(_pairs(column, "--column", "user=customer")) if column else None,
            seed=seed,
            out=out,
            n_jobs=jobs,
            backend=backend,
            on=on,
            command=command_line("hdpmf", "tune", method, **words),
            progress=progress,
        )
    best = tuned.best
    claim = make_model(method, **METHODS[method].own(epsilon=epsilon)).privacy
    if json:
        print_json(
            {
                "method": method,
                "best": _cell(best),
                "grid": [{**_cell(row), "status": row.status} for row in tuned.grid],
                "folds": folds,
                "factors": factors,
                "epochs": epochs,
                "solver": solver,
                **claim_fields(claim),
                "spec": privacy,
                "seed": seed,
                "data": tuned.dataset,
                "out": str(out),
                **done_fields(tuned.done),
                "hdpmf_version": hdpmf_version(),
            }
        )
        return
    print_table(
        ("lr", "reg", "MSE", "MAE", ""),
        [
            (
                f"{row.values['learning_rate']:g}",
                f"{row.values['reg']:g}",
                f"{row.mse:.4f}" if row.status == "done" else row.status,
                f"{row.mae:.4f}" if row.status == "done" else "",
                "best" if row is best else "",
            )
            for row in tuned.grid
        ],
        numeric=("lr", "reg", "MSE", "MAE"),
        title=f"{METHODS[method].label}, K={factors}, {solver}: mean over {folds} folds",
        strong=[position for position, row in enumerate(tuned.grid) if row is best],
    )
    source = f"--train {train}" if train is not None else f"--data {data}"
    print_lines(
        f"use it with: hdpmf evaluate {method} {source} --factors {factors} --lr "
        f"{best.values['learning_rate']:g} --reg {best.values['reg']:g} --solver {solver}",
        claim_sentence(claim),
    )


def _cell(row: Any) -> dict[str, Any]:
    return {
        "lr": row.values["learning_rate"],
        "reg": row.values["reg"],
        "mse": finite(row.mse),
        "mae": finite(row.mae),
    }


def _numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        numbers = tuple(float(one) for one in text.split(",") if one.strip())
    except ValueError:
        raise ConfigError(f"{option} takes numbers separated by commas, as 0.01,0.005, not {text!r}") from None
    if not numbers or len(set(numbers)) < len(numbers):
        raise ConfigError(f"{option} takes at least one number, each once")
    return numbers
