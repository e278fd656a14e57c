"""One process of participants: ``python -m hdpmf.lab.simulate.participants FOLDER``.

Each has a file of its own in the folder, takes part until a new model is there, and then stays as
it is. The process ends when all have one.
"""

import sys
import time
from contextlib import ExitStack
from pathlib import Path

from hdpmf.private.device.carrier import WebCarrier
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.state_file import StateFile

_EVERY = 1.0
"""Seconds, about, between two looks of a participant."""


def take_part(folder: Path) -> None:
    """Let every device in a folder take part until it has a new model."""
    with ExitStack() as stack:
        files = {
            path.stem: stack.enter_context(StateFile.open(path))
            for path in sorted(folder.glob("*.sqlite"))
        }
        before = {name: _model(file) for name, file in files.items()}
        waiting = {name: _participant(file, name) for name, file in files.items()}
        while waiting:
            pause = min(participant.step() for participant in waiting.values())
            for name in [each for each in waiting if _model(files[each]) != before[each]]:
                del waiting[name]
            time.sleep(min(pause, _EVERY))


def _model(file: StateFile) -> str:
    return file.load().state.only().model


def _participant(file: StateFile, name: str) -> Participant:
    def log(line: str) -> None:
        print(f"{name}: {line}", file=sys.stderr, flush=True)

    file.take_part()
    carrier = WebCarrier(joined.invitation for joined in file.load().state.joined)
    return Participant(file, carrier, every=_EVERY, log=log)


if __name__ == "__main__":
    take_part(Path(sys.argv[1]))
