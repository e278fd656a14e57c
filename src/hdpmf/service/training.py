"""A run of the paper's methods: plan, opening, rounds, final factors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hdpmf.errors import DivergedError, FederationError, ProtocolError
from hdpmf.protocol import (
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
from hdpmf.protocol.layout import SumLayout, counts_from_sum, counts_layout, gradients_from_sum, gradients_layout
from hdpmf.recommender import Recommender
from hdpmf.recommender.possible import possible_gradients
from hdpmf.recommender.recommender import Draws
from hdpmf.service.run import FederatedRun
from hdpmf.service.run_files import kept
from hdpmf.service.sums import SumBrokenOffError, Summed, sum_when_ready

_LARGEST = 1e12
"""No honest gradient is larger; a larger one would only make the factors run away."""


Layout = Callable[[Plan, int], SumLayout]


class TrainingRun:
    """Trains item factors with devices; it can be stopped at any moment and made anew from the same files.

    Args:
        run: The run; devices have agreed to its terms.
        draws: Where h and the first factors come from.
    """

    def __init__(self, run: FederatedRun, draws: Draws) -> None:
        self._run = run
        self.plan: Plan = run.settings.plan(run.known)
        self._mechanism = run.settings.mechanism()
        self._recommender = Recommender(self.plan, self._mechanism, draws, run.settings.h_per_item)
        self._summed = run.settings.view == "sums"

    def conduct(self) -> Round:
        """Everything up to the final factors, which all members that are there then have."""
        run, checkpoint = self._run, self._run.checkpoint
        if checkpoint.stage == "open":
            self._open()
        if checkpoint.stage == "count":
            self._count()
        self._recommender.reopen(kept(checkpoint.opening, Opening))
        self._recommender.resume(kept(checkpoint.round, Round))
        while checkpoint.stage == "work":
            self._round()
        final = kept(checkpoint.round, Round)
        if checkpoint.stage == "deliver":
            run.stage("handing out the final factors")
            run.deliver(checkpoint.members, final.number, checkpoint.round)
        return final

    def _open(self) -> None:
        """Plan out; budgets in, where the mechanism needs them."""
        run, checkpoint = self._run, self._run.checkpoint
        run.stage("agreeing on the plan")
        reports: dict[str, BudgetReport] = {}

        def take(device: str, answer: Message) -> str | None:
            if isinstance(answer, BudgetReport):
                reports[device] = answer
                return None if _plausible(answer, self.plan.epsilon) else "range"
            return "unexpected" if self._mechanism.needs_budgets else None

        agreed = run.collect(checkpoint.agreed, 0, self.plan, take, Accepted, BudgetReport)
        opening = self._recommender.open([reports[device] for device in sorted(agreed) if device in reports])
        checkpoint.agreed, checkpoint.opening = tuple(sorted(agreed)), encode(opening)
        checkpoint.stage = "count"
        run.save()

    def _count(self) -> None:
        """Opening out, counts in. Whoever is counted is a member; nobody else can take part any more."""
        run, checkpoint = self._run, self._run.checkpoint
        run.stage("counting ratings per item")
        users, n_items = run.enrolled.users, self.plan.n_items
        total = np.zeros(n_items, np.int64)

        def take(device: str, answer: Message) -> str | None:
            if not isinstance(answer, ItemCounts) or answer.counts.shape != (n_items,):
                return "shape"
            if int(answer.counts.max()) > users[device]:
                return "range"
            np.add(total, answer.counts, out=total)
            return None

        if self._summed:
            summed = self._sum(0, checkpoint.agreed, checkpoint.opening, counts_layout)
            members: set[str] = set(summed.devices)
            counts = self._counted(summed)
        else:
            members = run.collect(checkpoint.agreed, 0, checkpoint.opening, take, ItemCounts)
            counts = ItemCounts(counts=total)
        self._recommender.reopen(kept(checkpoint.opening, Opening))
        self._recommender.start([counts])
        checkpoint.members = tuple(sorted(members))
        checkpoint.stage = "work"
        self._next()
        run.files.drop_sum_log(0)
        run.log(f"{len(members)} devices are members, {run.enrolled.count_users(members)} users")

    def _counted(self, summed: Summed) -> ItemCounts:
        try:
            counts = counts_from_sum(self.plan, summed.participants, summed.total)
        except ProtocolError:
            counts = None
        if counts is None or int(counts.counts.max()) > self._run.enrolled.count_users(summed.devices):
            raise FederationError(
                "the sum of the counts cannot be right, so a device has sent wrong numbers; a secure sum hides which. "
                "Start a new run, with fewer devices to find it"
            )
        return counts

    def _next(self) -> None:
        """The next round is drawn and kept before anyone sees it."""
        checkpoint = self._run.checkpoint
        message = self._recommender.next_round()
        checkpoint.round = encode(message)
        if message.number > self.plan.epochs:
            checkpoint.stage = "deliver"
        self._run.save()

    def _round(self) -> None:
        run, checkpoint, metrics = self._run, self._run.checkpoint, self._run.metrics
        number = self._recommender.number
        metrics.members = len(checkpoint.members)
        metrics.round_begins(number)
        metrics.stage = f"round {number} of {self.plan.epochs}"
        lost = False
        try:
            gradients, devices = self._summed_round(number) if self._summed else self._open_round(number)
        except SumBrokenOffError as error:
            lost = True
            run.log(f"round {number} is given up, its secure sum broke off: {error}")
        if lost:
            checkpoint.lost.append(number)
            metrics.round_ends(0, lost=True)
        else:
            self._recommender.aggregate([self._possible(gradients, devices)])
            self._check_finite()
            checkpoint.users.append(run.enrolled.count_users(devices))
            checkpoint.seconds.append(metrics.round_ends(checkpoint.users[-1]))
        self._next()
        run.files.drop_sum_log(number)
        if lost:
            self._check_losses()

    def _open_round(self, number: int) -> tuple[Gradients, set[str]]:
        """Devices' gradients, added up as they come: memory does not grow with devices."""
        run = self._run
        total = np.zeros((self.plan.n_items, self.plan.n_factors))

        def take(device: str, answer: Message) -> str | None:
            if not isinstance(answer, Gradients) or answer.sums.shape != total.shape:
                return "shape"
            if answer.number != number:
                return "out-of-round"
            if not bool((np.abs(answer.sums) < _LARGEST).all()):
                return "range"
            np.add(total, answer.sums, out=total)
            return None

        devices = run.collect(run.checkpoint.members, number, run.checkpoint.round, take, Gradients)
        return Gradients(number=number, sums=total.astype(np.float32)), devices

    def _summed_round(self, number: int) -> tuple[Gradients, set[str]]:
        checkpoint = self._run.checkpoint
        summed = self._sum(number, checkpoint.members, checkpoint.round, gradients_layout)
        return gradients_from_sum(self.plan, number, summed.participants, summed.total), set(summed.devices)

    def _possible(self, gradients: Gradients, devices: set[str]) -> Gradients:
        """Where the noise is on a grid, what so many users can have sent; other noise has no bound that is known."""
        if self._mechanism.needs_h:
            return gradients
        run = self._run
        users, current = run.enrolled.count_users(devices), kept(run.checkpoint.round, Round)
        gradients, changed = possible_gradients(self.plan, current, gradients, users, run.surplus(devices))
        run.impossible(changed, devices)
        return gradients

    def _sum(self, number: int, devices: tuple[str, ...], message: bytes, layout: Layout) -> Summed:
        return sum_when_ready(self._run, number, devices, message, lambda n: layout(self.plan, n))

    def _check_losses(self) -> None:
        lost = self._run.checkpoint.lost
        many = self._run.pace.attempts
        if len(lost) >= many and lost[-1] - lost[-many] == many - 1:
            raise FederationError(f"{many} rounds in a row were given up; see why before starting it again")

    def _check_finite(self) -> None:
        if not np.isfinite(self._recommender.factors.sum(dtype=np.float64)):
            raise DivergedError(
                f"training ran away to infinity with learning rate {self.plan.learning_rate:g}; start a new run with a "
                "smaller one"
            )


def _plausible(report: BudgetReport, epsilon: float) -> bool:
    """Whether budgets of at most epsilon can have this summary."""
    if report.count == 0:
        return report.total == 0
    slack = 1.0 + 1e-6
    return (
        report.smallest <= report.largest <= epsilon * slack
        and report.smallest * report.count <= report.total * slack
        and report.total <= report.largest * report.count * slack
    )
