"""A receipt for what left in a run: a document that the device's owner can keep and show to others.

It is JSON, signed by the device's own key. That proves that this device says so, and that nobody
has changed it since. It does not prove that anybody else got anything: what a leader answered is
what this device heard, because DAP has no receipt that a leader signs. A receipt holds no rating,
no weight and no item, nor how many ratings took part.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from hdpmf.common.methods import method_named
from hdpmf.errors import ConfigError, made_by_newer
from hdpmf.private.device.disclosures.history import cost_of, entries_by_run, reveals
from hdpmf.private.device.disclosures.journal import Entry, utc_now
from hdpmf.private.device.disclosures.sent_bytes import sent_in
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import SentRun

FORMAT: Literal["hdpmf receipt"] = "hdpmf receipt"
VERSION: Literal[1] = 1
"""Of the document."""

MOST_BYTES = 1 << 20
"""Of a receipt that is read."""

PROVES = (
    "The device whose key this is says so, and nobody has changed it since. It is "
    "no proof that anybody got the bytes: "
    "the answers are what this device heard, because DAP has no receipt that a leader signs."
)
"""What the signature is worth."""

_DOMAIN = b"hdpmf receipt v1 "

_Fact = str | float | bool | None


class Organisation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One of the two servers, by the name of who runs it, and where it is."""

    name: str
    url: str


class Requester(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The recommender that asked, and the servers that sum.

    Attributes:
        recommender: Its address.
        authority: SHA-256 of the certificates by which it was known; none for the public
            authorities.
        leader: The server that takes reports.
        helper: The other one.
        servers: Digest of the pair, as people compare it.
    """

    recommender: str
    authority: tuple[str, ...] = ()
    leader: Organisation | None = None
    helper: Organisation | None = None
    servers: str | None = None


class UnderTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The terms that were agreed to.

    Attributes:
        view: What is seen.
        epsilon: The largest budget of a rating; None where nothing is hidden.
        rounds: How often numbers are asked for.
        minimum: Users, at least, that every sum is over; None where that was not written down, or
            there is no sum.
        catalogue: Digest of the catalogue.
        catalogue_version: Its number.
    """

    method: str
    view: str
    epsilon: float | None
    rounds: int
    minimum: int | None = None
    catalogue: str | None = None
    catalogue_version: int | None = None


class SentRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A report or a message, as it left.

    Attributes:
        number: Of the job, the round or the task.
        at: When, the first time.
        size: Bytes.
        sha256: Of these; None where they left in clear, and could be guessed by it.
        answer: The leader's last one (HTTP); None where this device heard none, or the method has
            none.
        answered: When.
    """

    number: int
    at: str
    size: int
    sha256: str | None = None
    answer: int | None = None
    answered: str | None = None


class LedgerEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An entry of the ledger."""

    at: str
    action: str
    number: int
    words: str


class Receipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A receipt.

    Attributes:
        device: The identity that signs (Ed25519, hex).
        sent_as: The identities under which it left, where that was written down.
        run: Of which run (hex).
        complete: Whether bytes were written down when they left; older versions did not.
        left: What left, in its order.
        more: How many pieces there were besides.
        more_bytes: Of these.
        given_back: The part of the cost that never left, from 0 to 1.
        happened: What the ledger says.
        sees: What the recommender sees of it.
        reveals: What that tells about a rating of weight 1.
        cost: The same in numbers, by the accountant.
        proves: What the signature is worth.
        signature: Over everything else (hex).
    """

    format: Literal["hdpmf receipt"] = FORMAT
    version: Literal[1] = VERSION
    made: str
    device: str
    sent_as: tuple[str, ...]
    run: str
    asked_by: Requester
    terms: UnderTerms
    complete: bool
    left: tuple[SentRecord, ...]
    more: int = 0
    more_bytes: int = 0
    given_back: float = 0.0
    happened: tuple[LedgerEvent, ...]
    sees: str
    reveals: str
    cost: dict[str, _Fact]
    proves: str = PROVES
    signature: str = ""

    def fields(self) -> dict[str, Any]:
        """As plain values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def to_json(self) -> bytes:
        """As a file: canonical JSON (sorted names, no spaces, UTF-8)."""
        return _canonical(self.fields()) + b"\n"

    @property
    def signed(self) -> bytes:
        """The bytes that are signed."""
        return _DOMAIN + _canonical(
            {name: value for name, value in self.fields().items() if name != "signature"}
        )


def receipt_of(store: DeviceStore, run: str) -> Receipt:
    """A receipt for what left in a run.

    Args:
        run: The run (hex), or the beginning of its name.

    Raises:
        ConfigError: There is no such run, or more than one, or nothing of it has left.
    """
    runs = entries_by_run(store)
    names = [name for name in runs if run and name.startswith(run.lower())]
    if len(names) != 1:
        known = ", ".join(
            name[:8] for name in [name for name in runs if _has_left(runs[name])][-5:]
        )
        what = "there is no run" if not names else "there is more than one run"
        raise ConfigError(
            f"{what} {run!r:.80} in the ledger; the last that something left in: {known or 'none'}"
        )
    if not _has_left(runs[names[0]]):
        raise ConfigError(
            "nothing of this run has left the device, so that there is no receipt for it"
        )
    return _made(store, names[0], runs[names[0]])


def all_receipts(store: DeviceStore) -> list[Receipt]:
    """A receipt for each run that something left in, the oldest first."""
    return [
        _made(store, run, entries)
        for run, entries in entries_by_run(store).items()
        if _has_left(entries)
    ]


def read_receipt(data: bytes) -> Receipt:
    """The receipt in a file, whose signature holds.

    Raises:
        ConfigError: It is none, is of a newer version, or was changed.
    """
    from hdpmf.common.protocol.identity import verifies

    none = "this is no receipt (hdpmf device receipt STORE RUN --out FILE writes one)"
    if len(data) > MOST_BYTES:
        raise ConfigError(f"a receipt has at most {MOST_BYTES:,} bytes")
    try:
        plain = json.loads(data.decode(), object_pairs_hook=_no_name_twice)
        version = None
        if isinstance(plain, dict) and plain.get("format") == FORMAT:
            version = plain.get("version")
        if isinstance(version, int) and version > VERSION:
            raise ConfigError(made_by_newer("this receipt"))
        receipt = msgspec.convert(plain, Receipt)
        # Numbers that JSON does not have are refused here, too.
        signed = receipt.signed
        key = bytes.fromhex(receipt.device)
        signature = bytes.fromhex(receipt.signature)
    except (ValueError, RecursionError):  # msgspec's, too, and of text that is no UTF-8
        raise ConfigError(none) from None
    if not verifies(key, signature, signed):
        raise ConfigError(
            "the signature on this receipt does not hold: it was changed, or somebody else "
            "made it up"
        )
    return receipt


def _made(store: DeviceStore, run: str, entries: Sequence[Entry]) -> Receipt:
    left, first = sent_in(store, run), entries[0]
    cost = cost_of(first)
    claim = method_named(first.method).claim(first.view)
    pieces = () if left is None else left.pieces
    unsigned = Receipt(
        made=utc_now(),
        device=store.identity.public.hex(),
        sent_as=() if left is None else left.devices,
        run=run,
        asked_by=_asked_by(first.recommender, left),
        terms=UnderTerms(
            method=first.method,
            view=first.view,
            epsilon=first.epsilon if math.isfinite(first.epsilon) else None,
            rounds=first.rounds,
            minimum=min((piece.minimum for piece in pieces if piece.minimum), default=None),
            catalogue=None if left is None else left.catalogue or None,
            catalogue_version=None if left is None else left.version or None,
        ),
        complete=left is not None,
        left=tuple(
            SentRecord(
                number=piece.number,
                at=piece.at,
                size=piece.size,
                sha256=piece.sha256 or None,
                answer=piece.status or None,
                answered=piece.answered or None,
            )
            for piece in pieces
        ),
        more=0 if left is None else left.more,
        more_bytes=0 if left is None else left.more_bytes,
        given_back=max((entry.part for entry in entries), default=0.0),
        happened=tuple(
            LedgerEvent(at=entry.at, action=entry.action, number=entry.number, words=entry.words)
            for entry in entries
        ),
        sees=claim.sees,
        reveals=reveals(cost),
        cost=cost.fields(),
    )
    return msgspec.structs.replace(unsigned, signature=store.identity.sign(unsigned.signed).hex())


def _asked_by(recommender: str, left: SentRun | None) -> Requester:
    if left is None:
        return Requester(recommender=recommender)
    if not left.servers:
        return Requester(recommender=recommender, authority=left.authority)
    (leader, leader_url), (helper, helper_url) = left.leader, left.helper
    return Requester(
        recommender=recommender,
        authority=left.authority,
        leader=Organisation(name=leader, url=leader_url),
        helper=Organisation(name=helper, url=helper_url),
        servers=left.servers,
    )


def _has_left(entries: Sequence[Entry]) -> bool:
    return any(entry.action == "sent" for entry in entries)


def _canonical(plain: dict[str, Any]) -> bytes:
    return json.dumps(
        plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two readers could take another one of two values each."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found
