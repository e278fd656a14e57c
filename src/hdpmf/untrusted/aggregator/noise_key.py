"""The noise of a server's sums: a secret function of the sum itself.

Noise that is drawn twice for one sum can be averaged. A server draws once and remembers what it
released; one that was restored has forgotten. So the noise is no draw: it is the output of a
pseudorandom function under the server's noise key, fed to the exact sampler as its random bits. The
same sum gets the same noise, whenever it is asked for.

What the function is applied to decides what an attacker gains who can bring a server back:

- Task and batch alone would not do. After a restore the batch may have other reports (the leader
  sends all but one again). Two sums with one noise differ by exactly that report.
- Ids and number of reports, or their checksum, would not do either. Under the id of somebody's
  report the leader could send a report of its own.
- The share of the sum itself does. If it is the same, what is released is the same, and nobody
  learns anything new. If it differs in any report, the noise is independent of the one before.

The key moves forward, one step a day, and what lies behind is erased: a task's noise key is that of
the day on which the task ends, and it is kept for as long as the task can be collected (``keep``).
So whoever steals the key can subtract the noise of the last weeks, not of all years.
"""

from __future__ import annotations

import secrets
from hashlib import sha256

from hdpmf.common.privacy.sampling import KeyedNoise
from hdpmf.errors import PrivacyError
from hdpmf.untrusted.aggregator.key_file import KEY_SIZE, NAME_SIZE, KeyFile, derive_key

NOISE_KEY_FILE = "noise-key"
_DAY = 86_400
_LABEL = b"noise key of a day"


class NoiseKey:
    """A server's noise key, shared by all its workers.

    Args:
        store: Of the key; a new one is made if it is empty.
    """

    def __init__(self, store: KeyFile) -> None:
        self._store = store
        if not store.names():
            store.put(_name(0), secrets.token_bytes(KEY_SIZE))

    def noise(self, task_id: bytes, end: int, total: bytes) -> KeyedNoise:
        """Return the noise for the share ``total`` of a sum; the task ends at ``end``.

        Raises:
            PrivacyError: The key of that day is erased.
        """
        days = self._days()
        day = end // _DAY
        known = [found for found in days if found <= day]
        if not known:
            raise PrivacyError(
                f"the noise key for task {task_id.hex()[:16]} is erased, because the task's time "
                "is over by this server's clock; make a new task"
            )
        key = _forward(days[max(known)], day - max(known))
        return KeyedNoise(derive_key(key, b"noise of a sum" + task_id + sha256(total).digest()))

    def erase_before(self, time: float) -> None:
        """Erase the keys of all days before this time."""
        days = self._days()
        newest = max(days)
        day = int(time // _DAY)
        if newest < day:
            self._store.put(_name(day), _forward(days[newest], day - newest))
            newest = day
        self._store.erase(_name(old) for old in days if old < newest)

    def _days(self) -> dict[int, bytes]:
        """Return the keys by their days; more than one if a server was killed between two steps."""
        keys = self._store.keys()
        return {int.from_bytes(name[len(_LABEL) :], "big"): key for name, key in keys.items()}


def _name(day: int) -> bytes:
    return _LABEL + day.to_bytes(NAME_SIZE - len(_LABEL), "big")


def _forward(key: bytes, days: int) -> bytes:
    for _ in range(days):
        key = derive_key(key, b"next day")
    return key
