"""The pages "My privacy" and "Settings": privacy level, passphrase, deletion."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import msgspec

from hdpmf.common.data import RatingScale
from hdpmf.common.web.templates import Wording
from hdpmf.errors import ConfigError
from hdpmf.private.device.choices.privacy_level import (
    GROUPS,
    MISS_ALONE,
    MISSES,
    SENSITIVE,
    group_of,
    item_weights,
    set_privacy_weight,
)
from hdpmf.private.device.disclosures.bounds import (
    Bound,
    PrivacyBounds,
    bound_of_items,
    privacy_bounds,
)
from hdpmf.private.device.own_items import current_catalogue
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.page.pictures import views
from hdpmf.private.page.request import START, PageRequest, choices, item_fields

_MARKED_SHOWN = 100

_NOT_ASKING = "not-asking"


def privacy_page(request: PageRequest) -> dict[str, Any]:
    """Return the privacy level, its meaning, and the sensitive items."""
    with request.store() as store:
        level = privacy_bounds(store)
        shown = current_catalogue(store)
        marked = item_weights(store)
        policy = store.policy
        positions = (
            []
            if shown is None
            else [shown.positions[item] for item in marked if item in shown.positions]
        )
        return {
            "choices": choices(store),
            "recommender_id": store.recommender_id,
            "weight": level.weight,
            "sentences": _sentences(request.t, level),
            "views": views(request.t, level, so_far=False),
            "groups": GROUPS,
            "group": group_of(level.weight),
            "valuetext": _value_text(request.t, level),
            "epsilon": policy.own_epsilon,
            "ask": policy.ask,
            "not_asking": policy.ask and bool(request.session.state.get(_NOT_ASKING)),
            "sensitive": _sensitive_sentences(request.t, store, level, marked),
            "marked": []
            if shown is None
            else item_fields(shown.table, positions[:_MARKED_SHOWN], {}, marked),
            "n_marked": len(positions),
            "misses": MISSES,
            "miss_alone": MISS_ALONE,
        }


def preview_privacy_level(request: PageRequest) -> dict[str, Any]:
    """Return the meaning of another privacy level."""
    with request.store() as store:
        level = privacy_bounds(store, request.number("weight"))
        return {
            "sentences": _sentences(request.t, level),
            "views": views(request.t, level, so_far=False),
            "group": request.t(f"privacy.group.{group_of(level.weight)}"),
            "valuetext": _value_text(request.t, level),
        }


def change_privacy_level(request: PageRequest) -> str:
    """Set the privacy level."""
    with request.store() as store:
        set_privacy_weight(store, request.number("weight"))
    request.session.note(request.t("privacy.level_set"))
    return request.back_to("/privacy", START)


def ask_me(request: PageRequest) -> str:
    """Set whether the owner is asked before each run; not to be is asked a second time."""
    ask, sure = request.text("ask") == "yes", request.text("sure")
    with request.store() as store:
        if not ask and sure != "yes":
            request.session.state[_NOT_ASKING] = not sure and store.policy.ask
            return "/privacy"
        if not ask and not request.session.state.get(_NOT_ASKING):
            raise ConfigError(request.t("privacy.ask_gone"))
        store.set_policy(msgspec.structs.replace(store.policy, ask=ask))
    request.session.state.pop(_NOT_ASKING, None)
    request.session.note(request.t("privacy.ask_changed"))
    return "/privacy"


def _value_text(t: Wording, level: PrivacyBounds) -> str:
    """Return the level as a screen reader says it."""
    group = t(f"privacy.group.{group_of(level.weight)}")
    return t("privacy.value", group=group, percent=f"{100 * level.weight:.0f} %")


def _sentences(t: Wording, level: PrivacyBounds) -> list[str]:
    """Return what a privacy level means, together with what has left before."""
    counts = t("privacy.counts", percent=f"{100 * level.weight:.0f} %")
    if not level.proved:
        return [t("privacy.no_proof"), counts]
    told = [t("privacy.guess", percent=level.rating.percent)]
    if level.rating.epsilon > level.fresh.epsilon:
        told.append(t("privacy.guess_fresh", percent=level.fresh.percent))
    if level.ratings or level.person.epsilon:
        told.append(
            t(
                "privacy.together",
                n=f"{level.ratings:,}",
                percent=level.person.percent,
                so_far=level.person_so_far.percent,
                epsilon=level.person.up_to,
            )
        )
    return [*told, counts]


def _sensitive_sentences(
    t: Wording, store: DeviceStore, level: PrivacyBounds, marked: Mapping[str, float]
) -> list[str]:
    """Return what marking means, and how much of what is marked was sent before."""
    if not level.proved:
        return [t("privacy.sensitive_text")]
    fresh = Bound.of_rating(level.fresh.epsilon * SENSITIVE)
    told = [t("privacy.sensitive_text"), t("privacy.sensitive_guess", percent=fresh.percent)]
    most = bound_of_items(store, marked)
    if most.epsilon > fresh.epsilon:
        told.append(t("privacy.sensitive_before", percent=most.percent))
    return told


SCALES = {
    "stars": RatingScale(1.0, 5.0, 1.0),
    "half-stars": RatingScale(0.5, 5.0, 0.5),
    "ten": RatingScale(1.0, 10.0, 1.0),
}
"""What a new store can be rated on."""


def settings_page(request: PageRequest) -> dict[str, Any]:
    """Return the device's name, identity and file, and the version of the program."""
    with request.owner.store() as store:
        return {
            "name_of_device": store.device.name,
            "identity": store.identity.public.hex(),
            "encrypted": store.encrypted,
            "file": request.owner.path.name,
            "rated": store.n_ratings,
            "version": version("hdpmf"),
        }


def make_store(request: PageRequest) -> str:
    """Create a store."""
    scale = SCALES.get(request.text("scale"))
    first = request.text("passphrase", 1000)
    second = request.text("again", 1000)
    if scale is None or first != second:
        raise ConfigError(request.t("settings.not_twice"))
    request.owner.make(request.text("name"), first or None, scale)
    request.session.note(request.t("welcome.made"))
    return START


def new_passphrase(request: PageRequest) -> str:
    """Change the passphrase."""
    new = request.text("new", 1000)
    again = request.text("again", 1000)
    if not new or new != again:
        raise ConfigError(request.t("settings.not_twice"))
    request.owner.change_passphrase(request.text("old", 1000) or None, new)
    request.session.note(request.t("settings.changed"))
    return "/settings"


def forget(request: PageRequest) -> str:
    """Delete the ratings, the model or the whole store."""
    what = request.text("what")
    if request.text("sure") != "yes":
        raise ConfigError(request.t("settings.not_sure"))
    if what == "everything":
        request.owner.destroy()
        return "/welcome"
    if what not in ("ratings", "model"):
        raise ConfigError(request.t("settings.not_sure"))
    with request.owner.store() as store:
        store.forget(ratings=what == "ratings", model=what == "model")
    request.session.note(request.t(f"settings.forgot.{what}"))
    return "/settings"
