"""``hdpmf train``: fit a model and save it; what other commands say about a fitted model."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options.common import (
    Method,
    Seed,
    command,
    data_option,
    option,
)
from hdpmf.cli.options.methods import (
    ModelOptions,
    parameter_fields,
)
from hdpmf.cli.options.ratings import RatingsOptions, WeightOptions
from hdpmf.cli.output import Block, Result, claim_fields, note, privacy_line
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
        privacy_line(model.privacy, "explain", out),
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
            "prior_origin": model.prior_origin_,
            "coding": model.coding_,
            "n_patterns": getattr(model, "n_patterns_", model.facts_.patterns.shape[1]),
        }
    return document


def persons_cost(
    method: str, model: Estimator, ratings: Ratings, weights: PrivacyWeights
) -> PersonCosts | None:
    """Return the cost of all ratings of one person together; None if it is not proved."""
    from hdpmf.common.privacy.accounting import Setting, person_costs

    if model.privacy.status != "proved" or not model.privacy.epsilon:
        return None
    setting = replace(Setting.from_params(method, model.get_params()), scale=ratings.scale)
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
    lines += [] if cost is None else [f"Epsilon is per rating; {cost}. {_EXACT}"]
    if not isinstance(model, OneRound):
        return lines
    if model.n_silent_:
        lines.append(
            f"{model.n_silent_:,} ratings sent nothing, because their privacy weight is below "
            f"1/64. {_EXACT}"
        )
    if model.prior_origin_ is not None:
        origin = model.prior_origin_
        dataset = origin.get("dataset", "unknown data")
        lines.append(f"Population prior {origin['name']}, learned from {dataset}.")
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
