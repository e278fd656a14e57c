"""The owner's consent to terms: once, always, never, or not now.

Who is to be asked (``ask`` in the policy) is asked before each run. A no holds in any case: it can
be said before anybody asks, and it covers the recommender: whatever else it asks for, unless that
is much cheaper. What is remembered is about terms, not about ratings, and so is
what a recommender can see of it.

An agreement is looked at again in the transaction that lets something leave
(`require_agreement`), because the owner may have thought better of it since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from hdpmf.common.protocol.servers import HTTPS, plain_address
from hdpmf.errors import ConfigError
from hdpmf.private.device.budget import check_policy
from hdpmf.private.device.disclosures.journal import utc_now
from hdpmf.private.device.errors import DeclinedError, UnansweredError
from hdpmf.private.device.published_files import read_task
from hdpmf.private.device.recommender_state import RecommenderStates
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import Consent, Question

_MOST = 8
"""The most questions of one recommender that wait; a newer one replaces its own oldest one."""

_MUCH_CHEAPER = 2.0
"""After a no only what costs so many times less is asked about, so that a no is not worn down by
small steps.
"""

LATER = 86_400
"""Seconds after a "not now" in which the owner is not asked the same again."""

Answer = Literal["once", "always", "never"]


def consents(store: DeviceStore) -> list[Consent]:
    """Return the answers that count, the oldest first."""
    return store.tables.consents.rows()


def pending(store: DeviceStore, now: float | None = None) -> list[Question]:
    """Return the questions without an answer, the oldest first.

    With ``now`` (Unix time), questions that have expired by then are left out, and those that the
    owner wants to be asked later.
    """
    known = consents(store)
    return [
        question
        for question in store.tables.questions.rows()
        if _last_word(store, known, question) is None
        and (now is None or not (0 < question.until <= now or _is_later(question, now)))
    ]


def postponed(store: DeviceStore, now: float) -> list[Question]:
    """Return the questions to which the owner said "not now", and which are not over."""
    return [
        question
        for question in pending(store)
        if _is_later(question, now) and not 0 < question.until <= now
    ]


def postpone(store: DeviceStore, key: str, now: float, seconds: int = LATER) -> None:
    """Say "not now" to a question, also after it was agreed to.

    What has not left does not leave, and the owner is asked again after ``seconds``, even where the
    policy asks nobody.

    Raises:
        ConfigError: Nobody has asked that.
    """
    with store.transaction():
        given = store.tables.consents.find(key)
        question = store.tables.questions.find(key if given is None else given.asked.key)
        if question is None:
            if given is None:
                raise ConfigError("nobody asks for that any more; nothing was changed")
            question = given.asked
        store.tables.consents.delete(key)
        store.tables.questions.put(msgspec.structs.replace(question, later=int(now) + seconds))


def postpone_under_way(store: DeviceStore, recommender: str, now: float) -> bool:
    """Say "not now" to all that is under way with a recommender; False if nothing is."""
    with store.transaction():
        found = [each for each in under_way(store) if each.recommender == recommender]
        for each in found:
            for key in each.agreed:
                postpone(store, key, now)
            for question in each.questions:
                if store.tables.questions.find(question.key) is None:  # the policy had agreed
                    ask_owner(store, question)
                postpone(store, question.key, now)
    return bool(found)


def _is_later(question: Question, now: float) -> bool:
    # A clock that was put back must not hide a question for longer than was said.
    return now < question.later <= now + LATER


def give_answer(store: DeviceStore, key: str, answer: Answer) -> None:
    """Answer a question, or answer it anew.

    Raises:
        ConfigError: Nobody has asked that.
    """
    if answer not in ("once", "always", "never"):
        raise ConfigError("answer once, always or never")
    with store.transaction():
        before = store.tables.consents.find(key)
        question = store.tables.questions.find(key) if before is None else before.asked
        if question is None:
            raise ConfigError("nobody asks for that any more; nothing was changed")
        store.tables.consents.delete(key)
        store.tables.consents.put(Consent(asked=question, answer=answer, at=utc_now()))


def take_back(store: DeviceStore, key: str) -> None:
    """Forget an answer: the owner is asked again. What was sent is sent."""
    store.tables.consents.delete(key)


def refuse_recommender(store: DeviceStore, recommender: str) -> None:
    """Say never to a recommender, whatever it asks for and whether it has asked or not."""
    RecommenderStates(store, recommender).change(never=utc_now())


def lift_refusal(store: DeviceStore, recommender: str) -> None:
    """Take back every no to a recommender: the owner is asked again, where the policy says so."""
    with store.transaction():
        for state in store.tables.recommender_states.rows():
            if state.never and _same(state.recommender, recommender):
                RecommenderStates(store, state.recommender).change(never="")
        for consent in consents(store):
            if consent.answer == "never" and _same(consent.asked.recommender, recommender):
                store.tables.consents.delete(consent.key)


def refused_recommenders(store: DeviceStore) -> list[str]:
    """Return the recommenders that the owner said never to, whatever they ask for."""
    return [state.recommender for state in store.tables.recommender_states.rows() if state.never]


def recommender_of(store: DeviceStore, key: str) -> str:
    """Return the recommender of a question or an answer; empty where there is none."""
    given = store.tables.consents.find(key)
    asked = store.tables.questions.find(key) if given is None else given.asked
    return "" if asked is None else asked.recommender


def has_left(store: DeviceStore, recommender: str) -> bool:
    """Return True if something for the task under way has left, which no answer takes back."""
    book = RecommenderStates(store, recommender)
    known = book.state()
    kept = book.load(known.task) if known.task else None
    return kept is not None and kept[0].left


class UnderWay(NamedTuple):
    """What was agreed to with a recommender, and is not over.

    Attributes:
        agreed: The owner's own answers that it goes by, by their keys; empty where the policy
            agreed.
        moment: When the report leaves (Unix); 0 where no task was taken yet, or messages answer.
        left: Something has left, which no answer takes back.
        questions: What the tasks under way ask for.
    """

    recommender: str
    agreed: tuple[str, ...]
    moment: float
    left: bool
    questions: tuple[Question, ...] = ()


def under_way(store: DeviceStore) -> list[UnderWay]:
    """Return what was agreed to and is not over, by recommender."""
    agreed: dict[str, list[str]] = {}
    waiting = set()  # an answer for once that waits for its run, or holds for it
    for consent in consents(store):
        if consent.answer != "never":
            agreed.setdefault(consent.asked.recommender, []).append(consent.key)
        if consent.answer == "once":
            waiting.add(consent.asked.recommender)
    found = []
    for state in store.tables.recommender_states.rows():
        book = RecommenderStates(store, state.recommender)
        loaded = book.load(state.task) if state.task else None
        if loaded is None:
            continue
        task, document = loaded
        question = read_task(document).question(state.recommender)
        keys = tuple(agreed.get(state.recommender, ()))
        # What was withdrawn is dropped at its moment; until then it only seems to wait.
        agrees = not state.never and (bool(keys) or not _is_asked(store, question))
        if task.left or agrees:
            waiting.discard(state.recommender)
            found.append(UnderWay(state.recommender, keys, task.moment, task.left, (question,)))
    return [*found, *(UnderWay(each, tuple(agreed[each]), 0.0, False) for each in sorted(waiting))]


def withdraw(store: DeviceStore, recommender: str) -> None:
    """End the questions of a recommender that the owner left, and every agreement with it.

    A no stays one.
    """
    with store.transaction():
        for consent in consents(store):
            if consent.asked.recommender == recommender and consent.answer != "never":
                store.tables.consents.delete(consent.key)
        for question in store.tables.questions.rows():
            if question.recommender == recommender:
                store.tables.questions.delete(question.key)


def require_consent(store: DeviceStore, question: Question, run: bytes = b"") -> None:
    """Go on if the owner agrees; an agreement for once is for this run from now on.

    Raises:
        UnansweredError: The owner has not answered yet; it is put before the owner.
        DeclinedError: The owner has said no.
    """
    with store.transaction():
        answer = _last_word(store, consents(store), question, run)
        if answer == "once":
            _use_up(store, question, run)
        unanswered = answer is None and _is_asked(store, question)
        if unanswered:
            _ask(store, question)
    _refuse_without(answer, unanswered=unanswered)


def require_agreement(store: DeviceStore, question: Question, run: bytes) -> None:
    """Refuse what the owner does not agree to any more: membership, policy, consent.

    For the transaction that lets something leave. It takes as long whatever the ratings are.

    Raises:
        UnansweredError: There is no answer that holds for this run.
        DeclinedError: The owner has said no, or left or paused the recommender, or the policy is
            another one.
    """
    joined = store.recommender
    if joined.address and _same(joined.address, question.recommender):
        if joined.left:
            raise DeclinedError("policy", "this device's owner has left the recommender")
        if joined.paused:
            raise DeclinedError("unavailable", "this device's owner has paused the recommender")
    check_policy(store.policy, question.terms)
    answer = _last_word(store, consents(store), question, run)
    _refuse_without(answer, unanswered=answer is None and _is_asked(store, question))


def end_consent(store: DeviceStore, run: bytes) -> None:
    """Drop an answer for once: the run that it was for is over."""
    for consent in consents(store):
        if run and consent.run == run:
            store.tables.consents.delete(consent.key)


def ask_owner(store: DeviceStore, question: Question) -> None:
    """Put a question before the owner."""
    with store.transaction():
        _ask(store, question)


def _is_asked(store: DeviceStore, question: Question) -> bool:
    """Return True if the owner is asked about it: by the policy, or after a "not now"."""
    waiting = store.tables.questions.find(question.key)
    return store.policy.ask or (waiting is not None and waiting.later > 0)


def _refuse_without(answer: Answer | None, *, unanswered: bool) -> None:
    if unanswered:
        raise UnansweredError("busy", "this device's owner has not answered yet")
    if answer == "never":
        raise DeclinedError("policy", "this device's owner does not take part under these terms")


def _last_word(
    store: DeviceStore, known: Sequence[Consent], question: Question, run: bytes = b""
) -> Answer | None:
    """Return what the owner said last about this question, or about dearer ones with a no."""
    if any(_same(name, question.recommender) for name in refused_recommenders(store)):
        return "never"
    last: Answer | None = None
    for consent in known:
        if consent.answer == "never":
            last = "never" if _covers(consent.asked, question) else last
        elif consent.asked.key == question.key and consent.run in (b"", run):
            last = consent.answer
    return last


def _covers(refused: Question, question: Question) -> bool:
    """Return True if a no to one question is a no to the other: same or dearer, same asker."""
    if not _same(refused.recommender, question.recommender):
        return False
    return question.terms.epsilon * _MUCH_CHEAPER > refused.terms.epsilon


def _same(recommender: str, other: str) -> bool:
    """Return True for one recommender, however its address is written."""
    return recommender == other or _host(recommender) == _host(other)


def _host(recommender: str) -> str:
    return plain_address(recommender).removeprefix(HTTPS)


def _use_up(store: DeviceStore, question: Question, run: bytes) -> None:
    """Let an answer for once hold for one run only."""
    consent = store.tables.consents.find(question.key)
    if consent is None:
        return  # it is in use, for this very run
    store.tables.consents.delete(question.key)
    store.tables.questions.delete(question.key)
    if run:
        store.tables.consents.put(msgspec.structs.replace(consent, run=run))


def _ask(store: DeviceStore, question: Question) -> None:
    questions = store.tables.questions
    before = questions.find(question.key)
    waiting = [
        other.key
        for other in questions.rows()
        if other.recommender == question.recommender and other.key != question.key
    ]
    for key in waiting[: 1 - _MOST]:
        questions.delete(key)
    if before is None:
        questions.put(msgspec.structs.replace(question, at=utc_now()))
    else:
        questions.put(msgspec.structs.replace(question, at=before.at, later=before.later))
