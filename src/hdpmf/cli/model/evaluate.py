"""``hdpmf evaluate`` and ``hdpmf tune``: measure a method on test ratings, and choose its
hyper-parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.experiment import (
    ExecutionOptions,
    command_line,
    done_fields,
    end_with_failures,
    finite,
    resume_hint,
)
from hdpmf.cli.model.train import facts, fit, make, persons, remarks
from hdpmf.cli.options.common import (
    Json,
    Method,
    Seed,
    completion,
    model_option,
    run_option,
    with_option_groups,
)
from hdpmf.cli.options.methods import MethodOptions, ModelOptions
from hdpmf.cli.options.ratings import FeedbackOptions, RatingsOptions, SplitOptions
from hdpmf.cli.options.weights import WeightOptions, WeightSourceOptions
from hdpmf.cli.output import (
    claim_fields,
    claim_sentence,
    print_json,
    print_lines,
    print_table,
    short_claim,
)
from hdpmf.common.methods import METHODS, method_named
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings
    from hdpmf.models import Estimator


_BASELINES = ("user-mean", "global-mean")

_LISTED = 10

Ranking = Annotated[
    bool,
    run_option(
        "--ranking",
        help=f"Measure lists of {_LISTED} too: NDCG, recall and coverage, where a test "
        "rating in the top quarter of "
        "the scale is relevant and everything that a user has not rated is a candidate.",
    ),
]


class EvaluateOptions(ModelOptions):
    """All but stopping early: there are no ratings to validate on."""

    without = ("early_stopping",)


@with_option_groups
def evaluate(
    method: Method,
    source: FeedbackOptions,
    cut: SplitOptions,
    options: EvaluateOptions,
    wishes: WeightOptions,
    seed: Seed = 0,
    ranking: Ranking = False,
    json: Json = False,
) -> None:
    """Train METHOD and measure its error on test ratings, beside both trivial baselines."""
    from hdpmf.models import make_model

    model = make(method, options, seed)
    training, held_out = cut.split(source, seed)
    weights = wishes.draw(training, seed, source)
    seconds = fit(method, model, training, weights)
    whole = persons(method, model, training, weights)
    said = [wishes.sentence(seed, source)] if "epsilon" in METHODS[method].options else []
    if training.implicit:
        record = {**wishes.record(seed, source), **facts(method, model, seed, training.name)}
        _evaluate_choices(model, training, held_out, record, [*said, *remarks(model, whole)], json)
        return
    score = model.score(held_out)
    lists = _lists(model, held_out) if ranking else {}
    baselines = {name: make_model(name).fit(training) for name in _BASELINES}
    scores = {name: baseline.score(held_out) for name, baseline in baselines.items()}
    if json:
        print_json(
            {
                "method": method,
                "mse": score["mse"],
                "mae": score["mae"],
                "n_test": score["n"],
                "n_cold": score["n_cold"],
                **lists,
                "n_train": len(training),
                "fit_seconds": seconds,
                **wishes.record(seed, source),
                **{
                    f"{name.replace('-', '_')}_{error}": scores[name][error]
                    for name in scores
                    for error in ("mse", "mae")
                },
                **facts(method, model, seed, training.name),
                "epsilon_per_person": None if whole is None else whole.fields(),
            }
        )
        return
    rows = {method: (model, score, f"{seconds:.2f} s")}
    rows |= {name: (baselines[name], scores[name], "") for name in _BASELINES if name not in rows}
    print_table(
        ("method", "MSE", "MAE", "epsilon", "fit"),
        [
            (
                METHODS[name].label,
                f"{errors['mse']:.4f}",
                f"{errors['mae']:.4f}",
                short_claim(fitted.privacy),
                took,
            )
            for name, (fitted, errors, took) in rows.items()
        ],
        numeric=("MSE", "MAE", "fit"),
        title=f"{training.name}: {len(training):,} ratings to learn from, {score['n']:,} to "
        "test on",
        strong=(0,),
    )
    if score["n_cold"]:
        print_lines(
            f"{score['n_cold']:,} test ratings have a user or item that training never saw."
        )
    print_lines(
        *said,
        *remarks(model, whole),
        *([_in_words(lists)] if ranking else []),
        claim_sentence(model.privacy),
    )


def _evaluate_choices(
    model: Estimator,
    training: Ratings,
    held_out: Ratings,
    record: dict[str, Any],
    said: list[str],
    json: bool,
) -> None:
    """Implicit feedback has no ratings to be wrong about: only lists are measured, beside what
    most people chose.
    """
    from hdpmf.models import MostPopular

    found = {
        "this method": _lists(model, held_out),
        "most popular": _lists(MostPopular().fit(training), held_out),
    }
    if json:
        popular = {
            f"popular_{name}": value
            for name, value in found["most popular"].items()
            if "_at_" in name
        }
        sizes = {"n_train": len(training), "n_test": len(held_out), "implicit": True}
        print_json({**record, **sizes, **found["this method"], **popular})
        return
    names = {
        f"ndcg_at_{_LISTED}": "NDCG",
        f"recall_at_{_LISTED}": "recall",
        f"coverage_at_{_LISTED}": "coverage",
    }
    print_table(
        ("lists", *names.values()),
        [(label, *(f"{row[name]:.4f}" for name in names)) for label, row in found.items()],
        numeric=tuple(names.values()),
        title=f"{training.name}: {len(training):,} choices to learn from, {len(held_out):,} "
        "to test on",
        strong=(0,),
    )
    print_lines(*said, claim_sentence(model.privacy))


def _lists(model: Estimator, held_out: Ratings) -> dict[str, float | int | None]:
    """Ranking metrics under their names in the JSON; None for a method that predicts the same
    for every item.
    """
    measured = model.rank(held_out, _LISTED) if model.can_rank else {}
    named: dict[str, float | int | None] = {
        f"{name}_at_{_LISTED}": measured.get(name) for name in ("ndcg", "recall", "coverage")
    }
    return named | {"n_ranked_users": measured.get("n_users")}


def _in_words(lists: dict[str, float | int | None]) -> str:
    ndcg, recall, coverage, users = lists.values()
    if ndcg is None or recall is None or coverage is None:
        return "Lists: none, because this method predicts the same for every item."
    return (
        f"Lists of {_LISTED} for {users:,} users: NDCG {ndcg:.4f}, recall {recall:.4f}, "
        f"coverage of the catalogue {coverage:.1%}."
    )


class TuneOptions(MethodOptions):
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
            autocompletion=completion(("ratings", "lists")),
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
        model_option(
            "--reg-grid",
            metavar="A,B,...",
            help="Regularisations to try.",
            show_default="0.01,0.001",
        ),
    ] = None


@with_option_groups
def tune(
    method: Method,
    source: RatingsOptions,
    options: TuneOptions,
    grid: GridOptions,
    wishes: WeightSourceOptions,
    execution: ExecutionOptions,
    seed: Seed = 0,
    out: Annotated[
        Path,
        run_option(
            "--out", "-o", metavar="FOLDER", help="Results; a stopped command goes on from there."
        ),
    ] = Path("out") / "tune",
    json: Json = False,
) -> None:
    """Choose METHOD's learning rate and regularisation by cross-validation, on all cores.

    With --data the test ratings of the split (ten per user) are left alone; with --train the whole
    file is used.
    """
    if "learning_rate" not in method_named(method).options:
        raise ConfigError(
            f"{METHODS[method].label} has no learning rate or regularisation: nothing to tune"
        )
    if grid.purpose not in ("ratings", "lists"):
        raise ConfigError(f"--for takes ratings or lists, not {grid.purpose!r}")
    lists = grid.purpose == "lists"
    chosen = options.chosen(method)
    fixed = {name: options.value(method, name) for name in TuneOptions.only}
    lrs, regs = _numbers(grid.lr_grid, "--lr-grid"), _numbers(grid.reg_grid, "--reg-grid")

    from hdpmf.lab.experiments import tune as cross_validate
    from hdpmf.lab.experiments import watch
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
    with (
        resume_hint(command_line("hdpmf", "tune", method, train=source.train, out=out, **typed)),
        watch() as progress,
    ):
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
    claim = make_model(
        method, **({"epsilon": fixed["epsilon"]} if "epsilon" in chosen else {})
    ).privacy
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
        raise ConfigError(
            f"{option} takes numbers separated by commas, as 0.01,0.005, not {text!r}"
        ) from None
    if not numbers or len(set(numbers)) < len(numbers):
        raise ConfigError(f"{option} takes at least one number, each once")
    return numbers
