"""The person's ledger: what everything that was ever sent about its owner costs, and what may be.

The unit is mu of Gaussian differential privacy. Squares of it add, over parts, runs and
recommenders, also where later ones follow from earlier ones, so that a limit on their sum is a
filter (``privacy/proofs``). Amounts are squares of mu in billionths, whole numbers, rounded up:
this ledger and that of the web app come to the same ones (``spec/vectors/ledger.json``).

What a task costs follows from its public numbers and the owner's wish alone. It is charged in full
whatever the owner has rated, so that neither the ledger nor what it lets through tells anything of
ratings. What it does not let through is answered with zeros, at the same time and in the same size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import msgspec

from hdpmf.errors import PrivacyError

if TYPE_CHECKING:
    from hdpmf.common.privacy.accounting.person import Spent

UNIT = 10**9
"""Amounts for a square of mu of 1."""

GRAIN_UNIT = 10**15
"""Amounts for a grain of 1."""

WHOLE = 1000
"""Wishes and items' weights are in thousandths."""

MONTH = 30 * 86_400
"""Seconds."""


class Price(msgspec.Struct, frozen=True):
    """What a task costs a person who lets all of it through, as squares of mu. It is public.

    Attributes:
        none: Their history against none.
        other: Their history against any other one.
        grain: How coarse the noise is: the sum over numbers of one over its deviation's fourth
            power (``accounting.person``).
    """

    none: Fraction = Fraction(0)
    other: Fraction = Fraction(0)
    grain: Fraction = Fraction(0)

    def __add__(self, more: Price) -> Price:
        return Price(self.none + more.none, self.other + more.other, self.grain + more.grain)


def vector_price(bound: int, deviation: int, *, signed: bool, entries: int) -> Price:
    """Return the price of a sum of rows whose squared length is at most ``bound``.

    Args:
        deviation: Of each server's noise on each entry.
        signed: Entries may be negative, so that two rows may point in opposite directions.
        entries: Of a row.
    """
    none = Fraction(bound, deviation**2)
    return Price(none, none * (4 if signed else 2), Fraction(entries, deviation**4))


def matrix_price(bound: int, deviation: int, *, heads: int) -> Price:
    """Return the price of a sum of outer products of rows whose squared length is at most this.

    Args:
        deviation: Of each server's noise off the diagonal; on it, the variance is twice as large.
        heads: Entries of a row.
    """
    none = Fraction(bound**2, 2 * deviation**2)
    return Price(none, 2 * none, Fraction(heads * (heads + 1) // 2, deviation**4))


class Cost(msgspec.Struct, frozen=True):
    """A cost in whole amounts, rounded up.

    Attributes:
        none: History against none.
        other: History against another one.
        grain: In units of its own (``GRAIN_UNIT``).
    """

    none: int = 0
    other: int = 0
    grain: int = 0

    def __add__(self, more: Cost) -> Cost:
        return Cost(self.none + more.none, self.other + more.other, self.grain + more.grain)


def cost_of(price: Price, wish: int) -> Cost:
    """Return what a task costs a person of this wish (thousandths): the square of it counts."""
    if not 0 <= wish <= WHOLE:
        raise PrivacyError(f"a wish is from 0 to {WHOLE} thousandths, not {wish}")
    share = Fraction(wish, WHOLE) ** 2
    # The noise stays as it is, so that its grain does.
    return Cost(
        _up(price.none * share * UNIT),
        _up(price.other * share * UNIT),
        _up(price.grain * GRAIN_UNIT),
    )


def _up(amount: Fraction) -> int:
    return -(-amount.numerator // amount.denominator)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The owner's limits, as squares of mu in billionths, for all recommenders together.

    Attributes:
        life: For everything that is ever sent.
        month: For 30 days.
    """

    life: int
    month: int

    def __post_init__(self) -> None:
        if not 0 <= self.month <= self.life < 1 << 53:
            raise PrivacyError("a limit for a month is from 0 to that of the whole life")


LEVELS = {
    "careful": Limits(life=251_554_096, month=62_888_524),
    "middle": Limits(life=855_497_163, month=213_874_290),
    "open": Limits(life=2_775_657_948, month=693_914_487),
}
"""What people choose from: epsilon 2, 4 (``LIFE_EPSILON``) or 8 at delta 1e-5 for the whole life,
and a quarter of its square in a month (``RUN_SHARE``), so that no run takes more."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the ledger: a report that this device has promised. Lines are only ever added.

    Attributes:
        at: When (Unix).
        recommender: Its address.
        task: Its id in hexadecimal.
        part: What was asked for.
        price: What it costs a person of the whole wish, in amounts.
        wish: The owner's, in thousandths.
        cost: What was charged; nothing for zeros.
        zeros: The limits did not let it through, or the owner has said no: the report was of zeros.
    """

    at: int
    recommender: str
    task: str
    part: Literal["linear", "pairs"]
    price: int
    wish: int
    cost: Cost
    zeros: bool


def total(lines: Iterable[Line], since: int | None = None) -> Cost:
    """Return the sum of what was charged; with ``since`` from then on, by the lines' own times."""
    found = Cost()
    for line in lines:
        if since is None or line.at > since:
            found += line.cost
    return found


def promise(
    limits: Limits,
    lines: Sequence[Line],
    price: Price,
    wish: int,
    *,
    at: int,
    recommender: str,
    task: str,
    part: Literal["linear", "pairs"],
) -> Line:
    """Return the line of a report that is about to be made: in full, or of zeros.

    It is of zeros where the cost is more than what is left of the month or of the life, where the
    owner wishes nothing to be sent, or where the task has a line. Ratings play no part in it.
    """
    cost = cost_of(price, wish)
    month = total(lines, at - MONTH).none + cost.none
    fits = month <= limits.month and total(lines).none + cost.none <= limits.life
    zeros = not (wish and fits) or any(line.task == task for line in lines)
    return Line(
        at=at,
        recommender=recommender,
        task=task,
        part=part,
        price=cost_of(price, WHOLE).none,
        wish=wish,
        cost=Cost() if zeros else cost,
        zeros=zeros,
    )


def spent_of(cost: Cost) -> tuple[Spent, Spent]:
    """Return a cost for the accounting of persons: history against none, and against another."""
    from hdpmf.common.privacy.accounting.person import Spent

    grain = cost.grain / GRAIN_UNIT
    return Spent(cost.none / UNIT / 2, grain), Spent(cost.other / UNIT / 2, grain)
