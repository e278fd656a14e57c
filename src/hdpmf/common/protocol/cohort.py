"""Who is asked where not everybody is needed: by a public beacon, so that anybody can see that the
choice was its own.

Every device of the roster gets a number from the beacon and its identity, and the smallest ones are
in. Whoever picks the beacon could try several; so what protects a device must not rest on the
choice, and does not: it is measured by the whole roster, as if everybody who may work for the
recommender were in the cohort.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

MAX_BEACON = 200
"""Characters of a beacon."""


def is_beacon(text: str) -> bool:
    """Whether this can be one: what people can read out and compare."""
    return 0 < len(text) <= MAX_BEACON and text.isascii() and text.isprintable()


def cohort_of(beacon: str, devices: Iterable[str], size: int) -> frozenset[str]:
    """So many of the devices, which are named by their identities (hex)."""
    head = b"hdpmf cohort 1\n" + beacon.encode("ascii") + b"\n"
    ranked = sorted(set(devices), key=lambda device: sha256(head + bytes.fromhex(device)).digest())
    return frozenset(ranked[:size])
