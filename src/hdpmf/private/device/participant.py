"""A participant: answers one recommender's offers from a store, and learns from what it publishes.

Catalogue and models are public files, which `step` and `look` fetch (``Published``). Offers come in
two ways: one at a time, as messages that `answer` replies to (bits, rounds of training, masked
sums: ``Conversation``), or as a task for two servers, among the files (``Reports``). Either way an
offer is checked against the owner's policy, the pins and the remaining budget; the owner agrees;
ratings pay; and only then something leaves, at a time that was drawn before. What is fetched, when,
and how many bytes leave does not depend on ratings.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256

import msgspec

from hdpmf.common.base.threads import Workers
from hdpmf.common.net.authority_rotation import MAX_AUTHORITY_MESSAGE
from hdpmf.common.net.carrier import backoff
from hdpmf.common.privacy.sampling import Noise, ReleasedNoise, require_released
from hdpmf.common.protocol import AnyCatalogue, Terms, decode
from hdpmf.common.protocol.key_list import MAX_PUBLISHED
from hdpmf.errors import (
    ConfigError,
    HdpmfError,
    PrivacyError,
    ProtocolError,
    StorageError,
    TransportError,
)
from hdpmf.private.device.budget import entry_of
from hdpmf.private.device.conversation import Conversation
from hdpmf.private.device.disclosures.refusals import RefusalBook
from hdpmf.private.device.messages import wait_for_slot
from hdpmf.private.device.model_update import (
    PublishedModel,
    facts_digest,
    lack_lists,
    most_list_bytes,
    read_factors,
    read_facts,
    read_plan,
    with_lists,
    with_older_lists,
)
from hdpmf.private.device.outbox.reports import Reports
from hdpmf.private.device.outbox.sending import keep_refusal
from hdpmf.private.device.outbox.server_keys import ServerKeyLists
from hdpmf.private.device.pinned_servers import pinned_servers
from hdpmf.private.device.published_files import (
    MOST_CATALOGUE,
    MOST_INDEX,
    Carrier,
    Downloads,
    PublicFile,
    PublicIndex,
    ReadTask,
    most_bytes,
    most_factor_bytes,
    pinned_items,
)
from hdpmf.private.device.recommendations import keep_model, local_model
from hdpmf.private.device.recommender_state import kept as kept_message
from hdpmf.private.device.session import Setup
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import LocalModel

POLL_EVERY = 300.0
"""Seconds, about, between two looks at what the recommender publishes."""

_OS = secrets.SystemRandom()
_SOON = 1.0


def _no_log(line: str) -> None:
    """Discard a line."""


class _Suspended(msgspec.Struct, frozen=True, array_like=True):
    sums: dict[bytes, bytes]
    model: LocalModel | None


class Participant:
    """Answers one recommender from a store. Several may share a store, for several recommenders.

    Args:
        store: The device's store, opened for serving.
        carrier: How to reach the recommender's files and the leader; None where nothing is
            published, and messages are brought to `answer`.
        recommender: Whose offers these are, for the ledger.
        every: Seconds, about, between two looks at the files.
        clock: What time it is (Unix).
        uniform: A random number from 0 to 1, from the operating system by default.
        noise: Where noise comes from; only ``ReleasedNoise`` where anything leaves this process.
        simulation: Allow seeded noise, and keep a finished model in memory. Never for a real
            device.
        seed: Of the first user vectors, for simulation; by default every run has its own.
        follow: Called with what the recommender publishes about its authorities.
        log: Called with lines for this device's owner. They hold no rating.
    """

    def __init__(
        self,
        store: DeviceStore,
        carrier: Carrier | None = None,
        *,
        recommender: str = "recommender",
        every: float = POLL_EVERY,
        clock: Callable[[], float] = time.time,
        uniform: Callable[[], float] = _OS.random,
        noise: Noise | None = None,
        simulation: bool = False,
        seed: int | None = None,
        follow: Callable[[bytes], None] | None = None,
        log: Callable[[str], None] = _no_log,
    ) -> None:
        drawn = ReleasedNoise() if noise is None else noise
        if seed is not None and not simulation:
            raise PrivacyError("a seed is for simulation; a real device draws its own")
        self._setup = Setup(
            store=store,
            recommender=recommender,
            noise=drawn if simulation else require_released(drawn),
            simulation=simulation,
            seed=seed,
            workers=Workers(1),
            refusals=RefusalBook(store, recommender),
            log=log,
            clock=clock,
            uniform=uniform,
        )
        self._store = store
        self._conversation = Conversation(self._setup)
        self._published = (
            None
            if carrier is None
            else Published(self._setup, carrier, every, follow, self._conversation)
        )

    def __repr__(self) -> str:
        return f"Participant({self._store!r})"

    def answer(self, offer: bytes) -> bytes:
        """Return the reply to an offer that came as a message.

        Every message gets a reply. Errors become refusals; nothing is raised.
        """
        return self._conversation.answer(offer)

    def step(self) -> float:
        """Do what is due with the recommender's files and the reports for its tasks.

        Returns:
            The seconds until there may be something to do again. What goes wrong is logged.
        """
        return self._files.step()

    def look(self, version: str = "") -> None:
        """Learn from the files, if it is time to look or they have another version than last time.

        Tasks for two servers are not taken. What goes wrong is logged.
        """
        self._files.look(version)

    def poll_soon(self) -> None:
        """Look at the files next time: the owner has answered something."""
        self._files.poll_soon()

    def settle(self) -> None:
        """Write what is not in the store yet of what was refused: nothing is done any more."""
        self._setup.refusals.settle()

    def suspend(self) -> bytes:
        """Return as bytes what is in memory and not in the store. PRIVATE.

        For devices without a process of their own, between two messages.
        """
        model = None if self._published is None else self._published.held
        if model is not None:  # its public numbers are needed no more
            model = msgspec.structs.replace(model, plan=None, numbers=b"", lists=b"")
        return msgspec.msgpack.encode(_Suspended(self._conversation.suspend(), model))

    def resume(self, data: bytes) -> None:
        """Go on with what `suspend` returned, over the same store."""
        state = msgspec.msgpack.decode(data, type=_Suspended)
        self._conversation.resume(state.sums)
        if self._published is not None:
            self._published.held = state.model

    @property
    def finished_task(self) -> str:
        """Id of the last task that a report left for, once a newer model has come; empty before."""
        return self._files.finished_task

    @property
    def complete(self) -> bool:
        """True unless the item facts name a list model that was not reached yet."""
        return self._files.complete

    @property
    def last_look(self) -> tuple[float, bool] | None:
        """When it last looked at the recommender's files (Unix), and True if these were reached."""
        return self._files.last_look

    @property
    def model(self) -> LocalModel | None:
        """The last finished run, in simulation; otherwise it is in the store."""
        return self._files.held

    @property
    def _files(self) -> Published:
        if self._published is None:
            raise ConfigError("this participant has no carrier; give it one, or only let it answer")
        return self._published


class Published:
    """One recommender's files: learns its catalogue, models and authorities, and takes tasks.

    Attributes:
        held: The last model, in simulation; otherwise it is in the store.
        last_look: When it last looked at the files (Unix), and True if these were reached.
    """

    def __init__(
        self,
        setup: Setup,
        carrier: Carrier,
        every: float,
        follow: Callable[[bytes], None] | None,
        conversation: Conversation,
    ) -> None:
        self._setup = setup
        self._store = setup.store
        self._every = every
        self._follow = follow
        self._conversation = conversation
        self._downloads = Downloads(setup, carrier)
        self._reports = Reports(setup, carrier, self._downloads)
        self._poll_at = 0.0
        self._version = ""
        self._missed = 0  # looks in a row in which something was not reached
        self._index: PublicIndex | None = None
        self._authorities = ""  # digest of what was told about them last
        self._server_keys = ""  # digest of the lists that were taken last
        self._refused: dict[str, str] = {}  # tasks and authorities, by digest: until a restart
        self.held: LocalModel | None = None
        self.last_look: tuple[float, bool] | None = None

    @property
    def finished_task(self) -> str:
        """Id of the last task that a report left for, once a newer model has come; empty before."""
        standing, model = self._reports.book.state(), self._kept()
        goes_on = bool(standing.task) or standing.counted is not None
        if (
            not standing.reported
            or goes_on
            or model is None
            or facts_digest(self._store) == standing.model
        ):
            return ""
        return standing.reported.hex() if self.complete else ""

    @property
    def complete(self) -> bool:
        """True unless the item facts name a list model that was not reached yet."""
        model, lists = self._kept(), None if self._index is None else self._index.lists
        if model is None or lists is None or self._downloads.was_refused(lists):
            return True
        return not lack_lists(model)

    def poll_soon(self) -> None:
        """Look next time."""
        self._poll_at = 0.0

    def step(self) -> float:
        """Do what is due; return the seconds until there may be something to do again."""
        # What leaves or is fetched comes first: no work on ratings is before it.
        ready = self._reports.ready()
        if ready:
            self._guarded(self._reports.go_on)
        if self._due():
            self._look_now(tasks=True)
        if not ready:
            self._guarded(self._reports.go_on)
        due = self._reports.due()
        next_at = self._poll_at if due is None else min(due, self._poll_at)
        return max(next_at - self._setup.clock(), _SOON)

    def look(self, version: str) -> None:
        """Look if it is due, or if the files have another version than last time."""
        if not self._due() and (version in ("", self._version) or not self._downloads.may_look()):
            return
        begun = time.monotonic()
        self._version = version
        self._look_now(tasks=False)
        if self._missed:
            wait = backoff(self._missed - 1, _SOON, self._every, self._setup.uniform)
            self._poll_at = min(self._poll_at, self._setup.clock() + wait)
        if not self._setup.simulation:
            wait_for_slot(begun)  # nobody sees how long the last step of user vectors took

    def _due(self) -> bool:
        now = self._setup.clock()
        # Or the clock was put back.
        return now >= self._poll_at or self._poll_at > now + 3 * self._every

    def _look_now(self, *, tasks: bool) -> None:
        now, missed = self._setup.clock(), self._missed
        self._guarded(lambda: self._look(tasks))
        self.last_look = now, self._missed == missed
        if self._missed == missed:
            self._missed = 0
        self._poll_at = now + self._every * (0.5 + self._setup.uniform())

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except TransportError as error:
            self._miss(error)
        except HdpmfError as error:
            self._refuse(error)

    def _miss(self, error: TransportError) -> None:
        self._missed += 1
        self._setup.log(f"not reached: {error}")

    def _refuse(self, error: HdpmfError, read: ReadTask | None = None) -> None:
        """Tell the owner what is refused, and keep it."""
        self._setup.log(f"refused: {error}")
        keep_refusal(self._setup, error, read)

    def _look(self, tasks: bool) -> None:
        """Read the index, and take what is new."""
        self._index = index = self._downloads.index()
        if index.authority is not None and self._follow is not None:
            self._once(index.authority, self._take_authority, content=False)
        missed = self._missed
        self._once(index.catalogue, self._take_catalogue)
        if self._missed > missed:
            return  # the rest is about items that are not here yet
        if index.keys is not None and tasks:
            self._once(index.keys, self._take_keys, content=False)
        if index.task is not None and tasks:
            self._once(PublicFile(index.task.id), self._reports.take_task, content=False)
        if index.model is not None:
            self._once(index.model, partial(self._take_model, index.plan))
        if index.lists is not None:
            self._once(index.lists, self._take_lists)

    def _once(
        self, file: PublicFile, take: Callable[[PublicFile], None], *, content: bool = True
    ) -> None:
        """Take a file, unless it was refused before.

        A file that could not be fetched is tried again later. A refusal for its content holds after
        a restart; of tasks and authorities it may also be for the time, or the owner's answer.
        """
        if file.sha256 in self._refused or (content and self._downloads.was_refused(file)):
            return
        self._reports.asked = None
        try:
            take(file)
        except TransportError as error:
            self._miss(error)
        except StorageError:
            raise
        except HdpmfError as error:
            if content:
                self._downloads.refuse(file)
            else:
                while len(self._refused) >= 64:
                    self._refused.pop(next(iter(self._refused)))
                self._refused[file.sha256] = str(error)
            self._refuse(error, self._reports.asked)

    def _take_authority(self, file: PublicFile) -> None:
        """Trust whom the pinned authority has signed."""
        if self._follow is not None and file.sha256 != self._authorities:
            self._follow(self._downloads.fetch("authority", file, MAX_AUTHORITY_MESSAGE))
            self._authorities = file.sha256

    def _take_keys(self, file: PublicFile) -> None:
        """Follow the lists of keys that the pinned servers have signed."""
        servers = pinned_servers(self._store)
        if servers is not None and file.sha256 != self._server_keys:
            data = self._downloads.fetch("keys", file, MAX_PUBLISHED)
            ServerKeyLists(self._store).take(data, servers)
            self._server_keys = file.sha256

    def _take_catalogue(self, file: PublicFile) -> None:
        known = self._store.pinned_catalogue
        if known is not None and known.digest.hex() == file.sha256:
            return
        items = decode(self._downloads.fetch("catalogue", file, MOST_CATALOGUE))
        if not isinstance(items, AnyCatalogue):
            raise ProtocolError(f"refused: a {type(items).__name__} is no item table")
        pinned = self._store.pin_catalogue(items)
        self._setup.log(pinned.in_words())

    def _take_model(self, plan: PublicFile | None, file: PublicFile) -> None:
        """Keep a new model. Nothing is sent or paid for it."""
        before = self._kept()
        if (
            before is not None
            and before.run == file.run
            and sha256(before.numbers).hexdigest() == file.sha256
        ):
            return
        published = self._fetch_model(plan, file)
        with self._store.transaction():
            model = self._conversation.finish(published) or self._reported(published)
            self._keep(with_older_lists(model, before))
        self._setup.log(f"A model of run {file.run[:8]} is here.")

    def _fetch_model(self, plan: PublicFile | None, file: PublicFile) -> PublishedModel:
        store = self._store
        if plan is None:
            body = self._downloads.fetch("facts", file, most_bytes(pinned_items(store)))
            return read_facts(store, file.run, body)
        document = self._downloads.fetch("plan", plan, MOST_INDEX)
        asked = read_plan(store, document)
        body = self._downloads.fetch(
            "factors", file, most_factor_bytes(asked.n_items, asked.n_factors)
        )
        return read_factors(file.run, body, asked, document)

    def _reported(self, published: PublishedModel) -> LocalModel:
        """The model of a run that this device has reported to, or was no part of."""
        standing = self._reports.book.state()
        terms = kept_message(standing.terms, Terms) if published.plan is None else None
        if terms is not None:
            entry = entry_of(
                terms,
                "proved",
                "received",
                "facts about items",
                recommender=self._setup.recommender,
                run=standing.run,
                number=terms.rounds,
            )
            self._store.ledger.note(entry)
        return published.local(self._setup.recommender, terms, standing.survey)

    def _take_lists(self, file: PublicFile) -> None:
        """Keep a model for lists beside the facts that name it."""
        model = self._kept()
        if model is None or not lack_lists(model):
            return
        most = most_list_bytes(self._store.policy, pinned_items(self._store))
        body = self._downloads.fetch("lists", file, most)
        self._keep(with_lists(model, body))

    def _kept(self) -> LocalModel | None:
        return self.held if self._setup.simulation else local_model(self._store)

    def _keep(self, model: LocalModel) -> None:
        if self._setup.simulation:
            self.held = model  # thousands of simulated devices share its public numbers
        else:
            keep_model(self._store, model)
