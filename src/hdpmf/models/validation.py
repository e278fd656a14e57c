"""Compare models on the same ratings, cross-validate them, search for hyper-parameters.

Everything here measures by `measure`.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hdpmf.common.base.progress import progress_bar, stage
from hdpmf.common.data import Ratings, RatingsLike, as_ratings
from hdpmf.common.methods import method_named, method_of
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.errors import ConfigError, DivergedError, notify
from hdpmf.models.base import Estimator, make_model
from hdpmf.models.baselines import GlobalMean, MostPopular, UserMean
from hdpmf.models.result_tables import Comparison, SearchResult, Tabular, text_table

if TYPE_CHECKING:
    from hdpmf.models.ranking_metrics import ListQuality  # brings Numba, which GPUs do without

LIST_LENGTH = 10

_LISTS = ("ndcg", "recall", "coverage")
"""Measures of lists in tables; `Estimator.rank` has more."""

_HIGHER = ("ndcg_at_10", "recall_at_10", "coverage_at_10")
"""Measures that a search takes the highest of."""

ACTIVITY = ("few", "some", "many")
"""Thirds of users by how many training ratings they have."""

Groups = Literal["activity"] | Mapping[Any, str]
"""Groups of users whose errors are compared: thirds by activity, or a group's name by user id."""

Weights = PrivacyWeights | PrivacySpec | None
"""Weights of all ratings, or how to draw them for each training part."""

Values = dict[str, Any]
"""A combination: a value for each option."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The measures of one fitted model.

    Attributes:
        metrics: By name; None where the model has none of the kind.
        users: Errors and NDCG of each user of the test, by name; NaN where there is none.
    """

    metrics: dict[str, float | None]
    users: dict[str, np.ndarray]


def measure(
    model: Estimator,
    train: Ratings,
    test: Ratings,
    *,
    lists: bool = False,
    groups: Groups | None = None,
) -> Measured:
    """Measure a fitted model on test ratings.

    Args:
        model: A fitted model.
        train: What it learned from.
        test: What it is tested on.
        lists: Measure lists of ten, too.
        groups: Measure the error of each group of users (``mse_NAME``), and how far apart the best
            and the worst are (``mse_gap``).
    """
    lists = lists or test.implicit
    found: dict[str, float | None] = {"mse": None, "mae": None}
    users: dict[str, np.ndarray] = {}
    if model.predicts_ratings and not test.implicit:
        score = model.score(test)
        found |= {"mse": float(score["mse"]), "mae": float(score["mae"])}
        errors = np.asarray(model.predict(test.user_ids, test.item_ids), np.float64) - test.values
        users = {"mse": _by_user(test, errors**2), "mae": _by_user(test, np.abs(errors))}
        if groups is not None:
            found |= group_errors(test, errors, group_names(groups, train, test))
    elif groups is not None:
        found["mse_gap"] = None
    if lists:
        found |= dict.fromkeys((f"{name}_at_{LIST_LENGTH}" for name in _LISTS), None)
        if model.can_rank:
            quality = model._list_quality(test, LIST_LENGTH)
            summary = quality.summary()
            found |= {f"{name}_at_{LIST_LENGTH}": float(summary[name]) for name in _LISTS}
            users[f"ndcg_at_{LIST_LENGTH}"] = ndcg_by_user(model, test, quality)
    return Measured(found, users)


def ndcg_by_user(model: Estimator, test: Ratings, quality: ListQuality) -> np.ndarray:
    """Return the NDCG of each user of the test; NaN for those who were not ranked for."""
    per_user = np.full(len(test.users), np.nan)
    per_user[test.users.find(model.devices_.users.ids[quality.users])] = quality.values["ndcg"]
    return per_user


def _by_user(test: Ratings, values: np.ndarray) -> np.ndarray:
    counts = test.user_counts()
    with np.errstate(invalid="ignore"):
        return np.asarray(np.bincount(test.user_codes, values, test.n_users) / counts)


def group_names(groups: Groups, train: Ratings, test: Ratings) -> np.ndarray:
    """Return the group of each user of the test; an empty name for those in none."""
    if isinstance(groups, str):
        if groups != "activity":
            raise ConfigError(
                f"groups are 'activity', or a mapping from users to names, not {groups!r}"
            )
        positions = train.users.find(test.users.ids)
        counts = np.append(train.user_counts(), 0)[positions]
        present = np.sort(counts[test.user_counts() > 0])
        limits = present[[len(present) // 3, 2 * len(present) // 3]]
        return np.array(ACTIVITY)[np.searchsorted(limits, counts, side="right")]
    names = np.array([str(groups.get(user, "")) for user in test.users.ids.tolist()])
    if not np.any(names[np.unique(test.user_codes)] != ""):
        raise ConfigError("no user of the test ratings is in any of these groups")
    return names


def group_errors(test: Ratings, errors: np.ndarray, names: np.ndarray) -> dict[str, float]:
    """Return the mean squared error of each group (``mse_NAME``), and their ``mse_gap``."""
    group = names[test.user_codes]
    means = {
        str(name): float(np.mean(errors[group == name] ** 2))
        for name in dict.fromkeys((*ACTIVITY, *np.unique(group).tolist()))
        if name and bool((group == name).any())
    }
    gap = max(means.values()) - min(means.values())
    return {**{f"mse_{name}": mean for name, mean in means.items()}, "mse_gap": gap}


def compare(
    models: Iterable[Estimator | str],
    data: RatingsLike | tuple[RatingsLike, RatingsLike],
    *,
    weights: Weights = None,
    per_user: int = 10,
    folds: int | None = None,
    lists: bool = False,
    groups: Groups | None = None,
    rng: int = 0,
    progress: bool | None = None,
) -> Comparison:
    """Fit models on the same ratings and test them on the same others, beside baselines.

    The baselines are the user mean and the global mean. A model that only orders items has no
    errors (None), and comes last. Of choices without ratings lists are measured, beside those of
    the most popular items.

    In a notebook the answer shows itself as a table; ``.tests()`` says which differences are more
    than chance, ``.to_frame()`` is a data frame.

    Args:
        models: Estimators, or names of methods. They are fitted as they are, so that they can be
            asked further; with ``folds``, copies of them are.
        data: Ratings (or a frame or matrix of them), of which some are held out; or a pair:
            training and test.
        weights: Privacy weights of the ratings (of the training ratings, for a pair), or a
            `PrivacySpec` to draw them by; without them every rating has weight 1.
        per_user: Test ratings of each user, where some are held out.
        folds: Cross-validate instead: the mean over so many folds.
        lists: Measure lists of ten too (NDCG@10, recall, coverage), for models that rank.
        groups: Measure the error of each group of users, too: ``"activity"`` (thirds by number of
            ratings), or a mapping from user ids to names of groups.
        rng: Seed of what is held out, and of models given by name.
        progress: Whether to show a bar, on a terminal or in a notebook; None: in a notebook.
    """
    chosen = [as_model(given, rng) for given in models]
    parts, title = _parts(data, weights, per_user, folds, rng)
    for trivial in (MostPopular,) if parts[0].train.implicit else (UserMean, GlobalMean):
        if not any(type(model) is trivial for model in chosen):
            chosen.append(trivial())
    rows: list[dict[str, Any]] = []
    samples: dict[str, dict[str, np.ndarray]] = {}
    with progress_bar("comparing", len(chosen), show=progress) as advance:
        for model, name in zip(chosen, _names(chosen), strict=True):
            stage(name)
            found = [
                _fitted_and_measured(
                    model if folds is None else fresh(model),
                    part,
                    lists=lists,
                    groups=groups,
                )
                for part in parts
            ]
            claim = model.privacy
            rows.append(
                {
                    "model": name,
                    **_means([each.metrics for each, _ in found]),
                    "epsilon": claim.epsilon,
                    "epsilon_is": claim.standing,
                    "fit_seconds": round(math.fsum(seconds for _, seconds in found), 3),
                }
            )
            samples[name] = user_means([each.users for each, _ in found])
            advance(len(rows), len(chosen))
    rows.sort(key=lambda row: -(row.get("ndcg_at_10") or 0.0))
    rows.sort(key=lambda row: math.inf if row["mse"] is None else row["mse"])
    return Comparison(title, rows, samples)


def cross_validate(
    model: Estimator | str,
    data: RatingsLike,
    *,
    weights: Weights = None,
    folds: int = 5,
    lists: bool = False,
    groups: Groups | None = None,
    rng: int = 0,
) -> CrossValidation:
    """Fit copies of a model on all folds but one, measure them on that one, fold by fold.

    Args:
        model: An estimator, which stays as it is, or the name of a method.
        data: Ratings, or a frame or matrix of them.
        weights: Privacy weights of all ratings, or a `PrivacySpec` to draw them by.
        folds: How many.
        lists: Measure lists of ten, too.
        groups: As in `compare`.
        rng: Seed of the folds, of drawn weights, and of a model given by name.
    """
    chosen = as_model(model, rng)
    parts, title = _parts(data, weights, 0, folds, rng)
    rows = []
    for part in parts:
        found, seconds = _fitted_and_measured(fresh(chosen), part, lists=lists, groups=groups)
        rows.append({**found.metrics, "fit_seconds": round(seconds, 3)})
    return CrossValidation(f"{_names([chosen])[0]}, {title}", rows)


class CrossValidation(Tabular):
    """The result of `cross_validate`: one row per fold.

    Attributes:
        title: What was measured.
        mean: The mean of each measure over the folds; None where there is none.
        std: Its standard deviation over the folds, with n - 1 in the denominator.
    """

    def __init__(self, title: str, rows: list[dict[str, Any]]) -> None:
        self.title = title
        self._rows = rows
        self.mean = _means(rows, spread=False)
        self.std = {
            name: None if value is None else float(np.std([row[name] for row in rows], ddof=1))
            for name, value in self.mean.items()
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each fold with its measures."""
        yield from ({"fold": number, **row} for number, row in enumerate(self._rows, start=1))

    def __str__(self) -> str:
        return f"{self.title}\n" + text_table(
            [*self.rows(), {"fold": "mean", **self.mean}, {"fold": "std", **self.std}]
        )

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class _Part:
    """Training ratings with their weights, and test ratings."""

    train: Ratings
    test: Ratings
    weights: PrivacyWeights | None


def _parts(
    data: RatingsLike | tuple[RatingsLike, RatingsLike],
    weights: Weights,
    per_user: int,
    folds: int | None,
    rng: int,
) -> tuple[list[_Part], str]:
    if isinstance(data, tuple):
        if folds is not None:
            raise ConfigError("folds are made of one table; give it instead of a pair")
        train = as_ratings(data[0])
        splits = [(train, as_ratings(data[1], train.scale))]
        whole = train
    else:
        whole = as_ratings(data)
        splits = (
            [whole.hold_out(per_user, rng=rng)]
            if folds is None
            else list(whole.k_fold(folds, rng=rng))
        )
    parts = [_Part(train, test, weights_for(weights, whole, train, rng)) for train, test in splits]
    train, test = splits[0]
    title = f"{whole.name}: {len(train):,} ratings to learn from, {len(test):,} to test on"
    return parts, title if folds is None else f"{title}, {folds} folds"


def weights_for(
    weights: Weights, whole: Ratings, train: Ratings, rng: int
) -> PrivacyWeights | None:
    """Return the weights of a training part: of the whole table's, or drawn for it."""
    if isinstance(weights, PrivacySpec):
        return weights.draw(train, rng=rng)
    if weights is None or weights.rating_weights is None or len(whole) == len(train):
        return weights
    if len(weights.rating_weights) == len(train):
        return weights
    # Parts have the codes of the whole, and a pair of codes is there once.
    keys = whole.user_codes.astype(np.int64) * whole.n_items + whole.item_codes
    own = train.user_codes.astype(np.int64) * whole.n_items + train.item_codes
    order = np.argsort(keys)
    return weights.take(order[np.searchsorted(keys, own, sorter=order)])


def _fitted_and_measured(model: Estimator, part: _Part, **options: Any) -> tuple[Measured, float]:
    begin = time.perf_counter()
    model.fit(part.train, part.weights, lists=options.get("lists", False))
    seconds = time.perf_counter() - begin
    return measure(model, part.train, part.test, **options), seconds


def fresh(model: Estimator, **changes: Any) -> Estimator:
    """Return an unfitted model with the same parameters, but for changes."""
    return type(model)(**model.get_params()).set_params(**changes)


def _means(rows: Sequence[Mapping[str, float | None]], *, spread: bool = True) -> dict[str, Any]:
    """Return means over folds; of several with the deviation of the first measure."""
    names = dict.fromkeys(name for row in rows for name in row)
    means: dict[str, Any] = {}
    for name in names:
        values = [value for row in rows if (value := row.get(name)) is not None]
        means[name] = float(np.mean(values)) if values else None
        if spread and name == "mse" and len(rows) > 1:
            means["mse_std"] = float(np.std(values, ddof=1)) if values else None
    return means


def user_means(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the measures of each user, over all folds in which there are any."""
    found: dict[str, np.ndarray] = {}
    for name in parts[0]:
        table = np.stack([part[name] for part in parts])
        counts = np.isfinite(table).sum(axis=0)
        sums = np.nansum(table, axis=0)
        found[name] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return found


def as_model(given: Any, rng: int) -> Estimator:
    """Return an estimator, or a new one of a method by its name."""
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


PRIVATE_CHOICE = (
    "hyper-parameters are chosen by errors on the ratings themselves, and epsilon does not cover "
    "that choice: choose on public ratings, or keep the choice to yourself"
)
"""What is said where somebody tunes a private method."""


def grid_search(
    model: Estimator | str,
    data: RatingsLike,
    grid: Mapping[str, Sequence[Any]],
    *,
    weights: Weights = None,
    by: str = "mse",
    folds: int = 5,
    groups: Groups | None = None,
    rng: int = 0,
) -> SearchResult:
    """Cross-validate a model over combinations of options, and choose the best.

    An experiment tunes on all cores, and goes on after a stop (docs/experiments.md).

    Args:
        model: An estimator, which stays as it is, or the name of a method.
        data: Ratings, or a frame or matrix of them.
        grid: Values to try, by option.
        weights: Privacy weights of all ratings, or a `PrivacySpec` to draw them by.
        by: The lowest ``mse``, ``mae`` or ``mse_gap`` (of ``groups``), the highest measure of lists
            (``ndcg_at_10``, ``recall_at_10``, ...).
        folds: How many.
        groups: As in `compare`.
        rng: Seed of the folds, of drawn weights, and of a model given by name.

    Raises:
        ConfigError: An option or a measure is unknown.
        DivergedError: Training diverged for every combination.
    """
    ratings = as_ratings(data)
    for name, choices in grid.items():
        if isinstance(choices, str) or not hasattr(choices, "__len__"):
            raise ConfigError(f"values to try for {name} are a list, not {choices!r}")
    empty = [name for name, values in grid.items() if not len(values)]
    if not grid or empty:
        raise ConfigError(f"there is nothing to try{f' for {empty[0]}' if empty else ''}")
    usual = as_model(model, rng)
    fresh(usual, **{name: values[0] for name, values in grid.items()})
    lists = by in _HIGHER
    if not lists and by not in ("mse", "mae", "mse_gap"):
        raise ConfigError(f"a search is by mse, mae, mse_gap, or {', '.join(_HIGHER)}, not {by!r}")
    sign = -1.0 if lists else 1.0
    if usual.privacy.epsilon:
        notify(PRIVATE_CHOICE)
    rows: list[dict[str, Any]] = []
    tried: list[tuple[float, Values]] = []
    for cell in itertools.product(*grid.values()):
        values = dict(zip(grid, cell, strict=True))
        try:
            found = cross_validate(
                fresh(usual, **values),
                ratings,
                weights=weights,
                folds=folds,
                lists=lists,
                groups=groups if groups is not None or by != "mse_gap" else "activity",
                rng=rng,
            ).mean
            measured = found[by]
        except DivergedError as error:
            found, measured = {"message": str(error)}, None
        if measured is None and "message" not in found:
            raise ConfigError(f"{type(usual).__name__} is not measured by {by}")
        cost = math.inf if measured is None else sign * float(measured)
        tried.append((cost, values))
        rows.append({**values, **found})
    cost, best = min(tried, key=lambda pair: pair[0])
    if not math.isfinite(cost):
        raise DivergedError(f"training diverged for every combination: {rows[0]['message']}")
    return SearchResult(by, rows, best, sign * cost, fresh(usual, **best))
