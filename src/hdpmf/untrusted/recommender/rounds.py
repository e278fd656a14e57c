"""Training by rounds on the recommender's side: item factors, and sums of gradients."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hdpmf.common.data import IdIndex, ItemTable, RatingScale
from hdpmf.common.privacy.mechanisms import H_FLOOR, Budgets, Mechanism
from hdpmf.common.protocol import (
    BudgetReport,
    Gradients,
    ItemCounts,
    Message,
    Opening,
    Plan,
    Round,
    learning_rate_at,
)
from hdpmf.errors import DivergedError, ProtocolError


@dataclass(frozen=True, slots=True, repr=False)
class Catalogue:
    """Items with their factors.

    Attributes:
        factors: V, one row per item.
        raters: How many ratings took part in training, per item; an item with none has no useful
            factors.
    """

    items: IdIndex
    factors: np.ndarray
    raters: np.ndarray
    scale: RatingScale
    item_table: ItemTable | None = None

    def __repr__(self) -> str:
        return f"Catalogue({len(self.items)} items, {self.factors.shape[1]} factors)"

    @property
    def trained(self) -> np.ndarray:
        """A mask of the items that learned anything."""
        return self.raters > 0


_SPREAD = 0.1  # standard deviation of the first item factors


class RandomSource(Protocol):
    """The recommender's random numbers: seeded in simulations, else the system's."""

    def normals(self, shape: tuple[int, ...]) -> np.ndarray:
        """N(0, 1) draws, float32."""
        ...

    def exponentials(self, shape: tuple[int, ...]) -> np.ndarray:
        """Exp(1) draws, float32."""
        ...


class Recommender:
    """Trains item factors without ever seeing a rating.

    Args:
        plan: What is trained; sent to every client.
        mechanism: Sets the noise budget from the plan and what clients report.
        noise: Where h and the first factors come from.
        h_per_item: Draw h for every item (the paper's text) or one for all items (its published
            numbers).
    """

    def __init__(
        self, plan: Plan, mechanism: Mechanism, noise: RandomSource, h_per_item: bool
    ) -> None:
        self.plan = plan
        self._mechanism = mechanism
        self._noise = noise
        self._h_per_item = h_per_item
        self._V = noise.normals((plan.n_items, plan.n_factors)) * np.float32(_SPREAD)
        self._round = 0
        self._h: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"Recommender({self.plan.n_items} items, round {self._round} of {self.plan.epochs})"

    def train(self, ask: Callable[[Message], Sequence[Any]]) -> Iterator[Round]:
        """Train with clients, wherever they are; yields the next round's message after each round.

        Args:
            ask: Sends all clients a message and returns what they say (``GradientClient.answer``).

        Raises:
            DivergedError: The factors have run away.
        """
        self.start(ask(self.open(ask(self.plan))))
        replies = ask(self.next_round())
        for _ in range(self.plan.epochs):
            self.aggregate(replies)
            check_finite(self._V, self.plan.learning_rate)
            message = self.next_round()
            replies = ask(message)
            yield message

    @property
    def factors(self) -> np.ndarray:
        """V, one row per item."""
        return self._V

    @property
    def raters(self) -> np.ndarray:
        """Ratings that take part, per item."""
        raters: np.ndarray = self._raters
        return raters

    def open(self, reports: Sequence[BudgetReport | None]) -> Opening:
        """Set the noise budget, from the clients' budget reports where the mechanism needs them."""
        total: Budgets | None = None
        for report in reports:
            if report is not None:
                part = Budgets(report.count, report.total, report.smallest, report.largest)
                total = part if total is None else total + part
        self._noise_budget = self._mechanism.noise_budget(self.plan.epsilon, total)
        return Opening(noise_budget=self._noise_budget)

    def start(self, counts: Sequence[ItemCounts]) -> None:
        """Add up who takes part."""
        for reply in counts:
            if reply.counts.shape != (self.plan.n_items,):
                raise ProtocolError(
                    f"a client counted {len(reply.counts)} items, the plan has {self.plan.n_items}"
                )
        self._raters = np.sum([reply.counts for reply in counts], axis=0)
        scaling = (
            np.sqrt(np.maximum(self._raters, 1))
            if self.plan.scale_steps
            else np.ones(self.plan.n_items)
        )
        self._step = np.where(self._raters > 0, 1.0 / scaling, 0.0).astype(np.float32)[:, None]

    def next_round(self) -> Round:
        """The message that opens the next round, or brings the final factors after the last."""
        self._round += 1
        if self._round > self.plan.epochs + 1:
            raise ProtocolError("training is over")
        closing = self._round == self.plan.epochs + 1
        without_h = closing or self._noise_budget is None or not self._mechanism.needs_h
        h = None if without_h else self._draw_h()
        return Round(number=self._round, item_factors=self._V, raters=self._raters, h=h)

    def aggregate(self, replies: Sequence[Gradients]) -> None:
        """Add up the clients' gradients and step the item factors."""
        plan = self.plan
        for reply in replies:
            if reply.number != self._round:
                raise ProtocolError(
                    f"gradients of round {reply.number} arrived in round {self._round}"
                )
            if reply.sums.shape != self._V.shape:
                raise ProtocolError(
                    "a client's gradients do not have the shape of the item factors"
                )
        total = (
            replies[0].sums
            if len(replies) == 1
            else np.sum([reply.sums for reply in replies], axis=0)
        )
        rate = np.float32(learning_rate_at(plan.learning_rate, self._round, plan.epochs))
        # The trainer reports divergence in its own words.
        with np.errstate(over="ignore", invalid="ignore"):
            self._V = self._V - (self._step * rate) * (total + np.float32(2 * plan.reg) * self._V)

    def _draw_h(self) -> np.ndarray:
        if self._h is None or self.plan.fresh_noise:
            rows = self.plan.n_items if self._h_per_item else 1
            drawn = self._noise.exponentials((rows, self.plan.n_factors))
            self._h = np.maximum(drawn, np.float32(H_FLOOR))
        return self._h


def check_finite(factors: np.ndarray, learning_rate: float) -> None:
    """Raise DivergedError where training has run away."""
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(factors.sum())
    if not finite:
        raise diverged(learning_rate)


def diverged(learning_rate: float) -> DivergedError:
    """Return the error of a training that has run away."""
    return DivergedError(
        f"training ran away to infinity with learning rate {learning_rate:g}; use a smaller one"
    )
