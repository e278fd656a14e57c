"""Public cards of the two servers that sum devices' reports, and of the collector of the sums.

Sums by two servers are private only if the two are not one. From their cards this can be seen in
part: equal keys, authorities, hosts and names are refused, names also if they only look the same.
Two names in the DNS that lead to one machine, or two organisations with one owner, are not seen
here: people have to know whom they trust.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec

from hdpmf.common.base.names import check_scripts, plain_letters
from hdpmf.common.protocol.documents import compared, from_base64
from hdpmf.errors import ConfigError, ProtocolError, needs

if TYPE_CHECKING:
    pass

T = TypeVar("T")


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The public card of one of the two servers.

    Attributes:
        organisation: Its operator. Two servers of one organisation protect from nobody.
        url: ``https://`` with host and port.
        identity: Its X25519 public key (base64url), by which servers and collectors know it.
        authority: Issuer of its TLS certificate (PEM); empty for the public ones.
        signing: Its Ed25519 public key (base64url), which signs the list of its HPKE keys
            (``key_list``).
    """

    organisation: str
    url: str
    identity: str
    authority: str = ""
    signing: str

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
        _check_key(self.signing, "signing key", self.organisation)

    def endpoint(self, path: str) -> str:
        """The address of a resource."""
        return f"{self.url.rstrip('/')}/{path.lstrip('/')}"


class Collector(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A recommender's card for the servers, as the collector of the sums.

    Attributes:
        organisation: Its operator.
        hpke: Its HpkeConfig, encoded (base64url): noised sums are encrypted to it.
        identity: Its X25519 public key (base64url).
    """

    organisation: str
    hpke: str
    identity: str

    def __post_init__(self) -> None:
        _check_name(self.organisation)
        _check_key(self.identity, "identity", self.organisation)
        _check_config(self.hpke, self.organisation)

    @property
    def digest(self) -> str:
        """The digest that people compare before servers admit it."""
        return compared("collector", self)


class Servers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The pair. Devices pin it, and people compare its digest."""

    leader: Server
    helper: Server

    def __post_init__(self) -> None:
        leader, helper = ({card.identity, card.signing} for card in (self.leader, self.helper))
        if leader & helper:
            raise ConfigError(
                "the two servers have the same key, so that they are one; it would see everything"
            )
        if _same_authority(self.leader.authority, self.helper.authority):
            raise ConfigError(
                "the two servers have the same certificate authority, so that one organisation "
                "could stand in for both; each organisation makes its own folder with hdpmf "
                "aggregator init"
            )
        for server in (self.leader, self.helper):
            check_scripts(server.organisation)
        if plain_letters(self.leader.organisation) == plain_letters(self.helper.organisation):
            raise ConfigError(
                f"both servers are run by {self.leader.organisation!r} "
                f"({self.helper.organisation!r} looks the same), which would see everything; two "
                "organisations are needed"
            )

    @property
    def digest(self) -> str:
        """The digest that people compare: of everything on both cards, in groups of four digits."""
        return compared("servers", self)

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


def require_two_hosts(servers: Servers, *, same_host: bool = False) -> None:
    """Refuse two servers on one host, whatever their ports are. Call it before pinning a pair.

    Args:
        same_host: Allow it, for trials on one machine: they protect from nobody.

    Raises:
        ConfigError: Both have the same host or, in a trial, the same address.
    """
    host = plain_host(servers.leader.url)
    if len({plain_address(card.url) for card in (servers.leader, servers.helper)}) == 1:
        raise ConfigError(
            f"both servers are on one host ({host}) and have one port, so that they are one; give "
            "each an address of its own (hdpmf aggregator init --name, --listen)"
        )
    if not same_host and host == plain_host(servers.helper.url):
        raise ConfigError(
            f"both servers are on one host ({host}), whose operator would see everything; two "
            "organisations run them on two hosts. For a trial on one machine say --same-host"
        )


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
    try:
        from_base64(key, 32)
    except ProtocolError:
        raise ConfigError(f"the {what} of {whose!r} must be 32 bytes in base64url") from None


def _check_config(config: str, whose: str) -> None:
    try:
        right = 9 <= len(from_base64(config)) <= 500
    except ProtocolError:
        right = False
    if not right:
        raise ConfigError(f"the HPKE configuration of {whose!r} must be in base64url")


_THIS_MACHINE = "localhost"


def plain_host(url: str) -> str:
    """Return the host of an address in one form: case, final dot, IDNA, and forms of IP addresses.

    Raises:
        ConfigError: It is no host.
    """
    host = (urlsplit(url).hostname or "").partition("%")[0]
    try:
        host = host.encode("idna").decode("ascii").lower().rstrip(".")
    except UnicodeError:
        raise ConfigError(f"{url[:_LONGEST]!r} has no host that can be reached") from None
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        try:
            found = ipaddress.IPv4Address(socket.inet_aton(host))  # 127.1, 0x7f000001
        except OSError:
            local = host == _THIS_MACHINE or host.endswith(f".{_THIS_MACHINE}")
            return _THIS_MACHINE if local else host
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return _THIS_MACHINE if found.is_loopback or found.is_unspecified else str(found)


def _same_authority(first: str, second: str) -> bool:
    """Return True if two servers share the key of an authority of their own."""
    if not first.strip() or not second.strip():
        return False  # public authorities
    return first.split() == second.split() or bool(_public_keys(first) & _public_keys(second))


def _public_keys(pem: str) -> set[bytes]:
    with needs("cryptography"):
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    try:
        return {
            each.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            for each in x509.load_pem_x509_certificates(pem.encode())
        }
    except (ValueError, UnsupportedAlgorithm):
        return set()  # nobody can connect by it


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
