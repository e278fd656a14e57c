"""The tasks of ``hdp-pairs``: documents that the recommender publishes and everybody reads.

A run is two tasks, one after the other: sums of rows over all items (``Linear``: popularity and,
where there are stars, values), and then sums of pairs over the heads that the first one's release
picks (``Pairs``). Each says by whole numbers what is sent, what noise is added and who is asked.

A task's id is the digest of its bytes. It is in the context of every proof and share, so that a
report counts only if both servers have taken part in exactly this document. A task is submitted to
a server by ``PUT /tasks/{task_id}``, which DAP leaves to the parties.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import isqrt
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
from msgspec import Meta

from hdpmf.common.protocol.documents import (
    RUN_SIZE,
    Document,
    Text,
    Whole,
    from_base64,
    labelled_digest,
    read_document,
)
from hdpmf.common.protocol.servers import Collector, Servers

if TYPE_CHECKING:
    from hdpmf.common.aggregation.two_servers.dap.messages import TaskConfiguration
    from hdpmf.common.aggregation.two_servers.prio import Prio3

MAX_PERIOD = 400 * 86_400
"""Seconds: a task ends within a year or so."""

MAX_ITEMS = 1 << 20
MAX_HEADS = 2_000

MAX_ENTRIES = 1 << 22
"""Numbers in a sum."""

EVERYBODY = 1 << 16
"""The share of people who are asked is counted in parts of this."""

MAX_DEVIATION = 1 << 49
"""Of noise: servers draw deviations to twice this exactly."""

MAX_WEIGHT = 1 << 10
"""Of a head."""


class _Sums(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What both kinds of sums state of a row.

    Attributes:
        bits: Of a number, without its sign.
        bound: Largest squared length of a row.
        cap: One rating is at most one part in so many of a row's squared length.
    """

    bits: Annotated[int, Meta(ge=1, le=24)]
    bound: Annotated[int, Meta(ge=1, le=1 << 40)]
    cap: Annotated[int, Meta(ge=1, le=1 << 20)]

    @property
    def largest(self) -> int:
        """The largest number in a row, by the cap."""
        return isqrt(self.bound // self.cap)


Deviation = Annotated[int, Meta(ge=1, le=MAX_DEVIATION)]


class Linear(_Sums, frozen=True, tag="linear"):
    """Sums of rows over all items: who rated an item and, where there are stars, how.

    A person sends a row of presence (numbers from 0) and, with stars, a row of values (numbers of
    either sign) after it. The latter has one number more than there are items: the own mean.

    Attributes:
        presence: Deviation of each server's noise on every number of the row of presence.
        values: The same for values; 0: there is no such row.
    """

    items: Annotated[int, Meta(ge=1, le=MAX_ITEMS)]
    presence: Deviation
    values: Annotated[int, Meta(ge=0, le=MAX_DEVIATION)]

    @property
    def entries(self) -> int:
        """Numbers in the sum."""
        return self.items + (self.items + 1 if self.values else 0)

    @property
    def noise(self) -> np.ndarray:
        """Deviation of each server's noise on every number."""
        return np.repeat([self.presence, self.values], [self.items, self.entries - self.items])

    @property
    def rho(self) -> Fraction:
        """What a person pays: history against none, in zero-concentrated privacy."""
        rows = [deviation for deviation in (self.presence, self.values) if deviation]
        return sum((Fraction(self.bound, 2 * row**2) for row in rows), Fraction(0))


class Pairs(_Sums, frozen=True, tag="pairs"):
    """Sums of products of rows over heads: who rates what together with what.

    A person sends ``a_j a_k`` for all heads ``j <= k``, of a row ``a`` of numbers from 0: the upper
    triangle row by row, and each row from its diagonal.

    Attributes:
        heads: Positions of items in the catalogue, ascending.
        weights: How much a rating of each head counts in everybody's row.
        deviation: Of each server's noise off the diagonal.
    """

    heads: Annotated[
        tuple[Annotated[int, Meta(ge=0, lt=MAX_ITEMS)], ...],
        Meta(min_length=2, max_length=MAX_HEADS),
    ]
    weights: tuple[Annotated[int, Meta(ge=1, le=MAX_WEIGHT)], ...]
    deviation: Deviation

    @property
    def entries(self) -> int:
        """Numbers in the sum."""
        return len(self.heads) * (len(self.heads) + 1) // 2

    @property
    def diagonal(self) -> int:
        """Deviation on the diagonal: the smallest whole number with at least twice the variance."""
        return isqrt(2 * self.deviation**2 - 1) + 1

    @property
    def noise(self) -> np.ndarray:
        """Deviation of each server's noise on every number."""
        rows, columns = np.triu_indices(len(self.heads))
        return np.where(rows == columns, self.diagonal, self.deviation)

    @property
    def rho(self) -> Fraction:
        """What a person pays: history against none, in zero-concentrated privacy."""
        return Fraction(self.bound**2, 4 * self.deviation**2)


class Task(Document, frozen=True, tag="task"):
    """A task.

    Attributes:
        collector: Recipient of the sum.
        sums: What is summed, and with what noise. Each server adds all of it.
        catalogue: Fingerprint of the items that positions are of.
        run: Id of the run that it is a part of, the same for both of its tasks.
        asked: The share of people who report, in parts of ``EVERYBODY`` (``is_asked``).
        begin: Unix time from which reports are taken.
        end: Unix time at which that ends.
        precision: Seconds to which the times of reports are rounded; divides ``begin`` and ``end``.
        minimum: Fewest reports that a sum is over. It makes the sum useful and protects nobody:
            assume that all other reports are the recommender's own.
        token_key: The collector's public key for tokens of this task: whoever has one reports once.
            It is in the document, so that the id fixes it: who was shown another key has another
            task. Empty where the task is for everybody, in simulations.
    """

    servers: Servers
    collector: Collector
    sums: Linear | Pairs
    catalogue: Text
    run: Text
    asked: Annotated[int, Meta(ge=1, le=EVERYBODY)]
    begin: Whole
    end: Whole
    precision: Whole
    minimum: Annotated[int, Meta(ge=2, lt=1 << 40)]
    token_key: Text = ""

    def _check(self) -> None:
        self._require(1 <= self.precision <= MAX_PERIOD, "precision must be seconds, 1 or more")
        times = (0 < self.begin < self.end < 1 << 40) and self.end - self.begin <= MAX_PERIOD
        self._require(times, "it must begin before it ends, within 400 days")
        whole = self.begin % self.precision == 0 and self.end % self.precision == 0
        self._require(whole, "begin and end must be multiples of precision")
        self._require(bool(self.catalogue), "catalogue must be a fingerprint")
        from_base64(self.run, RUN_SIZE)
        self._require(self.sums.entries <= MAX_ENTRIES, "a sum has too many entries")
        fits = self.sums.largest < 1 << self.sums.bits
        self._require(fits, "the cap must keep numbers within their bits")
        if isinstance(self.sums, Pairs):
            heads = self.sums.heads
            ascending = all(first < second for first, second in pairwise(heads))
            self._require(ascending, "heads must be positions, ascending")
            self._require(
                len(self.sums.weights) == len(heads), "there must be a weight for every head"
            )
        if self.token_key:
            from hdpmf.common.aggregation.two_servers.tokens import TokenKey

            TokenKey(from_base64(self.token_key))


def task_id(document: bytes) -> bytes:
    """The id of a task: 32 bytes, the digest of its encoding as it was published."""
    return labelled_digest("task", document)


def read_task(document: bytes) -> Task:
    """Return the task in a document; ProtocolError if it is none."""
    return read_document(Task, document, "a task")


def prio_of(task: Task, task_id: bytes) -> Prio3:
    """The cryptography of a task."""
    from hdpmf.common.aggregation.two_servers.dap.messages import VERSION
    from hdpmf.common.aggregation.two_servers.prio import prio3_bounded_vector, prio3_rank_one

    sums, context = task.sums, VERSION + task_id
    largest = (1 << sums.bits) - 1
    if isinstance(sums, Pairs):
        return prio3_rank_one(len(sums.heads), largest, sums.bound, context)
    bound = sums.bound * (2 if sums.values else 1)
    return prio3_bounded_vector(sums.entries, largest, bound, bool(sums.values), context)


def configuration_of(task: Task, task_id: bytes) -> TaskConfiguration:
    """Return what DAP calls a task's configuration; by the id it is of the whole document."""
    from hdpmf.common.aggregation.two_servers.dap.messages import Interval, TaskConfiguration

    prio = prio_of(task, task_id)
    return TaskConfiguration(
        task_info=task_id,
        leader_aggregator_endpoint=task.servers.leader.url.encode(),
        helper_aggregator_endpoint=task.servers.helper.url.encode(),
        time_precision=task.precision,
        min_batch_size=task.minimum,
        vdaf_type=prio.identifier,
        vdaf_configuration=prio.parameters,
        task_interval=Interval(task.begin, task.end - task.begin).in_steps(task.precision),
    )


TASK_MEDIA_TYPE = "application/hdpmf-task"
TASK_PATH = "/tasks/{task_id}"

DEVICE_HEADER, SIGNATURE_HEADER = "hdpmf-device", "hdpmf-signature"
"""Of a request for a token."""


def token_challenge(task: Task, task_id: bytes) -> bytes:
    """Return the digest that binds a token to a task, and by its id to everything in it."""
    from hdpmf.common.aggregation.two_servers.tokens import challenge_digest

    return challenge_digest(task.collector.identity, task_id, task.servers.leader.identity)


def signed_token_request(task_id: bytes, digest: bytes) -> bytes:
    """Return the bytes that a device signs for a token: the task and its request's SHA-256."""
    return labelled_digest("token request", task_id + digest)


def is_asked(task: Task, task_id: bytes, secret: bytes) -> bool:
    """Return True if a participant with this secret is asked to report.

    The secret is the participant's own, of 32 random bytes, and nobody else knows it: the
    recommender can choose how many are asked, and not who. It depends on no rating.
    """
    drawn = labelled_digest("asked", task_id + secret)
    return int.from_bytes(drawn[:2], "big") < task.asked
