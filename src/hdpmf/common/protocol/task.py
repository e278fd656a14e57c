"""The task of two servers: a document that the recommender publishes and everybody reads.

Its id is the digest of its bytes, so that the id fixes the survey, the servers' keys, the circuit
and the noise. Circuit and noise follow from the survey, so that devices can compare; servers need
not know what a survey is. A task is submitted to a server by ``PUT /tasks/{task_id}``, which DAP
leaves to the parties.
"""

from __future__ import annotations

from fractions import Fraction
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from hdpmf.common.aggregation.two_servers.tokens import TokenKey, challenge_digest
from hdpmf.common.protocol.messages import MAX_ITEMS, Survey, _Message
from hdpmf.common.protocol.servers import Collector, Servers
from hdpmf.errors import ProtocolError

if TYPE_CHECKING:
    from hdpmf.common.aggregation.two_servers.prio import Prio3


MOST_LEVELS = 16
"""Of a rating scale: the circuit compares a rating with each."""

MAX_PERIOD = 400 * 86_400
"""Seconds: a task ends within a year or so."""

MAX_ENTRIES = 1 << 22
"""Numbers in a sum."""


class OneRating(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="one-rating", kw_only=True
):
    """Our circuit: at most one rating per item (``two_servers.prio.one_rating``).

    Attributes:
        codes: Value of each level of the scale in scores.
        rulers: The same for the total.
    """

    items: int
    codes: tuple[int, ...]
    rulers: tuple[int, ...]

    @property
    def entries(self) -> int:
        """Numbers in the sum: scores, weights, total."""
        return 2 * self.items + 1


class SumOfVectors(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="sum-vec", kw_only=True
):
    """Prio3SumVecWithMultiproof of the draft, for clients that are not ours: three proofs.

    Attributes:
        bits: Of each number.
        chunk: Numbers that a gadget takes at a time.
    """

    entries: int
    bits: int
    chunk: int


class Noise(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Discrete Laplace noise that each server adds to so many entries.

    Attributes:
        scale: A fraction, ``"512/1"``; ``"0/1"`` for entries that are always zero.
    """

    entries: int
    scale: str

    @property
    def fraction(self) -> Fraction:
        """The scale as a number."""
        try:
            if len(self.scale) > 200:
                raise ValueError
            return Fraction(self.scale)
        except (ValueError, ZeroDivisionError):
            raise ProtocolError(
                "Task refused: a scale of noise must be a short fraction like 512/1"
            ) from None


class Task(_Message, frozen=True):
    """A task.

    Attributes:
        collector: Recipient of the sums.
        noise: The whole noise, which each server adds as if there were no other.
        begin: Unix time from which reports are taken.
        end: Unix time at which that ends.
        precision: Seconds to which the times of reports are rounded; divides ``begin`` and ``end``.
        minimum: Fewest reports that a sum is over. It makes the sum useful and protects nobody:
            assume that all other reports are the recommender's own.
        token_key: The collector's public key for tokens of this task: whoever has one reports once.
            It is in the document, so that the id fixes it: who was shown another key has another
            task. Empty in tasks for everybody.
        survey: The question to devices; None for a task of others.
    """

    servers: Servers
    collector: Collector
    circuit: OneRating | SumOfVectors
    noise: tuple[Noise, ...]
    begin: int
    end: int
    precision: int
    minimum: int
    survey: Survey | None = None
    token_key: bytes = b""

    def _check(self) -> None:
        self._require(1 <= self.precision <= MAX_PERIOD, "precision must be seconds, 1 or more")
        times = (0 < self.begin < self.end < 1 << 40) and self.end - self.begin <= MAX_PERIOD
        self._require(times, "it must begin before it ends, within 400 days")
        whole = self.begin % self.precision == 0 and self.end % self.precision == 0
        self._require(whole, "begin and end must be multiples of precision")
        self._require(2 <= self.minimum < 1 << 40, "minimum must be 2 or more")
        self._check_circuit()
        entries = [part.entries for part in self.noise]
        self._require(
            all(count >= 1 for count in entries) and sum(entries) == self.circuit.entries,
            "noise must be stated for every entry",
        )
        self._require(
            all(part.fraction >= 0 for part in self.noise), "a scale of noise must be 0 or more"
        )
        if self.token_key:
            TokenKey(self.token_key)

    def _check_circuit(self) -> None:
        circuit = self.circuit
        self._require(
            1 <= circuit.entries <= MAX_ENTRIES, f"a sum has 1 to {MAX_ENTRIES:,} entries"
        )
        if isinstance(circuit, SumOfVectors):
            self._require(
                1 <= circuit.bits <= 64 and 1 <= circuit.chunk <= circuit.entries * circuit.bits,
                "bits must be from 1 to 64, and a chunk no longer than a vector",
            )
            return
        self._require(1 <= circuit.items <= MAX_ITEMS, f"there are 1 to {MAX_ITEMS} items")
        same = 2 <= len(circuit.codes) == len(circuit.rulers) <= MOST_LEVELS
        self._require(same, f"a scale has 2 to {MOST_LEVELS} levels, each with a code and a ruler")
        small = all(abs(code) <= 1 << 20 for code in (*circuit.codes, *circuit.rulers))
        self._require(small, "codes and rulers must be small numbers")


def task_id(document: bytes) -> bytes:
    """The id of a task: 32 bytes, the digest of its encoding as it was published."""
    return sha256(b"hdpmf task " + document).digest()


_CONTEXT = b"hdpmf"
"""What is before a task's id in all randomness of its reports."""


def prio_of(task: Task, task_id: bytes) -> Prio3:
    """The cryptography of a task."""
    from hdpmf.common.aggregation.two_servers.prio import prio3_one_rating, prio3_sum_vec

    circuit, context = task.circuit, _CONTEXT + task_id
    if isinstance(circuit, SumOfVectors):
        return prio3_sum_vec(circuit.entries, (1 << circuit.bits) - 1, circuit.chunk, context)
    return prio3_one_rating(circuit.items, circuit.codes, circuit.rulers, context)


TASK_MEDIA_TYPE = "application/hdpmf-task"
TASK_PATH = "/tasks/{task_id}"

DEVICE_HEADER, SIGNATURE_HEADER = "hdpmf-device", "hdpmf-signature"
"""Of a request for a token."""


def token_challenge(task: Task, task_id: bytes) -> bytes:
    """Return the digest that binds a token to a task, and by its id to everything in it."""
    return challenge_digest(task.collector.identity, task_id, task.servers.leader.identity)


def signed_token_request(task_id: bytes, digest: bytes) -> bytes:
    """Return the bytes that a device signs for a token: the task and its request's SHA-256."""
    return b"hdpmf token " + task_id + digest
