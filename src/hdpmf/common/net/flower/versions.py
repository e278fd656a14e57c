"""Which version of the wire a side speaks, and words for people where the two are not the same.

Version 1 is that of hdpmf 0.1.0, which did not say so: devices signed as Flower does, and
recommenders answered without this header. Both sides have to be upgraded together; whoever hears a
refusal learns which one is behind.
"""

from __future__ import annotations

from collections.abc import Mapping

PROTOCOL = "x-hdpmf-protocol"
SPOKEN = 2
OTHER_VERSION = 426
"""The status for it: upgrade required."""
_UNAUTHORIZED = 401

_FIRST_KEY = b"flwr-public-key"  # how devices of version 1 say who they are
_KEY = b"x-hdpmf-key"


def speaks_another(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request comes from a device of another version."""
    said = headers.get(PROTOCOL.encode())
    if said is None:
        return _FIRST_KEY in headers and _KEY not in headers
    return said != str(SPOKEN).encode()


def who_is_behind(status: int, said: str | None) -> str | None:
    """What the status of a refusal of a device's first call, and its header ``PROTOCOL``, say;
    None if nothing.
    """
    if status == OTHER_VERSION and said is not None and said.isdigit() and int(said) > SPOKEN:
        return (
            "refused: the recommender has a newer hdpmf than this device; upgrade here "
            "with: pip install -U hdpmf"
        )
    if status == OTHER_VERSION or (status == _UNAUTHORIZED and said is None):
        return (
            "refused: the recommender has an older hdpmf than this device; whoever runs it "
            "has to upgrade it"
        )
    return None
