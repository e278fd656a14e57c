"""The connection of a device to one recommender: its files, and either two servers or offers."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hdpmf.common.net import polling
from hdpmf.private.device.device_identity import follow
from hdpmf.private.device.messages import quantize_response_time
from hdpmf.private.device.participant import POLL_EVERY, Participant
from hdpmf.private.device.pinned_servers import pinned_servers
from hdpmf.private.device.store.device_store import DeviceStore


def serve_recommender(
    store: DeviceStore,
    address: str,
    stop: threading.Event,
    log: Callable[[str], None],
    *,
    every: float = POLL_EVERY,
    soon: threading.Event | None = None,
    connected: Callable[[str], None] | None = None,
    after: Callable[[Participant], None] = lambda participant: None,
) -> None:
    """Answer a recommender until ``stop`` is set.

    Where two servers are pinned, the device reports to them. Otherwise it polls for offers.

    Args:
        store: The device's store at the recommender's place, opened for serving.
        log: Told what happens, in lines for the owner.
        every: Seconds, about, between two looks at the files.
        soon: Set to look at the files now, at the next poll where offers are polled for; with
            ``stop``, too.
        connected: Told about the connection that is polled.
        after: Called before anything is done, and after each step, look and answer.
    """
    authority = store.recommender.authority or b""
    web = polling.WebClient(address, authority)
    clients: list[polling.WebClient | polling.PollingDevice] = [web]

    def learn(told: bytes) -> None:
        trusted = follow(store, told, log)
        for client in clients:
            client.trust(trusted)

    participant = Participant(store, web, recommender=address, every=every, follow=learn, log=log)

    def look(version: str) -> None:
        if soon is not None and soon.is_set():
            soon.clear()
            participant.poll_soon()
        participant.look(version)
        after(participant)

    def answer(offer: bytes) -> bytes:
        reply = participant.answer(offer)
        after(participant)
        return reply

    after(participant)
    try:
        if pinned_servers(store) is None:
            device = polling.PollingDevice(
                address,
                authority,
                store.identity,
                look=look,
                leave=lambda: web.close(),
                log=connected,
            )
            clients.append(device)
            device.serve(quantize_response_time(answer), stop)
        else:
            _report(participant, stop, soon, after)
    finally:
        participant.settle()


def _report(
    participant: Participant,
    stop: threading.Event,
    soon: threading.Event | None,
    after: Callable[[Participant], None],
) -> None:
    while not stop.is_set():
        wait = participant.step()
        after(participant)
        if stop.is_set():
            return
        (stop if soon is None else soon).wait(wait)
        if soon is not None and soon.is_set():
            soon.clear()
            participant.poll_soon()
