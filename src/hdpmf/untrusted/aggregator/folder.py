"""The folder of one of the two servers.

Its organisation owns the folder; nobody else has the keys in it.

::

    folder/
      config.toml           organisation, address, database, limits; edited by hand
      format                version of this layout
      card.json             public card of the server
      keys/party.key        authenticates it to servers and collectors (secret)
      keys/signing.key      signs the list of its HPKE keys; on the card (secret)
      keys/metrics.token    bearer token for /metrics (secret)
      tls/                  certificates of a trial, and the key
      servers.json          the pair, once it is paired: for recommenders and devices
      collectors/ID.json    recommenders that may have tasks
      data.sqlite           tasks, reports, sums, unless config.toml names another database
      data.sqlite.counter   how many transactions it had: an old copy is refused
      hpke-keys             decrypt what devices encrypt to it; rotated and erased (secret)
      hpke-list             the public parts of these keys, signed
      noise-key             makes the noise of its sums (secret)
      batch-keys            open reports and sums of batches that are not closed (secret)
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import nullcontext
from hmac import compare_digest
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from hdpmf.common.aggregation.two_servers.dap.messages import Problem
from hdpmf.common.base.files import (
    FolderLayout,
    atomic_write,
    read_config,
    read_file,
    storage_errors,
)
from hdpmf.common.net.certificates import Certificates, ensure_certificates
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.identity import Identity, PartyKey
from hdpmf.common.protocol.servers import (
    Collector,
    Server,
    Servers,
    card_to_json,
    read_collector,
    read_server,
    require_two_hosts,
)
from hdpmf.errors import ConfigError, DapError, StorageError
from hdpmf.untrusted.aggregator.collection import NOISE_KEY_FILE, NoiseKey
from hdpmf.untrusted.aggregator.datastore import ServerDatabase, Timer
from hdpmf.untrusted.aggregator.hpke_keys import HpkeKeyRing
from hdpmf.untrusted.aggregator.sealing import KeyFile
from hdpmf.untrusted.aggregator.tasks import Rules, ServerKeys, ServerRole

RETRY_AFTER = 30
"""Seconds to wait after a 503."""

TASK_BYTES = 16 << 20
"""Of a task, at most."""

JOB_REPORTS = 256
"""Reports of an aggregation job."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on what callers may use of one server. The descriptions are comments in the file."""

    waiting_uploads: Annotated[
        int, Meta(description="Uploads in memory, in each worker; above this: 503, try again.")
    ] = 1024
    waiting_reports: Annotated[
        int, Meta(description="Reports to be aggregated; above this: 503, try again.")
    ] = 1_000_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be more than 0")


class AggregatorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of one of the two servers.

    Attributes:
        organisation: The one that runs it.
        name: Public host name or address.
        host: Address that it listens on.
        port: Port that it listens on; also of its public address, unless there is a proxy.
        proxy: TLS ends at a proxy in front of it, with a public certificate, at port 443 of its
            name; otherwise it has an authority of its own, for trials.
        database: URL of SQLAlchemy; empty for a SQLite file in the folder.
    """

    role: ServerRole
    organisation: str
    name: str
    host: str = "127.0.0.1"
    port: int = 9444
    proxy: bool = False
    database: str = ""
    tasks: Rules = Rules()
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if not 0 < self.port < 1 << 16:
            raise ConfigError(f"port must be from 1 to 65535, not {self.port}")
        if self.database and not self.database.startswith(("sqlite:///", "postgresql+psycopg://")):
            raise ConfigError(
                "database must be sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME"
            )

    @property
    def url(self) -> str:
        """The server's public address."""
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"https://{name}" + ("" if self.proxy else f":{self.port}")


_ON_CARD = ("role", "organisation", "name", "port", "proxy")


def config_file(config: AggregatorConfig) -> bytes:
    """Return the file's text, with comments."""
    lines = [
        "# One of two servers that sum reports. Read when it starts.",
        f"# {', '.join(_ON_CARD)}: on the card that others have pinned; do not change them.",
        *(f"{key} = {_toml(getattr(config, key))}" for key in _ON_CARD),
        "# Address to listen on.",
        f"host = {_toml(config.host)}",
        "# A database that several workers can share: postgresql+psycopg://USER@HOST/NAME.",
        f"database = {_toml(config.database)}",
    ]
    for section, part in (
        ("tasks", config.tasks),
        ("limits", config.limits),
    ):
        lines += ["", f"[{section}]"]
        for field in msgspec.structs.fields(part):
            lines.append(f"# {field.type.__metadata__[0].description}")
            lines.append(f"{field.name} = {_toml(getattr(part, field.name))}")
    return "\n".join([*lines, ""]).encode()


def _toml(value: object) -> str:
    """Return a TOML value; JSON strings, numbers and booleans are TOML."""
    return msgspec.json.encode(value).decode()


_PARTY = "keys/party.key"
_SIGNING = "keys/signing.key"
_METRICS = "keys/metrics.token"

LAYOUT = FolderLayout(3)


class AggregatorFolder:
    """The folder of a server; ``config`` is its configuration."""

    def __init__(self, path: Path) -> None:
        LAYOUT.check(path)
        self.path = path
        missing = f"{path} is no server's folder; set one up with: hdpmf aggregator init"
        self.config = read_config(path / "config.toml", AggregatorConfig, missing)

    @classmethod
    def create(cls, path: Path, config: AggregatorConfig) -> AggregatorFolder:
        """Set up a new server atomically, in a folder that is new or empty."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(
                f"{path} is not empty; give a new folder, or use the server that is there"
            )
        if config.database:
            ServerDatabase(config.database).close()  # what cannot be opened is said now
        staging: Path | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # For its owner alone.
            staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
            _fill(staging, config)
            os.rename(staging, path)
        except OSError as error:
            raise StorageError(f"could not make {path}: {error.strerror or error}") from error
        finally:
            if staging is not None:
                shutil.rmtree(staging, ignore_errors=True)
        return cls(path)

    @property
    def card(self) -> Server:
        """The server's public card."""
        return read_server(self._read("card.json"))

    @property
    def party(self) -> PartyKey:
        """The secret key that authenticates it to servers and collectors."""
        return PartyKey.from_bytes(self._read(_PARTY))

    @property
    def hpke(self) -> HpkeKeyRing:
        """The secret keys that decrypt reports."""
        return HpkeKeyRing(self.path, Identity(self._read(_SIGNING)))

    @property
    def keys(self) -> ServerKeys:
        """The server's keys and both cards; raises ConfigError until it is paired."""
        return ServerKeys(self.config.role, self.party, self.hpke, self.card, self.partner)

    @property
    def metrics_token(self) -> str:
        """The bearer token for /metrics."""
        return self._read(_METRICS).decode("ascii", "replace").strip()

    @property
    def database_url(self) -> str:
        """The URL of its database."""
        return self.config.database or f"sqlite:///{self.path.resolve() / 'data.sqlite'}"

    def open_database(
        self, timer: Timer = nullcontext, *, restored: bool = False
    ) -> ServerDatabase:
        """Open the server's database; arguments as for ``ServerDatabase``."""
        return ServerDatabase(self.database_url, timer, restored=restored)

    def certificates(self) -> Certificates | None:
        """Return the certificates of a trial; None if TLS ends at a proxy in front of it."""
        if self.config.proxy:
            return None
        return ensure_certificates(self.path / "tls", (self.config.name,))

    @property
    def servers(self) -> Servers | None:
        """The pair; None until it is paired."""
        if not (self.path / "servers.json").exists():
            return None
        return Servers.from_json(self._read("servers.json"))

    @property
    def partner(self) -> Server:
        """The other server's card; raises ConfigError if there is none yet."""
        pair = self.servers
        if pair is None:
            raise ConfigError(
                f"{self.path} has no partner yet; exchange cards with the other organisation, "
                f"then: hdpmf aggregator pair {self.path} PARTNER-CARD.json"
            )
        return pair.helper if self.config.role == "leader" else pair.leader

    def pair(self, partner: Server, *, same_host: bool = False) -> Servers:
        """Pin the other server permanently: the verify keys of all tasks depend on it.

        ``same_host`` allows both on one machine, for trials.
        """
        own = self.card
        leader, helper = (own, partner) if self.config.role == "leader" else (partner, own)
        pair = Servers(leader=leader, helper=helper)
        current = self.servers
        if current is not None and current != pair:
            raise ConfigError(
                f"{self.path} is paired with {self.partner.organisation!r}; its tasks depend on "
                "that. For another partner, or another card of it, set up a new folder"
            )
        if current is None:
            require_two_hosts(pair, same_host=same_host)
            atomic_write(self.path / "servers.json", pair.to_json())
        return pair

    @property
    def collectors(self) -> dict[str, Collector]:
        """The recommenders that may have tasks, by identity."""
        cards = {}
        for path in sorted((self.path / "collectors").glob("*.json")):
            try:
                card = read_collector(read_file(path))
            except ConfigError as error:
                raise ConfigError(
                    f"{path}: {error}; remove the file, and admit the recommender again"
                ) from None
            cards[card.identity] = card
        return cards

    def admit(self, card: Collector) -> None:
        """Allow a recommender to add tasks; a new card replaces its old one."""
        self.party.token(card.identity, card.identity)  # a key that gives no secret is refused here
        atomic_write(self.path / "collectors" / f"{card.identity}.json", card_to_json(card))

    def dismiss(self, name: str) -> Collector:
        """Remove a recommender, by its organisation or its identity."""
        found = [
            card for card in self.collectors.values() if name in (card.organisation, card.identity)
        ]
        if len(found) != 1:
            many = "several recommenders are" if found else "no recommender is"
            raise ConfigError(
                f"{many} called {name!r}; hdpmf aggregator status {self.path} lists them"
            )
        path = self.path / "collectors" / f"{found[0].identity}.json"
        with storage_errors(f"could not remove {path}"):
            path.unlink(missing_ok=True)
        return found[0]

    def _read(self, name: str) -> bytes:
        return read_file(self.path / name)


def _fill(folder: Path, config: AggregatorConfig) -> None:
    LAYOUT.mark(folder)
    for name, mode in (("keys", 0o700), ("collectors", 0o755)):
        (folder / name).mkdir(mode=mode)
    party = PartyKey.generate()
    signing = Identity.generate()
    atomic_write(folder / _PARTY, party.to_bytes(), mode=0o600)
    atomic_write(folder / _SIGNING, signing.secret_bytes(), mode=0o600)
    atomic_write(folder / _METRICS, secrets.token_hex(32).encode() + b"\n", mode=0o600)
    # From the first day on, so that every copy of the folder has them.
    NoiseKey(KeyFile(folder / NOISE_KEY_FILE))
    card = Server(
        organisation=config.organisation,
        url=config.url,
        identity=party.public,
        authority="" if config.proxy else _authority(folder, config.name),
        signing=to_base64(signing.public),
    )
    HpkeKeyRing(folder, signing).rotate(time.time())
    atomic_write(folder / "card.json", card_to_json(card))
    # The database's password may be in it.
    atomic_write(folder / "config.toml", config_file(config), mode=0o600)


def _authority(folder: Path, name: str) -> str:
    return ensure_certificates(folder / "tls", (name,)).authority.read_text("ascii")


class BearerTokens:
    """Bearer tokens of the partner, the collectors and Prometheus.

    Recommenders that are admitted or dismissed while the server runs count at once.
    """

    def __init__(self, folder: AggregatorFolder) -> None:
        self._folder = folder
        self._party = folder.party
        self._partner = self._token(folder.partner.identity)
        self._metrics = folder.metrics_token.encode()
        self._collectors: dict[str, bytes] = {}

    def check_partner(self, headers: Mapping[str, str]) -> None:
        """Raise DapError unless the other server asks."""
        if not compare_digest(_bearer(headers), self._partner):
            raise _refused("this is for the other server")

    def check_metrics(self, headers: Mapping[str, str]) -> None:
        """Raise DapError unless the operator's Prometheus asks."""
        if not compare_digest(_bearer(headers), self._metrics):
            raise _refused(
                "this is for the operator; the token is in keys/metrics.token of the server's "
                "folder"
            )

    def collector(self, headers: Mapping[str, str]) -> str:
        """Return the identity of the calling recommender; raise DapError unless it is admitted."""
        admitted = self._folder.collectors
        for identity in admitted.keys() - self._collectors.keys():
            self._collectors[identity] = self._token(identity)
        credential = _bearer(headers)
        found = ""
        for identity in admitted:  # all of them, so that time tells nothing
            if compare_digest(credential, self._collectors[identity]):
                found = identity
        if not found:
            raise _refused("this is for recommenders that were admitted here")
        return found

    def _token(self, other: str) -> bytes:
        return self._party.token(other, to=self._party.public).encode()


def _bearer(headers: Mapping[str, str]) -> bytes:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip().encode("utf-8", "replace") if kind.lower() == "bearer" else b""


def _refused(why: str) -> DapError:
    return DapError(why, Problem.UNAUTHORIZED_REQUEST)
