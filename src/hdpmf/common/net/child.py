"""A Python process that we start: it writes a log, and ends when this process does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hdpmf.errors import StorageError


class Child:
    """A process that starts on construction and ends when the pipe to its standard input closes.

    Args:
        name: For messages.
        arguments: Of the interpreter.
        log: File for its standard error.
        environment: All of it.
        talks: Make its standard output a pipe to this process, and begin the log anew; otherwise
            both go to the log.

    Raises:
        StorageError: The log cannot be written.
    """

    def __init__(
        self,
        name: str,
        arguments: list[str],
        log: Path,
        environment: Mapping[str, str],
        *,
        talks: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        try:
            log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            output = os.open(
                log, os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if talks else os.O_APPEND), 0o600
            )
        except OSError as error:
            raise StorageError(f"could not write {log}: {error.strerror}") from error
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and modules
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if talks else output,
                stderr=output,
                env=environment,
                # Ctrl-C is for this process, which then ends the others in order
                start_new_session=True,
            )
        finally:
            os.close(output)

    @property
    def running(self) -> bool:
        """True while it runs."""
        return self.process.poll() is None

    def last_words(self) -> str:
        """The last line of its log."""
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "it said nothing"

    def release(self) -> None:
        """Close the pipes. May be called twice."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what it did not read before it ended
                    pipe.close()
