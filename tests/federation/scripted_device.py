"""A device of the contract tests in a process of its own: ``python -m scripted_device NAME ENROLMENT HEARTBEAT``."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from pathlib import Path

from transport_contract import MAX_BYTES, ScriptedDevice

from hdpmf.transport.enrolment import Enrolment


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    name, enrolment, heartbeat = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    device = Enrolment.from_bytes(Path(enrolment).read_bytes()).connect(heartbeat=float(heartbeat), max_bytes=MAX_BYTES)
    device.serve(ScriptedDevice(name), stop)


if __name__ == "__main__":
    main()
