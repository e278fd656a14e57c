"""One process of participants: ``python -m hdpmf.lab.simulate.participants FOLDER ADDRESS``.

Each has a store of its own in the folder, takes part until a model is there, and then stays as it
is. The process ends when all have one.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

from hdpmf.private.device.connection import connect
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.recommendations import local_model
from hdpmf.private.device.store.device_store import DeviceStore

_EVERY = 1.0
"""Seconds, about, between two looks of a participant."""


def take_part(folder: Path, address: str) -> None:
    """Let every store in a folder take part once."""
    with ExitStack() as stack:
        stores = {
            path.stem: stack.enter_context(DeviceStore.open(path, serving=True))
            for path in sorted(folder.glob("*.sqlite"))
        }
        waiting = {name: _participant(store, address, name) for name, store in stores.items()}
        while waiting:
            pause = min(participant.step() for participant in waiting.values())
            for name in [name for name in waiting if local_model(stores[name]) is not None]:
                del waiting[name]
            time.sleep(min(pause, _EVERY))


def _participant(store: DeviceStore, address: str, name: str) -> Participant:
    def log(line: str) -> None:
        print(f"{name}: {line}", file=sys.stderr, flush=True)

    return connect(store, address, log, every=_EVERY)


if __name__ == "__main__":
    take_part(Path(sys.argv[1]), sys.argv[2])
