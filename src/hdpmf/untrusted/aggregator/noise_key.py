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

from hashlib import sha256

from hdpmf.common.privacy.sampling import KeyedNoise
from hdpmf.errors import PrivacyError
from hdpmf.untrusted.aggregator.key_file import DAY, DailyKey, KeyFile, derive_key

NOISE_KEY_FILE = "noise-key"
_LABEL = b"noise key of a day"


class NoiseKey:
    """A server's noise key, shared by all its workers.

    It is in a file, also where other keys are in the database: each host moves its copy forward by
    itself, and an old database must not bring back another noise.

    Args:
        store: Of the key; a new one is made if it is empty.
    """

    def __init__(self, store: KeyFile) -> None:
        self._key = DailyKey(store, _LABEL)

    def noise(self, task_id: bytes, end: int, total: bytes) -> KeyedNoise:
        """Return the noise for the share ``total`` of a sum; the task ends at ``end``.

        Raises:
            PrivacyError: The key of that day is erased.
        """
        key = self._key.at(end // DAY)
        if key is None:
            raise PrivacyError(
                f"the noise key for task {task_id.hex()[:16]} is erased, because the task's time "
                "is over by this server's clock; make a new task"
            )
        return KeyedNoise(derive_key(key, b"noise of a sum" + task_id + sha256(total).digest()))

    def erase_before(self, time: float) -> None:
        """Erase the keys of all days before this time."""
        self._key.erase_before(int(time // DAY))
