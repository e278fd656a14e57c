"""The search for hyper-parameters: which combinations to try next, and `grid_search` in memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal, Protocol

from hdpmf.common.data import RatingsLike, as_ratings
from hdpmf.errors import ConfigError, DivergedError, MissingExtraError, notify
from hdpmf.models.base import Estimator
from hdpmf.models.result_tables import Tabular, text_table
from hdpmf.models.validation import (
    LIST_LENGTH,
    Groups,
    Metric,
    Weights,
    as_model,
    cross_validate,
    fresh,
    metric_named,
)

Values = dict[str, Any]
"""A combination: a value for each option."""

Space = Mapping[str, Sequence[Any]]
"""Values to try, by option. A Bayesian search takes numbers as ends of a range."""

SearchKind = Literal["grid", "bayes"]

_HIGHER = tuple(
    f"{name}_at_{LIST_LENGTH}" for name in ("ndcg", "recall", "coverage", "novelty", "diversity")
)


class Proposals(Protocol):
    """A source of combinations to try."""

    def ask(self, n: int) -> list[Values]:
        """Return up to so many combinations to try next; none when the search is over."""

    def tell(self, values: Values, cost: float) -> None:
        """Note what a combination cost; infinite where it failed."""


def proposals(kind: SearchKind, space: Space, *, trials: int | None, seed: int) -> Proposals:
    """Return a source of combinations.

    Args:
        kind: ``grid`` (every combination) or ``bayes`` (Optuna's sampler, which learns from what
            was tried).
        space: Values by option.
        trials: Combinations that ``bayes`` tries; 20 by default.
        seed: Of ``bayes``.

    Raises:
        ConfigError: An option has no values, or ``trials`` does not belong.
        MissingExtraError: Optuna is not installed.
    """
    empty = [name for name, values in space.items() if not len(values)]
    if not space or empty:
        raise ConfigError(f"there is nothing to try{f' for {empty[0]}' if empty else ''}")
    if kind == "bayes":
        return _Bayesian(space, 20 if trials is None else trials, seed)
    if kind != "grid":
        raise ConfigError(f"a search is 'grid' or 'bayes', not {kind!r}")
    if trials is not None:
        raise ConfigError("a grid tries every combination; trials are for search='bayes'")
    return _Grid(space)


class _Grid:
    """Every combination, in order."""

    def __init__(self, space: Space) -> None:
        cells = itertools.product(*space.values())
        self._left = iter([dict(zip(space, cell, strict=True)) for cell in cells])

    def ask(self, n: int) -> list[Values]:
        return list(itertools.islice(self._left, n))

    def tell(self, values: Values, cost: float) -> None:
        """Learn nothing: the grid is what it is."""


class _Bayesian:
    """Optuna's tree-structured Parzen estimator; the same seed and results ask for the same."""

    def __init__(self, space: Space, trials: int, seed: int) -> None:
        if find_spec("optuna") is None:
            raise MissingExtraError("a Bayesian search needs Optuna: pip install 'hdpmf[optuna]'")
        if trials < 1:
            raise ConfigError(f"a search tries at least 1 combination, not {trials}")
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        self._space = {name: _distribution(values) for name, values in space.items()}
        self._left = trials
        self._open: list[tuple[Values, Any]] = []

    def ask(self, n: int) -> list[Values]:
        asked = []
        for _ in range(min(n, self._left)):
            trial = self._study.ask(self._space)
            asked.append(dict(trial.params))
            self._open.append((asked[-1], trial))
        self._left -= len(asked)
        return asked

    def tell(self, values: Values, cost: float) -> None:
        position = next(n for n, (open_values, _) in enumerate(self._open) if open_values == values)
        _, trial = self._open.pop(position)
        if math.isfinite(cost):
            self._study.tell(trial, cost)
        else:
            import optuna

            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)


def _distribution(values: Sequence[Any]) -> Any:
    """Return where an option's values are drawn from: a range for numbers, else the values.

    A range over a factor of ten or more is searched by its logarithm.
    """
    import optuna

    numbers = all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )
    if not numbers or len(set(values)) < 2:
        return optuna.distributions.CategoricalDistribution(list(values))
    low = min(values)
    high = max(values)
    log = low > 0 and high >= 10 * low
    if all(isinstance(value, int) for value in values):
        return optuna.distributions.IntDistribution(low, high, log=log)
    return optuna.distributions.FloatDistribution(float(low), float(high), log=log)


PRIVATE_CHOICE = (
    "hyper-parameters are chosen by errors on the ratings themselves, and epsilon does not cover "
    "that choice: choose on public ratings, or keep the choice to yourself"
)
"""What is said where somebody tunes a private method."""


class SearchResult(Tabular):
    """The result of `grid_search`: one row per combination, in the order of trying.

    Attributes:
        by: The measure that chose.
        best: The best combination.
        best_value: Its measure, the mean over the folds.
        model: An unfitted model with the best combination.
    """

    def __init__(
        self, by: str, rows: list[dict[str, Any]], best: Values, value: float, model: Estimator
    ) -> None:
        self.by = by
        self.best = best
        self.best_value = value
        self.model = model
        self._rows = rows

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each combination with its measures; a message where training diverged."""
        yield from (dict(row) for row in self._rows)

    def __str__(self) -> str:
        chosen = ", ".join(f"{name}={value}" for name, value in self.best.items())
        return f"best by {self.by}: {chosen} ({self.best_value:.4f})\n{text_table(self._rows)}"

    __repr__ = __str__


def grid_search(
    model: Estimator | str,
    data: RatingsLike,
    grid: Space,
    *,
    weights: Weights = None,
    by: str | Metric = "mse",
    folds: int = 5,
    search: SearchKind = "grid",
    trials: int | None = None,
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
            (``ndcg_at_10``, ``recall_at_10``, ...), or a metric of your own.
        folds: How many.
        search: ``grid`` for every combination, or ``bayes`` for Optuna's choice of ``trials``
            within the ranges that the values span (``pip install 'hdpmf[optuna]'``).
        trials: Combinations that ``bayes`` tries; 20 by default.
        groups: As in `compare`.
        rng: Seed of the folds, of drawn weights, of the search, and of a model given by name.

    Raises:
        ConfigError: An option or a measure is unknown.
        DivergedError: Training diverged for every combination.
    """
    ratings = as_ratings(data)
    usual = as_model(model, rng)
    fresh(usual, **{name: values[0] for name, values in grid.items() if len(values)})
    own = by if isinstance(by, Metric) else None
    name = by if isinstance(by, str) else by.name
    lists = name in _HIGHER
    if not lists and name not in ("mse", "mae", "mse_gap") and own is None:
        own = metric_named(name)
    sign = -1.0 if lists or (own is not None and own.higher_is_better) else 1.0
    if usual.privacy.epsilon:
        notify(PRIVATE_CHOICE)
    source = proposals(search, grid, trials=trials, seed=rng)
    rows: list[dict[str, Any]] = []
    tried: list[tuple[float, Values]] = []
    while values := next(iter(source.ask(1)), None):
        try:
            found = cross_validate(
                fresh(usual, **values),
                ratings,
                weights=weights,
                folds=folds,
                lists=lists,
                groups=groups if groups is not None or name != "mse_gap" else "activity",
                metrics=() if own is None else (own,),
                rng=rng,
            ).mean
            measured = found[name]
        except DivergedError as error:
            found, measured = {"message": str(error)}, None
        if measured is None and "message" not in found:
            raise ConfigError(f"{type(usual).__name__} is not measured by {name}")
        cost = math.inf if measured is None else sign * float(measured)
        source.tell(values, cost)
        tried.append((cost, values))
        rows.append({**values, **found})
    cost, best = min(tried, key=lambda pair: pair[0])
    if not math.isfinite(cost):
        raise DivergedError(f"training diverged for every combination: {rows[0]['message']}")
    return SearchResult(name, rows, best, sign * cost, fresh(usual, **best))
