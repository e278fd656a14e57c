"""Privacy costs of a method: for a rating, a user, or whole people."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.methods import method_named
from hdpmf.common.methods.method import PrivacyClaim
from hdpmf.common.privacy.accounting import accountants
from hdpmf.common.privacy.accounting.accountants import Event
from hdpmf.common.privacy.accounting.person import Spent, sure_by_renyi
from hdpmf.common.privacy.accounting.rules import CAVEAT, Covers, observe
from hdpmf.common.privacy.accounting.setting import (
    Neighbours,
    Setting,
    Subject,
    Unit,
    View,
    view_of,
)
from hdpmf.common.privacy.mechanisms import Budgets, mechanism_of
from hdpmf.common.privacy.spec import Group, PrivacySpec
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.errors import ConfigError, PrivacyError

CostStatus = Literal["proved", "nominal", "author's claim", "no guarantee"]

_STATUS: dict[Covers, CostStatus] = {
    "everything": "proved",
    "direct channel": "nominal",
    "author's word": "author's claim",
}

DELTA = 1e-5


@dataclass(frozen=True)
class Cost:
    """The privacy cost against one observer.

    Attributes:
        pure: Pure epsilon; infinite where none is finite.
        zcdp: rho of zero-concentrated differential privacy.
        status: ``proved``; ``nominal`` where the numbers count one channel of several and are no
            guarantee; ``author's claim`` for a method that is not ours; ``no guarantee`` where no
            number is finite.
        covers: ``everything``, the ``direct channel``, or what the ``author's word`` is.
        caveat: What the numbers leave out, if anything.
        reference: The page with the proof.
        guess: How often an observer is right who guesses between two equally likely neighbours (as
            one star or five): at most this, or exactly this for ``guess_is_exact``.
        guess_is_exact: Whether the best observer reaches it (for ``covers='direct channel'``:
            through that channel alone, so that in all it may do better).
    """

    method: str
    view: View
    unit: Unit
    neighbours: Neighbours
    pure: float
    zcdp: float
    delta: float
    status: CostStatus
    covers: Covers
    reason: str
    caveat: str
    reference: str
    guess: float
    guess_is_exact: bool
    event: Event

    @cached_property
    def epsilon_at_delta(self) -> float:
        """The smallest proved epsilon at ``delta``."""
        return accountants.epsilon_at(self.event, self.delta)

    @property
    def sure(self) -> float:
        """The share of cases, at most, in which somebody could be 99 % sure of what differs."""
        return sure_of(self.event)

    def __str__(self) -> str:
        return f"{self.in_numbers()} ({self.status})"

    def in_numbers(self) -> str:
        """The epsilon that there is, as people write it."""
        if math.isinf(self.epsilon_at_delta):
            return "no finite epsilon"
        approximate = f"({number(self.epsilon_at_delta)}, {self.delta:g})"
        if math.isinf(self.pure):
            return f"no finite pure epsilon; {approximate}"
        if self.epsilon_at_delta >= 0.95 * self.pure:  # a delta for next to nothing only confuses
            return f"epsilon {number(self.pure)}"
        return f"epsilon {number(self.pure)}, or {approximate}"

    def briefly(self) -> str:
        """The smallest epsilon, short enough for a table; a star marks one at ``delta``."""
        if math.isinf(self.epsilon_at_delta):
            return "unbounded"
        if self.epsilon_at_delta >= 0.95 * self.pure:
            return number(self.pure)
        return f"{number(self.epsilon_at_delta)}*"

    def fields(self) -> dict[str, Any]:
        """For JSON: what is infinite is null."""
        found = {name: getattr(self, attribute) for name, attribute in _FIELDS.items()}
        return {name: None if value in (math.inf, "") else value for name, value in found.items()}


_FIELDS = {
    **{name: name for name in ("method", "view", "unit", "neighbours")},
    **{"pure_epsilon": "pure", "zcdp_rho": "zcdp"},
    **{name: name for name in ("epsilon_at_delta", "delta", "status", "covers", "guess")},
    **{name: name for name in ("sure", "guess_is_exact", "reason", "caveat", "reference")},
}
"""Names in JSON, and the attributes."""


def sure_of(event: Event) -> float:
    """Return in which share of cases somebody could be 99 % sure, at most, after an even start."""
    if accountants.pure(event) < math.log(99):
        return 0.0
    rho = accountants.zcdp(event)
    return Spent(rho).sure if accountants.is_exact_guess(event) else sure_by_renyi(rho)


def cost(
    method: str | Setting,
    view: str = "messages",
    *,
    weight: float | Sequence[float] = 1.0,
    n_raters: int | Sequence[int] = 100,
    unit: str = "rating",
    neighbours: str = "value",
    delta: float = DELTA,
    **settings: Any,
) -> Cost:
    """Return the privacy cost of a method against an observer.

    Args:
        method: Its name, or a Setting.
        view: ``messages``, ``sums-h-known``, ``sums-h-hidden``, ``two-servers`` or ``final``.
        weight: The rating's privacy weight; for a user, one for each of its ratings.
        n_raters: How many raters the rating's item has; for a user, one number for all or one per
            rating.
        unit: ``rating`` or ``user``: what differs.
        neighbours: ``value`` or ``presence``: how; ``exchange``: a user's history is another one.
        delta: For ``epsilon_at_delta``.
        **settings: The rest of Setting: epsilon, factors, rounds, noise, ...

    Raises:
        ConfigError: An unknown method, view or option.
        PrivacyError: A number that cannot be.
    """
    setting = (
        replace(method, **settings) if isinstance(method, Setting) else Setting(method, **settings)
    )
    full_view = view_of(view)
    subject = Subject.of(unit, neighbours, weight, n_raters)
    found = observe(setting, full_view, subject)
    event, rho = found.event, accountants.zcdp(found.event)
    return Cost(
        method=setting.method,
        view=full_view,
        unit=subject.unit,
        neighbours=subject.neighbours,
        pure=accountants.pure(event),
        zcdp=rho,
        delta=delta,
        status="no guarantee" if math.isinf(rho) else _STATUS[found.covers],
        covers=found.covers,
        reason=found.reason,
        caveat=CAVEAT if found.covers == "direct channel" else "",
        reference=found.reference,
        guess=accountants.guess(event),
        guess_is_exact=accountants.is_exact_guess(event),
        event=event,
    )


def honest_line(setting: Setting, raters: int = 20) -> str:
    """Return the real cost of the paper's epsilon for a rating of weight 1, as one line."""
    message, sums = cost(setting, "messages", n_raters=raters), cost(setting, "sums-h-known")
    if message.status == "no guarantee":
        return f"no guarantee: {message.reason[0].lower()}{message.reason[1:].rstrip('.')}"
    whose = "a rating of weight 1"
    if method_named(setting.method).accounting != "gradients" and setting.noise_budget is None:
        whose = f"noise set by a budget of {setting.epsilon:g} (less where it is set by less)"
    return (
        f"messages visible: {message.in_numbers()} for an item with {raters} raters; "
        "only sums visible, h known: "
        f"{sums.in_numbers()}; both for {whose}, and counting its own gradients only"
    )


def with_honest_cost(claim: PrivacyClaim, method: str, params: Mapping[str, Any]) -> PrivacyClaim:
    """A nominal claim with ``honest_line``, for a model of the paper with these parameters."""
    try:
        setting = Setting.from_params(method, params)
    except (PrivacyError, ConfigError):
        return claim  # a model that cannot be fitted says so when it is
    return replace(claim, honest=honest_line(setting))


def number(value: float) -> str:
    """A cost as people read it: three digits, thousands apart, never less than it is."""
    if math.isinf(value):
        return "infinite"
    if value < 100:
        return rounded_up(value)
    # Floating-point sums are a little more than they should be.
    return f"{math.ceil(value * (1 - 1e-12)):,}"


def rounded_up(value: float, digits: int = 3) -> str:
    """A cost with so many digits, never less than it is."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    step = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    # Sums of floating-point numbers are a little more than they should be.
    return f"{math.ceil(value / step * (1 - 1e-12)) * step:.{digits}g}"


def rounded_down(value: float, digits: int = 3) -> str:
    """A budget that is left, with so many digits, never more than it is."""
    if value <= 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    return f"{math.floor(value / step * (1 + 1e-12)) * step:.{digits}g}"


@dataclass(frozen=True, slots=True)
class PersonCost:
    """The privacy cost of all ratings of one person together.

    Attributes:
        ratings: How many there are.
        weight: Their privacy weights, added up.
        cost: By the accountant, for what the method's epsilon is about: a change of all their
            values, or that they are there, where values are in nothing that is sent.
        presence: The same for whether this person's ratings are there at all.
        exchange: The same for this history or another one.
    """

    ratings: int
    weight: float
    cost: Cost
    presence: Cost
    exchange: Cost

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ratings": self.ratings,
            "weight": self.weight,
            **_numbers(self.cost),
            "presence": _numbers(self.presence),
            "exchange": _numbers(self.exchange),
        }


def _numbers(found: Cost) -> dict[str, Any]:
    fields = found.fields()
    return {name: fields[name] for name in ("pure_epsilon", "epsilon_at_delta", "delta", "status")}


@dataclass(frozen=True, slots=True)
class PersonCosts:
    """The costs for people of a table.

    Attributes:
        average: With the mean number of ratings, each of the mean weight.
        median: In the middle by the sum of weights.
        heaviest: With the largest sum of weights.
    """

    average: PersonCost
    median: PersonCost
    heaviest: PersonCost

    def fields(self) -> dict[str, Any]:
        """For JSON. Only of simulated weights: which person it is stays out."""
        return {name: getattr(self, name).fields() for name in ("average", "median", "heaviest")}

    def __str__(self) -> str:
        people = {"on average": self.average, "at the median": self.median}
        people["at most"] = self.heaviest

        def listed(costs: Mapping[str, Cost]) -> str:
            if all(math.isinf(found.epsilon_at_delta) for found in costs.values()):
                return "no finite epsilon"
            numbers = {
                name: found.in_numbers().removeprefix("no finite pure epsilon; ")
                for name, found in costs.items()
            }
            if len(set(numbers.values())) == 1:
                return next(iter(numbers.values()))
            return ", ".join(f"{text} {name}" for name, text in numbers.items())

        none, other = (
            listed({name: getattr(each, about) for name, each in people.items()})
            for about in ("presence", "exchange")
        )
        text = f"history against none: {none}; against another one: {other}"
        if self.median.cost.neighbours == "value":
            values = {
                f"{name} ({each.ratings:,} ratings)": each.cost for name, each in people.items()
            }
            text += f"; for values: {listed(values)}"
        return f"a whole person pays, {text}"


_HIDES_NOTHING = 1e3  # an epsilon from here on


class People:
    """The people of a table with ratings, in the order of what they spend: of summed weights."""

    def __init__(self, ratings: Ratings, weights: PrivacyWeights) -> None:
        self.ratings = ratings
        self.weights = weights.for_ratings(ratings)
        self.totals = np.bincount(ratings.user_codes, self.weights, ratings.n_users)
        order = np.argsort(self.totals, kind="stable")
        self.order = order[self.totals[order] > 0]
        self.raters = ratings.item_counts()

    def at(self, part: float) -> int:
        """Return the person above this part of all: 0 is who spends least, 1 who spends most."""
        if not len(self.order):
            raise PrivacyError("nobody here has a rating")
        return int(self.order[math.ceil(part * (len(self.order) - 1))])

    def n_ratings(self, person: int) -> int:
        """Return how many ratings a person has."""
        return int((self.ratings.user_codes == person).sum())

    def cost(self, setting: Setting, view: str, person: int, **more: Any) -> Cost:
        """Return the cost of all ratings of a person together; ``more`` is for `cost`."""
        mine = np.flatnonzero(self.ratings.user_codes == person)
        return cost(
            setting,
            view,
            unit="user",
            weight=self.weights[mine].tolist(),
            n_raters=self.raters[self.ratings.item_codes[mine]].tolist(),
            **more,
        )

    def epsilon_for(self, setting: Setting, view: str, person: int, most: float) -> float:
        """Return the largest epsilon, to four digits, at which a person spends ``most``.

        That is for their history against none; where a method does not hide who rated what, for
        all its values at once.

        Raises:
            PrivacyError: What a person spends does not depend on epsilon, or has no bound.
        """
        claim = method_named(setting.method).claim(view)
        about = "presence" if claim.presence else claim.about

        def spends(epsilon: float) -> float:
            tried = replace(setting, epsilon=epsilon)
            return self.cost(tried, view, person, neighbours=about).epsilon_at_delta

        low = high = 1e-6
        while high < _HIDES_NOTHING and spends(high) <= most:
            low, high = high, 4 * high
        if low == high or high >= _HIDES_NOTHING:
            raise PrivacyError(
                f"{setting.method} has no epsilon at which a person spends {most:g}: "
                f"{'nothing bounds it' if math.isinf(spends(low)) else 'it spends less at any'}"
            )
        while high > low * (1 + 1e-6):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if spends(middle) <= most else (low, middle)
        return float(rounded_down(low, 4))


def person_costs(
    setting: Setting, view: str, ratings: Ratings, weights: PrivacyWeights, *, delta: float = DELTA
) -> PersonCosts:
    """Return the cost of one training for the average, median and heaviest person of a table."""
    people = People(ratings, weights)
    about = setting.about(view)
    abouts = (about, "presence", "exchange")

    def of(person: int) -> PersonCost:
        costs = (
            people.cost(setting, view, person, neighbours=about, delta=delta) for about in abouts
        )
        return PersonCost(people.n_ratings(person), float(people.totals[person]), *costs)

    weight = [float(people.weights.mean())] * max(round(len(ratings) / len(people.order)), 1)
    raters = round(float(people.raters[ratings.item_codes].mean()))
    usual = (
        cost(
            setting, view, unit="user", neighbours=about, weight=weight, n_raters=raters,
            delta=delta,
        )
        for about in abouts
    )  # fmt: skip
    average = PersonCost(len(weight), math.fsum(weight), *usual)
    return PersonCosts(average, of(people.at(0.5)), of(people.at(1.0)))


@dataclass(frozen=True, slots=True)
class Person:
    """A user of a specification, with the weight of rating an item of middling sensitivity."""

    name: str
    weight: float


def example_people(spec: PrivacySpec) -> tuple[Person, Person, Person]:
    """Return the strictest, the median and the most liberal user, on an item of median weight."""
    item = quantile(spec.item_groups, 0.5)
    return (
        Person("strictest user", quantile(spec.user_groups, 0.0) * item),
        Person("median user", quantile(spec.user_groups, 0.5) * item),
        Person("most liberal user", quantile(spec.user_groups, 1.0) * item),
    )


def noise_budget(
    method: str, spec: PrivacySpec, epsilon: float, threshold: str | float
) -> float | None:
    """Return the budget that sets the noise of DPMF or PDPMF; None for other methods."""
    known = method_named(method)
    if known.mechanism not in ("uniform", "sample"):
        return None
    least, most = (
        quantile(spec.user_groups, part) * quantile(spec.item_groups, part) * epsilon
        for part in (0.0, 1.0)
    )
    mean = _mean_weight(spec.user_groups) * _mean_weight(spec.item_groups) * epsilon
    return mechanism_of(known, threshold).noise_budget(epsilon, Budgets(1, mean, least, most))


def quantile(groups: tuple[Group, ...], part: float) -> float:
    """Return the weight below which a part of users (or items) is; groups may overlap."""
    present = [group for group in groups if group.ratio > 0]
    low, high = min(group.low for group in present), max(group.high for group in present)
    if part <= 0:
        return low
    if part >= 1:
        return high
    while high - low > 1e-9:
        middle = (low + high) / 2
        below = sum(group.ratio * _share_below(group, middle) for group in present)
        low, high = (middle, high) if below < part else (low, middle)
    return high


def _share_below(group: Group, weight: float) -> float:
    if weight >= group.high:
        return 1.0
    return 0.0 if weight <= group.low else (weight - group.low) / (group.high - group.low)


def _mean_weight(groups: tuple[Group, ...]) -> float:
    return sum(group.ratio * (group.low + group.high) / 2 for group in groups)
