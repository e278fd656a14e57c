"""The pages "Recommenders" and "Activity": who may ask, what would be sent, and what was."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import msgspec

from hdpmf.common.privacy.accounting.costs import rounded_up
from hdpmf.common.protocol.identity import Invitation
from hdpmf.common.protocol.servers import check_authority
from hdpmf.common.web.templates import Wording
from hdpmf.errors import ConfigError
from hdpmf.private.device.consent import (
    has_left,
    lift_refusal,
    pending,
    refuse_recommender,
    refused_recommenders,
)
from hdpmf.private.device.device_identity import card_of
from hdpmf.private.device.disclosures.bounds import privacy_bounds, total_spending
from hdpmf.private.device.disclosures.history import LedgerRun, disclosures, past_runs
from hdpmf.private.device.memberships import (
    forget,
    join,
    joined_recommenders,
    known_recommenders,
    leave,
    pause,
    with_catalogue,
)
from hdpmf.private.device.own_items import all_titles
from hdpmf.private.device.pinned_servers import pinned_servers
from hdpmf.private.device.recommendations import local_model
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import Recommender
from hdpmf.private.page.consent import asked_fields
from hdpmf.private.page.pictures import part_of_scale, strips, views
from hdpmf.private.page.request import START, PageRequest, invited_fields, local_time, name_of


def recommenders_page(request: PageRequest) -> dict[str, Any]:
    """Return the joined recommenders and the invitation under review."""
    with request.owner.store() as store:
        return {
            "joined": [
                _known(store.at(known.id), known)
                | {"now": request.owner.background.state(known.address)}
                for known in joined_recommenders(store)
            ],
            "left": [
                known.address
                for known in known_recommenders(store)
                if known.left and _anything(store.at(known.id))
            ],
            **invited_fields(request, store),
            "why_not": request.owner.background.problem,
            "log": request.owner.background.log_lines(),
        }


def _known(store: DeviceStore, known: Recommender) -> dict[str, Any]:
    pair = pinned_servers(store)
    items = store.pinned_catalogue
    model = local_model(store)
    others = (
        each
        for each, view in with_catalogue(store)
        if each != known and view.item_namespace == store.item_namespace
    )
    return {
        "address": known.address,
        "name": name_of(store, known.address),
        "since": known.since,
        "paused": known.paused,
        "never": known.address in refused_recommenders(store),
        "names": "" if pair is None else pair.names,
        "digest": "" if pair is None else pair.digest,
        "runs": len(
            {entry.run for entry in store.ledger.entries() if entry.recommender == known.address}
        ),
        "n_items": None if items is None else len(items.positions),
        "model": "" if model is None else model.run[:8],
        "shared_with": [] if items is None else [name_of(store, each.address) for each in others],
    }


def _anything(store: DeviceStore) -> bool:
    """Return True if the store still has data of a recommender that was left."""
    return store.pinned_catalogue is not None or local_model(store) is not None


def choose(request: PageRequest) -> str:
    """Show the items of another recommender."""
    back = request.text("back")
    if not request.recommender_id or back not in ("/rate", "/recommendations", "/privacy"):
        raise ConfigError(request.t("recommenders.no_such"))
    request.choose(request.recommender_id)
    return back


def preview_invitation(request: PageRequest) -> str:
    """Preview an invitation from a file or a link. Nothing is pinned yet."""
    found = Invitation.read(request.body or request.text("link", 100_000).encode())
    if found.authority:
        check_authority(found.authority.encode())
    request.session.state["invitation"] = found
    return request.back_to("/recommenders", START)


def answer_invitation(request: PageRequest) -> str:
    """Join the recommender of the previewed invitation, or drop it."""
    found = request.session.state.get("invitation")
    # Another tab may look at another one.
    if not isinstance(found, Invitation) or found.digest != request.text("digest"):
        raise ConfigError(request.t("recommenders.no_invitation"))
    del request.session.state["invitation"]
    if request.text("answer") == "yes":
        with request.owner.store() as store:
            join(store, found)
        request.owner.background.refresh()
        request.session.note(request.t("recommenders.joined_now"))
    return request.back_to("/recommenders", START)


def card(request: PageRequest) -> bytes:
    """Return the device's public card."""
    with request.owner.store() as store:
        return msgspec.json.format(msgspec.json.encode(card_of(store)), indent=1)


def change(request: PageRequest) -> str:
    """Pause, resume, refuse or leave a recommender."""
    address = request.text("address")
    wanted = request.text("change")
    with request.owner.store() as store:
        late = wanted in ("never", "leave", "forget") and has_left(store, address)
        if wanted in ("pause", "resume"):
            pause(store, address, wanted == "pause")
        elif wanted == "never":
            refuse_recommender(store, address)
        elif wanted == "lift":
            lift_refusal(store, address)
        elif wanted == "leave":
            leave(store, address)
        elif wanted == "forget":
            forget(store, address)
        else:
            raise ConfigError(request.t("recommenders.no_such"))
    request.owner.background.refresh()
    request.session.note(request.t(f"recommenders.done.{wanted}"))
    if late:
        request.session.note(request.t("disclosures.has_left"))
    return "/recommenders"


def header_fields(request: PageRequest) -> dict[str, Any]:
    """Return what every page has in its header: open questions, and what was given away so far."""
    with request.owner.store() as store:
        spent = total_spending(store.ledger)
        so_far = spent.bound
        return {
            "n_asked": len(pending(store, time.time())),
            "meter": so_far.percent if spent.proved else "",
            "meter_part": part_of_scale(so_far),
        }


_RUNS_SHOWN = 50


def disclosures_page(request: PageRequest) -> dict[str, Any]:
    """Return questions, what was sent, and the remaining budget."""
    with request.owner.store() as store:
        policy = store.policy
        runs = past_runs(store)[::-1]
        bounds = privacy_bounds(store)
        total = store.ledger.spent_total()
        limit = policy.own_total
        titles = all_titles(store)
        return asked_fields(request, store) | {
            "runs": [
                {
                    "run": run.run[:8],
                    "recommender": run.entries[0].recommender,
                    "method": run.entries[0].method,
                    "line": _line(request.t, store, run),
                    "when": run.when,
                    "words": run.words(),
                    "entries": run.entries,
                    "ratings": 0 if run.paid is None else run.paid.ratings,
                }
                for run in runs[:_RUNS_SHOWN]
            ],
            "together": str(bounds.spent),
            "bounds": bounds,
            "limit": None if math.isinf(limit) else limit,
            "spent_part": 0.0 if math.isinf(limit) else min(total / limit, 1.0),
            "spent": rounded_up(total),
            "budget": strips(store, titles),
            "views": views(request.t, bounds, so_far=True) if total else None,
            "log": request.owner.background.log_lines(),
        }


def _line(t: Wording, store: DeviceStore, run: LedgerRun) -> str:
    """Return a run in one line: with whom, when, what left, and what came of it."""
    paid, sent = run.paid, run.count("sent")
    if run.given_back:
        what = t("disclosures.line_given_back")
    elif paid is None or not sent:
        state = (
            "held" if paid is not None
            else "refused" if run.count("refused")
            else "returned" if run.count("returned")
            else "nothing"
        )  # fmt: skip
        what = t(f"disclosures.line_{state}")
    else:
        what = t.count("disclosures.line_sums", paid.ratings)
        outcome = (
            "failed" if run.count("refused")
            else "received" if run.count("received")
            else "waiting"
        )  # fmt: skip
        what += " " + t(f"disclosures.line_{outcome}")
    whom, when = name_of(store, run.entries[0].recommender), local_time(t, run.entries[-1].at)
    return t("disclosures.line", recommender=whom, when=when, what=what)


def export(request: PageRequest) -> bytes:
    """Return all that was ever sent, as JSON."""
    with request.owner.store() as store:
        return json.dumps(disclosures(store), indent=1, allow_nan=False).encode()
