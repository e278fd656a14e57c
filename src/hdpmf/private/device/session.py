"""Runs under way on a device: what both kinds have in common, and a device's part in secure sums.

For every plan of a secure sum a device draws the holders of its mask shares. A recommender could
abort after an unfavourable draw and ask again, at no cost. So a plan is counted when the draw
leaves the device, and no longer when the masked vector follows. The count does not depend on
ratings. With a limit of L per calendar day there are at most 366 L such plans in a year. If one
draw is unfavourable with probability at most r (2^-40), any of them is with at most 366 L r.
"""

from __future__ import annotations

import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from hdpmf.common.aggregation.masks import SecureSumClient, decode_to_device
from hdpmf.common.aggregation.masks.messages import Advertisement, MaskedVector, SumPlan
from hdpmf.common.aggregation.masks.roster import read_bitmap
from hdpmf.common.base.threads import Workers
from hdpmf.common.data import Ratings
from hdpmf.common.methods import Status, method_named
from hdpmf.common.privacy.sampling import Noise
from hdpmf.common.protocol import Message, Ready, Terms
from hdpmf.common.protocol.catalogue import bound_to
from hdpmf.common.protocol.layout import SumLayout
from hdpmf.errors import ProtocolError, SecureSumError
from hdpmf.private.client.outgoing import compose, masked
from hdpmf.private.device.budget import entry_of
from hdpmf.private.device.disclosures.journal import Action, Entry
from hdpmf.private.device.disclosures.limits import Taken
from hdpmf.private.device.disclosures.refusals import RefusalBook
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.model_update import PublishedModel
from hdpmf.private.device.recommender_state import RunState, kept
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import LocalModel, PlanCount

DAY = 86_400.0


class Plans:
    """A recommender's plans of today that led to no masked vector, counted in the store.

    ``forget`` keeps the count.

    Args:
        recommender: Whose plans; others have counts of their own.
        clock: What time it is (Unix).
    """

    def __init__(
        self, store: DeviceStore, recommender: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._recommender = recommender
        self._clock = clock

    @property
    def open(self) -> int:
        """Plans of this day without a masked vector."""
        return self._today().plans

    def draw(self) -> None:
        """Count one more. It is on the disk when this ends; only then may the draw leave.

        Raises:
            SecureSumError: There were as many today as the policy allows.
        """
        with self._store.transaction():
            most = self._store.policy.max_plans_per_day
            today = self._today()
            if today.plans >= most:
                raise SecureSumError(
                    f"refused: {today.plans} plans of secure sums came to nothing within a day, "
                    "and each drew anew who "
                    f"holds shares (max_plans_per_day = {most} in the policy); wait a day"
                )
            self._write(today.begun, today.plans + 1)

    def sent(self) -> None:
        """One led to a masked vector; inside the transaction that writes down that it leaves."""
        with self._store.transaction():
            today = self._today()
            # If its day is over, this takes one off today's: draws less vectors stay below the
            # limit times the days.
            self._write(today.begun, max(today.plans - 1, 0))

    def _today(self) -> PlanCount:
        now = self._clock()
        last = self._store.tables.plan_counts.find(self._recommender)
        if last is None or now >= last.begun + DAY:
            return PlanCount(recommender=self._recommender, begun=now, plans=0)
        # Where the clock was put back the day begins again, and its plans stay.
        return msgspec.structs.replace(last, begun=min(last.begun, now))

    def _write(self, begun: float, plans: int) -> None:
        count = PlanCount(recommender=self._recommender, begun=begun, plans=plans)
        self._store.tables.plan_counts.put(count)


# a recommender that does not like what devices drew may break off and ask again, but not for ever
_MAX_PLANS = 32


class _Suspended(msgspec.Struct, frozen=True, array_like=True):
    number: int
    numbers: bytes | None
    client: bytes | None
    plans: int
    last: tuple[int, bytes] | None
    content: bytes


@dataclass(slots=True, repr=False)
class SumOfJob:
    """The numbers of a job, waiting for a sum or in one.

    A sum that breaks off before the masked vector may be tried again with new masks; after that the
    numbers are spent, because two sums over different devices would tell them apart.

    Attributes:
        numbers: What goes into the sum (int64); gone when it is in.
        layout: The words of the job, by the number of participants.
        terms: What was agreed on: how many users the sum must be over, and for how many a device
            counts.
        content: Of the ratings that the numbers are of (`Participation.content`).
    """

    number: int
    numbers: np.ndarray | None
    layout: Callable[[int], SumLayout]
    terms: Terms
    content: bytes
    _client: SecureSumClient | None = None
    _plans: int = 0
    _last: tuple[int, bytes] | None = None

    def answer(
        self, store: DeviceStore, body: bytes, plans: Plans, vector_leaves: Callable[[bytes], None]
    ) -> bytes:
        """Return the body of the reply to a message of a secure sum.

        The last message, sent again, gets the same reply. What was drawn for a plan leaves only
        when ``plans`` has counted it. ``vector_leaves`` is called with the masked vector before it
        is returned; what it writes is on the disk by then.
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
        # A copy, because the encoder's own bytes keep the half of their length that it had in
        # reserve.
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
        return msgspec.msgpack.encode(
            _Suspended(self.number, numbers, client, self._plans, self._last, self.content)
        )

    @classmethod
    def resume(
        cls,
        data: bytes,
        layout: Callable[[int], Callable[[int], SumLayout]],
        terms: Terms,
        store: DeviceStore,
    ) -> SumOfJob:
        """Return what `suspend` gave the bytes of; ``layout`` is by job."""
        state = msgspec.msgpack.decode(data, type=_Suspended)
        numbers = None if state.numbers is None else np.frombuffer(state.numbers, np.int64)
        words = layout(state.number)
        job = cls(state.number, numbers, words, terms, state.content, None, state.plans, state.last)
        pinned = store.roster
        if state.client is not None and pinned is not None:
            job._client = SecureSumClient.resume(
                state.client,
                store.identity,
                pinned.roster,
                store.policy.sum_policy(),
                job._about(store),
            )
        return job

    def _about(self, store: DeviceStore) -> bytes:
        """Return what masks are bound to: the items that were agreed on."""
        catalogue = store.pinned_catalogue
        agreed = None if catalogue is None else catalogue.named(self.terms.catalogue)
        if agreed is None:
            raise SecureSumError("refused: the items that were agreed on are not here any more")
        return bound_to(agreed.items)

    def _join(self, store: DeviceStore, plan: SumPlan) -> SecureSumClient:
        if self.numbers is None:
            raise SecureSumError(
                "refused: the numbers of this job are in a sum already; two sums would tell "
                "them apart"
            )
        self._plans += 1
        if self._plans > _MAX_PLANS:
            raise SecureSumError(
                "refused: too many plans for one job; each would draw new holders of shares"
            )
        pinned = store.roster
        if pinned is None:
            raise SecureSumError(
                "no roster is pinned here, so that nobody could be told from an impostor"
            )
        positions = read_bitmap(plan.participants)
        if self.terms.cohort is not None:
            chosen = pinned.asked(self.terms)
            if any(
                pinned.roster.keys[position].hex() not in chosen
                for position in positions
                if position < len(pinned)
            ):
                raise SecureSumError(
                    "refused: the plan has devices that are not in the cohort that the beacon "
                    "chooses"
                )
        if len(positions) and int(positions[-1]) < len(pinned):
            # At least ``plan.minimum`` devices survive; these could be the smallest.
            credit = np.sort(np.minimum(np.array(pinned.users)[positions], self.terms.credit))
            if int(credit[: plan.minimum].sum()) < self.terms.minimum:
                raise SecureSumError(
                    f"refused: {plan.minimum} devices may count for fewer than the "
                    f"{self.terms.minimum} users that were agreed on"
                )
        about = self._about(store)
        words = self.layout(plan.n_participants).encode(self.numbers)
        policy = store.policy.sum_policy()
        return SecureSumClient(store.identity, pinned.roster, words, policy, about)


@dataclass(frozen=True, slots=True)
class Setup:
    """The setup that a participant gives to its parts.

    Attributes:
        recommender: Whose offers are answered, for the ledger.
        noise: Where noise comes from; only ``ReleasedNoise`` where anything leaves this process.
        simulation: Seeded noise is allowed; nothing leaves this process.
        seed: Of the first user vectors; None draws one for each run.
        refusals: Keeps what was refused, for the owner.
        log: Called with lines for the owner. They hold no rating.
        clock: What time it is (Unix).
        uniform: A random number from 0 to 1, which moments and waits are drawn by.
    """

    store: DeviceStore
    recommender: str
    noise: Noise
    simulation: bool
    seed: int | None
    workers: Workers
    refusals: RefusalBook
    log: Callable[[str], None]
    clock: Callable[[], float]
    uniform: Callable[[], float]

    def __repr__(self) -> str:
        return "Setup(...)"


@dataclass(frozen=True, slots=True, repr=False)
class Outcome:
    """The outcome of a message: written down in one commit, then sent.

    Attributes:
        pays: The ratings that pay for it, and what each pays.
        table: The ratings that it was made of, as they must be when it is written down.
    """

    message: Message
    entry: Entry | None = None
    pays: Taken | None = None
    table: Ratings | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Ended:
    """A run that has ended with a model.

    Attributes:
        entry: For the ledger, where ratings took part.
    """

    model: LocalModel
    entry: Entry | None


class Session(ABC):
    """A run under way on this device, in memory; the store has all that a restart needs.

    Attributes:
        state: What the store keeps of it.
        sum: The secure sum of the job under way, where there is one.
        saved: The state as it is in the store.
        touched: Something has changed that is not in the store yet.
    """

    def __init__(
        self, setup: Setup, run: bytes, state: RunState, saved: bytes | None = None
    ) -> None:
        self.run = run
        self.state = state
        self.saved = saved
        self.sum: SumOfJob | None = None
        self.touched = False
        self._setup = setup
        self._store = setup.store
        self._terms = kept(state.terms, Terms)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.run.hex()[:8]}, {self.state!r})"

    @abstractmethod
    def take(self, message: Message, body: bytes) -> Outcome:
        """The answer to a message of this run (``body``: its bytes)."""

    @abstractmethod
    def finish(self, published: PublishedModel) -> Ended:
        """End the run with the model that was published of it."""

    @abstractmethod
    def revive(self, number: int) -> None:
        """Make a job's numbers ready again after a restart, for a sum that they were not in.

        Not every job's numbers can be made again; then nothing happens.
        """

    @abstractmethod
    def layout(self, number: int) -> Callable[[int], SumLayout]:
        """The words of a job in a secure sum, by the number of participants."""

    @abstractmethod
    def content(self) -> bytes:
        """The digest of the ratings that would be sent now (`Participation.content`)."""

    @abstractmethod
    def choose_anew(self) -> None:
        """Hold other ratings in place of those whose numbers were thrown away, where possible."""

    def wait_for_sum(self, number: int, numbers: np.ndarray, content: bytes) -> Ready:
        """Keep a job's numbers for a secure sum: what is under no mask never leaves."""
        self.sum = SumOfJob(number, numbers, self.layout(number), self.agreed(), content)
        return compose(Ready, number=number)

    def resume_sum(self, data: bytes) -> None:
        """Go on with a secure sum that was suspended."""
        self.sum = SumOfJob.resume(data, self.layout, self.agreed(), self._store)

    def unsent(self) -> float:
        """Return the part of a finished run's cost that never left, from 0 to 1."""
        terms = self._terms
        return 1.0 if terms is not None and terms.view == "sums" and self.state.summed < 0 else 0.0

    def let_go(self) -> float:
        """Return the part of the cost that ratings will not cause which take part no more.

        It is told once: whoever asks gives it back.
        """
        return 0.0

    def summed(self, number: int) -> Entry:
        """Note that the numbers of a job are in a sum, which they are once."""
        self.state.summed = number
        self.touched = True
        return self.entry(
            "sent",
            number,
            f"masked numbers of job {number}, of which only a sum over devices is seen",
        )

    def save(self) -> None:
        """Put the state into the store, inside the transaction of what it belongs to.

        Raises:
            DeclinedError: Another process has changed this run, so the state here is out of date.
        """
        if self._store.runs.load(self.run) != self.saved:
            self.touched = True
            raise DeclinedError("busy", "another process has answered in this run")
        self.saved = self.state.encode()
        self._store.runs.save(self.run, self.saved)

    def agreed(self) -> Terms:
        """The terms; without them nothing is sent."""
        if self._terms is None:
            raise ProtocolError(
                "no terms were agreed on in this run, so that nothing is sent in it"
            )
        return self._terms

    def entry(self, action: Action, number: int, words: str) -> Entry:
        """An entry of the ledger about this run."""
        return entry_of(
            self.agreed(),
            self.claim_status(),
            action,
            words,
            recommender=self._setup.recommender,
            run=self.run,
            number=number,
            factors=self.factors(),
        )

    def claim_status(self) -> Status:
        """Return the status of this run's epsilon."""
        terms = self.agreed()
        return method_named(terms.method).claim(terms.view, labels=terms.labels).status

    def factors(self) -> int:
        """Length of the vectors that gradients are of; 1 where there are none."""
        return 1
