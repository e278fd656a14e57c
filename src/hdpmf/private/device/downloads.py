"""Downloads of a recommender's files, within bounds that hold whatever it publishes.

A recommender says how large its files are and whether they changed; one that lies could have a
device load the same rubbish at every look. So a file that was refused is not loaded again for the
same digest, one that did not come is tried again later and later, and all files of a recommender
have a budget of bytes per day. What counts is in the store: a restart starts nothing anew.

Requests are the same for every device: a plain GET of a name that the index gave. Nothing that an
answer said goes into a later request (no ETag, no cookie), which would tell devices apart.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from hdpmf.errors import ProtocolError, TooLongError, TransportError
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.model_update import facts_digest
from hdpmf.private.device.published_files import (
    INDEX,
    MOST_INDEX,
    Carrier,
    PublicFile,
    PublicIndex,
    read_index,
)
from hdpmf.private.device.recommender_state import RecommenderStates
from hdpmf.private.device.session import DAY, Setup
from hdpmf.private.device.store.schema import Downloaded

BYTES_PER_DAY = 512 << 20
"""Bytes of files, at most, that a recommender may have a device load within a day. The facts and
lists of a million items are less. The index is not counted: it has its own limit.
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
        carrier: How to reach them.
    """

    def __init__(self, setup: Setup, carrier: Carrier) -> None:
        self._setup = setup
        self._store = setup.store
        self._carrier = carrier
        self._book = RecommenderStates(setup.store, setup.recommender)
        self._failures: dict[str, tuple[int, float]] = {}  # by name: how often, and when next
        self._known = Downloaded() if setup.simulation else self._book.state().downloaded
        self._plan: PublicFile | None = None

    def index(self) -> PublicIndex:
        """Return what is published now."""
        index = read_index(self._carrier.fetch(INDEX, MOST_INDEX))
        self._plan = index.plan
        return index

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
            self._plan,
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
