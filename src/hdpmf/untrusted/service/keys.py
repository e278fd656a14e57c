"""Keys of a recommender: what the two servers encrypt sums to, and what signs the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair
from hdpmf.common.base.files import atomic_write, lock_file, read_file, storage_errors
from hdpmf.common.data import ItemTable
from hdpmf.common.protocol import CatalogueVersion
from hdpmf.common.protocol.catalogue import catalogue_table, known_items, next_version
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.identity import KEY_BYTES, Identity, PartyKey
from hdpmf.common.protocol.servers import Collector, Servers, require_two_hosts
from hdpmf.errors import ConfigError, ProtocolError, StorageError

if TYPE_CHECKING:
    from hdpmf.untrusted.service.folder import ServiceFolder

SERVERS, CARD = "servers.json", "collector-card.json"


@dataclass(frozen=True)
class CollectorKeys:
    """Keys that the two servers know the recommender by, and that open the sums.

    Attributes:
        name: Of the recommender, for people.
        party: Authenticates to the servers.
        hpke: Decrypts their sums.
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
        """The card that the servers' operators admit."""
        return Collector(
            organisation=self.name,
            hpke=to_base64(self.hpke.config.encode()),
            identity=self.party.public,
        )


def pinned_servers(folder: Path) -> Servers | None:
    """The pair of servers of a recommender; None where none was pinned."""
    path = folder / SERVERS
    return Servers.from_json(read_file(path)) if path.exists() else None


def load_keys(folder: Path, name: str) -> CollectorKeys:
    """The keys of a recommender that has pinned its servers."""
    keys = folder / "collector"
    return CollectorKeys(
        name,
        PartyKey.from_bytes(read_file(keys / "party.key")),
        KeyPair.from_bytes(read_file(keys / "hpke.key")),
    )


def pin_servers(
    folder: Path, name: str, servers: Servers, *, replace: bool = False, same_host: bool = False
) -> CollectorKeys:
    """Pin the pair of servers; keys and card are made the first time, and stay.

    Args:
        folder: The recommender's.
        name: Of the recommender, for people.
        replace: Allow it although another pair is pinned.
        same_host: Allow both servers on one machine, for trials.

    Raises:
        ConfigError: Another pair is pinned, or both servers are on one host.
    """
    pinned = pinned_servers(folder)
    if pinned not in (None, servers) and not replace:
        raise ConfigError(
            "another pair of servers is pinned; if this one is meant, and people have compared its "
            "digest, say so: --new-servers"
        )
    if pinned != servers:
        require_two_hosts(servers, same_host=same_host)
    secret = folder / "collector"
    with storage_errors(f"could not make {secret}"):
        secret.mkdir(mode=0o700, exist_ok=True)
    fresh = CollectorKeys.generate(name)
    for file, data in (("party.key", fresh.party.to_bytes()), ("hpke.key", fresh.hpke.to_bytes())):
        if not (secret / file).exists():
            atomic_write(secret / file, data, mode=0o600)
    keys = load_keys(folder, name)
    atomic_write(folder / CARD, msgspec.json.format(msgspec.json.encode(keys.card), indent=1))
    atomic_write(folder / SERVERS, servers.to_json())
    return keys


CATALOGUE, KEY = "catalogue.json", "catalogue.key"


def make_catalogue_key(folder: Path) -> Identity:
    """Make the key that signs versions of a catalogue and nothing else."""
    key = Identity.generate()
    atomic_write(folder / KEY, key.secret_bytes(), mode=0o600)
    return key


def catalogue_key(folder: Path) -> Identity:
    """The key of a recommender that signs its catalogue."""
    path = folder / KEY
    with storage_errors(
        f"cannot read {path}",
        ". Devices take no version of the catalogue that another key signed; restore a backup",
    ):
        secret = path.read_bytes()
    if len(secret) != KEY_BYTES:
        raise StorageError(f"{path} is damaged; restore a backup")
    return Identity(secret)


def change_items(
    folder: ServiceFolder, added: ItemTable | None, retired: Sequence[str] = ()
) -> CatalogueVersion:
    """Write down the next version of the catalogue.

    Args:
        folder: The recommender's.
        added: New items for its end.
        retired: Ids of items that are no longer recommended or asked about.

    Raises:
        ConfigError: An item is there already, unknown, or retired already; nothing is changed then.
    """
    with _alone(folder):
        now, key = _signed(folder)
        table = now.table
        positions = {item: position for position, item in enumerate(table.ids)}
        unknown = [item for item in retired if item not in positions]
        if unknown:
            raise ConfigError(
                f"there is no item {unknown[0]!r} in the catalogue; nothing was changed"
            )
        if len(set(retired)) < len(retired):
            raise ConfigError("an item is to be retired twice; name it once")
        more = (
            None if added is None else catalogue_table(added.index, known_items(now).scale, added)
        )
        if more is not None and not table.integer_ids:
            # Numbers are texts where ids are texts.
            more = msgspec.structs.replace(more, integer_ids=False)
        new = next_version(now, key.sign, added=more, retired=[positions[item] for item in retired])
        try:
            known_items(new)
        except ProtocolError as error:
            raise ConfigError(f"{error}; nothing was changed") from error
        atomic_write(folder.path / CATALOGUE, new.to_bytes())
    return new


def _signed(folder: ServiceFolder) -> tuple[CatalogueVersion, Identity]:
    """The catalogue as it is, with its key."""
    items, key = folder.items, catalogue_key(folder.path)
    if to_base64(key.public) != items.key:
        raise ConfigError(
            f"{folder.path} has another key than the one that signed its catalogue; restore a "
            "backup"
        )
    return items, key


@contextmanager
def _alone(folder: ServiceFolder) -> Iterator[None]:
    """Lock the catalogue: of two versions with one number devices take the one they saw first."""
    with (folder.path / ".items").open("w") as stream:
        lock_file(stream.fileno(), wait=True)
        yield
