"""Run a module that ends with its starter: ``python -m hdpmf.lab.simulate.supervised MODULE ...``.

Its standard input is a pipe from the process that started it. When that process ends, even by
``kill -9``, the pipe closes; the module gets SIGTERM, and is ended if it does not end.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

_GRACE_SECONDS = 10.0


def main() -> None:
    """Run the module named by the first argument."""
    threading.Thread(target=_end_with_starter, name="lifeline", daemon=True).start()
    module = sys.argv[1]
    del sys.argv[0]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with_starter() -> None:
    # Not through sys.stdin: its buffer would be locked by this thread while the interpreter shuts
    # down.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
