"""Everything that a device knows, as one value: read once, decided on, committed once. PRIVATE."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from hdpmf.common.protocol.documents import file_digest
from hdpmf.common.protocol.identity import Identity, Invitation
from hdpmf.common.protocol.servers import Collector
from hdpmf.errors import ConfigError
from hdpmf.private.device.ledger import WHOLE, Limits, Line

DAY = 86_400

_MOST_REFUSED = 64

T = TypeVar("T", bound=msgspec.Struct)


class Rated(msgspec.Struct, frozen=True, array_like=True):
    """A rating of an item.

    Attributes:
        weight: The item's, in thousandths: how much of the wish it may use. 0 is never sent.
        at: When it was made (Unix).
    """

    value: float
    weight: int = WHOLE
    at: int = 0

    def __repr__(self) -> str:
        return "Rated(...)"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """This device's answer to a task: promised when the task was taken, sent once.

    Attributes:
        task: The task's id.
        document: As it was published.
        secret: Of this answer alone: the token's nonce and the moments follow from it.
        token_at: Moment (Unix) from which the token is asked for.
        report_at: Moment from which the report leaves.
        end: Of the task.
        lead: Seconds that are enough to make a report, whatever the ratings are.
        token: What the issuer has signed; empty before.
        promised: The ledger has it.
        tries: Of what is next, in vain.
        again: Moment from which it is tried again.
        done: The leader has taken it, or it is given up.
    """

    task: bytes
    document: bytes
    secret: bytes
    token_at: int
    report_at: int
    end: int
    lead: int
    token: bytes = b""
    promised: bool = False
    tries: int = 0
    again: int = 0
    done: bool = False

    def __repr__(self) -> str:
        return f"Answer({self.task.hex()[:8]})"


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """A recommender that the owner has joined, what is pinned of it, and its public files here.

    Attributes:
        left: The owner has left it: nothing is fetched or sent any more.
        proof: Of the owner's right to take part, until the device is enrolled: the secret of an
            invitation, or a token of a login (JWT).
        enrolled: It has said that this device is enrolled.
        enrol_at: Moment (Unix) from which it is asked again.
        catalogue: Digest of the catalogue, in the state's files; empty before the first.
        model: The same of the last model.
        arrays: The same of the model's arrays.
        keys: The lists of the servers' keys, leader's and helper's, as they were signed.
        keys_digest: Of the file that they came in.
        collector: Who gets the sums, from the first task on.
        answer: To the task under way.
        seen: Tasks that were taken and are not over: their ids, and when each was taken and ends.
        refused: Digests of files that were refused, and when.
        read: Bytes of files that were read within the day of this number (since 1970).
    """

    invitation: Invitation
    left: bool = False
    proof: str = ""
    enrolled: bool = False
    enrol_at: int = 0
    catalogue: str = ""
    model: str = ""
    arrays: tuple[str, ...] = ()
    keys: tuple[bytes, bytes] = (b"", b"")
    keys_digest: str = ""
    collector: Collector | None = None
    answer: Answer | None = None
    seen: tuple[tuple[bytes, int, int], ...] = ()
    refused: tuple[tuple[str, int], ...] = ()
    day: int = 0
    read: int = 0

    @property
    def address(self) -> str:
        """The recommender's address."""
        return self.invitation.address

    def __repr__(self) -> str:
        return f"Joined({self.address})"

    def read_today(self, now: int) -> int:
        """Return how many bytes of its files were read today."""
        return self.read if self.day == now // DAY else 0

    def having_read(self, size: int, now: int) -> Joined:
        """Return it with so many more bytes that were read."""
        return changed(self, day=now // DAY, read=self.read_today(now) + size)

    def refusing(self, digest: str, now: int) -> Joined:
        """Return it with a file that was refused."""
        return changed(self, refused=(*self.refused, (digest, now))[-_MOST_REFUSED:])


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All of a device's state. PRIVATE.

    Attributes:
        name: Of the device, for its owner.
        identity: Secret of the key that signs requests for tokens.
        seed: Secret from which every answer gets its own, and which is replaced then.
        limits: The owner's.
        wish: How much of a task's price the owner lets through, in thousandths.
        ledger: What was promised. It only grows.
        ratings: By recommender's address and item id.
        files: Public files that were checked, by their digests.
    """

    name: str
    identity: bytes
    seed: bytes
    limits: Limits
    wish: int = WHOLE
    joined: tuple[Joined, ...] = ()
    ledger: tuple[Line, ...] = ()
    ratings: Mapping[str, Mapping[str, Rated]] = msgspec.field(default_factory=dict)
    files: Mapping[str, bytes] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"State({self.name!r})"

    @property
    def signer(self) -> Identity:
        """The key that signs requests for tokens."""
        return Identity(self.identity)

    def of(self, address: str) -> Joined:
        """Return a recommender that was joined.

        Raises:
            ConfigError: It was not.
        """
        for joined in self.joined:
            if joined.address == address:
                return joined
        raise ConfigError(f"this device has not joined {address}: hdpmf device join STORE LINK")

    def only(self, address: str | None = None) -> Joined:
        """Return the recommender that is meant; without an address there must be one only.

        Raises:
            ConfigError: It was not joined, or several were.
        """
        if address is not None:
            return self.of(address)
        here = [joined for joined in self.joined if not joined.left]
        if len(here) == 1:
            return here[0]
        if not here:
            raise ConfigError("this device has joined nobody: hdpmf device join STORE LINK")
        known = ", ".join(joined.address for joined in here)
        raise ConfigError(f"say which recommender is meant, by --recommender: {known}")

    def ratings_of(self, address: str) -> Mapping[str, Rated]:
        """Return the ratings of a recommender's items."""
        return self.ratings.get(address, {})

    def with_joined(self, joined: Joined) -> State:
        """Return the state with a recommender as it is now, and without files that nobody needs."""
        others = tuple(joined if each.address == joined.address else each for each in self.joined)
        if joined not in others:
            others = (*others, joined)
        needed = {name for each in others for name in (each.catalogue, each.model, *each.arrays)}
        files = self.files
        if not files.keys() <= needed:
            files = {name: data for name, data in files.items() if name in needed}
        return changed(self, joined=others, files=files)

    def with_file(self, data: bytes) -> tuple[State, str]:
        """Return the state with a public file, and its digest."""
        name = file_digest(data)
        return changed(self, files={**self.files, name: data}), name

    def with_rating(self, address: str, item: str, rated: Rated | None) -> State:
        """Return the state with a rating, or without it (None)."""
        own = dict(self.ratings_of(address))
        own.pop(item, None)
        if rated is not None:
            own[item] = rated
        return changed(self, ratings={**self.ratings, address: own})


def changed(struct: T, **fields: object) -> T:
    """Return a frozen value with other fields."""
    return msgspec.structs.replace(struct, **fields)


def new_state(limits: Limits, *, name: str | None = None, wish: int = WHOLE) -> State:
    """Return the state of a new device, with keys of its own."""
    identity = Identity.generate()
    return State(
        name=name or f"device-{identity.public.hex()[:8]}",
        identity=identity.secret_bytes(),
        seed=secrets.token_bytes(32),
        limits=limits,
        wish=wish,
    )
