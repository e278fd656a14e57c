"""The page "My privacy": the dial, what is sensitive, and what that means in numbers that people understand."""

from __future__ import annotations

from typing import Any

import msgspec

from hdpmf.device.dial import (
    GROUPS,
    MISS_ALONE,
    MISSES,
    SENSITIVE,
    DialPosition,
    dial,
    genres,
    item_weights,
    mark_genre,
    set_dial,
)
from hdpmf.device.titles import shown_items
from hdpmf.methods.words import guess_at, percent
from hdpmf.page.visit import Visit, choices, item_fields
from hdpmf.web.wording import Wording

_MARKED_SHOWN = 100


def privacy_page(visit: Visit) -> dict[str, Any]:
    """Where the dial is, and what is marked."""
    with visit.store() as store:
        position, shown, marked, policy = dial(store), shown_items(store), item_weights(store), store.policy
        by_genre = genres(store)
        places = [] if shown is None else [shown.positions[item] for item in marked if item in shown.positions]
        return {
            "places": choices(store),
            "place": store.place,
            "weight": position.weight,
            "sentences": _sentences(visit.t, position),
            "groups": GROUPS,
            "group": position.group,
            "epsilon": policy.own_epsilon,
            "ask": policy.ask,
            "sensitive_guess": percent(guess_at(policy.own_epsilon * position.weight * SENSITIVE), at_most=True),
            "genres": [
                {"name": name, "items": len(items), "marked": all(item in marked for item in items)}
                for name, items in by_genre.items()
            ],
            "marked": [] if shown is None else item_fields(shown.table, places[:_MARKED_SHOWN], {}, marked),
            "n_marked": len(places),
            "misses": MISSES,
            "miss_alone": MISS_ALONE,
        }


def would_be(visit: Visit) -> dict[str, Any]:
    """What the dial would mean elsewhere."""
    with visit.store() as store:
        position = dial(store, visit.number("weight"))
        return {"sentences": _sentences(visit.t, position), "group": visit.t(f"privacy.group.{position.group}")}


def turn_dial(visit: Visit) -> str:
    """Turn it."""
    with visit.store() as store:
        set_dial(store, visit.number("weight"))
    visit.session.note(visit.t("privacy.turned"))
    return "/privacy"


def mark_genres(visit: Visit) -> str:
    """Mark a genre as sensitive, or not any more."""
    marked = visit.text("marked") == "yes"
    with visit.store() as store:
        n = mark_genre(store, visit.text("genre"), *([] if marked else [1.0]))
    visit.session.note(visit.t.count("privacy.marked" if marked else "privacy.unmarked", n))
    return "/privacy"


def ask_me(visit: Visit) -> str:
    """Ask before each run, or trust the policy alone."""
    with visit.store() as store:
        store.set_policy(msgspec.structs.replace(store.policy, ask=visit.text("ask") == "yes"))
    visit.session.note(visit.t("privacy.ask_changed"))
    return "/privacy"


def _sentences(t: Wording, position: DialPosition) -> list[str]:
    told = [t("privacy.guess", percent=percent(position.guess, at_most=True))]
    if position.ratings:
        told.append(
            t(
                "privacy.together",
                n=f"{position.ratings:,}",
                percent=percent(guess_at(position.all_at_delta), at_most=True),
                epsilon=f"{position.all_at_delta:.3g}",
            )
        )
    told.append(t("privacy.counts", percent=f"{100 * position.weight:.0f} %"))
    return told if position.proved else [*told, t("privacy.no_proof")]
