"""Training by rounds: a client answers rounds with gradients and updates its user vectors.

The gradients of ``hdpmf-paid`` are whole numbers before their noise. Rounding is part of the
mechanism, so that the proof's sensitivity holds to the last digit: see ``proofs/hdpmf-paid.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import Ratings, RatingScale
from hdpmf.common.privacy.coding import levels_of, n_levels
from hdpmf.common.privacy.mechanisms import (
    MECHANISMS,
    Budgets,
    Mechanism,
    TrainingRatings,
    dense_laplace_scale,
    laplace_scale,
    noise_share,
)
from hdpmf.common.privacy.sampling import Noise, SeededNoise
from hdpmf.common.privacy.weights import PrivacyWeights
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
from hdpmf.common.protocol.messages import GRADIENT_STEP, from_grid, to_grid
from hdpmf.errors import DivergedError, PrivacyError, ProtocolError
from hdpmf.private.client.devices import constrained_ridges, initial_vectors
from hdpmf.private.client.h_plausibility import HPlausibility
from hdpmf.private.kernels import batch
from hdpmf.private.kernels.batch import group, pad

if TYPE_CHECKING:
    from hdpmf.private.kernels.batch import GroupedRatings


_WITHIN = np.float32(1.0 - 1e-6)


def stand_in_vectors(by_user: GroupedRatings, V: np.ndarray) -> np.ndarray:
    """Return the unit direction of the mean of each user's rated items, whatever the ratings.

    The factor just below 1 keeps rounded lengths within the unit ball, which the noise is
    calibrated to. A user without ratings, or whose items cancel out, gets 0.
    """
    from scipy.sparse import (
        csr_array,
    )  # here, because importing it takes longer than training starts

    ones = np.ones(len(by_user.partner), V.dtype)
    rated = csr_array((ones, by_user.partner, by_user.start), shape=(by_user.n_rows, len(V)))
    sums: np.ndarray = rated @ V
    lengths = np.linalg.norm(sums.astype(np.float64), axis=1, keepdims=True)
    usable = np.isfinite(lengths) & (lengths > np.finfo(np.float32).tiny)
    directions = np.divide(sums, lengths, out=np.zeros_like(sums, np.float64), where=usable)
    return np.ascontiguousarray(directions.astype(V.dtype) * _WITHIN)


_BLOCK = (
    1 << 16
)  # ratings whose gradients are in memory at a time; no mutant: the sums are the same


class WholeGradients:
    """Ratings, laid out to sum gradients ``2 W (s.v - R) s`` in units of ``GRADIENT_STEP``."""

    def __init__(
        self,
        users: np.ndarray,
        rows: np.ndarray,
        values: np.ndarray,
        weights: np.ndarray,
        scale: RatingScale,
        n_rows: int,
    ) -> None:
        by_row = np.argsort(rows, kind="stable")
        self._users, self._rows = users[by_row], rows[by_row]
        self._levels, self._weights = levels_of(values, scale)[by_row], weights[by_row]
        self._low, self._step = scale.low, scale.width / n_levels(scale)
        self._n_rows = n_rows

    def sums(self, stand_ins: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """The gradients, summed over the ratings of each row.

        A gradient is base - level * slope. ``slope`` is rounded towards zero and the level is a
        whole number, so that another level moves the row by no more, in the sum of its sizes, than
        2 W Delta |s|_1; ``base`` knows no rating's value.
        """
        s_of, v_of = stand_ins.astype(np.float64), factors.astype(np.float64)
        total = np.zeros((self._n_rows, factors.shape[1]), np.int64)
        for begin in range(0, len(self._rows), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            rows, s = self._rows[block], s_of[self._users[block]]
            strength = 2.0 * self._weights[block][:, None] * s
            base = to_grid(strength * (np.einsum("nk,nk->n", s, v_of[rows]) - self._low)[:, None])
            slope = np.trunc(strength * (self._step / GRADIENT_STEP)).astype(np.int64)
            firsts = np.flatnonzero(np.diff(rows, prepend=-1))
            total[rows[firsts]] += np.add.reduceat(
                base - self._levels[block][:, None] * slope, firsts, axis=0
            )
        return total


class GradientClient:
    """One or more users on the private side of the protocol.

    Methods are called in the order of the conversation (see ``hdpmf.common.protocol``); rounds may
    be left out. A message out of turn, of the wrong size or for another mechanism is refused with a
    ProtocolError, one whose h no honest recommender would draw with a PrivacyError; either changes
    nothing.

    Args:
        ratings: The ratings of these users; the items are those of the recommender's catalogue, in
            its order.
        mechanism: How their ratings enter. A plan that names another one is refused.
        seed: Of the first user vectors.
    """

    def __init__(
        self,
        ratings: Ratings,
        weights: PrivacyWeights,
        mechanism: Mechanism,
        noise: Noise,
        seed: int,
        workers: Workers,
    ) -> None:
        self._ratings = ratings
        self._weights = weights.for_ratings(ratings)
        self._mechanism = mechanism
        self._noise = noise
        self._seed = seed
        self._workers = workers
        self._plan: Plan | None = None
        self._opened = False
        self._round = 0
        self._answered = 0
        self._kept: np.ndarray | None = None
        self._kept_noise: np.ndarray | None = None
        self._raters: np.ndarray | None = None
        self._whole: WholeGradients | None = None

    def __repr__(self) -> str:
        return f"GradientClient({self._ratings.n_users} users)"

    @property
    def vectors(self) -> np.ndarray:
        """User vectors, one row per user.

        Private: for the owner of the client, never for a message.
        """
        return self._U[:, : self._expected_plan().n_factors]

    def answer(self, message: Message) -> BudgetReport | ItemCounts | Gradients | None:
        """Return the reply to a message of the recommender; None where it asks for none."""
        match message:
            case Plan():
                return self.accept(message)
            case Opening():
                return self.open(message)
            case Round():
                self.receive(message)
                closing = message.number > self._expected_plan().epochs
                return None if closing else self.contribute()
        raise ProtocolError(f"a recommender never sends a {type(message).__name__}")

    def state(self) -> dict[str, np.ndarray]:
        """Return what `resume` needs to go on in another process after an answer. PRIVATE."""
        parts: dict[str, Any] = {
            "round": self._round,
            "vectors": self._U,
            "raters": self._raters,
            "kept": self._kept,
            "kept_noise": self._kept_noise,
        }
        if isinstance(self._noise, SeededNoise):
            parts["noise"] = np.array(self._noise.state, np.uint64)
        return {name: np.asarray(part) for name, part in parts.items() if part is not None}

    def resume(self, plan: Plan, opening: Opening, state: Mapping[str, np.ndarray]) -> None:
        """Go on from `state`, with the plan and the opening that were agreed to."""
        self.accept(plan)
        self._kept = state.get("kept")
        weights, values = self._weights, self._ratings.values
        if self._kept is not None:
            weights, values = weights[self._kept], values[self._kept]
        target = self._mechanism.target(values, weights)
        coefficient = self._mechanism.coefficient(weights)
        self._let_in(plan, opening, TrainingRatings(self._kept, target, coefficient))
        self._U, self._raters = state["vectors"], state.get("raters")
        self._kept_noise = state.get("kept_noise")
        self._round = self._answered = int(state["round"])
        self._h_law = HPlausibility(plan.n_factors, draws_of_h(plan))
        if isinstance(self._noise, SeededNoise):
            self._noise.state = tuple(int(word) for word in state["noise"])

    def accept(self, plan: Plan) -> BudgetReport | None:
        """Agree to a plan, or refuse it; report budgets where the mechanism cannot do without."""
        if self._round:
            raise ProtocolError("training has begun; another plan would change what was agreed to")
        if self._plan is not None and plan != self._plan:
            raise ProtocolError(
                "refused: the plan is not the one that was agreed to; it must not change"
            )
        if MECHANISMS[plan.mechanism] is not type(self._mechanism):
            raise ProtocolError(
                f"the plan wants the mechanism {plan.mechanism!r}, which is not the one chosen "
                "on this device"
            )
        scale = self._ratings.scale
        if plan.n_items != self._ratings.n_items or (plan.scale_low, plan.scale_high) != (
            scale.low,
            scale.high,
        ):
            raise ProtocolError(
                f"the plan is for {plan.n_items} items rated {plan.scale_low:g} to "
                f"{plan.scale_high:g}; this device "
                f"knows {self._ratings.n_items} items rated {scale.low:g} to {scale.high:g}"
            )
        self._plan = plan
        if not self._mechanism.needs_budgets:
            return None
        budgets = Budgets.of(self._weights, plan.epsilon)
        return BudgetReport(
            count=budgets.count,
            total=budgets.total,
            smallest=budgets.smallest,
            largest=budgets.largest,
        )

    def open(self, opening: Opening) -> ItemCounts:
        """Let ratings enter, and say how many take part per item."""
        plan = self._expected_plan()
        if not isinstance(opening, Opening) or self._opened:
            raise ProtocolError(
                "an Opening must come once, after the plan and before the first round"
            )
        own = Budgets.of(self._weights, plan.epsilon)
        if not self._mechanism.allows(opening.noise_budget, plan.epsilon, own):
            raise ProtocolError(
                "refused: the noise budget in the opening is not one that the plan's epsilon gives"
            )
        ratings = self._ratings
        entered = self._mechanism.enter(
            ratings.values,
            self._weights,
            plan.epsilon,
            opening.noise_budget,
            self._noise.uniforms(len(ratings)),
        )
        self._let_in(plan, opening, entered)
        self._U = pad(initial_vectors(ratings.users, plan.n_factors, self._seed))
        self._h_law = HPlausibility(plan.n_factors, draws_of_h(plan))
        return self.counts()

    def counts(self) -> ItemCounts:
        """The number of ratings that take part, per item."""
        if not self._opened:
            raise ProtocolError("an Opening must come first")
        return ItemCounts(counts=self._spread(self._counts))

    def _let_in(self, plan: Plan, opening: Opening, entered: TrainingRatings) -> None:
        """Lay out the ratings that take part.

        Only rows of items that are rated here are ever computed.
        """
        users, items = self._ratings.user_codes, self._ratings.item_codes
        if entered.kept is not None:
            users, items = users[entered.kept], items[entered.kept]
        self._own = _rated(items, plan.n_items)
        n_rows = plan.n_items
        if self._own is not None:
            n_rows = len(self._own)
            items = np.searchsorted(self._own, items).astype(np.int32)
        self._by_item = group(items, users, entered.target, entered.coefficient, n_rows)
        # The coefficient protects what is sent; the device fits its own vector to all that it
        # knows.
        self._by_user = group(users, items, entered.target, None, self._ratings.n_users)
        self._counts = self._by_item.counts
        self._user_roots = np.sqrt(np.maximum(self._by_user.counts, 1)).astype(np.float32)
        self._kept = entered.kept
        if not self._mechanism.needs_h:
            scale = self._ratings.scale
            self._whole = WholeGradients(
                users, items, self._ratings.values, self._weights, scale, n_rows
            )
        self._noise_budget = opening.noise_budget
        self._opened = True

    def _rows(self, table: np.ndarray) -> np.ndarray:
        """Return the rows of the items rated here, of a table with a row per item."""
        return table if self._own is None else table[self._own]

    def _spread(self, rows: np.ndarray) -> np.ndarray:
        """Return a table with a row per item, from the rows of the items rated here."""
        if self._own is None:
            return rows
        table = np.zeros((self._expected_plan().n_items, *rows.shape[1:]), rows.dtype)
        table[self._own] = rows
        return table

    def receive(self, message: Round) -> None:
        """Take a round's item factors; from the second round on, step the user vectors with them.

        The step is the previous round's. After the last round ``hdpmf-paid`` fits the vectors
        exactly instead, because nothing that was sent depends on them.

        Raises:
            ProtocolError: The round is out of order, does not fit the plan, lacks h, or has numbers
                that are refused.
        """
        plan = self._expected_plan()
        if not self._opened or not isinstance(message, Round):
            raise ProtocolError("an Opening must come first, and then rounds")
        if not self._round < message.number <= plan.epochs + 1:
            raise ProtocolError(
                f"expected round {self._round + 1} of {plan.epochs}, or a later one"
            )
        if message.item_factors.shape != (plan.n_items, plan.n_factors):
            raise ProtocolError("the item factors of this round do not have the shape of the plan")
        closing = message.number == plan.epochs + 1
        draws = self._noise_budget is not None and not closing and self._mechanism.needs_h
        if draws and message.h is None:
            raise ProtocolError(
                "refused: without h for every item the gradients would go out without noise"
            )
        self._judge(message, draws)
        raters = self._rows(message.raters)
        h = None
        if draws and message.h is not None and len(raters):
            h = message.h if len(message.h) == 1 else self._rows(message.h)
        V = pad(self._rows(message.item_factors))
        if closing and not self._mechanism.sends_fitted_vectors:
            # What was sent does not depend on these vectors, so they need not be the result of a
            # few small steps.
            self._U = pad(constrained_ridges(self._by_user, V[:, : plan.n_factors], plan.reg))
        elif message.number > 1:
            rate = learning_rate_at(plan.learning_rate, message.number - 1, plan.epochs)
            steps = np.full(self._by_user.n_rows, rate, np.float32)
            if plan.scale_steps:
                steps /= self._user_roots
            batch.step_users(
                self._by_user,
                self._U,
                V,
                steps,
                plan.reg,
                self._mechanism.bounds_users,
                self._workers,
            )
        self._V, self._h = V, h
        self._raters = raters
        self._round = message.number

    def _judge(self, message: Round, draws: bool) -> None:
        """Refuse a round by what is in it, before a step is made with it."""
        raters = self._rows(message.raters)
        if (raters < self._counts).any():
            raise ProtocolError(
                "the numbers of raters are smaller than what this client alone has reported"
            )
        if self._raters is not None and not np.array_equal(raters, self._raters):
            raise ProtocolError(
                "refused: the numbers of raters have changed, and with them the shares of the noise"
            )
        if draws and message.h is not None and len(raters) and self._kept_noise is None:
            self._h_law.check(message.h if len(message.h) == 1 else self._rows(message.h))

    def contribute(self) -> Gradients:
        """Return this round's gradients with their noise, once.

        A second answer would have other noise; the mean of both would have half the variance.

        Raises:
            ProtocolError: There is no round to answer, or it has been answered.
        """
        plan, budget = self._to_answer(), self._noise_budget
        if budget is not None and not self._mechanism.needs_h:
            return self._answer(from_grid(self._dense_units(plan)))
        if budget is not None:
            return self._answer(self._spread(self._noisy(plan, budget)))
        sums = self._gradients(plan)
        check_finite(sums)
        return self._answer(self._spread(sums))

    def _to_answer(self) -> Plan:
        """Return the plan; ProtocolError unless a round waits for an answer."""
        plan = self._expected_plan()
        if not 1 <= self._round <= plan.epochs:
            raise ProtocolError("there is no round to contribute to")
        if self._answered == self._round:
            raise ProtocolError(
                "refused: this round has been answered; a second answer would have other noise"
            )
        return plan

    def _answer(self, table: np.ndarray) -> Gradients:
        """Return the message with these sums, and mark the round as answered."""
        self._answered = self._round
        return Gradients(number=self._round, sums=np.ascontiguousarray(table))

    def _gradients(self, plan: Plan) -> np.ndarray:
        """Return summed gradients of the items rated here, without noise."""
        sums = np.empty((self._by_item.n_rows, self._U.shape[1]), np.float32)
        batch.item_gradients(self._by_item, self._U, self._V, sums, self._workers)
        return sums[:, : plan.n_factors]

    def _noisy(self, plan: Plan, budget: float) -> np.ndarray:
        """Return the gradients with the summed noise shares of this client's raters.

        The noise is the paper's in simulations, and on a grid where it is released.
        """
        noise, shares = self._noise, self._kept_noise
        if not isinstance(noise, SeededNoise):
            return from_grid(to_grid(self._gradients(plan)) + self._gaussian_shares(plan, budget))
        if shares is None:
            part = self._counts / np.maximum(self._round_raters(), 1)
            c = (
                noise.normals((len(part), plan.n_factors))
                * np.sqrt(part).astype(np.float32)[:, None]
            )
            scale = laplace_scale(plan.n_factors, plan.scale_high - plan.scale_low, budget)
            shares = noise_share(self._round_h(), c, np.float32(scale))
        if not plan.fresh_noise:
            self._kept_noise = shares
        sums = self._gradients(plan) + shares
        check_finite(sums)
        return np.asarray(sums)

    def _gaussian_shares(self, plan: Plan, budget: float) -> np.ndarray:
        """The paper's shares, b sqrt(2 h) N(0, part of the raters that are here), on the grid."""
        if self._kept_noise is not None:
            return self._kept_noise
        part = self._counts / np.maximum(self._round_raters(), np.maximum(self._counts, 1))
        scale = (
            laplace_scale(plan.n_factors, plan.scale_high - plan.scale_low, budget) / GRADIENT_STEP
        )
        if len(part) == 0:
            return np.zeros((0, plan.n_factors), np.int64)
        sigmas = scale * np.sqrt(2.0 * self._round_h().astype(np.float64) * part[:, None])
        shares = self._noise.discrete_gaussian(sigmas)
        if not plan.fresh_noise:
            self._kept_noise = shares
        return shares

    def _dense_units(self, plan: Plan) -> np.ndarray:
        """Return ``hdpmf-paid``'s gradients as whole numbers, with the whole noise.

        All items have a row; user vectors are stand-ins.
        """
        if self._noise_budget is None or self._whole is None:
            raise ProtocolError("dense noise needs a budget")
        width = plan.scale_high - plan.scale_low
        scale = dense_laplace_scale(
            plan.n_factors, width, self._noise_budget, plan.epochs, GRADIENT_STEP
        )
        units = self._noise.discrete_laplace(scale, (plan.n_items, plan.n_factors))
        stand_ins = stand_in_vectors(self._by_user, self._V)[:, : plan.n_factors]
        rows = self._whole.sums(stand_ins, self._V[:, : plan.n_factors])
        if self._own is None:
            units += rows
        else:
            units[self._own] += rows
        return units

    def _round_raters(self) -> np.ndarray:
        if self._raters is None:
            raise ProtocolError("a round must come first")
        return self._raters

    def _round_h(self) -> np.ndarray:
        if self._h is None:
            raise PrivacyError("the round brought no h")
        return self._h

    def _expected_plan(self) -> Plan:
        if self._plan is None:
            raise ProtocolError("a plan must come first")
        return self._plan


def check_finite(gradients: np.ndarray) -> None:
    """Raise DivergedError where training has run away."""
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(gradients.sum(dtype=np.float64))
    if not finite:
        raise DivergedError("the gradients ran away to infinity; use a smaller learning rate")


def draws_of_h(plan: Plan) -> int:
    """Rounds that bring a new h."""
    return plan.epochs if plan.fresh_noise else 1


def _rated(items: np.ndarray, n_items: int) -> np.ndarray | None:
    """Return the rated items, ascending; None where they are at least half of all items.

    Leaving out the others would save nothing then.
    """
    own = np.flatnonzero(np.bincount(items, minlength=n_items))
    return None if 2 * len(own) >= n_items else own
