"""The list of a server's HPKE keys, signed, and how a reader follows it.

A server has several HPKE keys at a time. The newest is the one to encrypt to; older ones are there
for reports under way, and are erased one day. So whoever records reports and gets into a server
later finds no key that opens them. The list is signed with the key on the server's card: whoever
hands it on (a recommender, the other server) can hold it back, but not change it. A list has a
serial number that only grows, by which older lists and second lists of the same number are refused,
and a time after which nothing is encrypted by it, so that holding it back does not last.

DAP's ``HpkeConfigList`` is in it as it is served to clients of others. The signed list is a
resource of its own (``SIGNED_KEYS_PATH``), and a public file of recommenders.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

import msgspec

from hdpmf.common.protocol.documents import (
    Document,
    Text,
    Whole,
    canonical,
    from_base64,
    labelled_digest,
    read_document,
    to_base64,
)
from hdpmf.common.protocol.servers import Server
from hdpmf.errors import PrioError, ProtocolError, TransportError

if TYPE_CHECKING:
    from hdpmf.common.aggregation.two_servers.dap.messages import HpkeConfig

SIGNED_KEYS_PATH = "/hpke_config/signed"
SIGNED_KEYS_MEDIA_TYPE = "application/hdpmf-signed-hpke-config-list"

MAX_LIST = 16 * 1024
"""Bytes of a signed list: 256 keys of 41 bytes, and what goes with them."""

VALID_SECONDS = 7 * 86_400
"""Seconds for which a list may be used. A list is signed anew after half of them at the latest."""

_LATEST = 250_000_000_000  # in the year 9892: later ones have no date


class KeyList(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The HPKE keys of a server at one time.

    Attributes:
        serial: Larger than that of every list before; about the time when it was made.
        not_after: Unix time from which nothing is encrypted by this list.
        configs: DAP's HpkeConfigList, encoded (base64url); the first one is to be used.
    """

    serial: Whole
    not_after: Whole
    configs: Text

    @property
    def keys(self) -> tuple[HpkeConfig, ...]:
        """The keys; ProtocolError if they cannot be read."""
        from hdpmf.common.aggregation.two_servers.dap.messages import HpkeConfigList

        try:
            return HpkeConfigList.decode(from_base64(self.configs)).hpke_configs
        except PrioError as error:
            raise ProtocolError(f"refused: the list of keys: {error}") from None


class SignedKeyList(Document, frozen=True, tag="key list"):
    """A list, and its signature (base64url) by the key on the server's card."""

    keys: KeyList
    signature: Text

    @classmethod
    def make(cls, keys: KeyList, sign: Callable[[bytes], bytes]) -> Self:
        """Sign a list."""
        return cls(keys=keys, signature=to_base64(sign(_digest(keys))))


class PublishedKeys(Document, frozen=True, tag="keys"):
    """The signed lists of both servers, as a recommender publishes them for devices.

    Attributes:
        leader: None if it could not be reached yet.
        helper: The same.
    """

    leader: SignedKeyList | None = None
    helper: SignedKeyList | None = None

    @classmethod
    def of(cls, leader: bytes, helper: bytes) -> Self:
        """Put two lists together as the servers gave them, empty for none; they are not checked."""
        parts = [
            _read(data, "the list of a server's keys") if data else None
            for data in (leader, helper)
        ]
        return cls(leader=parts[0], helper=parts[1])


MAX_PUBLISHED = 2 * MAX_LIST + 64
"""Bytes of both lists."""


def _digest(keys: KeyList) -> bytes:
    return labelled_digest("key list", canonical(keys))


def _read(data: bytes, whose: str) -> SignedKeyList:
    return read_document(SignedKeyList, data, whose, MAX_LIST)


def read_published_keys(data: bytes) -> PublishedKeys:
    """Return what a recommender has published, unchecked; ProtocolError if it is something else."""
    return read_document(PublishedKeys, data, "the lists of two servers' keys", MAX_PUBLISHED)


def read_key_list(data: bytes | SignedKeyList, server: Server) -> KeyList:
    """Return a list that the server of this card has signed.

    Raises:
        ProtocolError: It is none, or another key signed it.
    """
    return read_signed_list(data, server.signing, _whose(server))


def read_signed_list(data: bytes | SignedKeyList, public: str, whose: str) -> KeyList:
    """Return a list that this key (base64url) has signed; ``whose`` is for people.

    Raises:
        ProtocolError: It is none, or another key signed it.
    """
    from hdpmf.common.protocol.identity import verifies  # needs an extra

    signed = _read(data, whose) if isinstance(data, bytes) else data
    signature = from_base64(signed.signature)
    if not verifies(from_base64(public), signature, _digest(signed.keys)):
        raise ProtocolError(f"refused: {whose} is not signed by the key on its card")
    _ = signed.keys.keys  # can be read
    return signed.keys


def follow_key_list(data: bytes | SignedKeyList, before: bytes, server: Server) -> KeyList:
    """Return a list that may follow the one that was known before (empty for none).

    Raises:
        ProtocolError: As in ``read_key_list``, or it is older, or another one of the same number.
    """
    keys = read_key_list(data, server)
    known = read_key_list(before, server) if before else None
    if known is None or keys.serial > known.serial or keys == known:
        return keys
    if keys.serial == known.serial:
        raise ProtocolError(
            f"refused: {_whose(server)} is another one than before with the same number "
            f"({keys.serial}): that server tells different things to different people"
        )
    raise ProtocolError(
        f"refused: {_whose(server)} is older than the one before ({keys.serial} after "
        f"{known.serial}); its keys may be erased or stolen"
    )


def config_of(server: Server, signed: bytes | SignedKeyList | None, now: float) -> HpkeConfig:
    """Return the key to encrypt to, of a list that is valid now.

    Raises:
        TransportError: No list is here, or its time is over.
        ProtocolError: The list is none, or has no key that we can encrypt to.
    """
    from hdpmf.common.aggregation.two_servers.dap.hpke import is_supported

    if not signed:
        raise TransportError(f"{_whose(server)} has not come yet; nothing is encrypted without it")
    keys = read_key_list(signed, server)
    if now >= keys.not_after:
        raise TransportError(
            f"{_whose(server)} was valid until {time_text(keys.not_after)}, and no newer one has "
            "come; nothing is encrypted by an old list"
        )
    for config in keys.keys:
        if is_supported(config):
            return config
    raise ProtocolError(f"refused: {_whose(server)} has no key for X25519 and AES-128-GCM")


def time_text(seconds: int) -> str:
    """Return a Unix time for people."""
    return datetime.fromtimestamp(min(seconds, _LATEST), UTC).isoformat(timespec="minutes")


def _whose(server: Server) -> str:
    return f"the list of keys of {server.organisation!r}"
