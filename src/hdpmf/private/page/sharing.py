"""The choice of what a recommender may see, on the page "My privacy".

Showing less counts at once. Showing more is confirmed in a second step, which says what becomes
visible; the page of the first step keeps the choice until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hdpmf.common.privacy.accounting.costs import rounded_up
from hdpmf.common.privacy.levels import HIDDEN, LEVELS, Level
from hdpmf.common.protocol.titles import upright
from hdpmf.errors import ConfigError
from hdpmf.private.device.choices.sharing import (
    LISTS,
    Choice,
    ChoicePreview,
    choose,
    preview_choice,
    was_shown,
    would_show,
)
from hdpmf.private.device.memberships import joined_recommenders
from hdpmf.private.device.own_items import all_titles
from hdpmf.private.device.store.catalogues import id_of
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.ratings_table import ME
from hdpmf.private.page.request import START, PageRequest, name_of

_PENDING = "sharing"
_BACK = "sharing-back"
_TITLES_SHOWN = 100


def sharing_fields(request: PageRequest, store: DeviceStore) -> dict[str, Any]:
    """Return what the recommender of this page may see, and what it has seen."""
    known = store.recommender
    if not known.address or known.left:
        return {"joined": False, "pending": None}
    shown = would_show(store)
    return {
        "joined": True,
        "recommender": name_of(store, known.address),
        "level": store.sharing_level(),
        "levels": LEVELS,
        "lists": {name: f"{value:.2f}" for name, value in LISTS.items()},
        "counts": shown.counts(),
        "shown": was_shown(store, known.address),
        "pending": _pending(request, store),
    }


def set_level(request: PageRequest) -> str:
    """Set what the recommender may see or, if that is more than before, ask once more."""
    back = request.back_to("/privacy", START)
    with request.store() as store:
        level = _level(request)
        preview = preview_choice(store, Choice("user", ME, level))
        if preview.raises:
            request.session.state[_PENDING] = store.recommender_id, level
            request.session.state[_BACK] = back
            return "/privacy"
        request.session.state.pop(_PENDING, None)
        _choose(request, store, level)
    return back


def confirm_level(request: PageRequest) -> str:
    """Do what the owner was asked about, or drop it."""
    with request.store() as store:
        level = _level(request)
        # Another tab may have chosen something else meanwhile.
        if request.session.state.get(_PENDING) != (store.recommender_id, level):
            raise ConfigError(request.t("sharing.gone"))
        del request.session.state[_PENDING]
        back = str(request.session.state.pop(_BACK, "/privacy"))
        if request.text("answer") != "yes":
            request.session.note(request.t("sharing.dropped"))
            return back
        _choose(request, store, level)
    return back


def shows_to(store: DeviceStore) -> str:
    """Return the recommenders that the owner lets see something; empty where there are none."""
    return ", ".join(
        name_of(store, known.address)
        for known in joined_recommenders(store)
        if store.at(known.id).sharing_level() != LEVELS[HIDDEN]
    )


def item_titles(titles: Mapping[str, str], items: Sequence[str]) -> dict[str, Any]:
    """Return the first of these items by their titles, and how many more there are."""
    named = sorted(upright(titles.get(item, "")) or id_of(item) for item in items)
    return {"titles": named[:_TITLES_SHOWN], "more": max(len(named) - _TITLES_SHOWN, 0)}


def _choose(request: PageRequest, store: DeviceStore, level: Level) -> None:
    choose(store, Choice("user", ME, level))
    request.owner.background.refresh()
    whom = name_of(store, store.recommender.address)
    request.session.note(request.t(f"sharing.done.{level}", recommender=whom))
    sent = was_shown(store, store.recommender.address)
    if any(sent.values()):
        request.session.note(request.t("sharing.stays", recommender=whom, **sent))


def _level(request: PageRequest) -> Level:
    level = next((each for each in LEVELS if each == request.text("level")), None)
    if level is None:
        raise ConfigError(request.t("sharing.no_level"))
    return level


def _pending(request: PageRequest, store: DeviceStore) -> dict[str, Any] | None:
    """Return the choice that waits for a second word, with what it would show."""
    kept = request.session.state.get(_PENDING)
    level = next((each for each in LEVELS if kept == (store.recommender_id, each)), None)
    if level is None:
        return None
    preview: ChoicePreview = preview_choice(store, Choice("user", ME, level))
    titles = all_titles(store)
    return {
        "level": level,
        "counts": preview.then.counts(),
        "beyond": rounded_up(preview.beyond) if preview.beyond > 0 else "",
        "limit": f"{store.policy.own_total:g}",
        "seen": item_titles(titles, preview.then.seen),
        "open": item_titles(titles, preview.then.open),
    }
