"""The service: begins runs, goes on with those that were killed, and writes down how they ended."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from hdpmf.common.base.files import storage_errors
from hdpmf.common.base.traces import span
from hdpmf.common.net import DeviceReply, RecommenderTransport
from hdpmf.common.net.sum_servers import SumServers
from hdpmf.common.protocol.catalogue import number_of
from hdpmf.common.protocol.enrolment import Enrolled
from hdpmf.common.protocol.federation import RUN_BYTES
from hdpmf.common.protocol.key_list import read_key_list
from hdpmf.common.protocol.task import task_id
from hdpmf.errors import (
    ConfigError,
    DapError,
    FederationError,
    ProtocolError,
    StorageError,
    TransportError,
)
from hdpmf.untrusted.recommender.runs import SurveyAnswer
from hdpmf.untrusted.service.aggregation import Aggregation
from hdpmf.untrusted.service.aggregation.direct import Direct
from hdpmf.untrusted.service.aggregation.masks import Masks
from hdpmf.untrusted.service.aggregation.token_issuer import TokenIssuer
from hdpmf.untrusted.service.aggregation.two_servers import TwoServers, read_task
from hdpmf.untrusted.service.folder import RunRecord, ServiceFolder
from hdpmf.untrusted.service.keys import load_keys, pinned_servers
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.publish import PublicFiles
from hdpmf.untrusted.service.run import Run, no_log
from hdpmf.untrusted.service.settings import RunSettings
from hdpmf.untrusted.service.survey import survey_answer

_KEYS_SECONDS = 600.0  # between questions for the servers' keys
_FIRST_KEYS_SECONDS = 60.0  # the same until they were told once

CARRIES = 2_000
"""Participants with which a run was measured to its end on two busy cores (docs/scale.md)."""


class Service:
    """A recommender with a folder.

    Args:
        folder: Its files.
        transport: To devices, for runs with messages and masked sums.
        servers: To the two servers, for runs with these.
        issuer: Where enrolled devices get tokens for reports to two servers.
        metrics: Counts messages, bytes and refusals.
        admit: Called with the identities on the roster.
        log: Called with lines for people.
    """

    def __init__(
        self,
        folder: ServiceFolder,
        transport: RecommenderTransport | None = None,
        *,
        servers: SumServers | None = None,
        issuer: TokenIssuer | None = None,
        metrics: Metrics | None = None,
        admit: Callable[[Collection[str]], None] = lambda devices: None,
        log: Callable[[str], None] = no_log,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self.metrics = Metrics() if metrics is None else metrics
        self._way = transport
        self._servers = servers
        self._issuer = TokenIssuer() if issuer is None else issuer
        self._admit = admit
        self._unwritten = False  # what it is doing; it was said
        self._log = log
        self._sleep = sleep
        self._clock = clock
        self._task: bytes | None = None  # that is published
        self._server_keys: bytes | None = None  # as the two servers have signed them
        self._keys_at = -_KEYS_SECONDS
        self._published = 0  # the version of the items that the public files show
        self.metrics.listeners.append(self.write_state)

    @property
    def _transport(self) -> RecommenderTransport:
        if self._way is None:
            raise ConfigError("this run needs a way to devices; it is not one with two servers")
        return OnRoster(self._way, self.folder)

    def begin(self, settings: RunSettings, run: bytes | None = None) -> bytes:
        """Write down a new run (``run``: under this id).

        Everybody who is enrolled is asked, or a cohort that a public beacon chooses. A device's own
        ledger decides which of its ratings are new to a survey; without any, it takes part with its
        noise alone.
        """
        earlier = self.check(settings)
        enrolled = self.folder.enrolled
        run = secrets.token_bytes(RUN_BYTES) if run is None else run
        self.folder.begin_run(
            run,
            RunRecord(
                settings=settings,
                devices=enrolled.cards,
                cohort=settings.chosen(enrolled.users),
                earlier=tuple(past.hex() for past in earlier),
                catalogue=number_of(self.folder.items),
            ),
        )
        return run

    def check(self, settings: RunSettings) -> list[bytes]:
        """Refuse a run that cannot end well; return the runs that it is combined with."""
        if self.folder.unfinished() is not None:
            raise ConfigError(
                "a run is under way; let it end, or give it up: hdpmf recommender run FOLDER "
                "--give-up"
            )
        enrolled = self.folder.enrolled
        if settings.one_round:
            settings.survey(self.folder.known)  # refuses what this catalogue has no features for
        earlier = self.earlier(settings)
        if earlier and settings.labels is not None:
            raise FederationError(
                f"run {earlier[-1].hex()[:12]} was by taste labels, and answers by labels are not "
                "put together with later ones: there is one such run. Begin one without --labels, "
                "in which ratings that are new since take part; devices that are new get the model "
                "from serve"
            )
        if settings.view == "two-servers" and pinned_servers(self.folder.path) is None:
            raise ConfigError(
                "no pair of servers is pinned yet: hdpmf recommender servers FOLDER servers.json"
            )
        if not enrolled.cards:
            raise ConfigError(
                "no device is enrolled yet: hdpmf recommender enroll FOLDER CARD.json ..."
            )
        users = enrolled.users
        asked = settings.chosen(users)
        # Refuses a minimum that can never be reached.
        settings.terms("-", users.values(), [users[device] for device in asked])
        if settings.view != "two-servers" and len(asked) > CARRIES:
            self._log(
                f"{len(asked)} devices are asked, and a run was measured with {CARRIES} on two "
                "cores; sum by two "
                "servers (hdpmf recommender servers), or ask a part of them: --cohort"
            )
        return earlier

    def conduct(self, run: bytes) -> RunOutcome:
        """A run that was begun, to its end."""
        record = self.folder.record(run)
        earlier = [self.survey_answer(bytes.fromhex(name)) for name in record.earlier]
        self._issue_again(run)
        self.publish()  # the items that its terms will name
        try:
            with span("run"):
                outcome = self._run(run, record).conduct(earlier=earlier)
        except FederationError:
            self.write_state()  # with the reasons why devices refused
            raise
        self.folder.finish(
            run, outcome.model, msgspec.json.format(msgspec.json.encode(outcome.summary), indent=1)
        )
        self.publish()
        self.write_state()
        return outcome

    def _issue_again(self, run: bytes) -> None:
        """Give tokens for the task under way after a restart, also while a server is away."""
        files = self.folder.run_files(run)
        for period in files.load().periods[-1:]:
            task = read_task(period.document)
            if period.placed and task.token_key and self._clock() < task.end:
                self._issuer.open(task_id(period.document), files.token_folder())

    def _run(self, run: bytes, record: RunRecord) -> Run:
        return Run(
            settings=record.settings,
            table=self.folder.items_of(run),
            enrolled=Enrolled(record.devices),
            aggregation=self._aggregation(record.settings),
            id=run,
            only=frozenset(record.cohort),
            files=self.folder.run_files(run),
            pace=self.folder.config.pace,
            metrics=self.metrics,
            log=self._log,
            sleep=self._sleep,
        )

    def _aggregation(self, settings: RunSettings) -> Aggregation:
        """Return the way in which a run with these settings collects contributions."""
        if settings.view != "two-servers":
            kind = Masks if settings.view == "sums" else Direct
            return kind(self._transport, meanwhile=self._meanwhile)
        pinned = pinned_servers(self.folder.path)
        if pinned is None or self._servers is None:
            raise ConfigError(
                "no pair of servers is pinned: hdpmf recommender servers FOLDER servers.json"
            )
        keys = load_keys(self.folder.path, self.folder.config.name)
        return TwoServers(
            pinned,
            keys,
            self._servers,
            publish=self.publish,
            issuer=self._issuer,
            follow_keys=self.publish_keys,
            clock=self._clock,
        )

    def publish(self, task: bytes | None = None) -> None:
        """Show devices the items, the task under way, the servers' keys, and the last result."""
        self._published = 0
        self._task = task
        self._follow_keys()
        files = PublicFiles(self.folder)
        files.write(task, self._server_keys or files.server_keys())
        self._published = number_of(self.folder.current_items)

    def publish_keys(self) -> None:
        """Show devices newer keys of the two servers."""
        if self._follow_keys():
            self.publish(self._task)

    def _follow_keys(self) -> bool:
        """Ask the two servers for the lists of their keys, now and then; True if they are new."""
        pinned = pinned_servers(self.folder.path)
        now = self._clock()
        if pinned is None or self._servers is None or now < self._keys_at + _KEYS_SECONDS:
            return False
        if not any(isinstance(card.signing, str) for card in (pinned.leader, pinned.helper)):
            return False
        self._keys_at = now
        try:
            found = self._servers.signed_keys()
            for card, signed in ((pinned.leader, found.leader), (pinned.helper, found.helper)):
                if signed:
                    read_key_list(signed, card)
        except (TransportError, DapError, ProtocolError) as error:
            self._log(f"{error}; devices are shown the keys from before, while these are valid")
            if self._server_keys is None:  # devices may have none, and wait
                self._keys_at = now - _KEYS_SECONDS + _FIRST_KEYS_SECONDS
            return False
        changed = found.to_bytes() != self._server_keys
        self._server_keys = found.to_bytes()
        return changed

    def publish_items(self) -> None:
        """Show devices a new version of the catalogue, if there is one and no run is under way."""
        if (
            self.folder.unfinished() is None
            and number_of(self.folder.current_items) != self._published
        ):
            self.publish()

    def let_in(self) -> None:
        """Let those connect that are enrolled by now, and nobody else."""
        self._admit(self.folder.enrolled.users.keys())

    def _meanwhile(self) -> None:
        """Between two exchanges of a run: let new participants in, and write down the state."""
        self.let_in()
        self.write_state()

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
        self._issuer.drop(self.folder.run_files(run).token_folder())
        summary = {"run": run.hex(), "given_up": True} | ({"cause": cause} if cause else {})
        self.folder.finish(run, None, msgspec.json.encode(summary))
        self.publish()  # nobody should report any more

    def earlier(self, settings: RunSettings) -> list[bytes]:
        """Return finished surveys with the same question, whose answers can be combined."""
        if not settings.one_round:
            return []
        alike = []
        for run in self.folder.runs():
            before = self.folder.record(run).settings
            if before.method != settings.method or not self.folder.run_files(run).load().answer:
                continue
            if before.labels is not None and settings.labels is None:
                continue  # a fresh start, with ratings that are new since
            if not self._asks_the_same(before, settings):
                raise ConfigError(
                    f"run {run.hex()[:12]} asked the same ratings in another way (design, coding, "
                    "labels; of bits also epsilon), they answer once, and the answers cannot be "
                    "put together; ask as it did"
                )
            alike.append(run)
        return alike

    def survey_answer(self, run: bytes) -> SurveyAnswer:
        """Return the release of a run that has ended, and how often the whole noise is in it."""
        return survey_answer(self.folder, run)

    def _asks_the_same(self, before: RunSettings, now: RunSettings) -> bool:
        """Return whether the answers mean the same; sums, not bits, may differ in epsilon."""
        if (before.labels is None) != (now.labels is None):
            return False
        known = self.folder.known
        asked = before.survey(known)
        asks = now.survey(known)
        alike = (asked.design, asked.coding) == (asks.design, asks.coding)
        return alike and (asked.epsilon == asks.epsilon or now.kind.family != "bits")


class OnRoster:
    """A transport that skips devices which are not on the roster, from the next exchange on."""

    def __init__(self, transport: RecommenderTransport, folder: ServiceFolder) -> None:
        self._transport = transport
        self._folder = folder
        self._read_at: tuple[int, ...] = ()
        self._enrolled: frozenset[str] = frozenset()

    def present(self) -> frozenset[str]:
        """As in ``RecommenderTransport``."""
        return self._transport.present() & self._now()

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        """As in ``RecommenderTransport``; a device that was taken off is silent."""
        enrolled = self._now()
        return self._transport.exchange(
            {name: data for name, data in messages.items() if name in enrolled}, deadline
        )

    def close(self) -> None:
        """As in ``RecommenderTransport``."""
        self._transport.close()

    def _now(self) -> frozenset[str]:
        path = self._folder.path / "roster.json"
        with storage_errors(f"cannot read {path}"):
            found = os.stat(path)
        at = (found.st_ino, found.st_mtime_ns, found.st_size)
        if at != self._read_at:
            self._enrolled = frozenset(self._folder.enrolled.users)
            self._read_at = at
        return self._enrolled
