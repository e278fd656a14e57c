"""Reports to two servers: for each task made once, paid once, sent until they are taken.

What is kept until a report leaves are its two shares. They are encrypted at that moment, to the
newest keys that the servers have signed. Where a server has erased the key of a report that it has
not taken, the same shares are encrypted anew under the same id, which servers count once.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from http import HTTPStatus

from hdpmf.common.aggregation.two_servers.dap.messages import (
    REPORT_ID_SIZE,
    REPORTS_PATH,
    id_to_text,
)
from hdpmf.common.aggregation.two_servers.tokens import TOKENS_PATH, BlindedToken, TokenKey
from hdpmf.common.protocol import encode
from hdpmf.common.protocol.task import prio_of, token_challenge
from hdpmf.errors import ProtocolError, StorageError, TransportError
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.private.client.outgoing import (
    SplitReport,
    report_headers,
    sealed_report,
    split_report,
    token_headers,
    token_request,
)
from hdpmf.private.device.budget import (
    agreed_words,
    charge,
    choose,
    participation,
    paying_ratings,
    units_paid,
)
from hdpmf.private.device.consent import ask_owner, end_consent, require_consent
from hdpmf.private.device.disclosures.limits import Taken
from hdpmf.private.device.disclosures.sent_bytes import (
    record_leader_response,
    report_leaves,
)
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.model_update import facts_digest
from hdpmf.private.device.outbox.sending import REFUSED, Sending, keep_refusal
from hdpmf.private.device.outbox.server_keys import ServerKeyLists
from hdpmf.private.device.published_files import (
    Carrier,
    Downloads,
    PublicFile,
    ReadTask,
    check_period,
    check_task,
    most_bytes,
    pinned_items,
    read_task,
)
from hdpmf.private.device.recommender_state import TaskState, collector_digest
from hdpmf.private.device.session import DAY, Setup
from hdpmf.private.device.store.schema import CountedSurvey, RecommenderState

_AT_A_TIME = 64


class Reports(Sending):
    """Reports to two servers for the tasks of one recommender, one task at a time.

    Args:
        setup: The participant's.
        carrier: How to reach the leader.
        downloads: The recommender's files.
    """

    def __init__(self, setup: Setup, carrier: Carrier, downloads: Downloads) -> None:
        super().__init__(setup, carrier)
        self._downloads = downloads
        self._keys = ServerKeyLists(setup.store)
        self._held: tuple[str, bytes] = ("", b"")  # a task whose time has not come
        self._told = b""  # the task that the owner was last told to wait for an answer
        self.asked: ReadTask | None = None  # the task that is looked at

    def _under_way(self, known: RecommenderState) -> bytes:
        return known.task

    def _key(self, read: ReadTask) -> bytes:
        return read.id

    def _receiver(self, read: ReadTask) -> str:
        return read.task.servers.leader.organisation

    def _receivers(self, read: ReadTask) -> str:
        return f"the servers of {read.task.servers.names}"

    def _content(self, read: ReadTask, state: TaskState) -> bytes:
        return paying_ratings(self._store, state.run, read.terms).content

    def take_task(self, file: PublicFile) -> None:
        """Agree to a task, or refuse it. Nothing is paid or sent here."""
        known, now = self.book.state(), self._setup.clock()
        if self.book.knows(bytes.fromhex(file.sha256)):
            return
        if self._held[0] != file.sha256:
            document = self._downloads.fetch_named(
                f"task-{file.sha256}.msgpack", most_bytes(pinned_items(self._store))
            )
            self._held = file.sha256, document
        self.asked = read = read_task(self._held[1])
        if read.id.hex() != file.sha256:
            raise ProtocolError(
                "refused: the task is not the one that the index names (its id differs)"
            )
        check_period(self._store, read.task, now, known.until)
        run = self._run_of(read, known)
        check_task(self._store, read)
        collector = collector_digest(read.task.collector)
        if known.collector not in (b"", collector):
            raise ProtocolError("refused: the sums would go to somebody else than those before")
        if known.task or self._had_enough(read, known, now):
            return  # its time comes when the one under way, or a day, is over
        if not self._owner_agrees(read, run):
            return  # looked at again when the index is, for as long as the task lasts
        state = TaskState(moment=self._draw(read, now), run=run)
        state.token_at = self._draw_before(read, now, state.moment)
        with self._store.transaction():
            if known.counted is not None and known.counted.run != run:
                end_consent(self._store, known.counted.run)  # it got no labels
            self.book.begin(read.id, state, self._held[1], read.task.end, now)
            self.book.change(
                collector=collector,
                task=read.id,
                until=read.task.end,
                taken=(*_within_a_day(known.taken, now), now),
            )
        self._held = "", b""
        servers = read.task.servers
        self._setup.log(
            f"Task {read.id.hex()[:8]} for the servers of {servers.names}: reports before it ends."
        )

    def _had_enough(self, read: ReadTask, known: RecommenderState, now: float) -> bool:
        """Return True if the recommender had its tasks of this day."""
        most = self._store.policy.max_tasks_per_day
        if len(_within_a_day(known.taken, now)) < most:
            return False
        if read.id != self._told:
            words = f"there were {most} tasks within a day (max_tasks_per_day in the policy)"
            self._setup.log(f"Task {read.id.hex()[:8]}: {words}.")
            keep_refusal(self._setup, DeclinedError("busy", words), read)
        self._told = read.id
        return True

    @staticmethod
    def _run_of(read: ReadTask, known: RecommenderState) -> bytes:
        """Return the run that ratings pay in: labels go on with the survey that was counted."""
        if read.part != "labels":
            return read.id
        if known.counted is None or known.counted.survey != encode(read.survey):
            raise ProtocolError(
                "refused: the task is for the labels of a survey that was not counted here"
            )
        return known.counted.run

    def _ask_again(self, read: ReadTask, state: TaskState) -> None:
        """Put a task before the owner that was taken before the owner wanted to be asked."""
        with self._store.transaction():
            self.book.require(read.id, state)
            self._return_held(read, state, "the owner wants to be asked, and nothing had left")
            self.book.release(read.id, read.task.begin)
            ask_owner(self._store, self._question(read))
        self._setup.log(f"Task {read.id.hex()[:8]}: it waits for the owner's answer.")

    def _owner_agrees(self, read: ReadTask, run: bytes) -> bool:
        """Return True if the owner consents. No answer yet is no lasting refusal of the task."""
        try:
            require_consent(self._store, self._question(read), run)
        except DeclinedError as error:
            if read.id != self._told:
                self._setup.log(f"Task {read.id.hex()[:8]}: {error}.")
                keep_refusal(self._setup, error, read)
            self._told = read.id
            return False
        return True

    def _make(self, read: ReadTask, state: TaskState) -> None:
        """Choose ratings, hold what they cost, and keep one report for each user, in one commit.

        ``state`` is changed as the store is.
        """
        store, task = self._store, read.task
        check_task(store, read)  # its owner may have changed the policy since the task came
        taken: Taken | None = None
        if read.part == "labels":
            part = paying_ratings(store, state.run, read.terms)
            words = "drew a taste label, which stays here, and reports by it"
        else:
            taken = choose(store, read.terms, self._setup.recommender)
            part = participation(store, taken.positions, units_paid(taken.pays, read.terms))
            words = agreed_words(read.terms, "proved", servers=task.servers)
        client = OneRoundClient(
            part.ratings,
            part.weights,
            self._setup.noise,
            epsilon=read.terms.epsilon,
            catalogue=read.terms.catalogue,
            n_users=1,  # of no user a share of noise is added
            simulation=self._setup.simulation,
        )
        client.accept(read.survey)
        if task.grouping is not None:
            client.resume()
            client.group(task.grouping)
        prio = prio_of(task, read.id)
        waiting: dict[int, tuple[SplitReport, BlindedToken | None]] = {}
        for user, entries in enumerate(client.entries(store.users)):
            # A silo's need not all be in memory; none leaves before all are paid for.
            if len(waiting) >= _AT_A_TIME:
                self._put(read, waiting)
                waiting = {}
            # All reports carry the task's begin, so that they do not tell when they were made.
            blinded = self._blinded(read, user)
            name = secrets.token_bytes(REPORT_ID_SIZE) if blinded is None else blinded.report_id
            waiting[user] = split_report(prio, entries, name, at=task.begin), blinded
        with store.transaction():
            self.book.require(read.id, state)
            if store.ratings() is not part.table:  # who pays is who is in the reports
                raise DeclinedError(
                    "busy", "the owner has just changed ratings; the report is made again"
                )
            entry = self._entry(read, state.run, "agreed", words)
            if taken is None:
                store.ledger.note(entry)
            else:
                charge(store, entry, taken)
            self._put(read, waiting)
            if store.users > 1:
                self.book.put_users(read.id, list(map(str, part.ratings.users.ids.tolist())))
            self._keep(
                read, state, built=True, content=part.content, unsent=tuple(range(store.users))
            )

    def _blinded(self, read: ReadTask, user: int) -> BlindedToken | None:
        """Return the request for a user's token: one in a task, also for a report made anew."""
        if not read.task.token_key:
            return None
        return self.book.blinded(read.id, user) or token_request(read.task, read.id)

    def _lacks_tokens(self, read: ReadTask, state: TaskState) -> bool:
        return bool(read.task.token_key) and not state.left and state.tokens < len(state.unsent)

    def _ask_for_tokens(self, read: ReadTask, state: TaskState, now: float) -> None:
        """Ask the recommender for the token of each report, always by the same bytes.

        Nothing leaves soon after the last one: of two who compare times one should not know the
        other's.

        Raises:
            ProtocolError: The recommender refuses, or gives something that is no token.
        """
        task = read.task
        key, challenge = TokenKey(task.token_key), token_challenge(task, read.id)
        path = TOKENS_PATH.format(task_id=id_to_text(read.id))
        for user in range(state.tokens, len(state.unsent)):
            blinded = self.book.blinded(read.id, user)
            if blinded is None:
                raise StorageError("a request for a token is not in the store: it is damaged")
            headers = token_headers(self._store.identity, read.id, blinded.request)
            try:
                status, body = self._carrier.request_token(path, headers, blinded.request)
            except TransportError as error:
                self._wait(read, state, now, str(error))
                return
            if status in REFUSED:
                raise ProtocolError(f"refused: the recommender gives no token (answer {status})")
            if status != HTTPStatus.OK:
                self._wait(read, state, now, f"its answer was {status}")
                return
            token = blinded.finish(key, challenge, body)
            with self._store.transaction():
                self.book.require(read.id, state)
                self.book.put_token(read.id, user, token)
                self._keep(read, state, tokens=user + 1, tries=0, retry_at=0.0)
        if state.moment <= now:
            with self._store.transaction():
                self.book.require(read.id, state)
                self._keep(read, state, moment=self._draw(read, now))
        self._setup.log(
            f"Task {read.id.hex()[:8]}: {self._setup.recommender} gave a token, signed blindly: it "
            "knows that this device takes part, and not which report is its."
        )

    def _seal(self, read: ReadTask, user: int) -> bytes:
        """Encrypt a report to the newest keys; TransportError while there are none that hold."""
        configs = self._keys.configs(read.task.servers, self._setup.clock())
        return sealed_report(self.book.shares(read.id, user), read.id, configs)

    def _is_outdated(self, read: ReadTask, body: bytes) -> bool:
        return not self._keys.can_open(read.task.servers, body)

    def _post(self, read: ReadTask, user: int, body: bytes, leaving: Callable[[], None]) -> int:
        path = REPORTS_PATH.format(task_id=id_to_text(read.id))
        headers = report_headers(self.book.token(read.id, user) if read.task.token_key else None)
        return self._carrier.upload(read.task.servers.leader, path, headers, body, leaving)

    def _return_held(self, read: ReadTask, state: TaskState, words: str) -> None:
        """Give back what is held for reports that have not left; labels cost nothing more."""
        if state.built and read.part != "labels":
            self._store.ledger.give_back(self._entry(read, state.run, "returned", words), 1.0)

    def _return_rest(self, read: ReadTask, state: TaskState, words: str) -> None:
        if read.part == "labels":
            return  # counts of the same users have left, and paid for both
        users = self.book.users(read.id)
        rest = [user for user in state.unsent if not state.may_have_left(user)]
        self._store.ledger.give_back_users(
            self._entry(read, state.run, "returned", words),
            [users[user] for user in rest if user < len(users)],
        )

    def _end(self, read: ReadTask, state: TaskState) -> None:
        """Drop a task, and an agreement for once unless labels are to follow."""
        self.book.end(read.id)
        if not (read.part == "counts" and state.left):
            end_consent(self._store, state.run)

    def _put(
        self, read: ReadTask, reports: dict[int, tuple[SplitReport, BlindedToken | None]]
    ) -> None:
        with self._store.transaction():
            for user, (shares, blinded) in reports.items():
                self.book.put_shares(read.id, user, shares)
                if blinded is not None:
                    self.book.put_blinded(read.id, user, blinded)

    def _note_leaving(self, read: ReadTask, state: TaskState, body: bytes) -> None:
        report_leaves(self._store, state.run, read.terms, read.task.servers, read.number, body)

    def _note_answer(self, state: TaskState, body: bytes, status: int, *, last: bool) -> None:
        record_leader_response(self._store, state.run, body, status, last=last)

    def _pay(self, read: ReadTask, state: TaskState) -> None:
        servers = read.task.servers
        words = f"a report for each user, in shares for {servers.names} (digest {servers.digest})"
        # A label is drawn once: what was counted is gone with it.
        counted = None
        if read.part == "counts":
            counted = CountedSurvey(run=state.run, survey=encode(read.survey))
        self.book.require(read.id, state)
        self._store.ledger.note(
            self._entry(read, state.run, "sent", words), first=read.part != "labels"
        )
        self._keep(read, state, left=True)
        self.book.change(
            survey=encode(read.survey),
            terms=encode(read.terms),
            reported=read.id,
            run=state.run,
            model=facts_digest(self._store),
            counted=counted,
        )


def _within_a_day(taken: tuple[float, ...], now: float) -> tuple[float, ...]:
    """Return the times of the last day; where the clock was put back they are of now."""
    return tuple(min(at, now) for at in taken if at > now - DAY)
