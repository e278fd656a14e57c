"""The owner's consent to terms: once, always or never. Asked only if the policy says so.

What is remembered is about terms, not about ratings, and so is what a recommender can see of it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hdpmf.errors import ConfigError
from hdpmf.private.device.disclosures.ledger import utc_now
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import Consent, Question

_MOST = 8
"""The most questions of one recommender that wait; a newer one replaces its own oldest one."""

Answer = Literal["once", "always", "never"]


def consents(store: DeviceStore) -> list[Consent]:
    """Return the answers that count, the oldest first."""
    return store.tables.consents.rows()


def pending(store: DeviceStore, now: float | None = None) -> list[Question]:
    """Return the questions without an answer, the oldest first.

    With ``now`` (Unix time), questions that have expired by then are left out.
    """
    consented = {consent.asked.key for consent in consents(store)}
    return [
        question
        for question in store.tables.questions.rows()
        if question.key not in consented and (now is None or not 0 < question.until <= now)
    ]


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
        store.tables.consents.put(Consent(asked=question, answer=answer, at=utc_now()))


def take_back(store: DeviceStore, key: str) -> None:
    """Forget an answer: the owner is asked again. What was sent is sent."""
    store.tables.consents.delete(key)


def withdraw(store: DeviceStore, recommender: str) -> None:
    """End the questions of a recommender that the owner left, and every agreement with it.

    A no stays one.
    """
    with store.transaction():
        for consent in consents(store):
            if consent.asked.recommender == recommender and consent.answer != "never":
                store.tables.consents.delete(consent.asked.key)
        for question in store.tables.questions.rows():
            if question.recommender == recommender:
                store.tables.questions.delete(question.key)


def require_consent(store: DeviceStore, question: Question) -> None:
    """Go on if the owner agrees; an agreement for once is used up by that.

    Raises:
        DeclinedError: The owner has said no, or has not answered yet: then it is put before the
            owner.
    """
    if not store.policy.ask:
        return
    with store.transaction():
        consent = store.tables.consents.find(question.key)
        if consent is not None and consent.answer == "once":
            take_back(store, question.key)
            store.tables.questions.delete(question.key)
        if consent is None:
            _ask(store, question)
    if consent is None:
        raise DeclinedError(
            "busy", "this device's owner has not answered yet (ask = true in the policy)"
        )
    if consent.answer == "never":
        raise DeclinedError("policy", "this device's owner does not take part under these terms")


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
    first = utc_now() if before is None else before.at
    questions.put(msgspec.structs.replace(question, at=first))
