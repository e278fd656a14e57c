"""The HPKE keys of a server: a new one every week, and old ones erased when nothing needs them.

Reports travel through the leader, and somebody may keep them. They stay closed for good only if
the keys that open them are gone one day. So a server has several keys. Devices encrypt to the
newest, by a list that the server signs (``key_list``); the others open reports under way. A key is
*retired* when a newer one is first on the list. It is erased once no list by which anybody may
encrypt to it is valid any more, and every task that had begun by then is closed or purged.

The file of the keys (``key_file``) is the truth: the signed list beside it is made of it, and made
again if a process was killed in between. All workers of a server, and the command ``rotate-keys``,
may use it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair
from hdpmf.common.aggregation.two_servers.dap.messages import (
    HpkeCiphertext,
    HpkeConfig,
    HpkeConfigList,
    ReportError,
    ReportRefusedError,
)
from hdpmf.common.base.files import atomic_write, read_file
from hdpmf.common.protocol.documents import from_base64, to_base64
from hdpmf.common.protocol.identity import Identity
from hdpmf.common.protocol.key_list import (
    VALID_SECONDS,
    KeyList,
    SignedKeyList,
    follow_key_list,
    read_signed_list,
)
from hdpmf.common.protocol.servers import Server
from hdpmf.errors import ProtocolError, StorageError
from hdpmf.untrusted.aggregator.sealing import NAME_SIZE, KeyFile

ROTATE_SECONDS = 7 * 86_400.0

HPKE_KEYS_FILE = "hpke-keys"
_LIST_FILE = "hpke-list"
_LABEL = b"hpke key of time and id"
_IDS = 256
_SLACK_SECONDS = 86_400  # clocks of devices, and caches on the way


class HpkeKeyRing:
    """The HPKE keys of one server.

    Args:
        folder: Of the file with the keys and of the signed list.
        signing: The server's long-term key.
        period: Seconds after which a new key is made.
    """

    def __init__(self, folder: Path, signing: Identity, period: float = ROTATE_SECONDS) -> None:
        self._store = KeyFile(folder / HPKE_KEYS_FILE)
        self._list = folder / _LIST_FILE
        self._signing = signing
        self._period = period
        self._pairs: dict[bytes, KeyPair] = {}

    def __repr__(self) -> str:
        return f"HpkeKeyRing({self._store})"

    @property
    def config(self) -> HpkeConfig:
        """The public part of the newest key."""
        return next(iter(self._load().values())).config

    @property
    def ages(self) -> list[tuple[int, int]]:
        """Id and time of making of every key, newest first."""
        return [(_id(name), _made(name)) for name in self._names()]

    def is_on(self, card: Server) -> bool:
        """Return True if a card shows what these keys are known by."""
        return card.signing == to_base64(self._signing.public)

    def knows(self, config_id: int) -> bool:
        """Return True if there is a key of this id."""
        return any(_id(name) == config_id for name in self._names())

    def open(self, ciphertext: HpkeCiphertext, info: bytes, aad: bytes) -> bytes:
        """Decrypt; errors as in ``KeyPair.open``."""
        for pair in self._load().values():
            if pair.config.id == ciphertext.config_id:
                return pair.open(ciphertext, info, aad)
        raise ReportRefusedError(
            "encrypted for a key that is not in use; ask for the keys again",
            ReportError.HPKE_UNKNOWN_CONFIG_ID,
        )

    def signed_list(self, now: float) -> bytes:
        """Return the list as the server has signed it."""
        return self._current(now)[0]

    def rotate(self, now: float, *, erase: bool = False) -> None:
        """Make a new key and sign a list that begins with it.

        With ``erase``, all others are erased at once, whatever is under way.
        """
        with self._store.alone():
            names = self._add(now)
            if erase:
                self._erase(names, names[1:], now)
            else:
                self._publish(names, now)

    def maintain(self, now: float, needed: Callable[[int], bool]) -> None:
        """Make a new key if it is time, and erase keys that nothing needs any more.

        ``needed`` tells whether a task that had begun by a time may have reports that nobody has
        opened.
        """
        with self._store.alone():
            names = self._names()
            if not names or now >= _made(names[0]) + self._period:
                names = self._add(now)
                self._publish(names, now)
            ends = [(name, _usable_until(newer)) for newer, name in pairwise(names)]
            gone = [name for name, end in ends if now > end and not needed(end)]
            if gone:
                self._erase(names, gone, now)

    def _erase(self, names: list[bytes], gone: list[bytes], now: float) -> None:
        """Publish a list without these keys, then overwrite them."""
        self._publish([name for name in names if name not in gone], now)
        self._store.erase(gone)

    def _names(self) -> list[bytes]:
        """The names of all keys, newest first."""
        return sorted(self._store.names(), reverse=True)

    def _load(self) -> dict[bytes, KeyPair]:
        """All keys, newest first; those that another process has erased are forgotten here, too."""
        found = {
            name: self._pairs.get(name) or KeyPair(_id(name), key)
            for name, key in sorted(self._store.keys().items(), reverse=True)
        }
        if not found:
            raise StorageError(
                f"the keys that open reports are not there ({self._store}); bring them back, or "
                "make a new key: hdpmf aggregator rotate-keys"
            )
        self._pairs = found
        return found

    def _add(self, now: float) -> list[bytes]:
        """Put a new key into the store; return all names."""
        names = self._names()
        used = {_id(name) for name in names}
        first = _id(names[0]) + 1 if names else 0
        free = [found % _IDS for found in range(first, first + _IDS) if found % _IDS not in used]
        if not free:
            raise StorageError(f"all {_IDS} ids of keys are in use; purge or collect old tasks")
        made = max(int(now), _made(names[0]) + 1 if names else 0)
        self._store.make(_name(made, free[0]))
        return self._names()

    def _current(self, now: float) -> tuple[bytes, KeyList]:
        """Return the signed list, and what it says; it is signed anew where that is due."""
        found = self._stored()
        if found is not None and self._holds(found[1], self._names(), now):
            return found
        with self._store.alone():
            # Keys that were lost begin again: reports for lost keys are made anew.
            names = self._names() or self._add(now)
            found = self._stored()
            if found is not None and self._holds(found[1], names, now):
                return found
            return self._publish(names, now)

    def _holds(self, keys: KeyList, names: list[bytes], now: float) -> bool:
        """Return True if a list names these keys, and is valid for long enough."""
        if not names or keys.not_after < now + VALID_SECONDS / 2:
            return False
        return from_base64(keys.configs) == self._configs_of(names)

    def _configs_of(self, names: list[bytes]) -> bytes:
        found = self._load()
        configs = (found[name].config for name in names if name in found)
        return HpkeConfigList(tuple(configs)).encode()

    def _publish(self, names: list[bytes], now: float) -> tuple[bytes, KeyList]:
        """Sign a list of these keys, and keep it."""
        before = self._stored()
        keys = KeyList(
            serial=max(int(now), 0 if before is None else before[1].serial + 1),
            not_after=int(now) + VALID_SECONDS,
            configs=to_base64(self._configs_of(names)),
        )
        signed = SignedKeyList.make(keys, self._signing.sign).to_bytes()
        atomic_write(self._list, signed)
        return signed, keys

    def _stored(self) -> tuple[bytes, KeyList] | None:
        """The list that was signed last; None if there is none, or it is not of this key."""
        if not self._list.exists():
            return None
        signed = read_file(self._list)
        try:
            return signed, read_signed_list(
                signed, to_base64(self._signing.public), "the list of keys"
            )
        except ProtocolError:
            return None


class PartnerKeys:
    """The ids of the other server's keys, so that no report is confirmed that it cannot open.

    Args:
        card: The other server's.

    Attributes:
        outdated: The list should be asked for.
    """

    def __init__(self, card: Server) -> None:
        self._card = card
        self._ids: frozenset[int] | None = None
        self._list = b""
        self.outdated = True

    def knows(self, config_id: int) -> bool:
        """Return True if it has a key of this id, or nothing is known of its keys.

        An unknown id may be newer than the list here, which is then asked for again.
        """
        if self._ids is None or config_id in self._ids:
            return True
        self.outdated = True
        return False

    def follow(self, signed: bytes) -> None:
        """Take its signed list; raise ProtocolError if it is older, forged or of somebody else."""
        keys = follow_key_list(signed, self._list, self._card)
        self._list = signed
        self._ids = frozenset(config.id for config in keys.keys)
        self.outdated = False


def _name(made: int, config_id: int) -> bytes:
    number = made * _IDS + config_id
    return _LABEL + number.to_bytes(NAME_SIZE - len(_LABEL), "big")


def _number(name: bytes) -> int:
    return int.from_bytes(name[len(_LABEL) :], "big")


def _id(name: bytes) -> int:
    return _number(name) % _IDS


def _made(name: bytes) -> int:
    return _number(name) // _IDS


def _usable_until(newer: bytes) -> int:
    """Return the last time at which anybody encrypts to a key that this newer one has retired."""
    return _made(newer) + VALID_SECONDS + _SLACK_SECONDS
