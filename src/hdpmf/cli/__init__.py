"""The ``hdpmf`` command: a module or a small package for each noun, assembled in ``commands``."""

import signal
import threading

# They change the log level of a service that runs; before it does, they would end it. This is the
# first module that a command imports.
for _number in ("SIGUSR1", "SIGUSR2"):
    if hasattr(signal, _number) and threading.current_thread() is threading.main_thread():
        signal.signal(getattr(signal, _number), signal.SIG_IGN)
