"""A device that polls a recommender, over TLS on loopback."""

from __future__ import annotations

import threading
from pathlib import Path

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.net.polling import PollingDevice
from tests.federation.deployed import recommender


def test_every_offer_is_answered_once(tmp_path: Path) -> None:
    identity, stop = DeviceIdentity.generate(), threading.Event()
    name, asked = identity.public.hex(), []

    def answer(data: bytes) -> bytes:
        asked.append(data)
        return data.upper()

    with recommender(tmp_path, [identity]) as made:
        device = PollingDevice(made.address, made.authority, identity)
        thread = threading.Thread(target=device.serve, args=(answer, stop), daemon=True)
        thread.start()
        for message in (b"first", b"second"):
            heard = [reply.data for reply in made.mailbox.exchange({name: message}, 30.0)]
            assert heard == [message.upper()]
        stop.set()
        thread.join(30.0)
        assert not thread.is_alive()
    assert asked == [b"first", b"second"]  # each once
