"""``hdpmf device status``, ``recommenders`` and ``everything``: what the store holds, and the
recommenders joined.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.device.store import RecommenderStoreOptions, StoreOptions
from hdpmf.cli.options.common import Json, with_option_groups
from hdpmf.cli.output import note, print_json, print_lines
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.protocol.federation import DeviceCard
    from hdpmf.common.protocol.servers import Servers
    from hdpmf.private.device.recommendations import LocalModel
    from hdpmf.private.device.store.device_store import DeviceStore


@with_option_groups
def status(
    target: RecommenderStoreOptions,
    card: Annotated[
        Path | None,
        typer.Option("--card", metavar="FILE", help="Write the device's card once more."),
    ] = None,
    json: Json = False,
) -> None:
    """Say what this device is, what it holds, and what its ratings have left to spend."""
    with target.open(moved=True) as store:
        from hdpmf.private.device.device_identity import card_of

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

    from hdpmf.common.base.files import atomic_write

    atomic_write(target, msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n")


def _facts(store: DeviceStore) -> dict[str, Any]:
    from hdpmf.private.device.device_identity import authorities_of
    from hdpmf.private.device.pinned_servers import pinned_servers, roster_fields, trusted
    from hdpmf.private.device.recommendations import kept_model
    from hdpmf.private.device.recommender_state import open_runs

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
        "sums": None
        if address is None
        else "two servers"
        if address.startswith(b"https://")
        else "masks",
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
    from hdpmf.private.device.joined import ever_joined

    found = next(
        (known.address.encode() for known in ever_joined(store) if known.place == store.place), None
    )
    return store.get("address") if found is None else found


def _task(store: DeviceStore, address: bytes | None) -> list[str]:
    """The task of two servers that is under way."""
    from hdpmf.private.device.recommender_state import ReportBook

    task = b"" if address is None else ReportBook(store, address.decode()).standing().task
    return [task.hex()] if task else []


def _model_facts(model: LocalModel) -> dict[str, Any]:
    from hdpmf.common.protocol.lists import digest_of
    from hdpmf.private.device.store.catalogues import read_lists

    lists = None
    if model.lists:
        kind = read_lists(model.lists).about.get("kind")
        lists = {"kind": kind, "bytes": len(model.lists), "sha256": digest_of(model.lists)}
    return {"run": model.run, "method": model.method, "view": model.view, "lists": lists}


def _words(path: Path, facts: dict[str, Any]) -> list[str]:
    catalogue, budget, model = (facts[name] for name in ("catalogue", "budget", "model"))
    sealed = "encrypted" if facts["encrypted"] else "not encrypted"
    lines = [
        f"{path}: {facts['name'] or 'a device'} for {facts['users']} "
        f"user{'s' if facts['users'] > 1 else ''}, {sealed}",
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
            f"Catalogue: version {catalogue['version']}, {catalogue['items']} items rated "
            f"{low:g} to {high:g}"
            + (f", {catalogue['retired']} of them retired" if catalogue["retired"] else "")
            + (f"; {out} of your ratings are not of it and stay unused" if out else "")
        )
        lines.append(f"Digest of the catalogue, the same for everybody: {catalogue['digest']}")
    if budget is not None:
        lines.append(
            f"Budget (epsilon {budget['epsilon']:g} times a rating's weight, for its whole life): "
            f"{budget['untouched']} ratings untouched, {budget['partly_spent']} partly "
            f"spent, {budget['spent']} spent"
        )
    whose = "your" if facts["users"] == 1 else "of the user who has spent most, the"
    spent = (
        "without any protection"
        if facts["unprotected"]
        else f"epsilon {facts['spent_total']:.4g} in all"
    )
    lines.append(f"Ledger: {facts['ledger_entries']} entries; {whose} ratings have spent {spent}")
    lines.append(f"Under way: {', '.join(facts['runs_under_way']) or 'no run'}")
    lines.append(
        "Model: none yet" if model is None else f"Model: {model['method']} of run {model['run']}"
    )
    if model is not None and model["lists"] is not None:
        lists = model["lists"]
        lines.append(
            f"Lists: by {lists['kind']}, {lists['bytes']:,} bytes, SHA-256 {lists['sha256']}"
        )
    return lines


def _authority_words(authority: dict[str, Any] | None) -> list[str]:
    """By whom the recommender is known here."""
    if authority is None:
        return []
    known = " and, signed by it, ".join(f"SHA-256 {name[:16]}..." for name in authority["sha256"])
    changed = (
        "" if authority["changed"] is None else f"; it was followed as of {authority['changed']}"
    )
    return [f"Authority: {known}{changed}"]


def _sums_words(facts: dict[str, Any]) -> list[str]:
    """Who sums what this device sends."""
    roster, servers = facts["roster"], facts["servers"]
    lines = []
    if servers is not None:
        here = (
            ""
            if servers["trusted"]
            else "; the policy does not trust them (servers = ...), so nothing is reported"
        )
        lines.append(
            f"Two servers: {servers['leader']} and {servers['helper']}, digest "
            f"{servers['digest']}{here}"
        )
    if roster is not None:
        lines.append(
            f"Roster: {roster['devices']} devices for {roster['users']} users, digest "
            f"{roster['digest']}"
        )
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
    return [
        f"MOVED AWAY ({moved['at']}, to {moved['to']}): closed here; hdpmf device "
        f"unmove {path} takes it back"
    ]


@with_option_groups
def recommenders(
    target: StoreOptions,
    address: Annotated[str | None, typer.Argument(metavar="[ADDRESS]", help="Which one.")] = None,
    pause: Annotated[
        bool, typer.Option("--pause", help="Answer it not at all for a while.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Answer it again.")] = False,
    leave: Annotated[bool, typer.Option("--leave", help="Answer it no more.")] = False,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Leave it, and take its catalogue, model and pins out of the store."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """List the recommenders that you have joined, or pause, resume, leave or forget one (device
    open keeps to it).
    """
    from hdpmf.private.device import joined as book

    if sum((pause, resume, leave, forget)) != (address is not None):
        raise ConfigError(
            "give an ADDRESS with one of --pause, --resume, --leave and --forget, or neither"
        )
    with target.open() as store:
        if address is not None and (leave or forget):
            (book.forget if forget else book.leave)(store, address)
            note("What it was sent cannot be recalled; the ledger keeps it.")
        elif address is not None:
            book.pause(store, address, pause)
        known = [(each, *_at_its_place(store.at(each.place))) for each in book.joined(store)]
    if json:
        fields = [
            {
                "address": each.address,
                "since": each.since,
                "paused": each.paused,
                "servers": None if pair is None else pair.digest,
                **facts,
            }
            for each, pair, facts in known
        ]
        print_json({"recommenders": fields})
        return
    if not known:
        print_lines("None. Join one: hdpmf device join STORE --invitation FILE")
    for each, pair, facts in known:
        roster = facts["roster"]
        if each.two_servers and pair is not None:
            sums = f"{pair.names}, digest {pair.digest}"
        elif roster is None:
            sums = "sums by masks, waiting for the roster (hdpmf device join STORE --roster FILE)"
        else:
            sums = f"sums by masks among {roster['devices']:,} devices, digest {roster['digest']}"
        items = "no catalogue yet" if facts["items"] is None else f"{facts['items']:,} items"
        model = "no model yet" if facts["model"] is None else f"model of run {facts['model'][:8]}"
        print_lines(f"{each.address}{' (paused)' if each.paused else ''}: {sums}; {items}, {model}")


def _at_its_place(store: DeviceStore) -> tuple[Servers | None, dict[str, Any]]:
    """The servers of a recommender, and what is here of it."""
    from hdpmf.private.device.pinned_servers import pinned_servers, roster_fields
    from hdpmf.private.device.recommendations import kept_model

    items, model = store.pinned_catalogue, kept_model(store)
    return pinned_servers(store), {
        "items": None if items is None else len(items.positions),
        "shelf": store.shelf,
        "model": None if model is None else model.run,
        "roster": roster_fields(store),
    }


@with_option_groups
def everything(target: StoreOptions) -> None:
    """Print all that the store knows about you as JSON: ratings, wishes, answers, all that was
    sent. No keys.
    """
    from hdpmf.private.device.disclosures.data_export import data_export

    with target.open(moved=True) as store:
        print_json(data_export(store))
