"""The distinguishing game: two worlds that differ in one rating, and an observer of one of them.

An observer sees what its view shows of a real method, and scores every run of both worlds. The
scores bound epsilon from below (see `scores`).
"""

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.methods import METHODS, Method, method_named
from hdpmf.common.methods.method import PrivacyClaim
from hdpmf.common.privacy.accounting import cost
from hdpmf.errors import ConfigError
from hdpmf.lab.audit import pairs as pairs_game
from hdpmf.lab.audit.gradients import device_scores, record, retrain_scores
from hdpmf.lab.audit.one_round import Design, bit_scores, final_scores, sum_scores
from hdpmf.lab.audit.scores import (
    CONFIDENCE,
    Halves,
    Scores,
    best_attack,
    ceiling,
    certain,
    lower_bound,
    verdict,
)
from hdpmf.lab.audit.world import (
    Target,
    choose_target,
    rating_in_worlds,
    small_world,
    with_rating,
)
from hdpmf.models import Estimator, make_model
from hdpmf.models.factorization import Factorization

HIDDEN_H = "sums-h-hidden"
VIEWS = ("messages", "sums", HIDDEN_H, "final")
ADJACENCIES = ("value", "presence", "person", "exchange")

# Post-processing is repeated whole for every run; its threshold needs no more runs than this to be
# chosen well.
_FINAL_PILOT = 1_000

_SETTINGS = ("adjacency", "epsilon", "weight", "factors", "epochs", "seed")


def audited() -> tuple[str, ...]:
    """Return the methods that can be audited: those with a game, and all that are not ours."""
    return tuple(
        name for name, method in METHODS.items() if method.audited or not METHODS.is_ours(method)
    )


def _hides_presence(method: Method) -> bool:
    """Return whether a method sends something and claims to hide which items were rated."""
    return method.family != "local" and method.claim().presence is not None


@dataclass(frozen=True, slots=True)
class Audit:
    """Settings of an audit in two worlds.

    Attributes:
        method: One of ``audited()``.
        view: The attacker sees every user's ``messages``, only the ``sums`` over users (with h,
            which the recommender knows, or ``sums-h-hidden``), or the ``final`` item factors (what
            a one-round design publishes).
        runs: Runs of each world that error rates are measured on; as many again choose the
            threshold.
        weight: Privacy weight of the audited rating, whose claim is ``weight * epsilon``.
        adjacency: ``value``: the rating is the lowest or the highest. ``presence``: absent or the
            highest. Of ``hdp-pairs`` also ``person``: a history or none, and ``exchange``: this
            history or another.
    """

    method: str
    view: str
    runs: int = 10_000
    epsilon: float = 1.0
    weight: float = 1.0
    factors: int = 10
    epochs: int = 100
    seed: int = 0
    adjacency: str = "value"

    def __post_init__(self) -> None:
        for name, allowed in (("method", audited()), ("view", VIEWS), ("adjacency", ADJACENCIES)):
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(
                    f"cannot audit the {name} {value!r}; choose from {', '.join(allowed)}"
                )
        method = method_named(self.method)
        if self.view == HIDDEN_H and not method.has_h:
            raise ConfigError(
                f"{self.method} has no h that could be hidden; what there is to see is the view "
                "'sums'"
            )
        if self.adjacency == "presence" and not _hides_presence(method):
            hiding = [name for name in audited() if _hides_presence(METHODS[name])]
            raise ConfigError(
                f"{self.method} does not claim to hide which items were rated, so there is nothing "
                f"to put to the test; audit presence with {', '.join(hiding)}"
            )
        if self.adjacency in ("person", "exchange") and method.unit != "person":
            raise ConfigError(
                f"the epsilon of {self.method} is a rating's; audit its value or presence"
            )
        if self.runs < 10:
            raise ConfigError(f"an audit needs at least 10 runs of each world, not {self.runs}")
        if self.seed < 0:
            raise ConfigError(f"the seed must be 0 or more, not {self.seed}")


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Result of an audit.

    Attributes:
        runs: Measured runs of each world.
        epsilon_claimed: Claimed cost of a rating of this weight; None without a claim.
        epsilon_lower_bound: Its least cost, with ``confidence``.
        verdict: ``claim broken``, ``not contradicted`` or ``no claim``.
        claim_status: ``proved``, ``nominal`` or ``none``.
        claim_covers_view: True if that includes the view of this audit.
        ceiling: The largest bound that so many runs can prove.
        power: Measured true-positive rate of the attacker's test.
        false_alarms: Its measured false-positive rate.
        parts: Bounds of other attackers: ``direct`` uses only messages about the rated item,
            ``indirect`` only those about the user's other items, which depend on the rating through
            the user's vector.
        pilot_runs: Runs of each world that chose the threshold.
        target: Number of ratings of the audited user, and of users who rated the item.
    """

    method: str
    view: str
    runs: int
    epsilon_claimed: float | None
    epsilon_lower_bound: float
    confidence: float
    verdict: str
    claim_status: str
    claim_view: str
    claim_covers_view: bool
    ceiling: float
    power: float
    false_alarms: float
    parts: dict[str, float]
    pilot_runs: int
    data: str
    target: dict[str, int]
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


def run_audit(audit: Audit, ratings: Ratings | None = None) -> AuditResult:
    """Play the game, in a synthetic world by default; ``final`` uses a small part of it."""
    begin = time.perf_counter()
    world = synthetic_world() if ratings is None else ratings
    method = method_named(audit.method)
    normal = method.unit == "person"
    if normal:
        world = small_world(world, pairs_game.ITEMS)
    elif audit.view == "final" or not METHODS.is_ours(method):
        world = small_world(world)
    target = choose_target(world, audit.weight, seed=audit.seed)
    claim = _claim(audit)
    repeated = audit.view == "final" and method.one_round
    pilot = min(audit.runs, _FINAL_PILOT) if repeated or normal else audit.runs
    claimed = None if claim.epsilon is None else audit.weight * claim.epsilon
    if normal and audit.view != "messages":
        halves, cost_of = pairs_game.pairs_scores(
            target, audit.epsilon, audit.adjacency, audit.view, pilot, audit.runs
        )
        attacks, claimed = {"everything": halves}, cost_of.epsilon()
    else:
        attacks = _attacks(audit, target, pilot)
    bounds = {name: lower_bound(*pair, normal=normal) for name, pair in attacks.items()}
    best = bounds.pop("everything")
    return AuditResult(
        method=audit.method,
        view=audit.view,
        runs=audit.runs,
        epsilon_claimed=claimed,
        epsilon_lower_bound=best.epsilon,
        confidence=CONFIDENCE,
        verdict=verdict(claimed, best.epsilon),
        claim_status=claim.status,
        claim_view=claim.view,
        claim_covers_view=(not METHODS.is_ours(method) and audit.view in method.form.claims)
        or audit.view != "messages"
        or method.headline == "messages",
        ceiling=ceiling(audit.runs, normal=normal),
        power=best.power,
        false_alarms=best.false_alarms,
        parts={name: bound.epsilon for name, bound in bounds.items()},
        pilot_runs=pilot,
        data=target.ratings.name,
        target={"ratings_of_user": len(target.own), "raters_of_item": target.raters},
        settings={name: getattr(audit, name) for name in _SETTINGS},
        seconds=time.perf_counter() - begin,
    )


def pairs() -> list[tuple[str, str]]:
    """Return every method of ours with each of its views."""
    return [
        (name, view)
        for name in audited()
        if METHODS.is_ours(name)
        for view in VIEWS
        if view != HIDDEN_H or METHODS[name].has_h
    ]


def _attacks(audit: Audit, target: Target, pilot: int) -> dict[str, Halves]:
    """Play so many pilot runs and the audit's runs of each world.

    Returns:
        Scores of ``everything`` that an observer sees, and of parts of it.
    """
    method = method_named(audit.method)
    total = pilot + audit.runs
    if not METHODS.is_ours(method):
        return {"everything": _own_scores(audit, target, pilot)}
    if method.family == "local":
        return {"everything": _nothing_sent(audit, target)}
    if not method.one_round:
        model = _model(audit)
        if audit.view == "final":
            return {"everything": retrain_scores(model, target, audit.runs, audit.seed)}
        path = record(model, target.ratings, target.privacy_weights(), audit.seed)
        if audit.view == "messages" and path.budget is not None and path.h is None:
            return {"everything": certain(pilot, audit.runs)}  # only sums have noise
        scored = device_scores(target, path, audit.view, total, audit.seed)
        return {name: scores.split(pilot) for name, scores in scored.items()}
    if audit.view == "messages" and method.unit == "person":
        return {"everything": certain(pilot, audit.runs)}  # only sums have noise
    design = Design("L" if method.family == "bits" else "A", audit.epsilon)
    presence = {"adjacency": audit.adjacency}
    if audit.view == "final":
        halves = final_scores(target, design, pilot, audit.runs, audit.seed, **presence)
    elif design.kind == "L":
        halves = bit_scores(target, audit.epsilon, audit.view, total, audit.seed).split(pilot)
    elif audit.view == "messages":
        halves = certain(pilot, audit.runs)  # only sums have noise
    else:
        halves = sum_scores(target, design, total, audit.seed, **presence).split(pilot)
    return {"everything": halves}


_LEAST_T = 4.0
"""A number differs between the worlds if its means are so many standard errors apart."""


def _own_scores(audit: Audit, target: Target, pilot: int) -> Halves:
    """Fit a method that is not ours anew in every run, and score what it says is seen.

    The attacker looks at the numbers that differ most in the pilot runs: at the best one alone, at
    all that differ beyond chance, and at all of them by their differences in units of their spread.
    It keeps what did best there.
    """
    method = method_named(audit.method)
    wanted = method.own(n_factors=audit.factors, epochs=audit.epochs, epsilon=audit.epsilon)
    seen: list[np.ndarray] = []
    for world, rating in enumerate(rating_in_worlds(target, audit.adjacency)):
        ratings, weights = with_rating(target, rating)
        rows = []
        for run in range(pilot + audit.runs):
            seeded = method.own(rng=audit.seed + 2 * run + world, n_threads=1)
            model = method.configure(**wanted, **seeded).fit(ratings, weights)
            rows.append(_seen(model, audit.view, target))
        if len({len(row) for row in rows}) > 1:
            raise ConfigError(
                f"released({audit.view!r}) must have the same number of numbers in every run"
            )
        seen.append(np.stack(rows))
    low, high = seen
    if low.shape != high.shape:  # the number of messages already tells
        return certain(pilot, audit.runs)
    differences = high[:pilot].mean(axis=0) - low[:pilot].mean(axis=0)
    spread = low[:pilot].var(axis=0) + high[:pilot].var(axis=0)
    direction = differences / np.maximum(spread, 1e-12)
    far = np.abs(differences) / np.sqrt(np.maximum(spread / pilot, 1e-12))
    best = np.arange(len(far)) == np.argmax(far)
    scores = [
        Scores(low @ (direction * kept), high @ (direction * kept)).split(pilot)
        for kept in (best, far >= _LEAST_T, np.ones(len(far), bool))
    ]
    return best_attack(scores)


def _seen(model: Estimator, view: str, target: Target) -> np.ndarray:
    if view == "final" and type(model).released is Estimator.released:
        ratings = target.ratings
        others = np.setdiff1d(np.arange(ratings.n_users), ratings.user_codes[target.row])
        items = np.arange(ratings.n_items)
        found = model.predict(np.repeat(others, len(items)), np.tile(items, len(others)))
    else:
        found = model.released(view)
    numbers = np.asarray(found, np.float64).ravel()
    if not np.isfinite(numbers).all():
        raise ConfigError(f"released({view!r}) must be finite numbers")
    return numbers


def _nothing_sent(audit: Audit, target: Target) -> Halves:
    """Compare the recommender's part of a model that sends nothing in both worlds."""
    ratings = target.ratings
    parts = []
    for rating in target.ends:
        world = Ratings.from_arrays(
            ratings.user_ids, ratings.item_ids, target.values(rating), scale=ratings.scale
        )
        catalogue = make_model(audit.method).fit(world).catalogue_
        parts.append(np.concatenate((catalogue.factors.ravel(), catalogue.raters)))
    apart = 0.0 if np.array_equal(parts[0], parts[1]) else 1.0
    scores = Scores(np.full(audit.runs, -apart), np.full(audit.runs, apart))
    return scores, scores


def _model(audit: Audit) -> Factorization:
    method = method_named(audit.method)
    wanted = method.own(n_factors=audit.factors, epochs=audit.epochs, epsilon=audit.epsilon)
    model = method.configure(rng=audit.seed, n_threads=1, **wanted)
    if not isinstance(model, Factorization):
        raise ConfigError(f"there is no game for the method {audit.method!r}")
    return model


def _claim(audit: Audit) -> PrivacyClaim:
    chosen: dict[str, Any] = {"epsilon": audit.epsilon}
    method = method_named(audit.method)
    claim: PrivacyClaim = method.configure(**method.own(**chosen)).privacy
    if audit.adjacency == "value" or method.unit == "person":
        return claim
    view = "sums" if METHODS.is_ours(method) else audit.view
    return replace(claim, epsilon=cost(audit.method, view, neighbours="presence", **chosen).pure)
