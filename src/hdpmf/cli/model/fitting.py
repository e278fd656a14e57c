"""What ``train`` and ``evaluate`` share: a model made from options, fitted, and what is said about it."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

from hdpmf.cli.shared.method_options import ModelOptions, recorded
from hdpmf.cli.shared.output import claim_fields, epochs_progress, note
from hdpmf.methods import method_named

if TYPE_CHECKING:
    from hdpmf.models import Estimator
    from hdpmf.privacy import PrivacyWeights
    from hdpmf.privacy.accounting import PersonCosts
    from hdpmf.ratings import Ratings


def make(method: str, options: ModelOptions, seed: int) -> Estimator:
    """The model that the options describe."""
    from hdpmf.models import make_model

    seeded = {"rng": seed} if "rng" in method_named(method).options else {}
    return make_model(method, **options.chosen(method), **seeded)


def fit(
    method: str, model: Estimator, ratings: Ratings, weights: PrivacyWeights, validation: Ratings | None = None
) -> float:
    """Fit it, with a bar; the seconds that it took."""
    with epochs_progress(f"training {method_named(method).label}", getattr(model, "epochs", 1)) as after_epoch:
        begin = time.perf_counter()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            model.fit(ratings, weights, validation=validation, callbacks=[after_epoch])
        seconds = time.perf_counter() - begin
    for warning in warned:
        note(f"warning: {warning.message}")
    return seconds


def facts(method: str, model: Estimator, seed: int, data: str) -> dict[str, Any]:
    """What JSON says about a fitted model, so that the run can be repeated: what it was really trained with."""
    from hdpmf.models.one_round import OneRound

    document = {**recorded(method, model.get_params()), **claim_fields(model.privacy), "seed": seed, "data": data}
    if isinstance(model, OneRound):
        document |= {
            "n_features": len(model.feature_names_),
            "n_silent": model.n_silent_,
            "prior_origin": model.prior_origin_,
            "coding": model.coding_,
            "n_patterns": getattr(model, "patterns", model.facts_.patterns.shape[1]),
            "labels": bool(getattr(model, "labels", False)),
        }
    return document


def persons(method: str, model: Estimator, ratings: Ratings, weights: PrivacyWeights) -> PersonCosts | None:
    """What all ratings of one person cost together, where that is proved; else `hdpmf privacy explain` says more."""
    from dataclasses import replace

    from hdpmf.privacy.accounting import Setting, person_costs

    if model.privacy.status != "proved" or not model.privacy.epsilon:
        return None
    setting = replace(Setting.from_params(method, model.get_params()), scale=ratings.scale)
    return person_costs(setting, method_named(method).headline, ratings, weights)


def remarks(model: Estimator, whole: PersonCosts | None = None) -> list[str]:
    """What a user should be told about a fitted one-round model, and about whole persons."""
    from hdpmf.models.one_round import HDPSum, OneRound

    lines = [] if whole is None else [f"Epsilon is of one rating; {whole}."]
    if not isinstance(model, OneRound):
        return lines
    if model.n_silent_:
        lines.append(f"{model.n_silent_:,} ratings sent nothing, because their privacy weight is below 1/64.")
    if isinstance(model, HDPSum) and model.pair_plan_ is not None:
        lines.append(str(model.pair_plan_))
    if model.prior_origin_ is not None:
        origin = model.prior_origin_
        lines.append(f"Population prior {origin['name']}, learned from {origin.get('dataset', 'unknown data')}.")
    return lines
