"""Who was taken off the roster is asked nothing more, also in a run that began before."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from hdpmf.common.net import DeviceReply, RecommenderTransport
from hdpmf.errors import StorageError
from hdpmf.untrusted.service.folder import ServiceFolder


class OnRoster:
    """A way to devices that leaves out those which are not on the roster (any more), from the
    next exchange on.
    """

    def __init__(self, transport: RecommenderTransport, folder: ServiceFolder) -> None:
        self._transport = transport
        self._folder = folder
        self._read_at: tuple[int, ...] = ()
        self._enrolled: frozenset[str] = frozenset()

    def present(self) -> frozenset[str]:
        """As in ``RecommenderTransport``."""
        return self._transport.present() & self._now()

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        """As in ``RecommenderTransport``; a device that was taken off is silent."""
        enrolled = self._now()
        return self._transport.exchange(
            {name: data for name, data in messages.items() if name in enrolled}, deadline
        )

    def close(self) -> None:
        """As in ``RecommenderTransport``."""
        self._transport.close()

    def _now(self) -> frozenset[str]:
        path = self._folder.path / "roster.json"
        try:
            found = os.stat(path)
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror}") from error
        at = (found.st_ino, found.st_mtime_ns, found.st_size)
        if at != self._read_at:
            self._enrolled, self._read_at = frozenset(self._folder.enrolled.users), at
        return self._enrolled
