"""Several models on the same ratings, in one call."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from hdpmf.errors import ConfigError
from hdpmf.methods import method_of
from hdpmf.models.base import Estimator
from hdpmf.models.baselines import GlobalMean, UserMean
from hdpmf.models.methods import make_model
from hdpmf.models.shown import Comparison
from hdpmf.privacy.weights import PrivacyWeights
from hdpmf.ratings import Ratings, RatingsLike, as_ratings


def compare(
    models: Iterable[Estimator | str],
    data: RatingsLike | tuple[RatingsLike, RatingsLike],
    *,
    weights: PrivacyWeights | None = None,
    per_user: int = 10,
    lists: bool = False,
    rng: int = 0,
) -> Comparison:
    """Fit models on the same ratings and measure them on the same others, beside both trivial baselines.

    In a notebook the answer shows itself as a table; ``.plot()`` is a picture, ``.to_frame()`` a data frame.

    Args:
        models: Estimators, or names of methods. They are fitted as they are, so that they can be asked further.
        data: Ratings (or a frame or matrix of them), of which some are held out; or a pair: training and test.
        weights: Privacy weights of the training ratings; without them every rating has weight 1.
        per_user: Test ratings of each user, where some are held out.
        lists: Measure lists of ten too (NDCG@10), for models that rank.
        rng: Seed of what is held out, and of models given by name.
    """
    if isinstance(data, tuple):
        train = as_ratings(data[0])
        test = as_ratings(data[1], train.scale)
    else:
        train, test = as_ratings(data).hold_out(per_user, rng=rng)
    chosen = [_model(given, rng) for given in models]
    for trivial in (UserMean, GlobalMean):
        if not any(type(model) is trivial for model in chosen):
            chosen.append(trivial())
    rows: list[dict[str, Any]] = []
    for model, name in zip(chosen, _names(chosen), strict=True):
        rows.append({"model": name, **_measured(model, train, test, weights, lists)})
    rows.sort(key=lambda row: row["mse"])
    title = f"{train.name}: {len(train):,} ratings to learn from, {len(test):,} to test on"
    return Comparison(title, rows)


def _model(given: Any, rng: int) -> Estimator:
    if isinstance(given, Estimator):
        return given
    if isinstance(given, str):
        from hdpmf.methods import method_named

        return make_model(given, **method_named(given).own(rng=rng))
    name = given.__name__ if isinstance(given, type) else type(given).__name__
    raise ConfigError(f"compare takes hdpmf.Estimators (with parentheses) and names of methods, not {name}")


def _names(models: list[Estimator]) -> list[str]:
    """Labels of the methods; with the parameters where two would have the same."""
    methods = [method_of(model) for model in models]
    labels = [
        type(model).__name__ if method is None else method.label for model, method in zip(models, methods, strict=True)
    ]
    twice = {label for label in labels if labels.count(label) > 1}
    named = [
        f"{label} {_changes(model)}" if label in twice else label for label, model in zip(labels, models, strict=True)
    ]
    return [f"{name} ({place})" if named.count(name) > 1 else name for place, name in enumerate(named, start=1)]


def _changes(model: Estimator) -> str:
    """What of a model's parameters is not the default."""
    usual = type(model)().get_params()
    changed = {name: value for name, value in model.get_params().items() if value != usual[name]}
    return ", ".join(f"{name}={value}" for name, value in changed.items()) or "as it is"


def _measured(
    model: Estimator, train: Ratings, test: Ratings, weights: PrivacyWeights | None, lists: bool
) -> dict[str, Any]:
    begin = time.perf_counter()
    model.fit(train, weights)
    seconds = time.perf_counter() - begin
    errors, claim = model.score(test), model.privacy
    found: dict[str, Any] = {"mse": errors["mse"], "mae": errors["mae"]}
    if lists:
        found["ndcg_at_10"] = model.rank(test)["ndcg"] if model.can_rank else None
    return found | {"epsilon": claim.epsilon, "epsilon_is": claim.status, "fit_seconds": round(seconds, 3)}
