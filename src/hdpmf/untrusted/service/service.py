"""The service: begins runs, goes on with those that were killed, and writes down how they ended."""

import secrets
import time
from collections.abc import Callable

import msgspec

from hdpmf.common.net.sum_servers import SumServers, TwoServers
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.common.protocol.identity import PartyKey
from hdpmf.common.protocol.key_list import PublishedKeys, read_key_list
from hdpmf.common.protocol.servers import Servers
from hdpmf.common.protocol.task import read_task, task_id
from hdpmf.errors import (
    ConfigError,
    DapError,
    ProtocolError,
    StorageError,
    TransportError,
)
from hdpmf.untrusted.service.folder import RunRecord, ServiceFolder
from hdpmf.untrusted.service.keys import load_keys, pinned_servers
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.participants import Participants
from hdpmf.untrusted.service.publish import PublicFiles
from hdpmf.untrusted.service.run import Run, no_log
from hdpmf.untrusted.service.settings import RUN_BYTES, RunSettings
from hdpmf.untrusted.service.token_issuer import TokenIssuer

_KEYS_SECONDS = 600.0  # between questions for the servers' keys
_FIRST_KEYS_SECONDS = 60.0  # the same until they were told once


class Service:
    """A recommender with a folder.

    Args:
        folder: Its files.
        issuer: Where participants get tokens for reports.
        connect: Returns the way to a pair of servers.
        log: Called with lines for people.

    Attributes:
        sleep: How a run waits.
    """

    def __init__(
        self,
        folder: ServiceFolder,
        issuer: TokenIssuer | None = None,
        *,
        connect: Callable[[Servers, PartyKey], SumServers] = TwoServers,
        metrics: Metrics | None = None,
        log: Callable[[str], None] = no_log,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self.metrics = Metrics() if metrics is None else metrics
        self._issuer = TokenIssuer(Participants()) if issuer is None else issuer
        self._connect = connect
        self._pair: tuple[Servers, SumServers] | None = None
        self._unwritten = False  # what it is doing; it was said
        self._log = log
        self.sleep = sleep
        self._clock = clock
        self._task: bytes | None = None  # that is published
        self._server_keys: bytes | None = None  # as the two servers have signed them
        self._keys_at = -_KEYS_SECONDS
        self._published = 0  # the version of the items that the public files show
        self.metrics.listeners.append(self.write_state)

    def close(self) -> None:
        """End the connections to the two servers."""
        if self._pair is not None:
            self._pair[1].close()
            self._pair = None

    def begin(self, settings: RunSettings, run: bytes | None = None) -> bytes:
        """Write down a new run (``run``: under this id).

        Everybody who is enrolled may report. A device's own ledger decides whether it sends its row
        or zeros.
        """
        self.check(settings)
        run = secrets.token_bytes(RUN_BYTES) if run is None else run
        self.folder.begin_run(
            run,
            RunRecord(
                settings=settings,
                people=self.folder.people,
                catalogue=self.folder.items.number,
            ),
        )
        return run

    def check(self, settings: RunSettings) -> None:
        """Refuse a run that cannot end well."""
        if self.folder.unfinished() is not None:
            raise ConfigError(
                "a run is under way; let it end, or give it up: hdpmf recommender run FOLDER "
                "--give-up"
            )
        self._pinned()
        enrolled = self.folder.people
        if settings.minimum > enrolled:
            raise ConfigError(
                f"the run needs {settings.minimum} reports and {enrolled} people are enrolled: "
                "invite more (hdpmf recommender invite FOLDER), or lower the minimum"
            )

    def conduct(self, run: bytes) -> RunOutcome:
        """A run that was begun, to its end."""
        record = self.folder.record(run)
        self._issue_again(run)
        self.publish()  # the items that its task will be about
        outcome = self._run(run, record).conduct()
        self.folder.finish(
            run, outcome.model, msgspec.json.format(msgspec.json.encode(outcome.summary), indent=1)
        )
        self.publish()
        self.write_state()
        return outcome

    def _issue_again(self, run: bytes) -> None:
        """Give tokens for the task under way after a restart, also while a server is away."""
        files = self.folder.run_files(run)
        part = files.load().current
        if part.placed and self._clock() < read_task(part.document).end:
            self._issuer.open(task_id(part.document), files.folder)

    def _run(self, run: bytes, record: RunRecord) -> Run:
        table = self.folder.items_of(run)
        return Run(
            settings=record.settings,
            table=table,
            popularity=self.folder.public_popularity(known_items(table).items),
            people=record.people,
            servers=self._pinned(),
            keys=load_keys(self.folder.path, self.folder.config.name),
            sum_servers=self._sum_servers(),
            publish=self.publish,
            issuer=self._issuer,
            follow_keys=self.publish_keys,
            id=run,
            files=self.folder.run_files(run),
            pace=self.folder.config.pace,
            metrics=self.metrics,
            log=self._log,
            sleep=self.sleep,
            clock=self._clock,
        )

    def _pinned(self) -> Servers:
        pinned = pinned_servers(self.folder.path)
        if pinned is None:
            raise ConfigError(
                "no pair of servers is pinned yet: hdpmf recommender servers FOLDER servers.json"
            )
        return pinned

    def _sum_servers(self) -> SumServers:
        """Return the way to the servers that are pinned by now."""
        pinned = self._pinned()
        if self._pair is None or self._pair[0] != pinned:
            self.close()
            party = load_keys(self.folder.path, self.folder.config.name).party
            self._pair = pinned, self._connect(pinned, party)
        return self._pair[1]

    def publish(self, task: bytes | None = None) -> None:
        """Show devices the items, the task under way, the servers' keys, and the last result."""
        self._published = 0
        self._task = task
        self._follow_keys()
        files = PublicFiles(self.folder)
        files.write(task, self._server_keys or files.server_keys())
        self._published = self.folder.current_items.number

    def publish_keys(self) -> None:
        """Show devices newer keys of the two servers."""
        if self._follow_keys():
            self.publish(self._task)

    def _follow_keys(self) -> bool:
        """Ask the two servers for the lists of their keys, now and then; True if they are new."""
        pinned = pinned_servers(self.folder.path)
        now = self._clock()
        if pinned is None or now < self._keys_at + _KEYS_SECONDS:
            return False
        self._keys_at = now
        try:
            found = self._sum_servers().signed_keys()
            for card, signed in ((pinned.leader, found.leader), (pinned.helper, found.helper)):
                if signed is not None:
                    read_key_list(signed, card)
        except (TransportError, DapError, ProtocolError) as error:
            self._log(f"{error}; devices are shown the keys from before, while these are valid")
            if self._server_keys is None:  # devices may have none, and wait
                self._keys_at = now - _KEYS_SECONDS + _FIRST_KEYS_SECONDS
            return False
        changed = found.to_bytes() != (self._server_keys or PublishedKeys().to_bytes())
        self._server_keys = found.to_bytes()
        return changed

    def publish_items(self) -> None:
        """Show devices a new version of the catalogue, if there is one and no run is under way."""
        if self.folder.unfinished() is None and self.folder.current_items.number != self._published:
            self.publish()

    def write_state(self) -> None:
        """Write down what the service is doing. On a full disk it does it all the same."""
        try:
            self.folder.write_state(msgspec.json.encode(self.metrics.as_dict()))
        except StorageError as error:
            if not self._unwritten:
                self._log(str(error))
            self._unwritten = True
        else:
            self._unwritten = False

    def give_up(self, run: bytes, cause: str = "") -> None:
        """End a run without a result; what devices have sent for it stays paid."""
        self._issuer.drop(self.folder.run_files(run).folder)
        summary = {"run": run.hex(), "given_up": True} | ({"cause": cause} if cause else {})
        self.folder.finish(run, None, msgspec.json.encode(summary))
        self.publish()  # nobody should report any more
