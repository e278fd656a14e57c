"""What somebody needs to join a recommender, as one file or one link. There is no secret in it."""

from __future__ import annotations

import base64
import binascii
import zlib
from hashlib import sha256

import msgspec

from hdpmf.common.protocol.addresses import check_address
from hdpmf.common.protocol.servers import Servers
from hdpmf.errors import ConfigError

MOST_BYTES = 64 << 10
"""Of an invitation."""

_MARK = "#hdpmf-join="


class Invitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An invitation. Whoever made it, its digest is to be compared in a way that does not go
    through the recommender.

    Attributes:
        address: Of the recommender, ``https://`` with host and port.
        servers: The two servers that sum for it; None where devices send it their noisy numbers
            directly.
        authority: The certificate (PEM) that its TLS certificate must come from; empty for the
            public ones.
    """

    address: str
    servers: Servers | None = None
    authority: str = ""

    def __post_init__(self) -> None:
        check_address(self.address)

    @property
    def digest(self) -> str:
        """Of everything in it, in groups of four digits."""
        plain = sha256(b"hdpmf invitation " + msgspec.json.encode(self)).hexdigest()[:32]
        return " ".join(plain[at : at + 4] for at in range(0, len(plain), 4))

    def to_json(self) -> bytes:
        """As a file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    def to_link(self) -> str:
        """As a link. What it says is behind the ``#``, which browsers do not send to anybody."""
        packed = (
            base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(self), 9))
            .decode()
            .rstrip("=")
        )
        return f"{self.address}{_MARK}{packed}"

    @classmethod
    def read(cls, data: bytes) -> Invitation:
        """The invitation in a file or a link.

        Raises:
            ConfigError: It is none.
        """
        if len(data) > MOST_BYTES:
            raise ConfigError(f"an invitation has at most {MOST_BYTES:,} bytes")
        try:
            text = data.decode()
            if _MARK in text:
                packed = text.strip().rpartition(_MARK)[2]
                unpacker = zlib.decompressobj()
                data = unpacker.decompress(
                    base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), MOST_BYTES
                )
                if not unpacker.eof:
                    raise ConfigError("this is no invitation: its link is cut off or too long")
            return msgspec.json.decode(data, type=cls)
        except (UnicodeDecodeError, binascii.Error, zlib.error, ValueError, msgspec.MsgspecError):
            raise ConfigError(
                "this is no invitation of a recommender: neither its file nor its link"
            ) from None
