"""``hdpmf train`` and ``evaluate``: fit a model, save it or measure it."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.experiment import off_scale
from hdpmf.cli.options import (
    Method,
    ModelOptions,
    Seed,
    command,
    data_option,
    explain_arguments,
    option,
    parameter_fields,
    run_option,
)
from hdpmf.cli.output import Block, Result, Table, claim_fields, note, privacy_line, short_claim
from hdpmf.cli.rating_options import RatingsOptions, SplitOptions, WeightOptions
from hdpmf.common.methods import METHODS, method_named
from hdpmf.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings
    from hdpmf.common.privacy import PrivacyWeights
    from hdpmf.common.privacy.accounting import PersonCosts
    from hdpmf.models import Estimator


_EXACT = "PRIVATE: exact, and no epsilon covers it."
_EXACT_FIELDS = ("n_silent", "epsilon_per_person")


@command
def train(
    method: Method,
    out: Annotated[Path, option("Where to save.", "FOLDER", "--out", "-o")],
    source: RatingsOptions,
    options: ModelOptions,
    wishes: WeightOptions,
    catalogue: Annotated[
        Path | None,
        data_option(
            "The model's items, a public list (CSV, TSV or Parquet): then it does not tell "
            "which ones were rated.",
            "FILE",
        ),
    ] = None,
    seed: Seed = 0,
    force: Annotated[bool, option("Replace an earlier model in that folder.")] = False,
) -> Result:
    """Train METHOD on all ratings and save the model, its private part apart from the rest."""
    model = new_model(method, options, seed)
    refuse_early_stopping(model)
    _check_folder(out, force)
    ratings = source.load()
    if catalogue is not None:
        ratings = _in_catalogue(ratings, catalogue)
    if options.items is not None and ratings.item_table is None:
        ratings = _with_titles(ratings, options.items)
    weights = wishes.draw(ratings, seed, source)
    seconds = fit(model, ratings, weights)
    cost = persons_cost(method, model, ratings, weights)
    model.save(out, replace=True)  # allowed or not, it was checked before

    epochs_run = len(getattr(model, "history_", ()))
    kind = "choices" if ratings.implicit else "ratings"
    text: list[Block] = [
        f"{METHODS[method].label} trained on {len(ratings):,} {kind} of {ratings.name} in "
        f"{seconds:.2f} s ({epochs_run} epochs)"
    ]
    if "epsilon" in METHODS[method].options:
        text.append(wishes.sentence(seed, source))
    text += [
        *remarks(model, cost),
        f"recommender's part (nothing private): {out / 'recommender'}",
        f"devices' part (PRIVATE, readable by you only): {out / 'devices'}",
        privacy_line(model.privacy, "statement", out),
    ]
    document = {
        "method": method,
        "out": str(out),
        "recommender_part": str(out / "recommender"),
        "devices_part": str(out / "devices"),
        "n_train": len(ratings),
        "epochs_run": epochs_run,
        "fit_seconds": seconds,
        **wishes.fields(seed, source),
        **model_fields(method, model, seed, ratings.name),
        "epsilon_per_person": None if cost is None else cost.fields(),
    }
    return Result(document | {"private": private_fields(document)}, text)


def new_model(method: str, options: ModelOptions, seed: int) -> Estimator:
    """Return the model that the options describe."""
    from hdpmf.models import make_model

    seeded = {"rng": seed} if "rng" in method_named(method).options else {}
    return make_model(method, **options.chosen(method), **seeded)


def refuse_early_stopping(model: Estimator) -> None:
    """Raise ConfigError if a model would need ratings to validate on, which no command gives."""
    if getattr(model, "early_stopping", None) is not None:
        raise ConfigError(
            "early_stopping needs ratings to validate on: use model.fit(..., validation=...) in "
            "Python"
        )


def fit(
    model: Estimator,
    ratings: Ratings,
    weights: PrivacyWeights,
    *,
    lists: bool = True,
) -> float:
    """Fit a model with a progress bar, and return the seconds that it took."""
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model.fit(ratings, weights, lists=lists, progress=True)
    seconds = time.perf_counter() - begin
    for warning in warned:
        note(f"warning: {warning.message}")
    return seconds


def model_fields(method: str, model: Estimator, seed: int, data: str) -> dict[str, Any]:
    """Return facts about a fitted model for JSON: enough to repeat the run."""
    from hdpmf.models.one_round import OneRound

    document = {
        **parameter_fields(method, model.get_params()),
        **claim_fields(model.privacy),
        "seed": seed,
        "data": data,
    }
    if isinstance(model, OneRound):
        document |= {
            "n_features": len(model.feature_names_),
            "n_silent": model.n_silent_,
            "coding": getattr(model, "coding_", None),
            "n_patterns": getattr(model, "n_patterns_", 0),
        }
    return document


def persons_cost(
    method: str, model: Estimator, ratings: Ratings, weights: PrivacyWeights
) -> PersonCosts | None:
    """Return the cost of all ratings of one person together; None if it is not proved."""
    from hdpmf.common.privacy.accounting import Setting, person_costs

    if model.privacy.status != "proved" or not model.privacy.epsilon:
        return None
    setting = Setting.from_params(method, model.get_params())
    setting = replace(setting, scale=ratings.scale, implicit=ratings.implicit)
    return person_costs(setting, method_named(method).headline, ratings, weights)


def private_fields(document: Mapping[str, Any]) -> list[str]:
    """Return the names of fields that are exact about private ratings and wishes."""
    return [name for name in _EXACT_FIELDS if document.get(name) is not None]


def remarks(model: Estimator, cost: PersonCosts | None = None) -> list[str]:
    """Return remarks about a fitted one-round model, and about the cost for whole persons.

    Counts of ratings in them are exact, and so private: no epsilon covers what is printed here.
    """
    from hdpmf.models.hdp_bit import HDPBit
    from hdpmf.models.one_round import OneRound

    lines = _warnings(model)
    if cost is not None:
        unit = model.privacy.unit
        # What a person's budget costs follows from public numbers, whatever they rated.
        exact = "" if unit == "person" else f" {_EXACT}"
        lines.append(f"Epsilon is per {unit}; {cost}.{exact}")
    if not isinstance(model, OneRound):
        return lines
    if model.n_silent_:
        lines.append(
            f"{model.n_silent_:,} ratings sent nothing, because their privacy weight is below "
            f"1/64. {_EXACT}"
        )
    if isinstance(model, HDPBit) and model.patterns is None and not model.n_patterns_:
        lines.append(
            "Who rated what is not used: the released bits say that it does not help here "
            "(--set patterns=8 uses it)."
        )
    return lines


def _warnings(model: Estimator) -> list[str]:
    """Return what should make somebody stop who relies on the model's epsilon."""
    from hdpmf.common.privacy.statement import LARGE_EPSILON, ONE_USER, large_epsilon

    epsilon = model.privacy.epsilon or 0.0
    lines = [large_epsilon(f"{epsilon:g}")] if epsilon > LARGE_EPSILON else []
    if epsilon and len(model.devices_.users) == 1:
        lines.append(ONE_USER)
    return [f"Warning. {line}" for line in lines]


def _with_titles(ratings: Ratings, items: Path) -> Ratings:
    """Return the ratings with titles, genres and years from the file of features."""
    from hdpmf.common.data.items import read_item_table

    table = read_item_table(items)
    return ratings.describe(table if ratings.items.is_integer else table.with_text_ids())


def _check_folder(out: Path, force: bool) -> None:
    """Raise StorageError if a model cannot be saved there, before it is trained."""
    from hdpmf.models.files import check_target

    check_target(out, replace=force)
    nearest = next(folder for folder in out.absolute().parents if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise StorageError(
            f"cannot write to {out}: no permission in {nearest}; choose another folder"
        )


def _in_catalogue(ratings: Ratings, catalogue: Path) -> Ratings:
    """Return the ratings of the items that a file lists."""
    from hdpmf.common.data.items import read_item_table

    table = read_item_table(catalogue)
    known = ratings
    if table.index.is_integer != ratings.items.is_integer:
        known, table = ratings.with_text_ids(items=True), table.with_text_ids()
    listed = known.over(table)
    left_out = len(ratings) - len(listed)
    if left_out:
        note(f"{left_out:,} ratings of items that are not in {catalogue} are left out.")
    return listed


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
        "in the top quarter of the scale (of clicks, each) is relevant and everything that a user "
        "has not rated is a candidate.",
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
    columns, names = ("NDCG", "recall", "coverage"), list(own)[:3]
    rows = {"this method": own, "most popular": popular}
    table = Table(
        ("lists", *columns),
        [(label, *(f"{row[name]:.4f}" for name in names)) for label, row in rows.items()],
        numeric=columns,
        title=f"{training.name}: {len(training):,} choices to learn from, {len(held_out):,} "
        "to test on",
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
