"""A device of the contract tests in a process of its own.

``python -m tests.federation.scripted_device SETTINGS``, a file of JSON.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from pathlib import Path

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.net.polling import PollingDevice
from tests.federation.transport_contract import MAX_BYTES, ScriptedDevice


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    settings = json.loads(Path(sys.argv[1]).read_text())
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    identity = DeviceIdentity(bytes.fromhex(settings["key"]))
    device = PollingDevice(
        settings["address"], settings["authority"].encode(), identity, max_bytes=MAX_BYTES
    )
    device.serve(ScriptedDevice(settings["name"]), stop)


if __name__ == "__main__":
    main()
