"""Records of the bytes that leave a device, from which receipts are made (see ``receipts``).

Of each report its length and its SHA-256 are kept, not the bytes. They hold fresh randomness:
nobody can find out by a digest what is in them.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from hdpmf.common.protocol.servers import Servers
from hdpmf.errors import HdpmfError
from hdpmf.private.device.disclosures.journal import utc_now
from hdpmf.private.device.policy import Terms
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import SentMessage, SentRun

MOST_PIECES = 256
"""Of a run; more are counted."""


def sent_in(store: DeviceStore, run: str) -> SentRun | None:
    """Return what left in a run (hex); None where nothing did."""
    return store.tables.sent_runs.find(run)


def report_leaves(
    store: DeviceStore, run: bytes, terms: Terms, servers: Servers, report: bytes
) -> None:
    """Record a report to two servers, in the transaction after which it leaves; once each."""
    known, digest = _known(store, run, servers), sha256(report).hexdigest()
    if len(known.pieces) < MOST_PIECES and all(piece.sha256 != digest for piece in known.pieces):
        piece = SentMessage(
            number=0, at=utc_now(), size=len(report), sha256=digest, minimum=terms.minimum
        )
        store.tables.sent_runs.put(msgspec.structs.replace(known, pieces=(*known.pieces, piece)))


def record_leader_response(
    store: DeviceStore, run: bytes, report: bytes, status: int, *, last: bool
) -> None:
    """Write down what the leader said to a report; ``last``: it is not sent again."""
    known, digest = sent_in(store, run.hex()), sha256(report).hexdigest()
    if known is None:
        return
    if any(piece.sha256 == digest for piece in known.pieces):
        told = [
            msgspec.structs.replace(piece, status=status, answered=utc_now())
            if piece.sha256 == digest
            else piece
            for piece in known.pieces
        ]
        store.tables.sent_runs.put(msgspec.structs.replace(known, pieces=tuple(told)))
    elif last:
        store.tables.sent_runs.put(_one_more(known, len(report)))


def _known(store: DeviceStore, run: bytes, servers: Servers | None) -> SentRun:
    """Return the record of a run so far, or a new one."""
    known, device = sent_in(store, run.hex()), store.identity.public.hex()
    if known is None:
        catalogue = store.pinned_catalogue
        known = SentRun(
            run=run.hex(),
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
    if device not in known.devices:  # it has new keys since (``device_identity.rotate``)
        known = msgspec.structs.replace(known, devices=(*known.devices, device))
    return known


def _authority(store: DeviceStore) -> tuple[str, ...]:
    from hdpmf.private.device.device_identity import (
        digests,
    )  # needs what only devices that talk to recommenders have

    pinned = store.recommender.authority
    try:
        return tuple(digests(pinned)) if pinned else ()
    except HdpmfError:
        return ()  # no certificate; whether that is right was settled when it was connected to


def _one_more(known: SentRun, size: int) -> SentRun:
    return msgspec.structs.replace(known, more=known.more + 1, more_bytes=known.more_bytes + size)
