"""The distinguishing game: two worlds that differ in one rating, and an observer of one of them.

An observer sees what its view shows of a real method, and scores every run of both worlds. The
scores bound epsilon from below (see `scores`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from threading import Lock
from typing import Any

import numpy as np

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.methods import METHODS, Method, method_named
from hdpmf.common.methods.method import PrivacyClaim
from hdpmf.common.privacy.accounting import cost
from hdpmf.errors import ConfigError
from hdpmf.lab.audit.one_round import bit_scores, final_scores, sum_scores
from hdpmf.lab.audit.replay import record
from hdpmf.lab.audit.scores import CONFIDENCE, Halves, Scores, ceiling, lower_bound, verdict
from hdpmf.lab.audit.training import device_scores, refit_scores, retrain_scores, small_world
from hdpmf.lab.audit.world import Design, Target, check_runs, choose_target
from hdpmf.models import Estimator, make_model
from hdpmf.models.factorization import Factorization

HIDDEN_H = "sums-h-hidden"
VIEWS = ("messages", "sums", HIDDEN_H, "final")
ADJACENCIES = ("value", "presence")

# Post-processing is repeated whole for every run; its threshold needs no more runs than this to be
# chosen well.
_FINAL_PILOT = 1_000

_SETTINGS = ("adjacency", "epsilon", "weight", "factors", "epochs", "delta", "seed")

Progress = Callable[[int, int], None]
"""Called with the simulations done and all there will be."""


def audited() -> tuple[str, ...]:
    """Return the methods that can be audited: those with a game, and all that are not ours."""
    return tuple(
        name for name, method in METHODS.items() if method.audited or not METHODS.is_ours(method)
    )


def _ours() -> tuple[str, ...]:
    return tuple(name for name in audited() if METHODS.is_ours(name))


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
            highest.
    """

    method: str
    view: str
    runs: int = 10_000
    epsilon: float = 1.0
    weight: float = 1.0
    factors: int = 10
    epochs: int = 100
    delta: float = 0.0
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
        check_runs(self.runs)
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

    def as_dict(self) -> dict[str, Any]:
        """Return a mapping for JSON."""
        return asdict(self)


def run_audit(
    audit: Audit, ratings: Ratings | None = None, progress: Progress | None = None
) -> AuditResult:
    """Play the game.

    The world is a synthetic one by default; the view ``final`` uses a small part of it.
    ``progress`` is called with the simulations done and their total.
    """
    begin = time.perf_counter()
    world = synthetic_world() if ratings is None else ratings
    method = method_named(audit.method)
    if audit.view == "final" or not METHODS.is_ours(method):
        world = small_world(world)
    target = choose_target(world, audit.weight, seed=audit.seed)
    claim = _claim(audit)
    repeated = audit.view == "final" and method.one_round
    pilot = min(audit.runs, _FINAL_PILOT) if repeated else audit.runs
    step = _counter(progress, 2 * (pilot + audit.runs))
    attacks = _observer(audit)(audit, target, pilot, step)
    bounds = {name: lower_bound(*pair, delta=audit.delta) for name, pair in attacks.items()}
    best = bounds.pop("everything")
    claimed = None if claim.epsilon is None else audit.weight * claim.epsilon
    return AuditResult(
        method=audit.method,
        view=audit.view,
        runs=audit.runs,
        epsilon_claimed=claimed,
        epsilon_lower_bound=best.epsilon,
        confidence=best.confidence,
        verdict=verdict(claimed, best.epsilon),
        claim_status=claim.status,
        claim_view=claim.view,
        claim_covers_view=(not METHODS.is_ours(method) and audit.view in method.plain.claims)
        or audit.view != "messages"
        or method.headline == "messages",
        ceiling=ceiling(audit.runs, audit.delta, CONFIDENCE),
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
        for name in _ours()
        for view in VIEWS
        if view != HIDDEN_H or METHODS[name].has_h
    ]


def cells(runs: int, epsilon: float, weight: float, seed: int) -> list[Audit]:
    """Return the audits of a report: every pair."""
    return [Audit(method, view, runs, epsilon, weight, seed=seed) for method, view in pairs()]


Attacks = dict[str, Halves]
"""Scores of ``everything`` that an observer sees, and of parts of it."""

Step = Callable[[int], None]

Observer = Callable[[Audit, Target, int, Step], Attacks]
"""Plays so many pilot runs and the audit's runs of each world; counts them; returns the scores."""


def _observer(audit: Audit) -> Observer:
    method = method_named(audit.method)
    if not METHODS.is_ours(method):
        return _observe_own
    if method.family == "local":
        return _observe_nothing
    if not method.one_round:
        return _observe_factors if audit.view == "final" else _observe_gradients
    return _observe_published if audit.view == "final" else _observe_contributions


def _observe_gradients(audit: Audit, target: Target, pilot: int, step: Step) -> Attacks:
    path = record(_model(audit), target.ratings, target.privacy_weights(), audit.seed)
    scored = device_scores(target, path, audit.view, pilot + audit.runs, audit.seed, step)
    names = ("everything", "direct", "indirect")
    return {name: getattr(scored, name).split(pilot) for name in names}


def _observe_factors(audit: Audit, target: Target, pilot: int, step: Step) -> Attacks:
    return {"everything": retrain_scores(_model(audit), target, audit.runs, audit.seed, step)}


def _observe_published(audit: Audit, target: Target, pilot: int, step: Step) -> Attacks:
    scores = final_scores(
        target, _design(audit), pilot, audit.runs, audit.seed, step, adjacency=audit.adjacency
    )
    return {"everything": scores}


def _observe_contributions(audit: Audit, target: Target, pilot: int, step: Step) -> Attacks:
    design = _design(audit)
    total = pilot + audit.runs
    if design.kind == "L":
        scores = bit_scores(target, audit.epsilon, audit.view, total, audit.seed)
        step(2 * total)
    else:
        scores = sum_scores(
            target, design, audit.view, total, audit.seed, step, adjacency=audit.adjacency
        )
    return {"everything": scores.split(pilot)}


def _observe_own(audit: Audit, target: Target, pilot: int, step: Step) -> Attacks:
    """Fit a method that is not ours anew in every run, and look at what it says is seen."""
    method = method_named(audit.method)
    wanted = method.own(n_factors=audit.factors, epochs=audit.epochs, epsilon=audit.epsilon)

    def make(seed: int) -> Estimator:
        model: Estimator = method.configure(**wanted, **method.own(rng=seed, n_threads=1))
        return model

    runs = (pilot, audit.runs)
    scores = refit_scores(make, target, audit.view, runs, audit.adjacency, audit.seed, step)
    return {"everything": scores}


def _observe_nothing(audit: Audit, target: Target, pilot: int, step: Step) -> Attacks:
    """Compare the recommender's part of a model that sends nothing in both worlds."""
    ratings = target.ratings
    parts = []
    for rating in target.ends:
        world = Ratings.from_arrays(
            ratings.user_ids, ratings.item_ids, target.values(rating), scale=ratings.scale
        )
        catalogue = make_model(audit.method).fit(world).catalogue_
        parts.append(np.concatenate((catalogue.factors.ravel(), catalogue.raters)))
    step(2 * (pilot + audit.runs))
    apart = 0.0 if np.array_equal(parts[0], parts[1]) else 1.0
    scores = Scores(np.full(audit.runs, -apart), np.full(audit.runs, apart))
    return {"everything": (scores, scores)}


def _design(audit: Audit) -> Design:
    return Design(method_named(audit.method).designs[0], audit.epsilon)


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
    if audit.adjacency == "value":
        return claim
    view = "sums" if METHODS.is_ours(method) else audit.view
    return replace(claim, epsilon=cost(audit.method, view, neighbours="presence", **chosen).pure)


def _counter(progress: Progress | None, total: int) -> Step:
    done = 0
    lock = Lock()

    def step(more: int) -> None:
        nonlocal done
        with lock:  # blocks of runs report from their threads
            done += more
            if progress is not None:
                progress(min(done, total), total)

    return step
