"""Addresses of recommenders: ``https://host:port``."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from hdpmf.errors import ConfigError

HTTPS = "https://"
_LONGEST = 300
# People can read it and see that two are the same: look-alike letters, user names, queries and
# spaces are excluded.
_ADDRESS = re.compile(
    r"[Hh][Tt][Tt][Pp][Ss]://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?"
)


def check_address(address: str) -> str:
    """Return the address as `plain_address` writes it.

    Raises:
        ConfigError: It is not like ``https://host:port``.
    """
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
    """Return the one way to write an address: lower case up to the path, without port 443 and a
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
