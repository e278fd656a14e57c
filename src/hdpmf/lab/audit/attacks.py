"""Attacks on recorded runs: reconstruction, noise that is used twice, and h near zero.

Each shows what real clients refuse and what would leak otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import Ratings
from hdpmf.common.methods import METHODS, method_named
from hdpmf.common.privacy import PrivacySpec, PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.errors import ConfigError, PrivacyError, ProtocolError
from hdpmf.lab.audit.reconstruction import (
    Reconstruction,
    levels_of,
    reconstruct,
    solve_without_noise,
)
from hdpmf.lab.audit.replay import Copies, RecordedRun, SimulatedDevice, messages, record
from hdpmf.lab.audit.scores import Scores, lower_bound
from hdpmf.lab.audit.world import Target, check_runs, choose_target
from hdpmf.models.factorization import Factorization

TINY_H = 1e-30
"""Not 0, but small enough that an attacker sees no noise."""

# streams of the seed
_DIFFERENCE = 800_000
_ZERO_H = 810_000

_ROUNDS = 3

_BLOCK = 400


@dataclass(frozen=True, slots=True)
class Differencing:
    """The leak through differences of rounds that share one draw of noise.

    Attributes:
        runs: Runs of each world that the bound is measured on; as many again choose its threshold.
        exact: Part of the runs in which the audited star was guessed exactly, among all stars.
        chance: The same, by guessing blindly.
        epsilon_lower_bound: Epsilon that the attack proves, with ``confidence``.
        noise: Typical size (median standard deviation) of the noise on the audited messages.
        left_over: Largest difference between what the attacker saw and what the right star
            explains.
    """

    runs: int
    exact: float
    chance: float
    epsilon_claimed: float
    epsilon_lower_bound: float
    confidence: float
    noise: float
    left_over: float


def difference(path: RecordedRun, target: Target, runs: int, seed: int = 0) -> Differencing:
    """Guess stars from the differences of consecutive rounds' messages.

    Args:
        path: A recorded run whose plan keeps the noise.
        target: The audited rating. The user's other ratings are known.
        seed: Of the first vectors and of the noise.
    """
    check_runs(runs)
    if path.plan.fresh_noise:
        raise ConfigError(
            "the differencing attack is for noise that is drawn once; record a run with "
            "noise='once'"
        )
    stars = levels_of(target.ratings)
    position = target.position
    items = target.ratings.item_codes[target.own]
    raters = np.maximum(path.raters[items], 1)
    low: list[np.ndarray] = []
    high: list[np.ndarray] = []
    hits = 0
    left_over = 0.0
    with Workers(1) as workers:
        for star in (0, len(stars) - 1):
            for begin in range(0, 2 * runs, _BLOCK):
                ids = np.arange(begin, min(begin + _BLOCK, 2 * runs))
                every = [_known(target, items, value, ids) for value in stars]
                noise = SeededNoise(seed, _DIFFERENCE + 2 * begin + (star > 0))
                stream = messages(path, every[star], raters, noise, seed, workers)
                kept = next(stream)
                seen = np.stack([next(stream)[:, position] for _ in range(_ROUNDS)]).astype(
                    np.float64
                )
                devices = [SimulatedDevice(path, copies, kept, None, seed) for copies in every]
                told = np.stack([_expected(device, position) for device in devices])
                apart = np.linalg.norm(np.diff(seen, axis=0) - np.diff(told, axis=1), axis=3).sum(
                    axis=1
                )
                hits += int((apart.argmin(axis=0) == star).sum())
                left_over = max(left_over, float(apart[star].max()))
                (high if star else low).append(apart[0] - apart[-1])
    scores = Scores(np.concatenate(low), np.concatenate(high))
    bound = lower_bound(
        Scores(scores.low[:runs], scores.high[:runs]), Scores(scores.low[runs:], scores.high[runs:])
    )
    spread = np.sqrt([path.variance(number, items, raters)[position] for number in range(_ROUNDS)])
    return Differencing(
        runs=runs,
        exact=hits / (4 * runs),
        chance=1.0 / len(stars),
        epsilon_claimed=target.weight * path.plan.epsilon,
        epsilon_lower_bound=bound.epsilon,
        confidence=bound.confidence,
        noise=float(np.median(spread)),
        left_over=left_over,
    )


@dataclass(frozen=True, slots=True)
class ZeroH:
    """The answers to an h that makes no noise.

    Attributes:
        zero_refused: Whether the client refused h = 0.
        tiny_refused: Whether it refused an h just above 0.
        smallest_answered: The smallest h, equal on all coordinates, that it answers in the first
            round; typical is 0.7.
        exact: Part of these whose star came out exactly, from one round without noise.
    """

    zero_refused: bool
    reason: str
    tiny_refused: bool
    smallest_answered: float
    users: int
    ratings: int
    exact: float


def zero_h(
    path: RecordedRun, ratings: Ratings, weights: np.ndarray, n_users: int = 20, seed: int = 0
) -> ZeroH:
    """Send h = 0 and h = ``TINY_H``, and solve the first round's messages for the ratings.

    Where the client refuses ``TINY_H``, its messages are simulated without noise, to show what
    would leak.

    Raises:
        ConfigError: The method has no noise.
    """
    if path.h is None:
        raise ConfigError(
            "this method has no noise to take away; its messages are open as they are"
        )
    stars = levels_of(ratings)
    rated = np.flatnonzero(ratings.user_counts() > 1)
    chosen = rated[np.unique(np.linspace(0, len(rated) - 1, min(n_users, len(rated))).astype(int))]
    first = _own(ratings, weights, int(chosen[0]))
    reason = _refusal(path, first, 0.0, seed)
    tiny_refused = _refusal(path, first, TINY_H, seed) is not None
    hits = 0
    total = 0
    with Workers(1) as workers:
        for number, user in enumerate(chosen.tolist()):
            copies = _own(ratings, weights, user)
            if tiny_refused:
                seen = _expected_first(path, copies, seed)
            else:
                noise = SeededNoise(seed, _ZERO_H + number)
                ones = np.ones(copies.shape[1], np.int64)
                stream = messages(_with_h(path, TINY_H), copies, ones, noise, seed, workers)
                kept = next(stream)[0]
                seen = next(stream)[0].astype(np.float64)
                copies = Copies(
                    copies.ids, copies.items[kept], copies.values[:, kept], copies.weights[:, kept]
                )
                seen = seen[kept]
            if copies.shape[1] < 2:
                continue
            guess = solve_without_noise(path, copies, seen, stars)
            hits += int(
                np.sum(
                    np.abs(guess[:, None] - stars).argmin(axis=1)
                    == _levels(copies.values[0], stars)
                )
            )
            total += copies.shape[1]
    smallest = _smallest_answered(path, first, seed) if tiny_refused else TINY_H
    return ZeroH(
        reason is not None,
        reason or "",
        tiny_refused,
        smallest,
        len(chosen),
        total,
        hits / max(total, 1),
    )


def _refusal(path: RecordedRun, copies: Copies, h: float, seed: int) -> str | None:
    """Return the refusal of this h by a real client; None if it answers."""
    with Workers(1) as workers:
        raters = np.ones(copies.shape[1], np.int64)
        stream = messages(
            _with_h(path, h), copies, raters, SeededNoise(seed, _ZERO_H), seed, workers
        )
        next(stream)
        try:
            next(stream)
        except (PrivacyError, ProtocolError) as error:
            return str(error)
    return None


def _smallest_answered(path: RecordedRun, copies: Copies, seed: int) -> float:
    """Find the smallest h that is answered, by bisection to 1 %."""
    low = np.log(TINY_H)
    high = 0.0
    while high - low > 0.01:
        middle = (low + high) / 2.0
        low, high = (
            (middle, high) if _refusal(path, copies, float(np.exp(middle)), seed) else (low, middle)
        )
    return float(np.exp(high))


def _with_h(path: RecordedRun, h: float) -> RecordedRun:
    return replace(path, h=np.full((path.plan.epochs, 1, path.plan.n_factors), h, np.float32))


def _own(ratings: Ratings, weights: np.ndarray, user: int) -> Copies:
    own = np.flatnonzero(ratings.user_codes == user)
    return Copies(
        np.array([user]),
        ratings.item_codes[own],
        ratings.values[None, own].astype(float),
        weights[None, own],
    )


def _expected_first(path: RecordedRun, copies: Copies, seed: int) -> np.ndarray:
    device = SimulatedDevice(path, copies, np.ones(copies.shape, bool), None, seed)
    return np.asarray(device.residuals(0)[0][:, None] * device.u[0])


def _levels(values: np.ndarray, stars: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(values[:, None] - stars).argmin(axis=1))


def _known(target: Target, items: np.ndarray, value: float, ids: np.ndarray) -> Copies:
    values = np.tile(target.values(value)[target.own].astype(float), (len(ids), 1))
    return Copies(ids, items, values, np.tile(target.weights[target.own], (len(ids), 1)))


def _expected(device: SimulatedDevice, position: int) -> np.ndarray:
    """Return messages about one rating without noise, (rounds, users, factors)."""
    rounds = []
    for number in range(_ROUNDS):
        e = device.residuals(number)[:, position]
        rounds.append(e[:, None] * device.u)
    return np.stack(rounds)


Outcome = Reconstruction | Differencing | ZeroH


def attackable_methods() -> tuple[str, ...]:
    """Return the methods whose gradients can be attacked: those without a proof."""
    return tuple(
        name
        for name, method in METHODS.items()
        if method.audited and method.trains and method.claim().status != "proved"
    )


@dataclass(frozen=True, slots=True)
class AttackSetting:
    """Settings of the attacked training; ``weight`` None draws the paper's privacy weights."""

    method: str = "hdpmf"
    epsilon: float = 1.0
    weight: float | None = None
    factors: int = 10
    epochs: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        names = attackable_methods()
        if self.method not in names:
            raise ConfigError(
                f"these attacks are on rounds of gradients: choose one of {', '.join(names)}"
            )
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
        users: How many users to attack (``reconstruct``, ``zero-h``).
        runs: Of each world (``difference``).
        progress: Called with the work done and the total.
    """
    if name == "difference":
        target = choose_target(
            ratings, 1.0 if setting.weight is None else setting.weight, seed=setting.seed
        )
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
    """Describe an outcome."""
    if isinstance(outcome, Reconstruction):
        return [
            f"{outcome.ratings:,} ratings of {outcome.users} users, from their noisy "
            "gradients of all rounds:",
            f"  this attack:         {outcome.exact:6.1%} exactly right, RMSE {outcome.rmse:.3f}",
            f"  the commonest star:  {outcome.modal_exact:6.1%} exactly right, RMSE "
            f"{outcome.modal_rmse:.3f}",
            f"  the item's mean:     {outcome.item_mean_exact:6.1%} exactly right, RMSE "
            f"{outcome.item_mean_rmse:.3f}",
        ]
    if isinstance(outcome, Differencing):
        return [
            f"Noise drawn once has a standard deviation of {outcome.noise:.3g} here; the "
            f"difference of two rounds has none: what is left is {outcome.left_over:.1g}.",
            f"The star was right in {outcome.exact:.1%} of the runs (chance: "
            f"{outcome.chance:.0%}).",
            f"Epsilon is at least {outcome.epsilon_lower_bound:.2f} "
            f"({100 * outcome.confidence:g}% confidence, "
            f"{outcome.runs:,} runs of each world); claimed was {outcome.epsilon_claimed:g}.",
        ]
    first = (
        f"h = 0: {'REFUSED by the client' if outcome.zero_refused else 'ANSWERED by the client'}"
        f". {outcome.reason}"
    )
    tiny = "REFUSED as well" if outcome.tiny_refused else "ANSWERED"
    leak = "would have given away" if outcome.tiny_refused else "gave away"
    return [
        first,
        f"h just above 0: {tiny}.",
        f"One round without noise {leak} {outcome.exact:.1%} of {outcome.ratings:,} ratings of "
        f"{outcome.users} users, to the exact star.",
        "The smallest h, equal on all coordinates, that is answered in one round: "
        f"{outcome.smallest_answered:.2g}. A "
        "client cannot know how h was drawn, only whether it could have been.",
    ]


def _recorded(
    setting: AttackSetting, ratings: Ratings, weights: PrivacyWeights, noise: str
) -> RecordedRun:
    method = method_named(setting.method)
    model = method.configure(
        rng=setting.seed,
        **method.own(
            n_factors=setting.factors, epochs=setting.epochs, epsilon=setting.epsilon, noise=noise
        ),
    )
    if not isinstance(model, Factorization):
        raise ConfigError(f"{setting.method} does not send gradients")
    return record(model, ratings, weights, setting.seed)
