"""A leader and a helper in one process, and reports that a test has made."""

from __future__ import annotations

import atexit
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import numpy as np

from hdpmf.common.aggregation.two_servers.dap.hpke import (
    input_share_info,
    seal,
)
from hdpmf.common.aggregation.two_servers.dap.messages import (
    InputShareAad,
    PlaintextInputShare,
    Report,
    ReportMetadata,
    Role,
    TaskConfiguration,
)
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.identity import Identity, PartyKey
from hdpmf.common.protocol.key_list import PublishedKeys
from hdpmf.common.protocol.servers import Server
from hdpmf.common.protocol.task import Task, configuration_of, prio_of
from hdpmf.untrusted.aggregator.datastore import ServerDatabase
from hdpmf.untrusted.aggregator.helper import Helper
from hdpmf.untrusted.aggregator.hpke_keys import HpkeKeyRing
from hdpmf.untrusted.aggregator.leader import HelperApi, Leader
from hdpmf.untrusted.aggregator.tasks import Rules, ServerKeys, SimulationRules

RINGS: dict[str, HpkeKeyRing] = {}
"""The HPKE keys of every server of these tests, by the signing key on its card."""


class KnownNoise:
    """Adds the same number everywhere and remembers how often it was asked."""

    def __init__(self, number: int) -> None:
        self.number, self.draws = number, 0

    def discrete_gaussian(self, sigma: np.ndarray) -> np.ndarray:
        self.draws += 1
        return np.full(sigma.shape, self.number, np.int64)


def server_keys(
    parties: Sequence[PartyKey], signing: Sequence[Identity], folders: Sequence[Path]
) -> tuple[ServerKeys, ServerKeys]:
    """The keys of a leader and of a helper, in files of these folders."""
    leader, helper = (
        Server(
            organisation=name,
            url=f"https://{name}.example:443",
            identity=party.public,
            signing=to_base64(key.public),
        )
        for name, party, key in zip(("library", "university"), parties, signing, strict=True)
    )
    rings = [HpkeKeyRing(path, key) for path, key in zip(folders, signing, strict=True)]
    RINGS.update({to_base64(key.public): ring for key, ring in zip(signing, rings, strict=True)})
    return (
        ServerKeys(role="leader", party=parties[0], hpke=rings[0], own=leader, partner=helper),
        ServerKeys(role="helper", party=parties[1], hpke=rings[1], own=helper, partner=leader),
    )


class ServerPair:
    """A leader and a helper with a clock, in memory or over databases in a folder.

    Args:
        clock: Of both.
        noises: Of the leader and of the helper.
        folder: Of their databases and of what they have released; in memory without one.
        rules: Of both.
        between: Puts something between the leader and the helper.
        url: Of the database of a role.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        noises: tuple[Any, Any],
        *,
        folder: Path | None = None,
        rules: Rules | None = None,
        between: Callable[[HelperApi], HelperApi] = lambda helper: helper,
        url: Callable[[str], str] | None = None,
    ) -> None:
        self.clock, self.noises = clock, noises
        self.folder, self.between = folder, between
        self._temporary = Path(mkdtemp())
        atexit.register(rmtree, self._temporary, ignore_errors=True)  # servers may outlive the pair
        self.rules = SimulationRules(minimum=2) if rules is None else rules
        self.url = url or (
            lambda role: "sqlite://" if folder is None else f"sqlite:///{folder / role}.sqlite"
        )
        self._parties = [PartyKey.generate(), PartyKey.generate()]
        self.signing = [Identity.generate(), Identity.generate()]
        self.keys = self._keys()
        for keys in self.keys:
            keys.hpke.rotate(clock())
        self.servers = self.keys[0].servers
        self._open()
        self.start()

    def _keys(self) -> tuple[ServerKeys, ServerKeys]:
        folders = [self.state(role) for role in ("leader", "helper")]
        return server_keys(self._parties, self.signing, folders)

    @property
    def rings(self) -> tuple[HpkeKeyRing, HpkeKeyRing]:
        """The HPKE keys of leader and helper."""
        leader, helper = (keys.hpke for keys in self.keys)
        return leader, helper

    @property
    def published_keys(self) -> PublishedKeys:
        """Both servers' lists of keys, as a recommender would publish them now."""
        return PublishedKeys.of(self.leader.signed_keys(), self.helper.signed_keys())

    def _open(self) -> None:
        self.databases = [ServerDatabase(self.url(role)) for role in ("leader", "helper")]

    def start(self) -> None:
        """Start both servers from what is in their databases."""
        states = [self.state(role) for role in ("leader", "helper")]
        options: dict[str, Any] = {"clock": self.clock, "rules": self.rules}
        self.helper = Helper(
            self.keys[1],
            self.databases[1],
            states[1],
            noise=self.noises[1],
            **options,
        )
        self.leader = Leader(
            self.keys[0],
            self.databases[0],
            states[0],
            self.between(self.helper),
            noise=self.noises[0],
            **options,
        )

    def state(self, role: str) -> Path:
        """The folder of what a server keeps outside its database."""
        path = (self.folder or self._temporary) / role
        path.mkdir(exist_ok=True)
        return path

    def restart(self) -> None:
        """Start again with nothing but what is on the disk."""
        self.keys = self._keys()
        if self.folder is not None:
            for database in self.databases:
                database.close()
            self._open()
        self.start()

    def aggregate_all(self, limit: int = 256) -> int:
        """Check all reports together; how many there were."""
        done = 0
        while found := self.leader.aggregate(limit):
            done += found
        return done


def make_report(
    task: Task,
    number: bytes,
    row: np.ndarray,
    *,
    time: int | None = None,
    report_id: bytes | None = None,
    spoil: Callable[[int, bytes], bytes] = lambda server, share: share,
    sealed_for: bytes | None = None,
    configuration: TaskConfiguration | None = None,
) -> bytes:
    """One user's report for a task with this id; ``spoil`` changes a share before it is
    encrypted.
    """
    prio = prio_of(task, number)
    report_id = secrets.token_bytes(16) if report_id is None else report_id
    sharded = prio.shard(prio.circuit.encode(row), report_id)  # type: ignore[attr-defined]
    metadata = ReportMetadata(report_id, (task.begin if time is None else time) // task.precision)
    configuration = configuration_of(task, number) if configuration is None else configuration
    aad = InputShareAad(
        sealed_for or number, configuration, metadata, sharded.public_share
    ).encode()
    servers, sealed = ((task.servers.leader, Role.LEADER), (task.servers.helper, Role.HELPER)), []
    for place, (server, role) in enumerate(servers):
        plain = PlaintextInputShare(spoil(place, sharded.input_shares[place])).encode()
        config = RINGS[server.signing].config
        sealed.append(seal(config, input_share_info(role), aad, plain))
    return Report(metadata, sharded.public_share, sealed[0], sealed[1]).encode()
