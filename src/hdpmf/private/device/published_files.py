"""Files that a recommender publishes for devices: an index, files by digest, tasks for servers.

None of it is trusted: everything is checked before the device agrees to anything.

A recommender says how large its files are and whether they changed; one that lies could have a
device load the same rubbish at every look. So a file that was refused is not loaded again for the
same digest, one that did not come is tried again later and later, and all files of a recommender
have a budget of bytes per day (`Downloads`). What counts is in the store: a restart starts nothing
anew.

Requests are the same for every device: a plain GET of a name that the index gave. Nothing that an
answer said goes into a later request (no ETag, no cookie), which would tell devices apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

import msgspec

from hdpmf.common.protocol import Survey, decode
from hdpmf.common.protocol.servers import Server, Servers
from hdpmf.common.protocol.survey_task import check_survey_task
from hdpmf.common.protocol.task import Task, task_id
from hdpmf.errors import PrivacyError, ProtocolError, TooLongError, TransportError
from hdpmf.private.device.budget import check_policy
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.pinned_servers import pinned_servers
from hdpmf.private.device.policy import Terms
from hdpmf.private.device.recommendations import facts_digest
from hdpmf.private.device.recommender_state import DAY, RecommenderStates, Setup
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import Downloaded, Question

INDEX = "index.json"

MOST_INDEX = 16 * 1024
"""Bytes of an index."""

_FREE, _PER_ITEM = 1 << 21, 4096

MOST_CATALOGUE = 64 << 20
"""Bytes of an item table, which says itself how many items there are."""


class Carrier(Protocol):
    """The connection to the recommender's files and to the leader. Whoever answers may be lying."""

    def fetch(self, name: str, most: int) -> bytes:
        """A file of the recommender.

        Raises:
            TransportError: It is not there, cannot be reached, or took too long.
            TooLongError: It is longer than ``most``.
        """

    def upload(
        self,
        leader: Server,
        path: str,
        headers: dict[str, str],
        body: bytes,
        leaving: Callable[[], None],
    ) -> int:
        """Put a report to the leader; the status of its answer.

        ``leaving`` is called when the connection is open, before anything of the request is given
        to it, also its headers.

        Raises:
            TransportError: It cannot be reached, or did not answer.
        """

    def request_token(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Post a request for a token to the recommender; the status and the body of its answer.

        Raises:
            TransportError: It cannot be reached, or did not answer.
        """


class PublicFile(msgspec.Struct, frozen=True):
    """A file that the index names.

    Attributes:
        sha256: Of what is in it.
        run: Of a model: the run that it came from.
    """

    sha256: str
    run: str = ""

    def __post_init__(self) -> None:
        if not (_is_hex(self.sha256, 64) and (not self.run or _is_hex(self.run, len(self.run)))):
            raise ValueError("malformed digest or run id")
        if len(self.run) > 64 or len(self.run) % 2:
            raise ValueError("a run is a whole number of bytes, at most 32")


class PublicTask(msgspec.Struct, frozen=True):
    """The task that the index names, by its id in hexadecimal."""

    id: str

    def __post_init__(self) -> None:
        if not _is_hex(self.id, 64):
            raise ValueError("malformed task id")


class PublicIndex(msgspec.Struct, frozen=True):
    """The index of the files that are published now.

    Attributes:
        catalogue: The item table.
        task: What two servers are asked to sum.
        model: Item facts.
        keys: The lists of the two servers' keys, each signed by its server.
    """

    catalogue: PublicFile
    task: PublicTask | None = None
    model: PublicFile | None = None
    keys: PublicFile | None = None


def read_index(data: bytes) -> PublicIndex:
    """An index; ProtocolError if it is none."""
    try:
        return msgspec.json.decode(data, type=PublicIndex)
    except (msgspec.MsgspecError, ValueError):
        raise ProtocolError(
            "refused: the index that the recommender publishes is malformed"
        ) from None


def most_bytes(n_items: int) -> int:
    """Return the most bytes of a task or facts about ``n_items`` items."""
    return _FREE + _PER_ITEM * n_items


def _is_hex(text: str, length: int) -> bool:
    return len(text) == length and set(text) <= set("0123456789abcdef")


FARTHEST = 92 * 86_400
"""Seconds: a task that ends later than this from now is not agreed to, so that no promise binds
a device for long.
"""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """A task whose circuit and noise are those that its survey asks for.

    Attributes:
        id: Digest of the task as it was published.
        terms: What a run by it asks for, by this device's own reading.
    """

    id: bytes
    task: Task
    survey: Survey
    terms: Terms

    def question(self, recommender: str) -> Question:
        """Return what the owner is asked when this recommender publishes it."""
        servers = self.task.servers
        return Question(
            recommender=recommender,
            terms=self.terms,
            servers=servers.digest,
            names=servers.names,
            survey=self.survey,
            until=self.task.end,
        )


def read_task(document: bytes) -> ReadTask:
    """Return the task in a document; ProtocolError unless it is one and fits its survey."""
    task = decode(document)
    if not isinstance(task, Task):
        raise ProtocolError(f"refused: a {type(task).__name__} is no task")
    survey = check_survey_task(task)
    terms = Terms(epsilon=survey.epsilon, catalogue=survey.catalogue, minimum=task.minimum)
    return ReadTask(task_id(document), task, survey, terms)


def check_task(store: DeviceStore, read: ReadTask) -> None:
    """Refuse a task that the policy forbids, or for other servers, items or another scale.

    Ratings are not used here, so a refusal says nothing about them.

    Raises:
        DeclinedError: The policy, the pinned servers or the pinned catalogue do not allow it.
        ProtocolError: Its survey or scores do not fit the pinned catalogue.
    """
    task, survey = read.task, read.survey
    check_servers(store, task.servers)
    check_policy(store.policy, read.terms)
    catalogue = store.pinned_catalogue
    if catalogue is None or survey.catalogue != catalogue.known.fingerprint:
        raise DeclinedError("catalogue", "the task is about another item table than the pinned one")
    scale, n_items = catalogue.known.scale, len(catalogue.positions)
    asked = (survey.n_items, survey.scale_low, survey.scale_high, survey.scale_step)
    if asked != (n_items, scale.low, scale.high, scale.step):
        raise ProtocolError(f"refused: the task is for other items, or another scale than {scale}")


def check_servers(store: DeviceStore, servers: Servers) -> None:
    """Refuse servers that the owner does not trust, or not as those of this recommender."""
    try:
        store.policy.check_servers(servers)
        if pinned_servers(store) not in (None, servers):
            raise PrivacyError(
                "the task is for other servers than those that are pinned of this recommender"
            )
    except PrivacyError as error:
        raise DeclinedError("policy", str(error)) from error


def check_period(store: DeviceStore, task: Task, now: float, until: int) -> None:
    """Refuse a task at the wrong time, or a second one for a time that another was agreed to for.

    Args:
        store: The device's store, for its policy.
        now: The time here.
        until: When the last task ends that this device agreed to with this recommender.
    """
    if task.end <= now:
        raise ProtocolError("refused: the time of the task is over")
    if task.end - now > FARTHEST:
        raise ProtocolError(f"refused: the task ends more than {FARTHEST // 86_400} days from now")
    if task.begin < until:
        raise ProtocolError(
            "refused: there is one task at a time; this device agreed to another one for that time"
        )
    try:
        store.policy.check_period(task.begin, task.end, now)
    except PrivacyError as error:
        raise DeclinedError("policy", str(error)) from error


def pinned_items(store: DeviceStore) -> int:
    """Return how many items the pinned catalogue has.

    Raises:
        ProtocolError: None is pinned.
    """
    catalogue = store.pinned_catalogue
    if catalogue is None:
        raise ProtocolError("refused: no item table is pinned here")
    return len(catalogue.positions)


BYTES_PER_DAY = 512 << 20
"""Bytes of files, at most, that a recommender may have a device load within a day. The facts
about a million items are less. The index is not counted: it has its own limit.
"""

REFUSED_FOR = 7 * DAY
"""Seconds that a refusal holds, since what it rests on may have changed unnoticed here."""

_MOST_REFUSED = 64
_MOST_FAILURES = 64
_FIRST_RETRY, _LONGEST_RETRY = 600.0, DAY / 4


class Downloads:
    """The files of one recommender.

    Args:
        setup: The participant's.
    """

    def __init__(self, setup: Setup, carrier: Carrier) -> None:
        self._setup = setup
        self._store = setup.store
        self._carrier = carrier
        self._book = RecommenderStates(setup.store, setup.recommender)
        self._failures: dict[str, tuple[int, float]] = {}  # by name: how often, and when next
        self._known = Downloaded() if setup.simulation else self._book.state().downloaded

    def index(self) -> PublicIndex:
        """Return what is published now."""
        return read_index(self._carrier.fetch(INDEX, MOST_INDEX))

    def fetch(self, kind: str, file: PublicFile, most: int) -> bytes:
        """Return a file of this kind, with the digest that the index says.

        Raises:
            TransportError: It could not be loaded, or is not tried now.
            DeclinedError: It is longer than it may be.
            ProtocolError: It is not what the index says.
        """
        try:
            data = self.fetch_named(f"{kind}-{file.sha256}.msgpack", most)
        except TooLongError as error:
            raise DeclinedError("policy", f"refused: the {kind} is too long: {error}") from error
        if sha256(data).hexdigest() != file.sha256:
            raise ProtocolError(
                f"refused: the {kind} is not what the index says (its SHA-256 differs)"
            )
        return data

    def fetch_named(self, name: str, most: int) -> bytes:
        """Return a file by its name, unchecked.

        Raises:
            TransportError: It could not be loaded, or is not tried now.
            TooLongError: It is longer than ``most``.
        """
        now = self._setup.clock()
        times, again = self._failures.get(name, (0, 0.0))
        if now < again <= now + _LONGEST_RETRY:  # or the clock was put back
            raise TransportError(f"{name} did not come {times} times; it is tried again later")
        left = BYTES_PER_DAY - self._today(now).size
        if left <= 0:
            raise self._spent(name)
        try:
            data = self._carrier.fetch(name, min(most, left))
        except TransportError as error:
            self._count(now, error.received)
            while len(self._failures) >= _MOST_FAILURES:
                self._failures.pop(next(iter(self._failures)))
            # The first time it may be the network: the next look tries again.
            wait = 0.0 if not times else min(_FIRST_RETRY * 2.0 ** (times - 1), _LONGEST_RETRY)
            self._failures[name] = times + 1, now + wait
            if isinstance(error, TooLongError) and left < most:
                raise self._spent(name) from error
            raise
        self._failures.pop(name, None)
        self._count(now, len(data))
        return data

    @staticmethod
    def _spent(name: str) -> TransportError:
        return TransportError(
            f"{name} is not loaded: a recommender's files may have {BYTES_PER_DAY:,} bytes a day, "
            "and it would be more; it is tried again tomorrow"
        )

    def refuse(self, file: PublicFile) -> None:
        """Keep that a file was refused."""
        now = self._setup.clock()
        refused = (*self._refused(now), (self._verdict(file), now))[-_MOST_REFUSED:]
        self._keep(msgspec.structs.replace(self._known, refused=refused))

    def was_refused(self, file: PublicFile) -> bool:
        """Return True if a file was refused, and would be again for all that is known here."""
        refused = self._refused(self._setup.clock())
        return bool(refused) and self._verdict(file) in dict(refused)

    def _refused(self, now: float) -> tuple[tuple[str, float], ...]:
        return tuple((key, at) for key, at in self._known.refused if abs(now - at) < REFUSED_FOR)

    def _verdict(self, file: PublicFile) -> str:
        """Return a digest of a file and of what a refusal of it rests on.

        With another policy, another pinned catalogue or another model it is looked at again.
        """
        pinned = self._store.pinned_catalogue
        rests_on = (
            file.sha256,
            file.run,
            self._store.policy,
            b"" if pinned is None else pinned.digest,
            facts_digest(self._store),
        )
        return sha256(msgspec.msgpack.encode(rests_on)).hexdigest()[:32]

    def _today(self, now: float) -> Downloaded:
        if 0 <= now - self._known.begun < DAY:
            return self._known
        return msgspec.structs.replace(self._known, begun=now, size=0)

    def _count(self, now: float, size: int) -> None:
        if size > 0:
            found = self._today(now)
            self._keep(msgspec.structs.replace(found, size=found.size + size))

    def _keep(self, known: Downloaded) -> None:
        self._known = known
        if not self._setup.simulation:
            self._book.change(downloaded=known)
