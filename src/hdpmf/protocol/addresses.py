"""Where recommenders are that sum by masks: ``host:port``."""

from __future__ import annotations

from hdpmf.errors import ConfigError

_LONGEST = 300


def check_address(address: str) -> str:
    """``host:port``, or ConfigError."""
    host, _, port = address.rpartition(":")
    plain = address.isascii() and address.isprintable() and len(address) <= _LONGEST
    if not host or not plain or set(host) & set(" /#?@\\") or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"{address[:_LONGEST]!r} is not an address: host:port is wanted, without https://")
    return address
