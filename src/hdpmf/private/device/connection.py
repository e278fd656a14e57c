"""The connection of a device to one recommender and two servers: the only one that can send."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hdpmf.common.net.web_client import WebClient
from hdpmf.private.device.participant import POLL_EVERY, Participant
from hdpmf.private.device.store.device_store import DeviceStore


def connect(
    store: DeviceStore, address: str, log: Callable[[str], None], *, every: float = POLL_EVERY
) -> Participant:
    """Return the participant that a store is with a recommender, with a way to send.

    Args:
        store: The device's store at the recommender's place, opened for serving.
        log: Told what happens, in lines for the owner.
        every: Seconds, about, between two looks at the files.
    """
    web = WebClient(address, store.recommender.authority or b"")
    return Participant(store, web, recommender=address, every=every, log=log)


def serve_recommender(
    store: DeviceStore,
    address: str,
    stop: threading.Event,
    log: Callable[[str], None],
    *,
    every: float = POLL_EVERY,
    soon: threading.Event | None = None,
    after: Callable[[Participant], None] = lambda participant: None,
) -> None:
    """Take part with a recommender until ``stop`` is set; other arguments as for `connect`.

    Args:
        soon: Set to look at the files now; with ``stop``, too.
        after: Called before anything is done, and after each step.
    """
    participant = connect(store, address, log, every=every)
    after(participant)
    while not stop.is_set():
        wait = participant.step()
        after(participant)
        if stop.is_set():
            return
        (stop if soon is None else soon).wait(wait)
        if soon is not None and soon.is_set():
            soon.clear()
            participant.poll_soon()
