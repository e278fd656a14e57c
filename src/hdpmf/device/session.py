"""What the two kinds of run have in common on a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hdpmf.device.declined import DeclinedError
from hdpmf.device.ledger import Action, Entry
from hdpmf.device.local_model import LocalModel
from hdpmf.device.paying import entry_of
from hdpmf.device.run_state import RunState, kept
from hdpmf.device.store import DeviceStore
from hdpmf.device.summing import SumOfJob
from hdpmf.errors import ProtocolError
from hdpmf.methods import Status, method_named
from hdpmf.privacy.sampling import Noise
from hdpmf.protocol import Message, Ready, Terms
from hdpmf.protocol.layout import SumLayout
from hdpmf.shard.outgoing import compose
from hdpmf.threads import Workers


@dataclass(frozen=True, slots=True)
class Setup:
    """What an agent gives its sessions.

    Attributes:
        store: The device's store.
        simulation: Seeded noise is allowed; nothing leaves this process.
        seed: Of the first user vectors; None draws one for each run.
        recommender: With whom, for the ledger.
    """

    store: DeviceStore
    noise: Noise
    simulation: bool
    seed: int | None
    workers: Workers
    recommender: str

    def __repr__(self) -> str:
        return "Setup(...)"


@dataclass(frozen=True, slots=True, repr=False)
class Outcome:
    """What follows from a message: written down in one commit, then sent.

    Attributes:
        entry: For the ledger.
        pays: Positions of the ratings that pay for it, and what each pays.
        model: A finished run's model, to be kept.
    """

    message: Message
    entry: Entry | None = None
    pays: tuple[np.ndarray, np.ndarray] | None = None
    model: LocalModel | None = None


class Session(ABC):
    """A run under way on this device, in memory; the store has all that a restart needs.

    Attributes:
        state: What the store keeps of it.
        sum: The secure sum of the job under way, where there is one.
        saved: The state as it is in the store.
        touched: Something has changed that is not in the store yet.
    """

    def __init__(self, setup: Setup, run: bytes, state: RunState, saved: bytes | None = None) -> None:
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
    def revive(self, number: int) -> None:
        """After a restart: make a job's numbers ready again, where that can be, for a sum that they were not in."""

    @abstractmethod
    def layout(self, number: int) -> Callable[[int], SumLayout]:
        """The words of a job in a secure sum, by the number of participants."""

    def wait_for_sum(self, number: int, numbers: np.ndarray) -> Ready:
        """Keep a job's numbers for a secure sum: what is under no mask never leaves."""
        self.sum = SumOfJob(number, numbers, self.layout(number), self.agreed())
        return compose(Ready, number=number)

    def resume_sum(self, data: bytes) -> None:
        """Go on with a secure sum that was suspended."""
        self.sum = SumOfJob.resume(data, self.layout, self.agreed(), self._store)

    def unsent(self) -> float:
        """The part of what the run was to cost that never left, now that it is over here."""
        terms = self._terms
        return 1.0 if terms is not None and terms.view == "sums" and self.state.summed < 0 else 0.0

    def summed(self, number: int) -> Entry:
        """Note that the numbers of a job are in a sum, which they are once."""
        self.state.summed = number
        self.touched = True
        return self.entry("sent", number, f"masked numbers of job {number}, of which only a sum over devices is seen")

    def save(self) -> None:
        """Put the state into the store, inside the transaction of what it belongs to.

        Raises:
            DeclinedError: Somebody else has gone on with this run, so that what is known here is out of date.
        """
        if self._store.runs.load(self.run) != self.saved:
            self.touched = True
            raise DeclinedError("busy", "another process has answered in this run")
        self.saved = self.state.encode()
        self._store.runs.save(self.run, self.saved)

    def agreed(self) -> Terms:
        """The terms; without them nothing is sent."""
        if self._terms is None:
            raise ProtocolError("no terms were agreed on in this run, so that nothing is sent in it")
        return self._terms

    def entry(self, action: Action, number: int, words: str) -> Entry:
        """An entry of the ledger about this run."""
        return entry_of(
            self.agreed(),
            self.standing(),
            action,
            words,
            recommender=self._setup.recommender,
            run=self.run,
            number=number,
            factors=self.factors(),
        )

    def standing(self) -> Status:
        """What the epsilon of this run is worth."""
        terms = self.agreed()
        return method_named(terms.method).claim(terms.view, labels=terms.labels).status

    def factors(self) -> int:
        """Length of the vectors that gradients are of; 1 where there are none."""
        return 1
