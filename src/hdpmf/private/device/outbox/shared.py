"""Ratings that their owner shows: one message to the recommender for each task.

Hidden ratings of everybody are in the reports to two servers. Those that the owner shows
leave as one randomised bit each, and open ones as they are, in one message that the device signs.
It is a run of its own in the ledger, paid and given back apart from the report.

A device whose owner shows nothing sends nothing, whatever level that is by: because the owner hides
everything, or because all that could be seen is marked, or was shown before. So a level is seen
only by what is shown, and of those who hide everything the recommender does not learn that they
take part. What is shown, and whether anything is, depends on no hidden rating.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text
from hdpmf.common.protocol import SharedContribution, encode
from hdpmf.common.protocol.task import SHARED_PATH
from hdpmf.private.client.outgoing import compose, shared_headers
from hdpmf.private.client.sharing import ShareClient
from hdpmf.private.device.budget import (
    charge,
    choose_shown,
    participation,
    showing_ratings,
    units_paid,
)
from hdpmf.private.device.consent import end_consent
from hdpmf.private.device.disclosures.journal import Action, Entry
from hdpmf.private.device.disclosures.sent_bytes import record_shared_response, shared_leaves
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.outbox.sending import Sending
from hdpmf.private.device.published_files import ReadTask, check_task
from hdpmf.private.device.recommender_state import TaskState, shared_run
from hdpmf.private.device.store.schema import RecommenderState

_ONLY = 0  # the number of the message, as reports have the number of their user


class SharedRatings(Sending):
    """The ratings that the owner shows to one recommender, beside the report of a task."""

    what = "message with what is shown"

    def _under_way(self, known: RecommenderState) -> bytes:
        return known.shared

    def _key(self, read: ReadTask) -> bytes:
        return shared_run(read.id)

    def _receiver(self, read: ReadTask) -> str:
        return self._setup.recommender

    def _receivers(self, read: ReadTask) -> str:
        return f"{self._setup.recommender} itself, with what the owner shows"

    def _agreed_run(self, read: ReadTask, state: TaskState) -> bytes:
        return read.id  # one agreement, to the task

    def _content(self, read: ReadTask, state: TaskState) -> bytes:
        return showing_ratings(self._store, state.run, read.terms).content

    def _make(self, read: ReadTask, state: TaskState) -> None:
        store, terms = self._store, read.terms
        check_task(store, read)  # its owner may have changed the policy since the task came
        taken = choose_shown(store, terms, self._setup.recommender)
        chosen, opened = taken.positions, taken.pays == 0
        as_they_are = np.zeros(len(store.ratings()), np.bool_)
        as_they_are[chosen[opened]] = True
        part = participation(store, chosen, units_paid(taken.pays, terms), as_they_are)
        body = b""
        if len(chosen):
            client = ShareClient(
                part.ratings,
                part.weights,
                self._setup.noise,
                epsilon=terms.epsilon,
                catalogue=terms.catalogue,
                n_users=1,
                simulation=self._setup.simulation,
            )
            client.accept(read.survey)
            bits, published = client.shared()
            body = encode(compose(SharedContribution, bits=bits, opened=published))
        with store.transaction():
            self.book.require(self._key(read), state)
            if store.ratings() is not part.table:  # who pays is who is in the message
                raise DeclinedError(
                    "busy", "the owner has just changed ratings; the message is made again"
                )
            if len(chosen):
                shown = int((~opened).sum()), int(opened.sum())
                words = _agreed_words(terms.epsilon, *shown, self._setup.recommender)
                entry = self._entry(read, state.run, "agreed", words)
                entry = msgspec.structs.replace(entry, seen=shown[0], opened=shown[1])
                charge(store, entry, taken, opened)
                self.book.put_report(self._key(read), _ONLY, body)
            unsent = (_ONLY,) if len(chosen) else ()
            self._keep(read, state, built=True, content=part.content, unsent=unsent)

    def _prepare(self, read: ReadTask, state: TaskState) -> None:
        """As in ``Sending``; where there is nothing to show, nothing is kept."""
        super()._prepare(read, state)
        if not state.unsent:
            with self._store.transaction():
                self.book.require(self._key(read), state)
                self._end(read, state)

    def _post(self, read: ReadTask, user: int, body: bytes, leaving: Callable[[], None]) -> int:
        path = SHARED_PATH.format(task_id=id_to_text(read.id))
        headers = shared_headers(self._store.identity, read.id, body)
        return self._carrier.share(path, headers, body, leaving)

    def _pay(self, read: ReadTask, state: TaskState) -> None:
        self.book.require(self._key(read), state)
        words = f"what the owner shows, in one message to {self._setup.recommender}"
        self._store.ledger.note(self._entry(read, state.run, "sent", words), first=True)
        self._keep(read, state, left=True)

    def _note_leaving(self, read: ReadTask, state: TaskState, body: bytes) -> None:
        shared_leaves(self._store, state.run, len(body))

    def _note_answer(self, state: TaskState, body: bytes, status: int, *, last: bool) -> None:
        record_shared_response(self._store, state.run, status)

    def _return_held(self, read: ReadTask, state: TaskState, words: str) -> None:
        if state.unsent:
            self._store.ledger.give_back(self._entry(read, state.run, "returned", words), 1.0)

    def _return_rest(self, read: ReadTask, state: TaskState, words: str) -> None:
        """Give nothing back: there is one message for all users."""

    def _ask_again(self, read: ReadTask, state: TaskState) -> None:
        """Give it up. Where the report had not left either, the task is put before the owner."""
        self._give_up(read, state, "the owner wants to be asked")

    def _end(self, read: ReadTask, state: TaskState) -> None:
        """Drop it, and an agreement for once where the report is over, too."""
        self.book.end(self._key(read))
        if self.book.state().task != read.id:
            end_consent(self._store, read.id)

    def _entry(self, read: ReadTask, run: bytes, action: Action, words: str) -> Entry:
        entry = super()._entry(read, run, action, words)
        return msgspec.structs.replace(entry, view="messages")


def _agreed_words(epsilon: float, seen: int, opened: int, recommender: str) -> str:
    """Say in plain English what is shown to whom."""
    return (
        f"hdp-share, directly to {recommender}, under this device's name. Seen: {seen} ratings, "
        f"each with a bit that is drawn at random (epsilon {epsilon:g}); that they are there, and "
        f"their weights, are in plain sight. Open: {opened} ratings, published as they are"
    )
