"""Public cards of the two servers that sum devices' reports, and of the collector of the sums."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from hdpmf.errors import ConfigError

_KEY_HEX = 64

T = TypeVar("T")


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The public card of one of the two servers.

    Attributes:
        organisation: Its operator. Two servers of one organisation protect from nobody.
        url: ``https://`` with host and port.
        hpke: Its HpkeConfig, encoded (hex): shares are encrypted to it.
        identity: Its X25519 public key (hex), by which servers and collectors know each other.
        authority: Issuer of its TLS certificate (PEM); empty for the public ones.
    """

    organisation: str
    url: str
    hpke: str
    identity: str
    authority: str = ""

    def __post_init__(self) -> None:
        _check_name(self.organisation)
        parts = urlsplit(self.url)
        if (
            parts.scheme != "https"
            or not parts.hostname
            or parts.query
            or parts.fragment
            or parts.username
        ):
            raise ConfigError(
                f"the server of {self.organisation!r} must have an address like https://host:port"
            )
        _check_key(self.identity, "identity", self.organisation)
        _check_config(self.hpke, self.organisation)

    def endpoint(self, path: str) -> str:
        """The address of a resource."""
        return f"{self.url.rstrip('/')}/{path.lstrip('/')}"


class Collector(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A recommender's card for the servers, as the collector of the sums.

    Attributes:
        organisation: Its operator.
        hpke: Its HpkeConfig, encoded (hex): noised sums are encrypted to it.
        identity: Its X25519 public key (hex).
    """

    organisation: str
    hpke: str
    identity: str

    def __post_init__(self) -> None:
        _check_name(self.organisation)
        _check_key(self.identity, "identity", self.organisation)
        _check_config(self.hpke, self.organisation)


class Servers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The pair. Devices pin it, and people compare its digest."""

    leader: Server
    helper: Server

    def __post_init__(self) -> None:
        if self.leader.identity == self.helper.identity or self.leader.hpke == self.helper.hpke:
            raise ConfigError(
                "the two servers have the same key, so that they are one; it would see everything"
            )
        if self.leader.organisation.casefold() == self.helper.organisation.casefold():
            raise ConfigError(
                f"both servers are run by {self.leader.organisation!r}, which would see "
                "everything; "
                "two organisations are needed"
            )

    @property
    def digest(self) -> str:
        """The digest that people compare: of everything on both cards, in groups of four digits."""
        plain = sha256(b"hdpmf servers " + msgspec.json.encode(self)).hexdigest()[:32]
        return " ".join(plain[at : at + 4] for at in range(0, len(plain), 4))

    @property
    def names(self) -> str:
        """Both organisations, for people."""
        return f"{self.leader.organisation} and {self.helper.organisation}"

    def to_json(self) -> bytes:
        """For a file that devices pin."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    @classmethod
    def from_json(cls, data: bytes) -> Servers:
        """Return what ``to_json`` wrote."""
        return _read(data, cls, "a pair of servers")


def card_to_json(card: Server | Collector) -> bytes:
    """For the file that is given to others."""
    return msgspec.json.format(msgspec.json.encode(card), indent=1)


def read_server(data: bytes) -> Server:
    """The card of a server."""
    return _read(data, Server, "the card of a server")


def read_collector(data: bytes) -> Collector:
    """The card of a collector."""
    return _read(data, Collector, "the card of a recommender for servers")


def _read(data: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"this is not {what}: {error}") from None


def _check_name(name: str) -> None:
    if not (1 <= len(name) <= 200 and name.isprintable()):
        raise ConfigError("an organisation's name must have 1 to 200 printable characters")


def _check_key(key: str, what: str, whose: str) -> None:
    if len(key) != _KEY_HEX or not set(key) <= set("0123456789abcdef"):
        raise ConfigError(f"the {what} of {whose!r} must have {_KEY_HEX} hexadecimal digits")


def _check_config(config: str, whose: str) -> None:
    if (
        not 18 <= len(config) <= 1000
        or len(config) % 2
        or not set(config) <= set("0123456789abcdef")
    ):
        raise ConfigError(f"the HPKE configuration of {whose!r} must be in hexadecimal")


HTTPS = "https://"

_LONGEST = 300

# People can read it and see that two are the same: look-alike letters, user names, queries and
# spaces are excluded.
_ADDRESS = re.compile(
    r"[Hh][Tt][Tt][Pp][Ss]://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?"
)


def check_address(address: str) -> str:
    """Return the address as `plain_address` writes it; ConfigError if it is malformed."""
    try:
        right = (
            len(address) <= _LONGEST
            and _ADDRESS.fullmatch(address) is not None
            and urlsplit(address).port != 0
        )
    except ValueError:
        right = False
    if not right:
        raise ConfigError(
            f"a recommender's address is like https://host:port, not {address[:_LONGEST]!r}"
        )
    return plain_address(address)


def plain_address(address: str) -> str:
    """Return an address in lower case up to the path, without port 443 and a final slash."""
    scheme, mark, rest = address.rpartition("://")
    host, slash, path = rest.partition("/")
    host = host.lower()
    return (
        f"{scheme.lower()}{mark}{host.removesuffix(':443') if mark else host}{slash}{path}".rstrip(
            "/"
        )
    )
