"""A run of the paper's methods: plan, opening, rounds, final factors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from hdpmf.common.protocol import (
    Accepted,
    BudgetReport,
    Gradients,
    ItemCounts,
    Message,
    Opening,
    Plan,
    Round,
    encode,
)
from hdpmf.common.protocol.layout import (
    counts_from_sum,
    counts_layout,
    gradients_from_sum,
    gradients_layout,
)
from hdpmf.errors import ConfigError, DivergedError, FederationError, ProtocolError
from hdpmf.untrusted.recommender import Recommender
from hdpmf.untrusted.recommender.rounds import RandomSource
from hdpmf.untrusted.recommender.sums import clamp_gradients
from hdpmf.untrusted.service.aggregation import Accumulator, Job, JobResult, Summation
from hdpmf.untrusted.service.aggregation.direct import Direct
from hdpmf.untrusted.service.aggregation.masks import SumBrokenOffError
from hdpmf.untrusted.service.run_files import decode_as

if TYPE_CHECKING:
    from hdpmf.untrusted.service.run import Run

_LARGEST = 1e12
"""No honest gradient is larger; a larger one would only make the factors run away."""


class TrainingRun:
    """Trains item factors with devices; can be stopped at any moment and resumed from its files.

    Args:
        run: Devices have agreed to its terms.
        random_source: Draws h and the first factors.
    """

    def __init__(self, run: Run, random_source: RandomSource) -> None:
        self._run = run
        self.plan: Plan = run.settings.plan(run.known)
        self._mechanism = run.settings.mechanism()
        self._recommender = Recommender(
            self.plan, self._mechanism, random_source, run.settings.h_per_item
        )

    def conduct(self) -> Round:
        """Everything up to the final factors."""
        checkpoint = self._run.checkpoint
        if checkpoint.stage == "open":
            self._open()
        if checkpoint.stage == "count":
            self._count()
        self._recommender.reopen(decode_as(checkpoint.opening, Opening))
        self._recommender.resume(decode_as(checkpoint.round, Round))
        while checkpoint.stage == "work":
            self._round()
        return decode_as(checkpoint.round, Round)

    def _open(self) -> None:
        """Send the plan out; take budgets in, where the mechanism needs them."""
        run = self._run
        checkpoint = self._run.checkpoint
        aggregation = run.aggregation
        if not isinstance(aggregation, Direct):
            raise ConfigError(
                "two servers sum surveys, not rounds of training; choose messages or masks"
            )
        run.stage("agreeing on the plan")
        budgets = _BudgetAccumulator(self.plan.epsilon, needed=self._mechanism.needs_budgets)
        collected = aggregation.ask(checkpoint.agreed, 0, self.plan, budgets)
        opening = self._recommender.open(collected.value)
        checkpoint.agreed = tuple(sorted(collected.devices or ()))
        checkpoint.opening = encode(opening)
        checkpoint.stage = "count"
        run.save()

    def _count(self) -> None:
        """Send the opening, take counts in; only counted devices can take part from now on."""
        run = self._run
        checkpoint = self._run.checkpoint
        plan = self.plan
        run.stage("counting ratings per item")
        users = run.enrolled.users
        job = Job(
            number=0,
            words="counting ratings per item",
            offer=checkpoint.opening,
            devices=checkpoint.agreed,
            kind=ItemCounts,
            accumulator=lambda: _CountAccumulator(users, plan.n_items),
            summation=Summation(layout=lambda n: counts_layout(plan, n), read=self._read_counts),
        )
        collected = run.aggregation.collect(job)
        if int(collected.value.counts.max()) > collected.users:
            raise _wrong_counts()
        self._recommender.reopen(decode_as(checkpoint.opening, Opening))
        self._recommender.start([collected.value])
        checkpoint.members = tuple(sorted(collected.devices or ()))
        checkpoint.stage = "work"
        self._next()
        run.aggregation.forget(0)
        run.log(f"{len(checkpoint.members)} devices are members, {collected.users} users")

    def _read_counts(self, participants: int, total: np.ndarray) -> ItemCounts:
        try:
            return counts_from_sum(self.plan, participants, total)
        except ProtocolError:
            raise _wrong_counts() from None

    def _next(self) -> None:
        """The next round is drawn and kept before anyone sees it."""
        checkpoint = self._run.checkpoint
        message = self._recommender.next_round()
        checkpoint.round = encode(message)
        if message.number > self.plan.epochs:
            checkpoint.stage = "done"
        self._run.save()

    def _round(self) -> None:
        run = self._run
        checkpoint = self._run.checkpoint
        metrics = self._run.metrics
        number = self._recommender.number
        metrics.members = len(checkpoint.members)
        metrics.round_begins(number)
        metrics.stage = f"round {number} of {self.plan.epochs}"
        lost = False
        try:
            collected = run.aggregation.collect(self._gradients(number))
        except SumBrokenOffError as error:
            lost = True
            run.log(f"round {number} is given up, its secure sum broke off: {error}")
        if lost:
            checkpoint.lost.append(number)
            metrics.round_ends(0, lost=True)
        else:
            self._recommender.aggregate([self._possible(collected)])
            self._check_finite()
            checkpoint.users.append(collected.users)
            checkpoint.seconds.append(metrics.round_ends(checkpoint.users[-1]))
        self._next()
        run.aggregation.forget(number)
        if lost:
            self._check_losses()

    def _gradients(self, number: int) -> Job[Gradients]:
        plan = self.plan
        checkpoint = self._run.checkpoint
        return Job(
            number=number,
            words=f"round {number} of {plan.epochs}",
            offer=checkpoint.round,
            devices=checkpoint.members,
            kind=Gradients,
            accumulator=lambda: _GradientAccumulator(number, (plan.n_items, plan.n_factors)),
            summation=Summation(
                layout=lambda n: gradients_layout(plan, n),
                read=lambda n, total: gradients_from_sum(plan, number, n, total),
            ),
        )

    def _possible(self, collected: JobResult[Gradients]) -> Gradients:
        """Clamp gradients to what so many users can have sent, if the noise is bounded."""
        if self._mechanism.needs_h:
            return collected.value
        run = self._run
        current = decode_as(run.checkpoint.round, Round)
        surplus = run.aggregation.surplus(collected.devices or ())
        gradients, changed = clamp_gradients(
            self.plan, current, collected.value, collected.users, surplus
        )
        run.impossible(changed, collected.users)
        return gradients

    def _check_losses(self) -> None:
        lost = self._run.checkpoint.lost
        many = self._run.pace.attempts
        if len(lost) >= many and lost[-1] - lost[-many] == many - 1:
            raise FederationError(
                f"{many} rounds in a row were given up; see why before starting it again"
            )

    def _check_finite(self) -> None:
        if not np.isfinite(self._recommender.factors.sum(dtype=np.float64)):
            raise DivergedError(
                f"training ran away to infinity with learning rate {self.plan.learning_rate:g}; "
                "start a new run with a smaller one"
            )


class _BudgetAccumulator(Accumulator[list[BudgetReport]]):
    """Summaries of the budgets on devices, where the mechanism needs them."""

    expected = (Accepted, BudgetReport)

    def __init__(self, epsilon: float, *, needed: bool) -> None:
        self._epsilon = epsilon
        self._needed = needed
        self._reports: dict[str, BudgetReport] = {}

    def take(self, device: str, message: Message) -> str | None:
        """Take a device's summary, or its word that it agrees."""
        if isinstance(message, BudgetReport):
            self._reports[device] = message
            return None if _plausible(message, self._epsilon) else "range"
        return "unexpected" if self._needed else None

    def total(self, devices: Collection[str]) -> list[BudgetReport]:
        """Return the summaries of these devices, in the order of their names."""
        return [self._reports[device] for device in sorted(devices) if device in self._reports]


class _CountAccumulator(Accumulator[ItemCounts]):
    """Ratings per item over all devices."""

    expected = (ItemCounts,)

    def __init__(self, users: Mapping[str, int], n_items: int) -> None:
        self._users = users
        self._total = np.zeros(n_items, np.int64)

    def take(self, device: str, message: Message) -> str | None:
        """Add a device's counts."""
        if not isinstance(message, ItemCounts) or message.counts.shape != self._total.shape:
            return "shape"
        if int(message.counts.max()) > self._users[device]:
            return "range"
        np.add(self._total, message.counts, out=self._total)
        return None

    def total(self, devices: Collection[str]) -> ItemCounts:
        """Return the sum."""
        return ItemCounts(counts=self._total)


class _GradientAccumulator(Accumulator[Gradients]):
    """The gradients of a round over all devices."""

    expected = (Gradients,)

    def __init__(self, number: int, shape: tuple[int, int]) -> None:
        self._number = number
        self._total = np.zeros(shape)

    def take(self, device: str, message: Message) -> str | None:
        """Add a device's gradients."""
        if not isinstance(message, Gradients) or message.sums.shape != self._total.shape:
            return "shape"
        if message.number != self._number:
            return "out-of-round"
        if not bool((np.abs(message.sums) < _LARGEST).all()):
            return "range"
        np.add(self._total, message.sums, out=self._total)
        return None

    def total(self, devices: Collection[str]) -> Gradients:
        """Return the sum."""
        return Gradients(number=self._number, sums=self._total.astype(np.float32))


def _wrong_counts() -> FederationError:
    return FederationError(
        "the sum of the counts cannot be right, so a device has sent wrong numbers; a secure sum "
        "hides which. Start a new run, with fewer devices to find it"
    )


def _plausible(report: BudgetReport, epsilon: float) -> bool:
    """Return whether budgets of at most epsilon can have this summary."""
    if report.count == 0:
        return report.total == 0
    slack = 1.0 + 1e-6
    return (
        report.smallest <= report.largest <= epsilon * slack
        and report.smallest * report.count <= report.total * slack
        and report.total <= report.largest * report.count * slack
    )
