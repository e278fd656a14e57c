"""Every kind of release and view as events: what the observer sees of the ratings that differ.

A method names its rule (``Method.accounting``).

For the paper's schemes this is the *direct channel* only: the gradient of the rating itself, with
the user's vector held fixed. In truth that vector is fitted to all of the user's ratings, so that
from the second round on each of them moves the gradients of all the user's other items too, by
amounts that nothing bounds (item factors are not clipped). The numbers are therefore no guarantee;
they are what one channel costs already.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from hdpmf.common.methods import METHODS, Claim, method_named
from hdpmf.common.methods.registry import AS_CLAIMED
from hdpmf.common.privacy.accounting import accountants as e
from hdpmf.common.privacy.accounting.person import rho_of
from hdpmf.common.privacy.accounting.setting import Setting, Subject, View
from hdpmf.common.privacy.coding import (
    PRESENCE_SHARE,
    WEIGHT_UNITS,
    Channel,
    make_coding,
    sum_channels,
)
from hdpmf.common.privacy.pairs import CAP, make_plan, presence_rho, value_rho
from hdpmf.errors import ConfigError

_POINTS = 10_000  # no mutant: twice as many points give the same integral


@lru_cache(maxsize=64)
def inverse_sum_median(n: int) -> float:
    """The median of the sum of 1/h over n draws, by inverting its characteristic function."""
    # S / n is about ln n with a spread of order 1 and a tail like 1 / x above.
    low, high = 0.0, n * (math.log(n) + 3) + 20 * n  # no mutant: any high end
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _below(n, middle) < 0.5 else (low, middle)
    return (low + high) / 2


def _below(n: int, x: float) -> float:
    """P(S <= x) = 1/2 - 1/pi * integral of Im(exp(-itx) phi(t)^n) / t (Gil-Pelaez 1951)."""
    root, powers, weights = _characteristic(n)
    t = root**2
    # With t = root^2, dt / t = 2 droot / root, and the integrand is smooth at 0.
    integrand = 2 * np.imag(np.exp(-1j * t * x) * powers) / root
    return 0.5 - float(integrand @ weights) / math.pi


@lru_cache(maxsize=4)
def _characteristic(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from scipy.special import kve

    # |phi(t)| falls like exp(-pi t / 2) at first and like exp(-sqrt(2 t)) later: beyond both,
    # nothing is left.
    end = math.sqrt(max(72 / (math.pi * n), (36 / n) ** 2 / 2))
    step = end / _POINTS
    root = (np.arange(_POINTS) + 0.5) * step
    z = 2 * np.sqrt(-1j * root**2)
    # E exp(it/h) = z K_1(z) with z = 2 sqrt(-it)
    logs = np.log(z * kve(1, z)) - z
    return root, np.exp(n * logs), np.full(_POINTS, step)


Covers = Literal["everything", "direct channel", "author's word"]


@dataclass(frozen=True, slots=True)
class Observation:
    """An observer's view as an event, with its proof or caveat.

    Attributes:
        covers: Whether they are all that depends on the ratings; of a method that is not ours, its
            author says so.
        reason: One or two sentences.
        reference: Where it is proved, a page of ``hdpmf/common/privacy/proofs``.
    """

    event: e.Event
    covers: Covers
    reason: str
    reference: str


Rule = Callable[[Setting, View, Subject], Observation]

CAVEAT = (
    "Counts the rating's own gradients only; through the user's vector it moves the user's other "
    "messages as well, which nothing bounds."
)

_THEOREM = "proofs/theorem-2.md"


def observe(setting: Setting, view: View, subject: Subject) -> Observation:
    """Return what an observer with this view sees of the subject's ratings."""
    method = method_named(setting.method)
    if view == "two-servers":
        method.require_view(view)
    rule = method.accounting
    if not callable(rule):
        if rule not in RULES:
            raise ConfigError(f"the accounting has no rule {rule!r}; there are {', '.join(RULES)}")
        rule = RULES[rule]
    found: Observation
    if subject.neighbours == "exchange" and rule is not _pairs:
        found = rule(setting, view, replace(subject, neighbours="presence"))
        found = replace(found, event=e.doubled(found.event))
    else:
        found = rule(setting, view, subject)
    if METHODS.is_ours(method):
        return found
    # Our proofs are about our methods; nobody has checked that this one does what a rule counts.
    said = found.reason
    if not isinstance(found.event, e.Unprotected):
        said += f" So says the author of {method.name}; hdpmf has not checked it."
    return replace(found, covers="author's word", reason=said, reference="")


def _nothing(setting: Setting, view: View, subject: Subject) -> Observation:
    return Observation(
        e.NothingSent(), "everything", "Nothing leaves the device.", "proofs/user-mean.md"
    )


def _open(why: str, reference: str = "") -> Observation:
    """What is seen without noise."""
    return Observation(e.Unprotected(why), "everything", f"{why[0].upper()}{why[1:]}.", reference)


_UNSUMMED = "before they are summed, numbers have no noise"
_WHO_RATED = "which items a user rated, and how many rated an item, is sent without noise"


def _paper(budget: Literal["own weight", "everybody alike", "sampled"]) -> Rule:
    """The paper's schemes, by what sets the noise."""

    def rule(setting: Setting, view: View, subject: Subject) -> Observation:
        if subject.neighbours == "presence":
            return _open(_WHO_RATED, _THEOREM)
        if budget == "own weight":
            moves = [weight * setting.epsilon for weight in subject.weights]
            note = ""
        else:
            most = setting.epsilon if setting.noise_budget is None else setting.noise_budget
            moves = [most for _ in subject.weights]
            note = " The noise is set for all ratings alike."
            if budget == "sampled":
                note = (
                    " Counted for a rating that was kept: counts of kept ratings are sent, so that "
                    "sampling hides nothing."
                )
        return _gradients(setting, view, subject, moves, note)

    return rule


def _gradients(
    setting: Setting, view: View, subject: Subject, moves: list[float], note: str
) -> Observation:
    """T rounds of noisy gradients; ``moves`` are pure epsilons per round, h hidden."""
    hidden = view in ("sums-h-hidden", "final") and setting.h == "item"
    rounds = setting.rounds
    if setting.noise == "once" and rounds > 1:
        reason = (
            "The same noise is added in every round, so the difference of two rounds has none."
            if view != "final"
            else "Noise drawn once has a proof only if the user vectors do not depend on the "
            "ratings, and here they do."
        )
        return Observation(
            e.Unprotected("the difference of two rounds has no noise"),
            "everything",
            reason + note,
            _THEOREM,
        )
    if hidden:
        # In a round K Laplace numbers per item, each moved by move / K.
        k = setting.factors
        round_ = e.Composed(tuple(e.LaplaceSum(move / k, k) for move in moves))
        event: e.Event = e.Repeated(round_, rounds)
        reason = "Laplace noise in every round, composed over the rounds."
        if view == "final":
            reason = (
                "At most what all the sums together cost, from which the final model is "
                "computed; probably less."
            )
    else:
        event = e.GaussianGivenH(_distance(setting, view, subject, moves))
        reason = (
            "An observer who knows h sees Gaussian noise with known variances; a small h is a "
            "round almost without noise."
        )
        if setting.h == "shared" and view in ("sums-h-hidden", "final"):
            reason = (
                "One h for all items shows in the spread over the items, so it does not count "
                "as hidden. " + reason
            )
    if view == "messages":
        reason += (
            " A user's own message carries only its share of the noise, 1 part in the "
            "number of raters."
        )
    return Observation(event, "direct channel", reason + note, _THEOREM)


def _distance(setting: Setting, view: View, subject: Subject, moves: list[float]) -> float:
    """Return the distance of the two worlds in standard deviations, given a typical h.

    Per rating it is squared n_j (W eps)^2 / (2 K) * mean over coordinates of the sum over
    rounds of 1/h; n_j is 1 where only sums are seen.
    """
    k, items = setting.factors, len(moves)
    raters = subject.raters if view == "messages" else [1] * items
    squares = math.fsum(n * move**2 for n, move in zip(raters, moves, strict=True))
    # Every item has draws of its own, and the sum of more of them is steadier.
    inverse = inverse_sum_median(items * setting.rounds * k) / items
    return math.sqrt(squares / (2 * k) * inverse / k)


def _paid(setting: Setting, view: View, subject: Subject) -> Observation:
    reference = "proofs/hdpmf-paid.md"
    if subject.neighbours == "presence":
        return _open(_WHO_RATED, reference)
    if view == "messages":
        return _open(_UNSUMMED, reference)
    # Each of the T rounds has T times the noise scale, so that together they cost W epsilon.
    moves = [weight * setting.epsilon / setting.rounds for weight in subject.weights]
    event = e.Repeated(e.Composed(tuple(map(e.PureRelease, moves))), setting.rounds)
    reason = (
        "Discrete Laplace noise that the recommender does not make, a budget divided among rounds; "
        "what is sent knows no other rating."
    )
    return Observation(event, "everything", reason, reference)


def _units(setting: Setting, subject: Subject, *, in_weight: bool = False) -> list[float]:
    """Weights in whole 64ths, rounded down; of a user the heaviest that may be sent.

    Which of them are sent is drawn without a look at values, so that a user's cost is that of the
    worst draw. In sums the limit is on their weight (``in_weight``), otherwise on their number.
    """
    units = [math.floor(weight * WEIGHT_UNITS) / WEIGHT_UNITS for weight in subject.weights]
    if subject.unit != "user" or setting.max_ratings is None:
        return units
    heaviest = sorted(units, reverse=True)
    if not in_weight:
        return heaviest[: setting.max_ratings]
    left, sent = float(setting.max_ratings), []
    for unit in heaviest:
        sent.append(min(unit, left))
        left -= sent[-1]
    return [unit for unit in sent if unit > 0]


def _pushed_out(setting: Setting, subject: Subject, units: list[float]) -> list[float]:
    """Bound the weights of ratings that one more pushes out under a limit per person."""
    if setting.max_ratings is None or subject.neighbours == "value" or subject.unit == "user":
        return []
    # As much weight as it has itself.
    return [math.fsum(units)]


def _moved_entries(per_weight: float, moves: list[float]) -> list[e.Event]:
    """Entries with discrete Laplace noise, each moved by a weight, at a cost per unit of weight.

    Counted as if a unit of weight moved an entry by 1: what a finer coding releases is
    post-processing of that (``proofs/composition.md``).
    """
    if per_weight == 0:
        return []
    scale = WEIGHT_UNITS / per_weight
    return [e.PureRelease(per_weight * moved, scale) for moved in moves]


def _sums(setting: Setting, view: View, subject: Subject) -> Observation:
    if setting.implicit:
        of_presence = replace(setting, epsilon=PRESENCE_SHARE * setting.epsilon)
        return replace(_counts(of_presence, view, subject), reference="proofs/hdp-sum.md")
    if view == "messages":
        return _open(_UNSUMMED, "proofs/hdp-sum.md")
    coding = make_coding(setting.coding, setting.scale, setting.epsilon)
    channels = sum_channels(coding, setting.epsilon)
    units = _units(setting, subject, in_weight=True)
    others = _pushed_out(setting, subject, units)
    per_item = units + others

    def releases(channel: Channel, moves: list[float]) -> list[e.Event]:
        per_weight = float(
            channel.value_cost if subject.neighbours == "value" else channel.presence_cost
        )
        return _moved_entries(per_weight, moves)

    parts = [
        *releases(channels.score, per_item),
        *releases(channels.weight, per_item),
        *releases(channels.total, [math.fsum([*units, *others])]),
    ]
    reason = "One round of sums with discrete Laplace noise; everything after is post-processing."
    if view == "two-servers":
        # What its own server drew, this observer subtracts. Whoever is neither server meets both
        # noises.
        reason = "One round of sums by two servers. Only the honest server's noise is counted."
    return Observation(e.Composed(tuple(parts)), "everything", reason, "proofs/hdp-sum.md")


def _counts(setting: Setting, view: View, subject: Subject) -> Observation:
    reference = "proofs/private-popular.md"
    if view == "messages":
        return _open(_UNSUMMED, reference)
    if subject.neighbours == "value":
        return Observation(
            e.NothingSent(), "everything", "Values are in nothing that is sent.", reference
        )
    units = _units(setting, subject, in_weight=True)
    moves = [*units, *_pushed_out(setting, subject, units)]
    return Observation(
        e.Composed(tuple(_moved_entries(setting.epsilon, moves))),
        "everything",
        "One sum of weights with discrete Laplace noise.",
        reference,
    )


def _bits(setting: Setting, view: View, subject: Subject) -> Observation:
    reference = "proofs/hdp-bit.md"
    if subject.neighbours == "presence":
        return _open("which items a user rated is visible: there is a bit for each", reference)
    parts = tuple(e.PureRelease(setting.epsilon * unit) for unit in _units(setting, subject))
    return Observation(
        e.Composed(parts),
        "everything",
        "One randomized bit per rating, once in its life.",
        reference,
    )


_MANY = 20_000
"""People and items of a run whose numbers are not known here."""


def _pairs(setting: Setting, view: View, subject: Subject) -> Observation:
    """One budget for the person; a rating's is bounded by the cap (``privacy.pairs``)."""
    reference = "proofs/hdp-pairs.md"
    if view == "messages":
        return _open(_UNSUMMED, reference)
    plan = make_plan(
        _MANY,
        _MANY,
        rho_of(setting.epsilon, setting.person_delta),
        stars=not setting.implicit,
        kappa=CAP if isinstance(setting.cap, str) else setting.cap,
    )
    about = "" if subject.unit == "user" else f" Of a rating: for {_MANY:,} items at most."
    if subject.neighbours == "presence":
        rho = plan.rho if subject.unit == "user" else presence_rho(plan, 1.0, subject.weights[0])
    elif subject.unit == "rating":
        rho = value_rho(plan, 1.0, subject.weights[0])
    else:
        # Presence is the same where only values differ.
        rho = plan.exchange_rho - 2 * plan.costs["linear"] * (subject.neighbours == "value")
    return Observation(
        e.GaussianGivenH(math.sqrt(2 * rho)),
        "everything",
        "Sums of rows and pairs with Gaussian noise, one budget for the whole person; everything "
        f"after is post-processing.{about}",
        reference,
    )


def _as_claimed(setting: Setting, view: View, subject: Subject) -> Observation:
    """Each rating costs what the method's claim says for this view, and costs add up."""
    method = method_named(setting.method)
    claims = method.form.claims
    seen: str = method.headline if view == "final" else view.partition("-h-")[0]
    by_view: dict[str, Claim] = {str(name): found for name, found in claims.items()}
    # Sums are made of messages: what is claimed for these holds for those.
    claim = by_view.get(seen, by_view.get("messages"))
    about = subject.neighbours
    factor = None if claim is None or claim.status == "none" else getattr(claim, about)
    if factor is None:
        return _open("there is no claim about this")
    if factor == 0:
        return Observation(e.NothingSent(), "everything", "Nothing of this is sent.", "")
    moves = [weight * setting.epsilon * factor for weight in subject.weights]
    return Observation(
        e.Composed(tuple(map(e.PureRelease, moves))),
        "everything",
        f"Its claim: {factor:g} times weight times epsilon for each rating, added up.",
        "",
    )


RULES: dict[str, Rule] = {
    AS_CLAIMED: _as_claimed,
    "nothing": _nothing,
    "no-noise": lambda *asked: _open("ratings are used without any noise"),
    "raw-mean": lambda *asked: _open(
        "the mean is computed from raw ratings and goes out without noise"
    ),
    "gradients": _paper("own weight"),
    "uniform-gradients": _paper("everybody alike"),
    "sampled-gradients": _paper("sampled"),
    "paid": _paid,
    "sums": _sums,
    "bits": _bits,
    "counts": _counts,
    "pairs": _pairs,
}
"""The rules by the names that methods use."""
