"""A device's part in the secure sum of one job. It lives in memory: a restart is a drop-out.

A simulated device has no process of its own; what it has in memory it takes along (`SumOfJob.suspend`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from hdpmf.device.plans import Plans
from hdpmf.device.store import DeviceStore
from hdpmf.errors import SecureSumError
from hdpmf.protocol import Terms
from hdpmf.protocol.layout import SumLayout
from hdpmf.protocol.versions import bound_to
from hdpmf.secure_sum import SecureSumClient, decode_to_device
from hdpmf.secure_sum.graph import read_bitmap
from hdpmf.secure_sum.messages import Advertisement, MaskedVector, SumPlan
from hdpmf.shard.outgoing import masked

_MAX_PLANS = 32  # a recommender that does not like what devices drew may break off and ask again, but not for ever


class _Suspended(msgspec.Struct, frozen=True, array_like=True):
    number: int
    numbers: bytes | None
    client: bytes | None
    plans: int
    last: tuple[int, bytes] | None


@dataclass(slots=True, repr=False)
class SumOfJob:
    """The numbers of a job, waiting for a sum or in one.

    A sum that breaks off before the masked vector may be tried again with new masks; after that the numbers are
    spent, because two sums over different devices would tell them apart.

    Attributes:
        number: The job.
        numbers: What goes into the sum (int64); gone when it is in.
        layout: The words of the job, by the number of participants.
        terms: What was agreed on: how many users the sum must be over, and for how many a device counts.
    """

    number: int
    numbers: np.ndarray | None
    layout: Callable[[int], SumLayout]
    terms: Terms
    _client: SecureSumClient | None = None
    _plans: int = 0
    _last: tuple[int, bytes] | None = None

    def answer(self, store: DeviceStore, body: bytes, plans: Plans, vector_leaves: Callable[[bytes], None]) -> bytes:
        """The reply's body to a message of the sum. What was drawn for a plan leaves when ``plans`` has counted it.

        ``vector_leaves`` gets the masked vector before it is given away; what it writes is on the disk by then.
        """
        request = zlib.crc32(body)
        if self._last is not None and self._last[0] == request:
            return self._last[1]
        message = decode_to_device(body)
        if isinstance(message, SumPlan):
            self._client = None
            client = self._join(store, message)
        elif self._client is None:
            raise SecureSumError("there is no sum under way for this job")
        else:
            client = self._client
        reply = client.answer(message)
        if isinstance(reply, Advertisement):
            plans.draw()
            self._client = client
        # A copy, because the encoder's own bytes keep the half of their length that it had in reserve.
        leaving = bytes(memoryview(masked(reply)))
        if isinstance(reply, MaskedVector):
            vector_leaves(leaving)
            self.numbers = None
        self._last = request, leaving
        return leaving

    def suspend(self) -> bytes:
        """Return all of it as bytes. PRIVATE: the numbers are under no mask."""
        numbers = None if self.numbers is None else self.numbers.tobytes()
        client = None if self._client is None else self._client.suspend()
        return msgspec.msgpack.encode(_Suspended(self.number, numbers, client, self._plans, self._last))

    @classmethod
    def resume(
        cls, data: bytes, layout: Callable[[int], Callable[[int], SumLayout]], terms: Terms, store: DeviceStore
    ) -> SumOfJob:
        """Return what `suspend` gave the bytes of; ``layout`` is by job."""
        state = msgspec.msgpack.decode(data, type=_Suspended)
        numbers = None if state.numbers is None else np.frombuffer(state.numbers, np.int64)
        job = cls(state.number, numbers, layout(state.number), terms, None, state.plans, state.last)
        pinned = store.roster
        if state.client is not None and pinned is not None:
            job._client = SecureSumClient.resume(
                state.client, store.identity, pinned.roster, store.policy.sum_policy(), job._about(store)
            )
        return job

    def _about(self, store: DeviceStore) -> bytes:
        """What masks are bound to: the items that were agreed on."""
        catalogue = store.pinned_catalogue
        agreed = None if catalogue is None else catalogue.named(self.terms.catalogue)
        if agreed is None:
            raise SecureSumError("refused: the items that were agreed on are not here any more")
        return bound_to(agreed.items)

    def _join(self, store: DeviceStore, plan: SumPlan) -> SecureSumClient:
        if self.numbers is None:
            raise SecureSumError(
                "refused: the numbers of this job are in a sum already; two sums would tell them apart"
            )
        self._plans += 1
        if self._plans > _MAX_PLANS:
            raise SecureSumError("refused: too many plans for one job; each would draw anew who holds shares")
        pinned = store.roster
        if pinned is None:
            raise SecureSumError("no roster is pinned here, so that nobody could be told from an impostor")
        places = read_bitmap(plan.participants)
        if self.terms.cohort is not None:
            chosen = pinned.asked(self.terms)
            if any(pinned.roster.keys[place].hex() not in chosen for place in places if place < len(pinned)):
                raise SecureSumError("refused: the plan has devices that are not in the cohort that the beacon chooses")
        if len(places) and int(places[-1]) < len(pinned):
            # Whoever survives, there are so many devices; these could be the smallest.
            credit = np.sort(np.minimum(np.array(pinned.users)[places], self.terms.credit))
            if int(credit[: plan.minimum].sum()) < self.terms.minimum:
                raise SecureSumError(
                    f"refused: {plan.minimum} devices may count for fewer than the {self.terms.minimum} users that "
                    "were agreed on"
                )
        about = self._about(store)
        words = self.layout(plan.n_participants).encode(self.numbers)
        policy = store.policy.sum_policy()
        return SecureSumClient(store.identity, pinned.roster, words, policy, about)
