"""Where recommenders are: ``https://host:port`` with two servers, ``host:port`` by masks."""

from __future__ import annotations

from urllib.parse import urlsplit

from hdpmf.errors import ConfigError

HTTPS = "https://"
"""What the address of a recommender with two servers begins with."""

_LONGEST = 300


def check_address(address: str) -> str:
    """``host:port`` as `plain_address` writes it, or ConfigError."""
    host, _, port = address.rpartition(":")
    if (
        not host
        or not _is_plain(address)
        or "/" in host
        or not port.isdigit()
        or not 0 < int(port) < 65536
    ):
        raise ConfigError(
            f"{address[:_LONGEST]!r} is not an address: host:port is wanted, without https://"
        )
    return plain_address(address)


def check_folder_address(address: str) -> str:
    """``https://host:port`` as `plain_address` writes it, or ConfigError."""
    try:
        parts = urlsplit(address)
        right = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right or not _is_plain(address):
        raise ConfigError(
            f"a recommender's address is like https://host:port, not {address[:_LONGEST]!r}"
        )
    return plain_address(address)


def plain_address(address: str) -> str:
    """The one way to write an address: in small letters up to the path, without port 443 and a
    slash at the end.
    """
    scheme, mark, rest = address.rpartition("://")
    host, slash, path = rest.partition("/")
    host = host.lower()
    return (
        f"{scheme.lower()}{mark}{host.removesuffix(':443') if mark else host}{slash}{path}".rstrip(
            "/"
        )
    )


def _is_plain(address: str) -> bool:
    """Whether people can read it, and see that two are the same: letters that only look like
    others are none of it.
    """
    return (
        address.isascii()
        and address.isprintable()
        and len(address) <= _LONGEST
        and not set(address) & set(" #?@\\")
    )
