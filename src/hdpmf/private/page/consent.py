"""What the owner agrees to: answers to questions, on the page "Activity"."""

from __future__ import annotations

import time
from typing import Any, get_args

from hdpmf.common.methods.registry import MEANING
from hdpmf.common.privacy.accounting.costs import rounded_up
from hdpmf.common.protocol.titles import upright
from hdpmf.common.web.templates import Wording
from hdpmf.errors import ConfigError, HdpmfError
from hdpmf.private.device.choices.preview import preview_of
from hdpmf.private.device.consent import (
    Answer,
    consents,
    give_answer,
    has_left,
    lift_refusal,
    pending,
    postpone,
    postpone_under_way,
    postponed,
    recommender_of,
    refuse_recommender,
    take_back,
    under_way,
)
from hdpmf.private.device.disclosures.history import reveals
from hdpmf.private.device.memberships import joined_recommenders
from hdpmf.private.device.store.catalogues import id_of
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import Question
from hdpmf.private.page.pictures import gauges
from hdpmf.private.page.request import PageRequest, ago, local_time, name_of, short

_NUMBERS_SHOWN = 100


def state_fields(request: PageRequest) -> dict[str, Any]:
    """Return the number of questions that wait for the owner, and when they were looked for."""
    try:
        with request.owner.store() as store:
            now = time.time()
            return {"asked": len(pending(store, now)), "looked": looks(request, store, now)}
    except HdpmfError:  # it was closed in the meantime
        return {}


def asked_fields(request: PageRequest, store: DeviceStore) -> dict[str, Any]:
    """Return open questions, those for later, what is under way, and the answers that count."""
    now = time.time()
    return {
        "ask": store.policy.ask,
        "asked": [_pending(request.t, store, asked) for asked in pending(store, now)],
        "looks": looks(request, store, now),
        "waiting": _waiting(request.t, store),
        "later": [
            {
                "key": asked.key,
                "name": name_of(store, asked.recommender),
                "again": local_time(request.t, asked.later),
            }
            for asked in postponed(store, now)
        ],
        "answers": [
            {
                "key": consent.key,
                "answer": consent.answer,
                "recommender": name_of(store, consent.asked.recommender),
                "method": consent.asked.terms.method,
                "epsilon": consent.asked.terms.epsilon,
                "at": consent.at,
            }
            for consent in consents(store)
            if consent.answer != "once"
        ],
    }


def _pending(t: Wording, store: DeviceStore, asked: Question) -> dict[str, Any]:
    found = preview_of(store, asked)
    terms = asked.terms
    return {
        "key": asked.key,
        "recommender": name_of(store, asked.recommender),
        "address": short(asked.recommender),
        "named": name_of(store, asked.recommender) != short(asked.recommender),
        "names": asked.names,
        "digest": asked.servers,
        "method": terms.method,
        "epsilon": terms.epsilon,
        "minimum": terms.minimum,
        "at": asked.at,
        "until": local_time(t, asked.until) if asked.until else "",
        "sends": found.sends,
        "sees": found.claim.sees,
        "bounds": None if found.bounds is None else gauges(found.bounds),
        "against": found.claim.against,
        "not_protected": found.not_protected,
        "reveals": reveals(found.cost),
        "worth": MEANING[found.cost.status],
        "numbers": [
            {
                "title": upright(number.title) or id_of(number.item),
                "value": f"{number.value:g}",
                "weight": f"{number.weight:.2g}",
                "plain": _round(number.plain),
            }
            for number in found.numbers[:_NUMBERS_SHOWN]
        ],
        "n_numbers": len(found.numbers),
        "others": found.others,
        "left_out": found.left_out,
        "pays": rounded_up(found.pays),
        "noise": _round(found.noise),
        "refused": found.refused,
        "has_items": found.has_items,
    }


def looks(request: PageRequest, store: DeviceStore, now: float) -> str:
    """Return when the device last looked for questions, of each recommender that is answered."""
    t, told = request.t, []
    for known in joined_recommenders(store):
        look = request.owner.background.last_look(known.address)
        if look is not None and not known.paused:
            words = "looked" if look[1] else "not_reached"
            name = name_of(store, known.address)
            told.append(t(f"disclosures.{words}", whom=name, ago=ago(t, look[0], now)))
    return " ".join(told)


def look_now(request: PageRequest) -> str:
    """Look at what recommenders publish."""
    request.owner.background.refresh()
    request.session.note(request.t("disclosures.looking"))
    return "/disclosures"


def _waiting(t: Wording, store: DeviceStore) -> list[dict[str, Any]]:
    """Return what was agreed to and is not over, with what becomes of it."""
    found = []
    for each in under_way(store):
        state = "left" if each.left else "leaves" if each.moment else "agreed"
        when = local_time(t, each.moment) if each.moment else ""
        found.append(
            {
                "name": name_of(store, each.recommender),
                "address": each.recommender,
                "words": t(f"disclosures.waiting_{state}", when=when),
                "waits": not each.left,
            }
        )
    return found


def withdraw(request: PageRequest) -> str:
    """Take back what was agreed to with a recommender; what has left by then has left."""
    address = request.text("address")
    with request.owner.store() as store:
        late = has_left(store, address)
        if not postpone_under_way(store, address, time.time()):
            raise ConfigError(request.t("disclosures.withdrawn_before"))
    request.owner.background.refresh()
    request.session.note(request.t("disclosures.has_left" if late else "disclosures.withdrawn"))
    return "/disclosures"


def answer(request: PageRequest) -> str:
    """Store the owner's answer to an offer.

    Never is the owner's no to the recommender, whatever it asks for; "again" takes that back.
    """
    given, key = request.text("answer"), request.text("key", 2000)
    with request.owner.store() as store:
        recommender = recommender_of(store, key)
        late = given in ("never", "again") and has_left(store, recommender)
        if given == "again":
            if any(each.key == key and each.answer == "never" for each in consents(store)):
                lift_refusal(store, recommender)
            else:
                take_back(store, key)
        elif given in ("later", "now"):
            postpone(store, key, time.time(), *((0,) if given == "now" else ()))
        else:
            kind = next((kind for kind in get_args(Answer) if kind == given), None)
            if kind is None:
                raise ConfigError(request.t("disclosures.no_answer"))
            with store.transaction():
                give_answer(store, key, kind)
                if kind == "never":
                    refuse_recommender(store, recommender)
    request.owner.background.refresh()
    if given != "now":
        request.session.note(request.t(f"disclosures.said.{given}"))
    if late:
        request.session.note(request.t("disclosures.has_left"))
    return "/disclosures"


def _round(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 10 or number == int(number) else f"{number:.2g}"
