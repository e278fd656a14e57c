"""Models by the names of their methods: make one, add a method of your own, compare several."""

from __future__ import annotations

import inspect
import math
import re
import time
from collections.abc import Iterable
from dataclasses import is_dataclass
from typing import Any

from hdpmf.common.data import Ratings, RatingsLike, as_ratings
from hdpmf.common.methods import METHODS, Form, Method, method_named, method_of
from hdpmf.common.methods.method import NO_NOISE, nothing_hidden
from hdpmf.common.methods.registry import AS_CLAIMED
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.errors import ConfigError
from hdpmf.models.base import Estimator
from hdpmf.models.baselines import GlobalMean, UserMean
from hdpmf.models.result_tables import Comparison


def make_model(name: str, **params: Any) -> Estimator:
    """Return an unfitted model of the method ``name``.

    Raises:
        ConfigError: There is no such method, or it does not have such a parameter.
    """
    model: Estimator = method_named(name).configure(**params)
    return model


_ALL = "all ratings"


def add_method(
    name: str,
    estimator: type[Estimator],
    *,
    label: str = "",
    summary: str = "",
    form: Form | None = None,
    **more: Any,
) -> Method:
    """Register an estimator for ``make_model``, the command line, experiments and reports.

    Args:
        name: For commands: small letters, digits and hyphens.
        estimator: A subclass of `Estimator`, a dataclass whose fields are its options.
        label: For tables and figures; the name where it is not given.
        summary: One line for people; the first of the docstring where it is not given.
        form: What leaves devices and what epsilon is worth (`hdpmf.common.methods.Form`). Without
            it the method claims no privacy: it works on ratings given away. With it, everything
            that prints its epsilon says that this is its author's claim.
        **more: Anything else that `hdpmf.common.methods.Method` has.

    Raises:
        ConfigError: It is no `Estimator`, the name cannot be or is taken, or an option has no
            default.
    """
    if not (isinstance(estimator, type) and issubclass(estimator, Estimator)):
        called = (
            estimator.__name__ if isinstance(estimator, type) else repr(type(estimator).__name__)
        )
        raise ConfigError(
            f"{called} is no hdpmf.Estimator; write class {called}(hdpmf.Estimator) with "
            "learn and expect, and give "
            "the class itself (docs/own-method.md)"
        )
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise ConfigError(f"a method's name has small letters, digits and hyphens, not {name!r}")
    if estimator.parameter_names() and not is_dataclass(estimator):
        raise ConfigError(
            f"the options of {estimator.__name__} are not known: make it a dataclass, with "
            "a field for each"
        )
    method = Method(
        name=name,
        label=label or name,
        summary=summary or (inspect.getdoc(estimator) or name).splitlines()[0].rstrip("."),
        estimator=estimator,
        configuration=estimator,
        plain=nothing_hidden("The ratings themselves.", _ALL, _ALL, NO_NOISE)
        if form is None
        else form,
        **{"family": "clear", "accounting": "no-noise" if form is None else AS_CLAIMED, **more},
    )
    known = METHODS.get(name)
    if known is not None and _same_class(known.estimator, estimator):
        METHODS.discard(name)  # a notebook's cell that is run again
    return METHODS.add(method)


def _same_class(known: str | type, new: type) -> bool:
    names = (new.__module__, new.__qualname__)
    return isinstance(known, type) and (known.__module__, known.__qualname__) == names


def compare(
    models: Iterable[Estimator | str],
    data: RatingsLike | tuple[RatingsLike, RatingsLike],
    *,
    weights: PrivacyWeights | None = None,
    per_user: int = 10,
    lists: bool = False,
    rng: int = 0,
) -> Comparison:
    """Fit models on the same ratings and test them on the same others, beside two baselines.

    The baselines are the user mean and the global mean. A model that only orders items has no
    errors (None), and comes last.

    In a notebook the answer shows itself as a table; ``.plot()`` is a picture, ``.to_frame()`` a
    data frame.

    Args:
        models: Estimators, or names of methods. They are fitted as they are, so that they can be
            asked further.
        data: Ratings (or a frame or matrix of them), of which some are held out; or a pair:
            training and test.
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
    rows.sort(key=lambda row: math.inf if row["mse"] is None else row["mse"])
    title = f"{train.name}: {len(train):,} ratings to learn from, {len(test):,} to test on"
    return Comparison(title, rows)


def _model(given: Any, rng: int) -> Estimator:
    if isinstance(given, Estimator):
        return given
    if isinstance(given, str):
        return make_model(given, **method_named(given).own(rng=rng))
    name = given.__name__ if isinstance(given, type) else type(given).__name__
    raise ConfigError(
        f"compare takes hdpmf.Estimators (with parentheses) and names of methods, not {name}"
    )


def _names(models: list[Estimator]) -> list[str]:
    """Labels of the methods; with the parameters where two would have the same."""
    methods = [method_of(model) for model in models]
    labels = [
        type(model).__name__ if method is None else method.label
        for model, method in zip(models, methods, strict=True)
    ]
    twice = {label for label in labels if labels.count(label) > 1}
    named = [
        f"{label} {_changes(model)}" if label in twice else label
        for label, model in zip(labels, models, strict=True)
    ]
    return [
        f"{name} ({position})" if named.count(name) > 1 else name
        for position, name in enumerate(named, start=1)
    ]


def _changes(model: Estimator) -> str:
    """Return the parameters of a model that differ from the defaults, as text."""
    usual = type(model)().get_params()
    changed = {name: value for name, value in model.get_params().items() if value != usual[name]}
    return ", ".join(f"{name}={value}" for name, value in changed.items()) or "as it is"


def _measured(
    model: Estimator, train: Ratings, test: Ratings, weights: PrivacyWeights | None, lists: bool
) -> dict[str, Any]:
    begin = time.perf_counter()
    model.fit(train, weights)
    seconds = time.perf_counter() - begin
    errors: dict[str, Any] = model.score(test) if model.predicts_ratings else {}
    claim = model.privacy
    found: dict[str, Any] = {"mse": errors.get("mse"), "mae": errors.get("mae")}
    if lists:
        found["ndcg_at_10"] = model.rank(test)["ndcg"] if model.can_rank else None
    return found | {
        "epsilon": claim.epsilon,
        "epsilon_is": claim.status,
        "fit_seconds": round(seconds, 3),
    }
