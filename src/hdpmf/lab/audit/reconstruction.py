"""Reconstruction: a user's star ratings from the noisy gradients of all rounds.

The recommender knows what it sent (item factors and h) and what it got back. It guesses the
ratings, simulates the device to see which user vectors they would have led to, and with those
vectors solves for the ratings: every message ``2 c (u.v - t) u + noise`` is then linear in the one
unknown t. Stars are scored by their likelihood and by how common they are; the posterior means are
the next guess, and so on until nothing moves. The privacy weights are taken as known.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import Ratings
from hdpmf.common.methods import METHODS, method_named
from hdpmf.common.privacy import PrivacySpec, PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.errors import ConfigError
from hdpmf.lab.audit.gradients import Copies, RecordedRun, SimulatedDevice, messages, record
from hdpmf.private.client.devices import SPREAD

_ITERATIONS = 20
_DRIFT = 1e-5  # variance per round of what the guessed ratings get wrong about the next vector
_LEVELS_WITHOUT_STEP = 5
_FIRST_STREAM = 700_000


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """Accuracy of reconstructed ratings.

    Attributes:
        exact: Share of ratings whose star was guessed exactly.
        rmse: Root mean squared error of the attacker's expected ratings.
        modal_exact: As ``exact``, for guessing the most common star of all ratings every time.
        modal_rmse: As ``rmse``, for the same.
        item_mean_exact: As ``exact``, for the mean of the item's other raters, rounded to a star.
        item_mean_rmse: As ``rmse``, for the same, not rounded.
    """

    users: int
    ratings: int
    exact: float
    rmse: float
    modal_exact: float
    modal_rmse: float
    item_mean_exact: float
    item_mean_rmse: float


def attackable_methods() -> tuple[str, ...]:
    """Return the methods whose noisy gradients can be attacked: those without a proof."""
    return tuple(
        name
        for name, method in METHODS.items()
        if method.audited and method.trains and method.claim().status == "nominal"
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
                f"this attack is on rounds of noisy gradients: choose one of {', '.join(names)}"
            )
        if self.seed < 0:
            raise ConfigError(f"the seed must be 0 or more, not {self.seed}")


def reconstruct(
    setting: AttackSetting,
    ratings: Ratings,
    n_users: int = 50,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Reconstruction:
    """Train once, and attack some users who took part, spread evenly over all."""
    if n_users < 1:
        raise ConfigError(f"a reconstruction needs at least one user, not {n_users}")
    seed = setting.seed
    wishes = (
        PrivacySpec().draw(ratings, seed)
        if setting.weight is None
        else PrivacyWeights.uniform(ratings, setting.weight)
    )
    method = method_named(setting.method)
    model = method.configure(
        rng=seed,
        **method.own(
            n_factors=setting.factors, epochs=setting.epochs, epsilon=setting.epsilon, noise="epoch"
        ),
    )
    path = record(model, ratings, wishes, seed)
    weights = np.asarray(wishes.for_ratings(ratings))
    stars = _stars(ratings)
    levels = np.abs(ratings.values[:, None] - stars).argmin(axis=1)
    prior = np.log(np.bincount(levels, minlength=len(stars)) + 1.0)
    rated = np.flatnonzero(ratings.user_counts() > 0)
    chosen = rated[np.unique(np.linspace(0, len(rated) - 1, min(n_users, len(rated))).astype(int))]
    rows = []
    expected = []
    guessed = []
    with Workers(1) as workers:
        for number, user in enumerate(chosen.tolist()):
            own = np.flatnonzero(ratings.user_codes == user)
            copies = Copies(
                np.array([user]),
                ratings.item_codes[own],
                ratings.values[None, own].astype(float),
                weights[None, own],
            )
            raters = np.maximum(path.raters[copies.items], 1)
            noise = SeededNoise(seed, _FIRST_STREAM + number)
            stream = messages(path, copies, raters, noise, seed, workers)
            kept = next(stream)
            seen = np.concatenate(list(stream)).astype(np.float64)
            posterior = _solve(path, copies, kept, seen, raters, stars, prior)
            rows.append(own)
            expected.append(posterior @ stars)
            guessed.append(posterior.argmax(axis=1))
            progress(number + 1, len(chosen))
    everything = np.concatenate(rows)
    truth = ratings.values[everything].astype(np.float64)
    true_level = levels[everything]
    means = _means_of_others(ratings)[everything]
    modal = int(prior.argmax())
    return Reconstruction(
        users=len(chosen),
        ratings=len(everything),
        exact=float(np.mean(np.concatenate(guessed) == true_level)),
        rmse=_rms(np.concatenate(expected) - truth),
        modal_exact=float(np.mean(true_level == modal)),
        modal_rmse=_rms(stars[modal] - truth),
        item_mean_exact=float(np.mean(np.abs(means[:, None] - stars).argmin(axis=1) == true_level)),
        item_mean_rmse=_rms(means - truth),
    )


def _solve(
    path: RecordedRun,
    copies: Copies,
    kept: np.ndarray,
    seen: np.ndarray,
    raters: np.ndarray,
    stars: np.ndarray,
    prior: np.ndarray,
) -> np.ndarray:
    """Return the posterior of every star, a row per rating of one user.

    ``seen`` has the user's messages, of shape (rounds, ratings, factors).
    """
    plan = path.plan
    mechanism = path.mechanism
    weights = copies.weights[0]
    coefficient = mechanism.coefficient(weights)
    c = np.ones(len(weights)) if coefficient is None else coefficient
    precisions = np.stack(
        [1.0 / path.variance(number, copies.items, raters) for number in range(plan.epochs)]
    )
    targets = np.stack(
        [mechanism.target(np.full(len(weights), star), weights) for star in stars], axis=1
    )
    posterior = np.tile(
        np.exp(prior - prior.max()) / np.exp(prior - prior.max()).sum(), (len(weights), 1)
    )
    for _ in range(_ITERATIONS):
        guess = Copies(copies.ids, copies.items, (posterior @ stars)[None], copies.weights)
        device = SimulatedDevice(path, guess, kept, 0, np.zeros((1, plan.n_factors)))
        information = np.zeros(len(weights))
        evidence = np.zeros(len(weights))
        # Variance of what is known of u: at first, of a first vector.
        doubt = np.full(plan.n_factors, SPREAD**2)
        for number in range(plan.epochs):
            e = device.residuals(number)[0]
            # The messages e u say where the vector really is, the guessed ratings where it should
            # be.
            told = np.sum(precisions[number] * e[:, None] ** 2, axis=0)
            said = np.sum(precisions[number] * e[:, None] * seen[number], axis=0)
            device.u = (device.u / doubt + said) / (1.0 / doubt + told)
            doubt = 1.0 / (1.0 / doubt + told) + _DRIFT
            u = device.u[0]
            predicted = path.factors[number][copies.items].astype(np.float64) @ u
            direction = -2.0 * c[:, None] * u  # the message is direction * (t - u.v) + noise
            weight = np.sum(direction**2 * precisions[number], axis=1)
            information += weight
            evidence += (
                np.sum(direction * precisions[number] * seen[number], axis=1) + predicted * weight
            )
        information *= kept[0]
        evidence *= kept[0]
        log_posterior = (
            prior + targets * evidence[:, None] - 0.5 * information[:, None] * targets**2
        )
        new = np.exp(log_posterior - log_posterior.max(axis=1, keepdims=True))
        new /= new.sum(axis=1, keepdims=True)
        settled = np.abs(new - posterior).max() < 1e-3
        posterior = 0.5 * posterior + 0.5 * new
        if settled:
            break
    return posterior


def _stars(ratings: Ratings) -> np.ndarray:
    """Return the values that a rating can take; five on a scale without a step."""
    scale = ratings.scale
    steps = _LEVELS_WITHOUT_STEP - 1 if scale.step is None else round(scale.width / scale.step)
    return np.linspace(scale.low, scale.high, steps + 1)


def _means_of_others(ratings: Ratings) -> np.ndarray:
    """Return the mean of each item's other ratings; of all ratings if there are none."""
    counts = ratings.item_counts()
    sums = np.bincount(ratings.item_codes, ratings.values, ratings.n_items)
    others = counts[ratings.item_codes] - 1
    overall = float(ratings.values.mean(dtype=np.float64))
    rest = sums[ratings.item_codes] - ratings.values
    return np.where(others > 0, rest / np.maximum(others, 1), overall)


def _rms(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))
