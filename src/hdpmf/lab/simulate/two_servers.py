"""Two servers of a simulation in this process, with real reports and a simulated clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair
from hdpmf.common.net.parties import PartyKey
from hdpmf.common.net.sum_servers import ServersHere
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import CatalogueTable, Task, decode
from hdpmf.common.protocol.enrolment import Enrolled
from hdpmf.common.protocol.servers import Server, Servers
from hdpmf.common.protocol.task import task_id
from hdpmf.errors import FederationError
from hdpmf.lab.simulate.virtual_device import SentReport
from hdpmf.untrusted.aggregator.datastore import ServerDatabase
from hdpmf.untrusted.aggregator.helper import Helper
from hdpmf.untrusted.aggregator.leader import Leader
from hdpmf.untrusted.aggregator.report_writer import Upload
from hdpmf.untrusted.aggregator.tasks import ServerKeys, SimulationRules
from hdpmf.untrusted.service.aggregation.two_servers import TwoServers
from hdpmf.untrusted.service.keys import CollectorKeys
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.publish import public_files
from hdpmf.untrusted.service.run import Run, no_log
from hdpmf.untrusted.service.settings import Pace, RunSettings

BEGIN = 1_000_000_000.0
"""When simulated time begins."""

_LEADER_STREAM, _HELPER_STREAM = 2, 3
_AT_A_TIME = 64
"""Reports that are written with one commit, and checked together: bounds the memory."""

Devices = Callable[[Servers, Mapping[str, bytes], float], Iterable[SentReport]]
"""Every device's reports, given the pair, what the recommender publishes, and the time."""


class ServersInProcess:
    """Both servers in this process, in memory, with seeded noise."""

    def __init__(self, seed: int) -> None:
        self.now = BEGIN
        parties = [PartyKey.generate(), PartyKey.generate()]
        hpke = [KeyPair.generate(), KeyPair.generate()]
        cards = [
            Server(
                organisation=name,
                url=f"https://{name}.invalid",
                hpke=key.config.encode().hex(),
                identity=party.public,
            )
            for name, party, key in zip(("leader", "helper"), parties, hpke, strict=True)
        ]
        self.servers = Servers(leader=cards[0], helper=cards[1])
        rules = SimulationRules(minimum=2)
        self._databases = [ServerDatabase(), ServerDatabase()]
        helper = Helper(
            ServerKeys("helper", parties[1], hpke[1], cards[1], cards[0]),
            self._databases[1],
            clock=lambda: self.now,
            noise=SeededNoise(seed, _HELPER_STREAM),
            rules=rules,
        )
        self.leader = Leader(
            ServerKeys("leader", parties[0], hpke[0], cards[0], cards[1]),
            self._databases[0],
            helper,
            clock=lambda: self.now,
            noise=SeededNoise(seed, _LEADER_STREAM),
            rules=rules,
        )
        self.sum_servers = ServersHere(self.leader, helper)

    def take(self, name: bytes, reports: Iterable[SentReport]) -> Iterator[SentReport]:
        """Take reports for a task as they come, and hand them on to whoever counts them."""
        waiting = iter(reports)
        while group := list(islice(waiting, _AT_A_TIME)):
            uploads = [Upload(name, report.body) for report in group]
            refused = [error for error in self.leader.upload_many(uploads) if error is not None]
            if refused:
                raise FederationError(
                    f"the leader refused a simulated device's report: {refused[0]}"
                )
            while self.leader.aggregate(_AT_A_TIME):
                pass
            yield from group

    def close(self) -> None:
        """Let all of it go."""
        for database in self._databases:
            database.close()


def run_with_two_servers(
    settings: RunSettings,
    table: CatalogueTable,
    enrolled: Enrolled,
    devices: Devices,
    *,
    seed: int,
    metrics: Metrics,
    log: Callable[[str], None] = no_log,
) -> RunOutcome:
    """Run once: publish tasks, let every device report, and add both servers' sums."""
    with closing(ServersInProcess(seed)) as pair:

        def publish(document: bytes | None) -> None:
            if document is None:
                return
            task = decode(document)
            name = task_id(document)
            if not isinstance(task, Task):
                raise FederationError("what was published is no task")
            pair.now = max(pair.now, float(task.begin))
            published = public_files(table, task=document)
            metrics.bytes_out += len(enrolled) * sum(map(len, published.values()))
            for report in pair.take(name, devices(pair.servers, published, pair.now)):
                metrics.bytes_in += len(report.body)

        def sleep(seconds: float) -> None:
            pair.now += max(seconds, 1.0)

        keys = CollectorKeys.generate("simulation")
        run = Run(
            settings=settings,
            table=table,
            enrolled=enrolled,
            aggregation=TwoServers(
                pair.servers,
                keys,
                pair.sum_servers,
                publish=publish,
                clock=lambda: pair.now,
            ),
            pace=Pace(gather=0.0, attempts=1, pause=0.0),
            metrics=metrics,
            log=log,
            sleep=sleep,
        )
        return run.conduct()
