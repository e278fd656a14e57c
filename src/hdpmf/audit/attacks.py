"""The attacks by name, from settings to words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hdpmf.audit.cheats import Differencing, ZeroH, difference, zero_h
from hdpmf.audit.reconstruct import Reconstruction, reconstruct
from hdpmf.audit.replay import RecordedRun, record
from hdpmf.audit.world import choose_target
from hdpmf.errors import ConfigError
from hdpmf.methods import METHODS, method_named
from hdpmf.models.factorization import Factorization
from hdpmf.privacy import PrivacySpec, PrivacyWeights
from hdpmf.ratings import Ratings

Outcome = Reconstruction | Differencing | ZeroH


def attacked() -> tuple[str, ...]:
    """The methods whose rounds of gradients can be attacked: those that no proof stands behind."""
    return tuple(
        name
        for name, method in METHODS.items()
        if method.audited and method.trains and method.claim().status != "proved"
    )


@dataclass(frozen=True, slots=True)
class AttackSetting:
    """How the attacked training was run; ``weight`` None draws the paper's privacy weights."""

    method: str = "hdpmf"
    epsilon: float = 1.0
    weight: float | None = None
    factors: int = 10
    epochs: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in attacked():
            raise ConfigError(f"these attacks are on rounds of gradients: choose one of {', '.join(attacked())}")
        if self.seed < 0:
            raise ConfigError(f"the seed must be 0 or more, not {self.seed}")


def run(
    name: str,
    setting: AttackSetting,
    ratings: Ratings,
    *,
    users: int = 50,
    runs: int = 1_000,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Outcome:
    """Train once, then attack.

    Args:
        name: ``reconstruct``, ``difference`` or ``zero-h``.
        setting: Of the training.
        ratings: The world.
        users: How many users to attack (``reconstruct``, ``zero-h``).
        runs: Of each world (``difference``).
        progress: Told how far things are.
    """
    if name == "difference":
        target = choose_target(ratings, 1.0 if setting.weight is None else setting.weight, seed=setting.seed)
        path = _recorded(setting, ratings, target.privacy_weights(), "once")
        return difference(path, target, runs, setting.seed)
    weights = (
        PrivacySpec().draw(ratings, setting.seed)
        if setting.weight is None
        else PrivacyWeights.uniform(ratings, setting.weight)
    )
    path = _recorded(setting, ratings, weights, "epoch")
    each = np.asarray(weights.for_ratings(ratings))
    if name == "zero-h":
        return zero_h(path, ratings, each, users, setting.seed)
    return reconstruct(path, ratings, each, users, setting.seed, progress)


def in_words(outcome: Outcome) -> list[str]:
    """The outcome for people."""
    if isinstance(outcome, Reconstruction):
        return [
            f"{outcome.ratings:,} ratings of {outcome.users} users, from their noisy gradients of all rounds:",
            f"  this attack:         {outcome.exact:6.1%} exactly right, RMSE {outcome.rmse:.3f}",
            f"  the commonest star:  {outcome.modal_exact:6.1%} exactly right, RMSE {outcome.modal_rmse:.3f}",
            f"  the item's mean:     {outcome.item_mean_exact:6.1%} exactly right, RMSE {outcome.item_mean_rmse:.3f}",
        ]
    if isinstance(outcome, Differencing):
        return [
            f"Noise drawn once has a standard deviation of {outcome.noise:.3g} here; the difference of two rounds has "
            f"none: what is left is {outcome.left_over:.1g}.",
            f"The star was right in {outcome.exact:.1%} of the runs (chance: {outcome.chance:.0%}).",
            f"Epsilon is at least {outcome.epsilon_lower_bound:.2f} ({100 * outcome.confidence:g}% confidence, "
            f"{outcome.runs:,} runs of each world); claimed was {outcome.epsilon_claimed:g}.",
        ]
    first = f"h = 0: {'REFUSED by the shard' if outcome.zero_refused else 'ANSWERED by the shard'}. {outcome.reason}"
    tiny = "REFUSED as well" if outcome.tiny_refused else "ANSWERED"
    leak = "would have given away" if outcome.tiny_refused else "gave away"
    return [
        first,
        f"h just above 0: {tiny}.",
        f"One round without noise {leak} {outcome.exact:.1%} of {outcome.ratings:,} ratings of {outcome.users} users, "
        "to the exact star.",
        f"The smallest h, equal on all coordinates, that is answered in one round: {outcome.smallest_answered:.2g}. A "
        "shard cannot know how h was drawn, only whether it could have been.",
    ]


def _recorded(setting: AttackSetting, ratings: Ratings, weights: PrivacyWeights, noise: str) -> RecordedRun:
    method = method_named(setting.method)
    model = method.configure(
        rng=setting.seed,
        **method.own(n_factors=setting.factors, epochs=setting.epochs, epsilon=setting.epsilon, noise=noise),
    )
    if not isinstance(model, Factorization):
        raise ConfigError(f"{setting.method} does not send gradients")
    return record(model, ratings, weights, setting.seed)
