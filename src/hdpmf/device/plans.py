"""How many plans of secure sums a device draws for and sends nothing in: so many a day for each recommender.

For every plan a device draws who holds shares of its masks. A recommender that does not like what was drawn may break
off and ask again, in the same run or in another one, and a run that takes nothing costs nothing. So plans count when
the draw leaves, and no longer count when the masked vector follows, which the ledger knows of. What is counted does
not depend on ratings.

Days do not overlap, so that with a limit of L there are at most 366 L such plans in a year. Where the draws of one are
unlucky with a chance of at most r (2^-40, see ``sizing.risks``), those of any of them are with at most 366 L r.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from hdpmf.device.store import DeviceStore
from hdpmf.errors import SecureSumError, StorageError

DAY = 86_400.0
_PLANS = "plans of secure sums"


class Drawn(msgspec.Struct, frozen=True):
    """The plans of a day with one recommender.

    Attributes:
        begun: When the first of them came (Unix time).
        plans: Those that no masked vector of this device was sent in.
    """

    begun: float
    plans: int


_Drawn = dict[str, Drawn]


class Plans:
    """The plans that a recommender has had drawn for, in the store; the owner's ``forget`` keeps them.

    Args:
        store: The device's store.
        recommender: Whose plans; others have counts of their own.
        clock: What time it is (Unix).
    """

    def __init__(self, store: DeviceStore, recommender: str, clock: Callable[[], float] = time.time) -> None:
        self._store, self._recommender, self._clock = store, recommender, clock

    @property
    def open(self) -> int:
        """Plans of this day without a masked vector."""
        return self._today(self._read()).plans

    def draw(self) -> None:
        """Count one more. It is on the disk when this ends; only then may the draw leave.

        Raises:
            SecureSumError: There were as many today as the policy allows.
        """
        with self._store.transaction():
            kept, most = self._read(), self._store.policy.max_plans_per_day
            today = self._today(kept)
            if today.plans >= most:
                raise SecureSumError(
                    f"refused: {today.plans} plans of secure sums came to nothing within a day, and each drew anew who "
                    f"holds shares (max_plans_per_day = {most} in the policy); wait a day"
                )
            self._write(kept, Drawn(today.begun, today.plans + 1))

    def sent(self) -> None:
        """One led to a masked vector; inside the transaction that writes down that it leaves."""
        with self._store.transaction():
            kept = self._read()
            today = self._today(kept)
            # If its day is over, this takes one off today's: draws less vectors stay below the limit times the days.
            self._write(kept, Drawn(today.begun, max(today.plans - 1, 0)))

    def _today(self, kept: _Drawn) -> Drawn:
        now = self._clock()
        last = kept.get(self._recommender)
        if last is None or now >= last.begun + DAY:
            return Drawn(now, 0)
        # Where the clock was put back the day begins again, and its plans stay.
        return Drawn(min(last.begun, now), last.plans)

    def _read(self) -> _Drawn:
        data = self._store.get(_PLANS)
        try:
            return {} if data is None else msgspec.msgpack.decode(data, type=_Drawn)
        except msgspec.MsgspecError:
            raise StorageError("the count of plans cannot be read: the store is damaged") from None

    def _write(self, kept: _Drawn, today: Drawn) -> None:
        self._store.put(_PLANS, msgspec.msgpack.encode(kept | {self._recommender: today}))
