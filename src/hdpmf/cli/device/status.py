"""``hdpmf device status``, and the card that a device shows to be enrolled."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.device.store import PlaceOptions
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import print_json, print_lines

if TYPE_CHECKING:
    from hdpmf.device.local_model import LocalModel
    from hdpmf.device.store import DeviceStore
    from hdpmf.protocol.federation import DeviceCard


@grouped
def status(
    target: PlaceOptions,
    card: Annotated[
        Path | None, typer.Option("--card", metavar="FILE", help="Write the device's card once more.")
    ] = None,
    json: Json = False,
) -> None:
    """Say what this device is, what it holds, and what its ratings have left to spend."""
    with target.open(moved=True) as store:
        from hdpmf.device.card import card_of

        if card is not None:
            write_card(card_of(store), card)
        facts = _facts(store)
    if json:
        print_json({"store": str(target.path), **facts})
        return
    print_lines(*_words(target.path, facts))


def write_card(card: DeviceCard, target: Path) -> None:
    """The card as a file."""
    import msgspec

    from hdpmf.files import atomic_write

    atomic_write(target, msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n")


def _facts(store: DeviceStore) -> dict[str, Any]:
    from hdpmf.device.following import authorities_of
    from hdpmf.device.local_model import kept_model
    from hdpmf.device.pair import pinned_servers, trusted
    from hdpmf.device.rosters import roster_fields
    from hdpmf.device.run_state import open_runs

    catalogue, model = store.pinned_catalogue, kept_model(store)
    total, name, address = store.ledger.spent_total(), store.get("name"), _address(store)
    servers = pinned_servers(store)
    facts: dict[str, Any] = {
        "name": None if name is None else name.decode(),
        "identity": store.identity.public.hex(),
        "users": store.users,
        "encrypted": store.encrypted,
        "moved": None if store.moved is None else {"at": store.moved.at, "to": store.moved.file},
        "ratings": store.n_ratings,
        "address": None if address is None else address.decode(),
        "authority": authorities_of(store),
        "sums": None if address is None else "two servers" if address.startswith(b"https://") else "masks",
        "servers": None
        if servers is None
        else {
            "leader": servers.leader.organisation,
            "helper": servers.helper.organisation,
            "digest": servers.digest,
            "trusted": trusted(store),
        },
        "roster": roster_fields(store),
        "catalogue": None,
        "budget": None,
        "spent_total": total if math.isfinite(total) else None,
        "unprotected": math.isinf(total),
        "ledger_entries": len(store.ledger.entries()),
        "runs_under_way": [run.hex() for run in open_runs(store)] + _task(store, address),
        "model": None if model is None else _model_facts(model),
    }
    if catalogue is not None:
        ratings, weights, policy = store.ratings(), store.weights(), store.policy
        left = store.ledger.remaining(ratings, weights, policy)
        fresh = left >= weights.for_ratings(ratings) * policy.own_epsilon
        facts["catalogue"] = {
            "items": len(catalogue.positions),
            "version": catalogue.number,
            "retired": len(catalogue.known.retired),
            "digest": catalogue.version_digest,
            "scale": [catalogue.known.scale.low, catalogue.known.scale.high],
            "fingerprint": catalogue.known.fingerprint,
            "ratings_left_out": store.n_left_out,
        }
        facts["budget"] = {
            "epsilon": policy.own_epsilon,
            "untouched": int(fresh.sum()),
            "partly_spent": int(((left > 1e-9) & ~fresh).sum()),
            "spent": int((left <= 1e-9).sum()),
        }
    return facts


def _address(store: DeviceStore) -> bytes | None:
    """Of the recommender whose place this is."""
    from hdpmf.device.joined import ever_joined

    found = next((known.address.encode() for known in ever_joined(store) if known.place == store.place), None)
    return store.get("address") if found is None else found


def _task(store: DeviceStore, address: bytes | None) -> list[str]:
    """The task of two servers that is under way."""
    from hdpmf.device.report_state import ReportBook

    task = b"" if address is None else ReportBook(store, address.decode()).standing().task
    return [task.hex()] if task else []


def _model_facts(model: LocalModel) -> dict[str, Any]:
    from hdpmf.device.public import read_lists
    from hdpmf.protocol.lists import digest_of

    lists = None
    if model.lists:
        kind = read_lists(model.lists).about.get("kind")
        lists = {"kind": kind, "bytes": len(model.lists), "sha256": digest_of(model.lists)}
    return {"run": model.run, "method": model.method, "view": model.view, "lists": lists}


def _words(path: Path, facts: dict[str, Any]) -> list[str]:
    catalogue, budget, model = (facts[name] for name in ("catalogue", "budget", "model"))
    sealed = "encrypted" if facts["encrypted"] else "not encrypted"
    lines = [
        f"{path}: {facts['name'] or 'a device'} for {facts['users']} user{'s' if facts['users'] > 1 else ''}, {sealed}",
        *_moved_lines(path, facts["moved"]),
        f"Identity: {facts['identity']}",
        f"Recommender: {facts['address'] or 'none yet (hdpmf device join)'}",
        *_authority_words(facts["authority"]),
        *_sums_words(facts),
        f"Ratings: {facts['ratings']}",
    ]
    if catalogue is None:
        lines.append("Catalogue: none yet; it comes with the first conversation")
    else:
        low, high = catalogue["scale"]
        out = catalogue["ratings_left_out"]
        lines.append(
            f"Catalogue: version {catalogue['version']}, {catalogue['items']} items rated {low:g} to {high:g}"
            + (f", {catalogue['retired']} of them retired" if catalogue["retired"] else "")
            + (f"; {out} of your ratings are not of it and stay unused" if out else "")
        )
        lines.append(f"Digest of the catalogue, the same for everybody: {catalogue['digest']}")
    if budget is not None:
        lines.append(
            f"Budget (epsilon {budget['epsilon']:g} times a rating's weight, for its whole life): "
            f"{budget['untouched']} ratings untouched, {budget['partly_spent']} partly spent, {budget['spent']} spent"
        )
    whose = "your" if facts["users"] == 1 else "of the user who has spent most, the"
    spent = "without any protection" if facts["unprotected"] else f"epsilon {facts['spent_total']:.4g} in all"
    lines.append(f"Ledger: {facts['ledger_entries']} entries; {whose} ratings have spent {spent}")
    lines.append(f"Under way: {', '.join(facts['runs_under_way']) or 'no run'}")
    lines.append("Model: none yet" if model is None else f"Model: {model['method']} of run {model['run']}")
    if model is not None and model["lists"] is not None:
        lists = model["lists"]
        lines.append(f"Lists: by {lists['kind']}, {lists['bytes']:,} bytes, SHA-256 {lists['sha256']}")
    return lines


def _authority_words(authority: dict[str, Any] | None) -> list[str]:
    """By whom the recommender is known here."""
    if authority is None:
        return []
    known = " and, signed by it, ".join(f"SHA-256 {name[:16]}..." for name in authority["sha256"])
    changed = "" if authority["changed"] is None else f"; it was followed as of {authority['changed']}"
    return [f"Authority: {known}{changed}"]


def _sums_words(facts: dict[str, Any]) -> list[str]:
    """Who sums what this device sends."""
    roster, servers = facts["roster"], facts["servers"]
    lines = []
    if servers is not None:
        here = "" if servers["trusted"] else "; the policy does not trust them (servers = ...), so nothing is reported"
        lines.append(f"Two servers: {servers['leader']} and {servers['helper']}, digest {servers['digest']}{here}")
    if roster is not None:
        lines.append(f"Roster: {roster['devices']} devices for {roster['users']} users, digest {roster['digest']}")
    if not lines:
        lines.append("Roster: none pinned; two servers: none pinned")
    if facts["sums"] is not None:
        lines.append(
            "Sums: by two servers; either alone, and the recommender, see only sums"
            if facts["sums"] == "two servers"
            else "Sums: by masks among the roster's devices; the recommender sees only sums"
        )
    return lines


def _moved_lines(path: Path, moved: dict[str, str] | None) -> list[str]:
    if moved is None:
        return []
    return [f"MOVED AWAY ({moved['at']}, to {moved['to']}): closed here; hdpmf device unmove {path} takes it back"]
