"""``hdpmf evaluate`` and ``hdpmf tune``: measure a method, and choose its hyper-parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hdpmf.cli.experiment import (
    ExecutionOptions,
    command_line,
    done_fields,
    failures,
    finite,
    off_scale,
    resume_hint,
)
from hdpmf.cli.options.common import Method, Seed, command, model_option, run_option
from hdpmf.cli.options.methods import MethodOptions, ModelOptions, explain_arguments
from hdpmf.cli.options.ratings import (
    ExplicitRatingsOptions,
    RatingsOptions,
    SplitOptions,
    WeightOptions,
)
from hdpmf.cli.output import Block, Result, Table, claim_fields, privacy_line, short_claim
from hdpmf.cli.train import (
    fit,
    model_fields,
    new_model,
    persons_cost,
    private_fields,
    remarks,
)
from hdpmf.common.methods import METHODS, method_named
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings
    from hdpmf.models import Estimator

_BASELINES = ("user-mean", "global-mean")
_LIST_LENGTH = 10
_IN_TIME = (
    "Each list is made at the time of the user's first test rating, so what was rated shortly "
    "before counts more."
)

Ranking = Annotated[
    bool,
    run_option(
        f"Measure lists of {_LIST_LENGTH} too: NDCG, recall and coverage, where a test rating "
        "in the top quarter of the scale is relevant and everything that a user has not rated is a "
        "candidate.",
        None,
        "--ranking",
    ),
]


@command
def evaluate(
    method: Method,
    source: RatingsOptions,
    cut: SplitOptions,
    options: ModelOptions,
    wishes: WeightOptions,
    seed: Seed = 0,
    ranking: Ranking = False,
) -> Result:
    """Train METHOD and measure its error on test ratings, beside both trivial baselines."""
    from hdpmf.models import make_model

    model = new_model(method, options, seed)
    if getattr(model, "early_stopping", None) is not None:
        raise ConfigError(
            "early_stopping needs ratings to validate on, which evaluate has not; hdpmf train has"
        )
    training, held_out = cut.split(source, seed)
    weights = wishes.draw(training, seed, source)
    seconds = fit(model, training, weights, lists=ranking or training.implicit)
    cost = persons_cost(method, model, training, weights)
    lines = [wishes.sentence(seed, source)] if "epsilon" in METHODS[method].options else []
    lines += remarks(model, cost)
    about = {**wishes.fields(seed, source), **model_fields(method, model, seed, training.name)}
    privacy = privacy_line(model.privacy, "explain", *explain_arguments(method, model.get_params()))
    if training.implicit:
        return _evaluate_implicit(model, training, held_out, about, lines, privacy, cut.by_time)
    own_score = model.score(held_out) if model.predicts_ratings else {}
    own = _errors(own_score)
    # A method for lists alone would otherwise be measured by nothing.
    lists = (
        _list_metrics(model, held_out, cut.by_time) if ranking or not model.predicts_ratings else {}
    )
    fitted = {method: (model, own, f"{seconds:.2f} s")}
    baselines: dict[str, float | None] = {}
    for name in _BASELINES:
        baseline = make_model(name).fit(training)
        score = baseline.score(held_out)  # its counts are those of every model
        errors = _errors(score)
        fitted.setdefault(name, (baseline, errors, ""))
        for error in ("mse", "mae"):
            baselines[f"{name.replace('-', '_')}_{error}"] = errors[error]

    def text() -> Iterator[Block]:
        yield Table(
            ("method", "MSE", "MAE", "epsilon", "fit"),
            [
                (
                    METHODS[name].label,
                    _four(errors["mse"]),
                    _four(errors["mae"]),
                    short_claim(each.privacy),
                    took,
                )
                for name, (each, errors, took) in fitted.items()
            ],
            numeric=("MSE", "MAE", "fit"),
            title=f"{training.name}: {len(training):,} ratings to learn from, {score['n']:,} to "
            "test on",
            strong=(0,),
        )
        if own_score.get("n_off_scale"):
            yield off_scale(float(own_score["n_off_scale"]), float(own_score["n"]))
        if score["n_cold"]:
            yield (f"{score['n_cold']:,} test ratings have a user or item that training never saw.")
        yield from lines
        if lists:
            yield _list_sentence(lists)
            if cut.by_time:
                yield _IN_TIME
        yield privacy

    fields = {
        "method": method,
        **own,
        "n_test": score["n"],
        "n_cold": score["n_cold"],
        "n_off_scale": own_score.get("n_off_scale", 0),
        **lists,
        "n_train": len(training),
        "fit_seconds": seconds,
        **baselines,
        **about,
        "epsilon_per_person": None if cost is None else cost.fields(),
    }
    return Result(fields | {"private": private_fields(fields)}, text())


def _errors(score: Mapping[str, float | int]) -> dict[str, float | None]:
    """Return a model's errors for JSON; None for a method that predicts no ratings of its own."""
    return {name: score.get(name) for name in ("mse", "mae")}


def _four(error: float | None) -> str:
    return "" if error is None else f"{error:.4f}"


def _evaluate_implicit(
    model: Estimator,
    training: Ratings,
    held_out: Ratings,
    about: dict[str, Any],
    lines: list[str],
    privacy: str,
    in_time: bool,
) -> Result:
    """Measure lists alone: implicit feedback has no ratings to predict."""
    from hdpmf.models import MostPopular

    own = _list_metrics(model, held_out, in_time)
    popular = _list_metrics(MostPopular().fit(training), held_out, in_time)
    lines = [*lines, _IN_TIME] if in_time else lines
    names = {f"{name.lower()}_at_{_LIST_LENGTH}": name for name in ("NDCG", "recall", "coverage")}
    table = Table(
        ("lists", *names.values()),
        [
            (label, *(f"{row[name]:.4f}" for name in names))
            for label, row in (("this method", own), ("most popular", popular))
        ],
        numeric=tuple(names.values()),
        title=f"{training.name}: {len(training):,} choices to learn from, {len(held_out):,} "
        "to test on",
        strong=(0,),
    )
    fields = {
        **about,
        "n_train": len(training),
        "n_test": len(held_out),
        "implicit": True,
        **own,
        **{f"popular_{name}": popular[name] for name in names},
    }
    return Result(fields, [table, *lines, privacy])


def _list_metrics(
    model: Estimator, held_out: Ratings, in_time: bool
) -> dict[str, float | int | None]:
    """Return metrics of lists for JSON; None for a method that predicts the same for all items."""
    measured = model.rank(held_out, _LIST_LENGTH, in_time=in_time) if model.can_rank else {}
    named: dict[str, float | int | None] = {
        f"{name}_at_{_LIST_LENGTH}": measured.get(name) for name in ("ndcg", "recall", "coverage")
    }
    return named | {"n_ranked_users": measured.get("n_users")}


def _list_sentence(lists: dict[str, float | int | None]) -> str:
    ndcg, recall, coverage, users = lists.values()
    if ndcg is None or recall is None or coverage is None:
        return "Lists: none, because this method predicts the same for every item."
    return (
        f"Lists of {_LIST_LENGTH} for {users:,} users: NDCG {ndcg:.4f}, recall {recall:.4f}, "
        f"coverage of the catalogue {coverage:.1%}."
    )


_TUNING = (
    "Tuning used these ratings in {n} trainings ({settings} settings). If they are private, count "
    "them: hdpmf privacy statement MODEL --tried {n}. The choice itself is covered by no epsilon."
)


class TuneOptions(MethodOptions):
    """The options that are the same in all runs."""

    only = ("n_factors", "epochs", "solver", "epsilon")


@dataclass(frozen=True)
class GridOptions:
    """The grid of hyper-parameters, and the measure that chooses."""

    purpose: Annotated[
        str,
        model_option(
            "What to choose for: ratings (the lowest MSE) or lists of ten (the highest NDCG).",
            "ratings|lists",
            "--for",
            words=("ratings", "lists"),
        ),
    ] = "ratings"
    trials: Annotated[
        int | None,
        model_option(
            "Let Optuna choose N combinations within the ranges that the grids span.",
            "N",
            default="every combination of the grids",
        ),
    ] = None
    folds: Annotated[int, model_option("Folds.", "N")] = 5
    lr_grid: Annotated[
        str | None,
        model_option(
            "Learning rates to try.",
            "A,B,...",
            default="the paper's for sequential, 0.1,0.05,0.01,0.005 for batch",
        ),
    ] = None
    reg_grid: Annotated[
        str | None, model_option("Regularisations to try.", "A,B,...", default="0.01,0.001")
    ] = None

    def __post_init__(self) -> None:
        if self.purpose not in ("ratings", "lists"):
            raise ConfigError(f"--for takes ratings or lists, not {self.purpose!r}")

    @property
    def search(self) -> Literal["grid", "bayes"]:
        """The way to choose combinations."""
        return "grid" if self.trials is None else "bayes"


@command
def tune(
    method: Method,
    source: ExplicitRatingsOptions,
    options: TuneOptions,
    grid: GridOptions,
    wishes: WeightOptions,
    execution: ExecutionOptions,
    seed: Seed = 0,
    out: Annotated[
        Path,
        run_option(
            "Folder of results; a stopped command continues from there.", "FOLDER", "--out", "-o"
        ),
    ] = Path("out") / "tune",
) -> Result:
    """Choose METHOD's learning rate and regularisation by cross-validation, on all cores.

    With --data the test ratings of the split (ten per user) are left alone; with --train the whole
    file is used.
    """
    if "learning_rate" not in method_named(method).options:
        raise ConfigError(
            f"{METHODS[method].label} has no learning rate or regularisation: nothing to tune"
        )
    lists = grid.purpose == "lists"
    chosen = options.chosen(method)
    fixed = {name: options.value(method, name) for name in TuneOptions.only}
    lrs = _numbers(grid.lr_grid, "--lr-grid")
    regs = _numbers(grid.reg_grid, "--reg-grid")

    from hdpmf.lab.experiments import tune as cross_validate
    from hdpmf.lab.experiments import watch
    from hdpmf.models import make_model

    flags = {
        "factors" if name == "n_factors" else name: value
        for name, value in chosen.items()
        if name != "solver"
    }
    if "solver" in chosen:
        flags["set"] = [f"solver={chosen['solver']}"]
    typed: dict[str, Any] = {
        "data": source.data,
        **flags,
        **({"for": "lists"} if lists else {}),
        "trials": grid.trials,
        "folds": grid.folds,
        "lr_grid": grid.lr_grid,
        "reg_grid": grid.reg_grid,
        "duplicates": source.duplicates,
        "column": list(source.column or ()),
        "spec": list(wishes.spec or ()),
        "weights": list(wishes.weights or ()),
        "seed": seed,
        **execution.typed,
    }
    again = command_line("hdpmf", "tune", method, train=source.train, out=out, **typed)
    kind = wishes.kind(source)
    with resume_hint(again), watch() as progress:
        tuned = cross_validate(
            method,
            str(source.data) if source.train is None else source.train,
            **{name: value for name, value in fixed.items() if value is not None},
            learning_rates=lrs,
            regs=regs,
            search=grid.search,
            trials=grid.trials,
            by="ndcg_at_10" if lists else "mse",
            folds=grid.folds,
            privacy=wishes.changes,
            scale=source.scale,
            columns=source.columns,
            duplicates=source.merging,
            weights=wishes.weights if kind == "file" else kind,
            seed=seed,
            out=out,
            command=command_line("hdpmf", "tune", method, **typed),
            progress=progress,
            **execution.arguments,
        )
    best = tuned.best
    epsilon = {"epsilon": fixed["epsilon"]} if "epsilon" in chosen else {}
    claim = make_model(method, **epsilon).privacy
    notes, exit_code = failures(tuned.done)
    trainings = len(tuned.grid) * grid.folds
    if claim.epsilon:
        notes = [*notes, _TUNING.format(n=trainings, settings=len(tuned.grid))]
    fields = {
        "method": method,
        "for": grid.purpose,
        "search": grid.search,
        "best": _cell_fields(best),
        "grid": [{**_cell_fields(cell), "status": cell.status} for cell in tuned.grid],
        "folds": grid.folds,
        "trainings": trainings,
        "factors": fixed["n_factors"],
        "epochs": fixed["epochs"],
        "solver": fixed["solver"],
        **claim_fields(claim),
        **wishes.fields(seed, source),
        "seed": seed,
        "data": tuned.dataset,
        "out": str(out),
        **done_fields(tuned.done),
    }
    columns = ("lr", "reg", "MSE", "MAE", *(["NDCG@10"] if lists else []))
    table = Table(
        (*columns, ""),
        [(*_cell_row(cell, lists), "best" if cell is best else "") for cell in tuned.grid],
        numeric=columns,
        title=f"{METHODS[method].label}, K={fixed['n_factors']}, {fixed['solver']}: mean over "
        f"{grid.folds} folds",
        strong=[position for position, cell in enumerate(tuned.grid) if cell is best],
    )
    use = command_line(
        "hdpmf",
        "evaluate",
        method,
        train=source.train,
        data=source.data,
        **flags,
        lr=f"{best.values['learning_rate']:g}",
        reg=f"{best.values['reg']:g}",
        ranking=lists,
        weights=wishes.weights,
    )
    weights = [wishes.sentence(seed, source)] if "epsilon" in METHODS[method].options else []
    text: list[Block] = [
        table,
        f"use it with: {use}",
        *weights,
        privacy_line(claim, "explain", *explain_arguments(method, chosen)),
    ]
    return Result(fields, text, notes=notes, exit_code=exit_code)


def _cell_fields(cell: Any) -> dict[str, Any]:
    return {
        "lr": cell.values["learning_rate"],
        "reg": cell.values["reg"],
        "mse": finite(cell.mse),
        "mae": finite(cell.mae),
        "ndcg_at_10": finite(cell.ndcg),
    }


def _cell_row(cell: Any, lists: bool) -> list[str]:
    row = [f"{cell.values['learning_rate']:g}", f"{cell.values['reg']:g}"]
    measures = [cell.mse, cell.mae, *([cell.ndcg] if lists else [])]
    if cell.status != "done":
        return [*row, cell.status, *[""] * (len(measures) - 1)]
    return [*row, *(f"{measure:.4f}" for measure in measures)]


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
