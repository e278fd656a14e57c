"""``hdpmf evaluate``: measure a method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.experiment import off_scale
from hdpmf.cli.options.common import Method, Seed, command, run_option
from hdpmf.cli.options.methods import ModelOptions, explain_arguments
from hdpmf.cli.options.ratings import RatingsOptions, SplitOptions, WeightOptions
from hdpmf.cli.output import Block, Result, Table, privacy_line, short_claim
from hdpmf.cli.train import (
    fit,
    model_fields,
    new_model,
    persons_cost,
    private_fields,
    refuse_early_stopping,
    remarks,
)
from hdpmf.common.methods import METHODS

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
    refuse_early_stopping(model)
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
