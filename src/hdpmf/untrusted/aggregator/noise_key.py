"""The noise of a server's sums: a secret function of the sum itself.

Noise that is drawn twice for one sum can be averaged. A server draws once and remembers what it
released, but whoever brings back an old copy of its folder and its database brings back a server
that has forgotten. So the noise is no draw: it is the output of a pseudorandom function under the
server's noise key, fed to the exact sampler as its random bits. The server that has forgotten adds
the same noise to the same sum and releases the same numbers.

What the function is applied to decides what an attacker gains who can bring a server back:

- Task and batch alone would not do. After a rollback the batch may have other reports (the leader
  sends all but one again). Two sums with one noise differ by exactly that report.
- Ids and number of reports, or their checksum, would not do either. Under the id of somebody's
  report the leader could send a report of its own; and checksums that are sums of hashes can be
  made to collide.
- The share of the sum itself does. If it is the same, what is released is the same, and nobody
  learns anything new. If it differs in any report, the noise is independent of the one before. The
  interval is left out on purpose: the same reports under another interval get the same noise.

What this cannot do: a server that was brought back entirely and then sums *other* reports releases
a second sum with a noise of its own, as any second release. The log of closed batches refuses
that where it is newer than the database. Nothing that lies in the same folder could know better.

The key moves forward, one step a day, and what lies behind is erased: a task's noise key is that of
the day on which the task ends, and it is kept for as long as the task can be collected. So whoever
steals the key can subtract the noise of the last weeks (``keep`` in config.toml), not of all
years. An old copy of the key leads to all later ones, as it has to.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256
from pathlib import Path

from hdpmf.common.privacy.sampling import KeyedNoise
from hdpmf.errors import PrivacyError
from hdpmf.untrusted.aggregator.key_file import KEY_SIZE, NAME_SIZE, KeyFile

_DAY = 86_400
_LABEL = b"noise key of a day"


class NoiseKey:
    """A server's noise key, shared by all its workers.

    Args:
        path: The file; None if the database is in memory. A file that is missing is made, with a
            new key.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = KeyFile(path)
        if not self._file.names():
            self._file.put(_name(0), secrets.token_bytes(KEY_SIZE))

    def noise(self, task_id: bytes, end: int, total: bytes) -> KeyedNoise:
        """Return the noise for the share ``total`` of a sum; the task ends at ``end``.

        Raises:
            PrivacyError: The key of that day is erased.
        """
        day = end // _DAY
        known = [found for found in self._days() if found <= day]
        if not known:
            raise PrivacyError(
                f"the noise key for task {task_id.hex()[:16]} is erased, because the task's time "
                "is over by this server's clock; make a new task"
            )
        key = self._file.get(_name(max(known)))
        if key is None:
            return self.noise(task_id, end, total)  # another worker has just moved it forward
        key = _forward(key, day - max(known))
        return KeyedNoise(_derive(key, b"noise of a sum" + task_id + sha256(total).digest()))

    def erase_before(self, time: float) -> None:
        """Erase the keys of all days before this time."""
        day = int(time // _DAY)
        days = self._days()
        if not days or max(days) >= day > min(days):
            self._file.erase(_name(old) for old in days if old != max(days))
            return
        if max(days) < day:
            key = self._file.get(_name(max(days)))
            if key is not None:
                self._file.put(_name(day), _forward(key, day - max(days)))
                self._file.erase(_name(old) for old in days)

    def _days(self) -> list[int]:
        return [int.from_bytes(name[len(_LABEL) :], "big") for name in self._file.names()]


def _name(day: int) -> bytes:
    return _LABEL + day.to_bytes(NAME_SIZE - len(_LABEL), "big")


def _forward(key: bytes, days: int) -> bytes:
    for _ in range(days):
        key = _derive(key, b"next day")
    return key


def _derive(key: bytes, purpose: bytes) -> bytes:
    return hmac.digest(key, b"hdpmf " + purpose, "sha256")
