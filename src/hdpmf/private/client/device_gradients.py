"""Gradients of a real device: whole numbers on a grid, with noise that it draws itself.

The gradients of the paper's methods are rounded to the grid and get discrete Gaussian shares. Those
of ``hdpmf-paid`` are on it in every client.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256

import msgspec
import numpy as np

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import Ratings
from hdpmf.common.privacy.mechanisms import Mechanism, TrainingRatings
from hdpmf.common.privacy.sampling import Noise, require_released
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import Opening, Plan, Round
from hdpmf.common.protocol.messages import from_grid, to_grid
from hdpmf.errors import ProtocolError, StorageError
from hdpmf.private.client.gradients import GradientClient, draws_of_h
from hdpmf.private.client.h_plausibility import HPlausibility

_DTYPES = {"vectors": "<f4", "raters": "<i8", "kept": "<i8", "kept_noise": "<i8", "h_total": "<f4"}


@dataclass(frozen=True, slots=True, repr=False)
class GradientClientState:
    """Private, like all that a client holds, but without any rating.

    Attributes:
        round: The last round that came.
        answered: The last that was answered.
        vectors: User vectors, padded.
        raters: Ratings that take part, per item that is rated here.
        kept: Positions of the ratings that PDPMF's sampling has kept.
        kept_noise: Noise that is drawn once for all rounds.
        h_seen: Rounds whose h was looked at.
        h_total: What was found in them, per row.
        stated: Digest of the numbers of raters that the first round stated.
    """

    round: int
    answered: int
    vectors: np.ndarray
    raters: np.ndarray | None
    kept: np.ndarray | None
    kept_noise: np.ndarray | None
    h_seen: int
    h_total: np.ndarray | None
    stated: bytes = b""

    def __repr__(self) -> str:
        return f"GradientClientState(round {self.round})"

    def encode(self) -> bytes:
        """Return the state as bytes."""
        arrays = {}
        for name, dtype in _DTYPES.items():
            array = getattr(self, name)
            arrays[name] = None if array is None else (array.shape, array.astype(dtype).tobytes())
        return msgspec.msgpack.encode((self.round, self.answered, self.h_seen, arrays, self.stated))

    @classmethod
    def decode(cls, data: bytes) -> GradientClientState:
        """Read a state from bytes."""
        try:
            number, answered, seen, arrays, stated = msgspec.msgpack.decode(data, type=_Fields)
            found = {
                name: None
                if arrays[name] is None
                else np.frombuffer(arrays[name][1], dtype).reshape(arrays[name][0])
                for name, dtype in _DTYPES.items()
            }
        except (msgspec.MsgspecError, KeyError, ValueError) as error:
            raise StorageError(
                "the kept state of a run cannot be read: the store is damaged"
            ) from error
        vectors = found.pop("vectors")
        if vectors is None:
            raise StorageError("the kept state of a run has no vectors: the store is damaged")
        return cls(
            round=number, answered=answered, h_seen=seen, vectors=vectors, stated=stated, **found
        )


_Fields = tuple[int, int, int, dict[str, tuple[list[int], bytes] | None], bytes]

LARGEST_FACTOR = 2.0**20
"""Of V. Gradients of smaller ones fit the grid and the words of a sum, for any ratings."""


class DeviceGradientClient(GradientClient):
    """A client whose gradients may leave this process.

    Args:
        ratings: The ratings of these users that take part.
        seed: Of the first user vectors.
        everyone: Users of the run: no item can have more raters.
        simulation: Allow seeded noise. Never for anything that leaves this process.
    """

    def __init__(
        self,
        ratings: Ratings,
        weights: PrivacyWeights,
        mechanism: Mechanism,
        noise: Noise,
        seed: int,
        workers: Workers,
        *,
        n_users: int,
        everyone: int,
        sharing: int,
        min_raters: int,
        simulation: bool = False,
    ) -> None:
        released = noise if simulation else require_released(noise)
        super().__init__(
            ratings, weights, mechanism, released, seed, workers,
            n_users=n_users, sharing=sharing, min_raters=min_raters,
        )  # fmt: skip
        self._everyone = everyone
        self._stated = b""

    def _bare(self, plan: Plan) -> np.ndarray:
        sums = self._gradients(plan)
        return np.asarray(
            np.nan_to_num(sums, nan=0.0, posinf=LARGEST_FACTOR, neginf=-LARGEST_FACTOR)
        )

    def _noisy(self, plan: Plan, budget: float) -> np.ndarray:
        return from_grid(self._units(plan))

    def contribute_units(self) -> np.ndarray:
        """The noisy gradients in units of the grid: a row per item, int64. For a secure sum."""
        plan = self._to_answer()
        dense = self._noise_budget is not None and not self._mechanism.needs_h
        units = self._dense_units(plan) if dense else self._spread(self._units(plan))
        self._answered = self._round
        return units

    def state(self) -> GradientClientState:  # type: ignore[override]
        """The state to resume from later, in another process. No rating is in it."""
        return GradientClientState(
            round=self._round,
            answered=self._answered,
            vectors=self._U,
            raters=self._raters,
            kept=self._kept,
            kept_noise=self._kept_noise,
            h_seen=self._h_law.seen,
            h_total=self._h_law.total,
            stated=self._stated,
        )

    def resume(  # type: ignore[override]
        self, plan: Plan, opening: Opening, state: GradientClientState
    ) -> None:
        """Go on from a state that was kept, with the plan and the opening that were agreed to.

        The round that was under way is over: its factors are not kept, so that it gets no second
        answer.
        """
        self._plan = plan
        weights = self._weights if state.kept is None else self._weights[state.kept]
        values = self._ratings.values if state.kept is None else self._ratings.values[state.kept]
        entered = TrainingRatings(
            state.kept,
            self._mechanism.target(values, weights),
            self._mechanism.coefficient(weights),
        )
        self._let_in(plan, opening, entered)
        if state.vectors.shape[0] != self._ratings.n_users or (
            state.raters is not None and len(state.raters) != self._by_item.n_rows
        ):
            raise ProtocolError("the kept state does not belong to the ratings that are here now")
        self._U = state.vectors.copy()
        self._h_law = HPlausibility(plan.n_factors, draws_of_h(plan), state.h_seen, state.h_total)
        self._round, self._answered = state.round, max(state.answered, state.round)
        self._raters, self._kept_noise, self._stated = state.raters, state.kept_noise, state.stated

    def resume_without_ratings(
        self, plan: Plan, opening: Opening, state: GradientClientState
    ) -> None:
        """Resume with no ratings, so that nobody learns that those that took part are gone."""
        none = np.zeros(0, np.int64)
        self.resume(
            plan,
            opening,
            replace(
                state,
                vectors=np.zeros((self._ratings.n_users, state.vectors.shape[1]), np.float32),
                raters=None if state.raters is None else none,
                kept=None if state.kept is None else none,
                kept_noise=None
                if state.kept_noise is None
                else np.zeros((0, plan.n_factors), np.int64),
            ),
        )

    def _judge(self, message: Round, draws: bool) -> None:
        """Refuse numbers that no training has, by public rules and before ratings are looked at.

        The rules are the same for all rows, so a refusal does not depend on which items are rated
        here. Other wrong numbers are clipped or make more noise, never less, and are not refused.
        """
        if float(np.abs(message.item_factors).max()) > LARGEST_FACTOR:
            raise ProtocolError(
                f"refused: item factors beyond {LARGEST_FACTOR:,.0f} belong to no training"
            )
        if not draws:
            return
        if int(message.raters.max()) > self._everyone:
            raise ProtocolError(
                f"refused: an item is said to have more raters than the {self._everyone} users of "
                "the run; each rater's share of the noise would be too small"
            )
        stated = sha256(message.raters.tobytes()).digest()
        if self._stated not in (b"", stated):
            raise ProtocolError(
                "refused: the numbers of raters have changed, and with them the shares of the noise"
            )
        if message.h is not None and self._kept_noise is None:
            self._h_law.check(message.h)
        self._stated = stated

    def _units(self, plan: Plan) -> np.ndarray:
        """Return rounded gradients of the items rated here, with noise if there is a budget.

        Items with too few raters have 0.
        """
        units = to_grid(self._gradients(plan))
        if self._noise_budget is not None:
            units += self._gaussian_shares(plan, self._noise_budget)
        units[self._quiet()] = 0
        return units
