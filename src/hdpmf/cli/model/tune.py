"""``hdpmf tune``: the paper's cross-validation for one method, for predicted ratings or for lists."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.method_options import MethodOptions
from hdpmf.cli.shared.options import Json, Method, Seed, completing, model_option, run_option
from hdpmf.cli.shared.output import claim_fields, claim_sentence, print_json, print_lines, print_table
from hdpmf.cli.shared.ratings import RatingsOptions
from hdpmf.cli.shared.running import ExecutionOptions, command_line, done_fields, end_with_failures, finite, resumable
from hdpmf.cli.shared.weights import WishOptions
from hdpmf.errors import ConfigError
from hdpmf.methods import METHODS, method_named


class TunedOptions(MethodOptions):
    """What stays the same in all runs."""

    only = ("n_factors", "epochs", "solver", "epsilon")


@dataclass(frozen=True)
class GridOptions:
    """What is tried."""

    purpose: Annotated[
        str,
        model_option(
            "--for",
            metavar="ratings|lists",
            help="What to choose for: ratings (the lowest MSE) or lists of ten (the highest NDCG).",
            autocompletion=completing(("ratings", "lists")),
        ),
    ] = "ratings"
    folds: Annotated[int, model_option("--folds", metavar="N", help="Folds.")] = 5
    lr_grid: Annotated[
        str | None,
        model_option(
            "--lr-grid",
            metavar="A,B,...",
            help="Learning rates to try.",
            show_default="the paper's for sequential, 0.1,0.05,0.01,0.005 for batch",
        ),
    ] = None
    reg_grid: Annotated[
        str | None,
        model_option("--reg-grid", metavar="A,B,...", help="Regularisations to try.", show_default="0.01,0.001"),
    ] = None


@grouped
def tune(
    method: Method,
    source: RatingsOptions,
    options: TunedOptions,
    grid: GridOptions,
    wishes: WishOptions,
    execution: ExecutionOptions,
    seed: Seed = 0,
    out: Annotated[
        Path,
        run_option("--out", "-o", metavar="FOLDER", help="Results; a stopped command goes on from there."),
    ] = Path("out") / "tune",
    json: Json = False,
) -> None:
    """Choose METHOD's learning rate and regularisation by cross-validation, on all cores.

    With --data the test ratings of the split (ten per user) are left alone; with --train the whole file is used.
    """
    if "learning_rate" not in method_named(method).options:
        raise ConfigError(f"{METHODS[method].label} has no learning rate or regularisation: nothing to tune")
    if grid.purpose not in ("ratings", "lists"):
        raise ConfigError(f"--for takes ratings or lists, not {grid.purpose!r}")
    lists = grid.purpose == "lists"
    chosen = options.chosen(method)
    fixed = {name: options.value(method, name) for name in TunedOptions.only}
    lrs, regs = _numbers(grid.lr_grid, "--lr-grid"), _numbers(grid.reg_grid, "--reg-grid")

    from hdpmf.experiments import tune as cross_validate
    from hdpmf.experiments import watch
    from hdpmf.models import make_model

    typed: dict[str, Any] = {
        "data": source.data,
        **{"factors" if name == "n_factors" else name: value for name, value in chosen.items()},
        **({"for": "lists"} if lists else {}),
        "folds": grid.folds,
        "lr_grid": grid.lr_grid,
        "reg_grid": grid.reg_grid,
        "duplicates": source.duplicates,
        "column": list(source.column or ()),
        "spec": list(wishes.spec or ()),
        "weights": list(wishes.weights or ()),
        "missing_weight": wishes.missing_weight,
        "seed": seed,
        **execution.typed,
    }
    with resumable(command_line("hdpmf", "tune", method, train=source.train, out=out, **typed)), watch() as progress:
        tuned = cross_validate(
            method,
            str(source.data) if source.train is None else source.train,
            **{name: value for name, value in fixed.items() if value is not None},
            learning_rates=lrs,
            regs=regs,
            by="ndcg_at_10" if lists else "mse",
            folds=grid.folds,
            privacy=wishes.changes,
            scale=source.scale,
            columns=source.columns,
            duplicates=source.merging,
            weights=wishes.kind(source) if wishes.kind(source) != "file" else wishes.weights,
            missing_weight=wishes.missing_weight,
            seed=seed,
            out=out,
            command=command_line("hdpmf", "tune", method, **typed),
            progress=progress,
            **execution.arguments,
        )
    best = tuned.best
    factors, solver = fixed["n_factors"], fixed["solver"]
    claim = make_model(method, **({"epsilon": fixed["epsilon"]} if "epsilon" in chosen else {})).privacy
    if json:
        print_json(
            {
                "method": method,
                "for": grid.purpose,
                "best": _cell(best),
                "grid": [{**_cell(row), "status": row.status} for row in tuned.grid],
                "folds": grid.folds,
                "factors": factors,
                "epochs": fixed["epochs"],
                "solver": solver,
                **claim_fields(claim),
                **wishes.record(seed, source),
                "seed": seed,
                "data": tuned.dataset,
                "out": str(out),
                **done_fields(tuned.done),
            }
        )
        end_with_failures(tuned.done)
        return
    print_table(
        ("lr", "reg", "MSE", "MAE", *(["NDCG@10"] if lists else []), ""),
        [
            (
                f"{row.values['learning_rate']:g}",
                f"{row.values['reg']:g}",
                f"{row.mse:.4f}" if row.status == "done" else row.status,
                f"{row.mae:.4f}" if row.status == "done" else "",
                *([f"{row.ndcg:.4f}" if row.status == "done" else ""] if lists else []),
                "best" if row is best else "",
            )
            for row in tuned.grid
        ],
        numeric=("lr", "reg", "MSE", "MAE", "NDCG@10"),
        title=f"{METHODS[method].label}, K={factors}, {solver}: mean over {grid.folds} folds",
        strong=[position for position, row in enumerate(tuned.grid) if row is best],
    )
    found = {"lr": f"{best.values['learning_rate']:g}", "reg": f"{best.values['reg']:g}"}
    typed = {"factors" if name == "n_factors" else name: value for name, value in chosen.items()}
    use = command_line(
        "hdpmf",
        "evaluate",
        method,
        train=source.train,
        data=source.data,
        **typed,
        **found,
        ranking=lists,
        weights=wishes.weights,
    )
    said = [wishes.sentence(seed, source)] if "epsilon" in METHODS[method].options else []
    print_lines(f"use it with: {use}", *said, claim_sentence(claim))
    end_with_failures(tuned.done)


def _cell(row: Any) -> dict[str, Any]:
    return {
        "lr": row.values["learning_rate"],
        "reg": row.values["reg"],
        "mse": finite(row.mse),
        "mae": finite(row.mae),
        "ndcg_at_10": finite(row.ndcg),
    }


def _numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        numbers = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ConfigError(f"{option} takes numbers separated by commas, as 0.01,0.005, not {text!r}") from None
    if not numbers or len(set(numbers)) < len(numbers):
        raise ConfigError(f"{option} takes at least one number, each once")
    return numbers
