"""What ``hdpmf device join`` pins the first time, and asks about when it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hdpmf.cli.shared.output import note
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.device.store import DeviceStore


def address_of(store: DeviceStore, given: str | None) -> str:
    """The recommender's address: the one that was given, or the one of last time."""
    known = store.get("address")
    if given is None and known is None:
        raise ConfigError(
            "say where the recommender is: hdpmf device join STORE https://HOST:PORT --ca FILE --servers FILE, or for "
            "sums by masks hdpmf device join STORE HOST:PORT --ca FILE --roster FILE"
        )
    return given if given is not None else (known or b"").decode()


def pin_authority(store: DeviceStore, authority: bytes, new: bool) -> None:
    """Pin the recommender's authority; another one than before only by the owner's word."""
    from hdpmf.device.following import digests

    before = store.get("authority")
    given = digests(authority)
    if before is not None and set(given) <= set(digests(before)):
        return  # as it is pinned, also with the one that follows
    if before is not None:
        was, now = digests(before)[0][:16], given[0][:16]
        if not new:
            raise ConfigError(
                f"another authority is pinned here (SHA-256 {was}... of its file; --ca has {now}...): whoever has the "
                "new one could speak as your recommender. If the recommender told you, in another way, that it has a "
                "new one, add --new-authority; if this is one more recommender, add --another; otherwise leave --ca out"
            )
        note(f"The authority is another one than before (SHA-256 {was}... of its file, now {now}...).")
    store.put("authority", authority)
