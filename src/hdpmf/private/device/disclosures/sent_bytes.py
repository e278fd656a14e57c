"""What a device writes down of the bytes that leave it, so that a receipt can be made later (see
``receipts``).

Of each report and each masked message its length and its SHA-256 are kept, not the bytes. They hold
fresh randomness: nobody can find out by a digest what is in them. A message that leaves in clear
has no digest here, because whoever guesses somebody's ratings could check the guess by it.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from hdpmf.common.protocol import Terms
from hdpmf.common.protocol.servers import Servers
from hdpmf.errors import HdpmfError, StorageError
from hdpmf.private.device.disclosures.ledger import utc_now
from hdpmf.private.device.store.device_store import DeviceStore

MOST_PIECES = 256
"""Of a run: a silo's reports, or rounds, beyond that are counted."""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that left, or may have left: a connection was open.

    Attributes:
        number: Of the job, the round or the task in its run.
        at: When, the first time.
        size: How many.
        sha256: Of them; empty where they left in clear.
        minimum: Users, at least, over whom the sum is that they go into; 0 where there is none.
        status: What the leader answered last (HTTP); 0 where no answer came, or none is given.
        answered: When.
    """

    number: int
    at: str
    size: int
    sha256: str = ""
    minimum: int = 0
    status: int = 0
    answered: str = ""


class LeftInRun(msgspec.Struct, frozen=True, kw_only=True):
    """What left in a run, and to whom. No rating, weight or item is in it.

    Attributes:
        devices: Under which identities of this device (hex).
        authority: SHA-256 of the authorities by which the recommender was known.
        servers: Digest of the two servers; empty where there are none.
        leader: Organisation and address of the one that takes reports.
        helper: Of the other one.
        catalogue: Digest of the catalogue, as people compare it.
        version: Of the catalogue.
        pieces: The first ones, in their order.
        more: How many there were besides.
        more_bytes: Of these.
    """

    devices: tuple[str, ...]
    authority: tuple[str, ...]
    servers: str = ""
    leader: tuple[str, str] = ("", "")
    helper: tuple[str, str] = ("", "")
    catalogue: str = ""
    version: int = 0
    pieces: tuple[Piece, ...] = ()
    more: int = 0
    more_bytes: int = 0


def left_in(store: DeviceStore, run: str) -> LeftInRun | None:
    """What is known about a run (hex); None where it was sent by a version that did not write it
    down.
    """
    data = store.get(_name(run))
    try:
        return None if data is None else msgspec.msgpack.decode(data, type=LeftInRun)
    except msgspec.MsgspecError:
        raise StorageError("what left in a run cannot be read: the store is damaged") from None


def message_leaves(
    store: DeviceStore, run: bytes, terms: Terms, number: int, message: bytes
) -> None:
    """Write down a message to a recommender, in the transaction after which it leaves."""
    hidden = terms.view != "messages"
    piece = Piece(
        number=number,
        at=utc_now(),
        size=len(message),
        sha256=sha256(message).hexdigest() if hidden else "",
        minimum=terms.minimum if hidden else 0,
    )
    known = _known(store, run, None)
    if len(known.pieces) < MOST_PIECES:
        _keep(store, run, msgspec.structs.replace(known, pieces=(*known.pieces, piece)))
    else:
        _keep(store, run, _one_more(known, len(message)))


def report_leaves(
    store: DeviceStore, run: bytes, terms: Terms, servers: Servers, number: int, report: bytes
) -> None:
    """Write down a report to two servers, in the transaction after which it leaves; again,
    nothing happens.
    """
    known, digest = _known(store, run, servers), sha256(report).hexdigest()
    if len(known.pieces) < MOST_PIECES and all(piece.sha256 != digest for piece in known.pieces):
        piece = Piece(
            number=number, at=utc_now(), size=len(report), sha256=digest, minimum=terms.minimum
        )
        _keep(store, run, msgspec.structs.replace(known, pieces=(*known.pieces, piece)))


def leader_answered(
    store: DeviceStore, run: bytes, report: bytes, status: int, *, last: bool
) -> None:
    """Write down what the leader said to a report; ``last``: it is not sent again."""
    known, digest = left_in(store, run.hex()), sha256(report).hexdigest()
    if known is None:
        return
    if any(piece.sha256 == digest for piece in known.pieces):
        told = [
            msgspec.structs.replace(piece, status=status, answered=utc_now())
            if piece.sha256 == digest
            else piece
            for piece in known.pieces
        ]
        _keep(store, run, msgspec.structs.replace(known, pieces=tuple(told)))
    elif last:
        _keep(store, run, _one_more(known, len(report)))


def _known(store: DeviceStore, run: bytes, servers: Servers | None) -> LeftInRun:
    """What is known about a run so far."""
    known, device = left_in(store, run.hex()), store.identity.public.hex()
    if known is None:
        catalogue = store.pinned_catalogue
        known = LeftInRun(
            devices=(device,),
            authority=_authority(store),
            catalogue="" if catalogue is None else catalogue.version_digest,
            version=0 if catalogue is None else catalogue.number,
        )
        if servers is not None:
            leader, helper = servers.leader, servers.helper
            known = msgspec.structs.replace(
                known,
                servers=servers.digest,
                leader=(leader.organisation, leader.url),
                helper=(helper.organisation, helper.url),
            )
    if device not in known.devices:  # it has new keys since (see ``rotation``)
        known = msgspec.structs.replace(known, devices=(*known.devices, device))
    return known


def _authority(store: DeviceStore) -> tuple[str, ...]:
    from hdpmf.private.device.device_identity import (
        digests,
    )  # needs what only devices that talk to recommenders have

    pinned = store.get("authority")
    try:
        return tuple(digests(pinned)) if pinned else ()
    except HdpmfError:
        return ()  # no certificate; whether that is right was settled when it was connected to


def _one_more(known: LeftInRun, size: int) -> LeftInRun:
    return msgspec.structs.replace(known, more=known.more + 1, more_bytes=known.more_bytes + size)


def _keep(store: DeviceStore, run: bytes, known: LeftInRun) -> None:
    store.put(_name(run.hex()), msgspec.msgpack.encode(known))


def _name(run: str) -> str:
    return f"left in run {run}"
