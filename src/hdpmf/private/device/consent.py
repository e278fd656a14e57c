"""Whether the owner wants to take part: once, always under these terms, or never. Asked only if the
policy says so.

What is remembered is about terms, not about ratings, and so is what a recommender can see of it.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from hdpmf.common.protocol import Survey, Terms
from hdpmf.errors import ConfigError, StorageError
from hdpmf.private.device.disclosures.ledger import utc_now
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.store.device_store import DeviceStore

_CONSENTS, _ASKED = "consents", "asked"
# questions of a recommender that wait: one that asks ever new ones pushes out its own, nobody
# else's
_MOST = 8

T = TypeVar("T")
Answer = Literal["once", "always", "never"]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a run asks for, as its owner is asked about it.

    Attributes:
        recommender: Who asks.
        terms: What for.
        servers: Digest of the two servers that sum, and their names; empty where there are none.
        names: Who runs these.
        survey: What exactly is asked, where that is known beforehand.
        at: When it was asked first.
        until: When it is over (Unix), where that is known.
    """

    recommender: str
    terms: Terms
    servers: str = ""
    names: str = ""
    survey: Survey | None = None
    at: str = ""
    until: int = 0

    @property
    def key(self) -> str:
        """What makes terms the same terms: who asks, for what, by whom it is summed, and how
        private that is.

        How many take part is not in it: it changes with every run, and the policy has a minimum.
        """
        terms = self.terms
        parts = (
            self.recommender,
            terms.method,
            terms.view,
            terms.epsilon,
            terms.rounds,
            terms.labels,
            self.servers,
        )
        return "|".join(map(str, parts))


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    """The owner's answer.

    Attributes:
        asked: To what.
        answer: What it was.
        at: When.
    """

    asked: Asked
    answer: Answer
    at: str = ""


def consents(store: DeviceStore) -> list[Consent]:
    """The answers that count, the oldest first."""
    return _read(store, _CONSENTS, list[Consent])


def pending(store: DeviceStore, now: float | None = None) -> list[Asked]:
    """What waits for an answer, the oldest first; without what is over."""
    answered = {consent.asked.key for consent in consents(store)}
    waiting = _read(store, _ASKED, list[Asked])
    return [
        asked
        for asked in waiting
        if asked.key not in answered and (now is None or not 0 < asked.until <= now)
    ]


def give_answer(store: DeviceStore, key: str, answer: Answer) -> None:
    """Answer what was asked, or answer anew.

    Raises:
        ConfigError: Nobody has asked that.
    """
    if answer not in ("once", "always", "never"):
        raise ConfigError("answer once, always or never")
    with store.transaction():
        known = [
            *_read(store, _ASKED, list[Asked]),
            *(consent.asked for consent in consents(store)),
        ]
        asked = next((other for other in reversed(known) if other.key == key), None)
        if asked is None:
            raise ConfigError("nobody asks for that any more; nothing was changed")
        rest = [consent for consent in consents(store) if consent.asked.key != key]
        _write(store, _CONSENTS, [*rest, Consent(asked=asked, answer=answer, at=utc_now())])


def take_back(store: DeviceStore, key: str) -> None:
    """Forget an answer: the owner is asked again. What was sent is sent."""
    with store.transaction():
        _write(
            store, _CONSENTS, [consent for consent in consents(store) if consent.asked.key != key]
        )


def withdraw(store: DeviceStore, recommender: str) -> None:
    """The owner has left a recommender: its questions are over, and so is every agreement with
    it. A no stays one.
    """
    with store.transaction():
        kept = [
            each
            for each in consents(store)
            if each.asked.recommender != recommender or each.answer == "never"
        ]
        _write(store, _CONSENTS, kept)
        asked = _read(store, _ASKED, list[Asked])
        _write(store, _ASKED, [each for each in asked if each.recommender != recommender])


def require_consent(store: DeviceStore, asked: Asked) -> None:
    """Go on if the owner agrees; an agreement for once is used up by that.

    Raises:
        DeclinedError: The owner has said no, or has not answered yet: then it is put before the
            owner.
    """
    if not store.policy.ask:
        return
    with store.transaction():
        known = {consent.asked.key: consent for consent in consents(store)}
        consent = known.get(asked.key)
        if consent is not None and consent.answer == "once":
            take_back(store, asked.key)
            _write(
                store,
                _ASKED,
                [other for other in _read(store, _ASKED, list[Asked]) if other.key != asked.key],
            )
        if consent is None:
            _ask(store, asked)
    if consent is None:
        raise DeclinedError(
            "busy", "this device's owner has not answered yet (ask = true in the policy)"
        )
    if consent.answer == "never":
        raise DeclinedError("policy", "this device's owner does not take part under these terms")


def _ask(store: DeviceStore, asked: Asked) -> None:
    before = _read(store, _ASKED, list[Asked])
    first = next((other.at for other in before if other.key == asked.key), utc_now())
    rest = [other for other in before if other.key != asked.key]
    own = [other for other in rest if other.recommender == asked.recommender]
    rest = [other for other in rest if other not in own[: 1 - _MOST]]
    _write(store, _ASKED, [*rest, msgspec.structs.replace(asked, at=first)])


def _read(store: DeviceStore, name: str, kind: type[list[T]]) -> list[T]:
    data = store.get(name)
    try:
        return [] if data is None else msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError:
        raise StorageError(
            "what the owner has agreed to cannot be read: the store is damaged"
        ) from None


def _write(store: DeviceStore, name: str, values: list[Asked] | list[Consent]) -> None:
    store.put(name, msgspec.msgpack.encode(values))
