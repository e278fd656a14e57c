"""The recommender's keys as the collector of sums by two servers, and the pair of servers that it
has pinned.

::

    folder/servers.json          the two servers, as their operators gave it
    folder/collector-card.json   what their operators admit; public
    folder/collector/party.key   what the servers know the recommender by
    folder/collector/hpke.key    what opens the sums
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair
from hdpmf.common.base.files import atomic_write
from hdpmf.common.net.parties import PartyKey
from hdpmf.common.protocol.servers import Collector, Servers
from hdpmf.errors import ConfigError, StorageError

SERVERS, CARD = "servers.json", "collector-card.json"


@dataclass(frozen=True)
class CollectorKeys:
    """What the two servers know the recommender by, and what opens the sums.

    Attributes:
        name: What people know the recommender by.
        party: For what is shown to the servers.
        hpke: For what they encrypt.
    """

    name: str
    party: PartyKey
    hpke: KeyPair

    @classmethod
    def generate(cls, name: str) -> CollectorKeys:
        """New ones."""
        return cls(name, PartyKey.generate(), KeyPair.generate())

    @property
    def card(self) -> Collector:
        """What the servers' operators admit."""
        return Collector(
            organisation=self.name, hpke=self.hpke.config.encode().hex(), identity=self.party.public
        )


def pinned_servers(folder: Path) -> Servers | None:
    """The pair of servers of a recommender; None where none was pinned."""
    path = folder / SERVERS
    return Servers.from_json(_read(path)) if path.exists() else None


def load_keys(folder: Path, name: str) -> CollectorKeys:
    """The keys of a recommender that has pinned its servers."""
    keys = folder / "collector"
    return CollectorKeys(
        name,
        PartyKey.from_bytes(_read(keys / "party.key")),
        KeyPair.from_bytes(_read(keys / "hpke.key")),
    )


def pin_servers(
    folder: Path, name: str, servers: Servers, *, replace: bool = False
) -> CollectorKeys:
    """Pin the pair of servers; keys and card are made the first time, and stay.

    Args:
        folder: The recommender's.
        name: What people know the recommender by.
        servers: The pair.
        replace: Take it although another pair is pinned.

    Raises:
        ConfigError: Another pair is pinned.
    """
    pinned = pinned_servers(folder)
    if pinned not in (None, servers) and not replace:
        raise ConfigError(
            "another pair of servers is pinned; if this one is meant, and people have "
            "compared its digest, say so: "
            "--new-servers"
        )
    secret = folder / "collector"
    try:
        secret.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StorageError(f"could not make {secret}: {error.strerror}") from error
    fresh = CollectorKeys.generate(name)
    for file, data in (("party.key", fresh.party.to_bytes()), ("hpke.key", fresh.hpke.to_bytes())):
        if not (secret / file).exists():
            atomic_write(secret / file, data, mode=0o600)
    keys = load_keys(folder, name)
    atomic_write(folder / CARD, msgspec.json.format(msgspec.json.encode(keys.card), indent=1))
    atomic_write(folder / SERVERS, servers.to_json())
    return keys


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
