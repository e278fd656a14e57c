"""A device of the contract tests in a process of its own: ``python -m scripted_device
SETTINGS``, a file of JSON.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from pathlib import Path

from transport_contract import MAX_BYTES, ScriptedDevice

from hdpmf.common.net.flower.device import FlowerDevice
from hdpmf.common.net.keys import NodeKey


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    settings = json.loads(Path(sys.argv[1]).read_text())
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    key = NodeKey.from_bytes(settings["key"].encode())
    authority = settings["authority"].encode()
    device = FlowerDevice(
        settings["address"], authority, key, heartbeat=settings["heartbeat"], max_bytes=MAX_BYTES
    )
    device.serve(ScriptedDevice(settings["name"]), stop)


if __name__ == "__main__":
    main()
