"""``hdpmf device init``, ``policy``, ``status``, ``recommenders``, ``everything``: the store."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.device.store import RecommenderStoreOptions, StoreOptions, new_passphrase
from hdpmf.cli.options import argument, command, option, read_text
from hdpmf.cli.output import Result, note
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.protocol.identity import DeviceCard
    from hdpmf.private.device.store.device_store import DeviceStore


@command
def init(
    target: StoreOptions,
    policy: Annotated[
        Path | None, option("What it agrees to (TOML).", "FILE", default="hdp-sum, in sums")
    ] = None,
    encrypt: Annotated[bool, option("Seal the file with a passphrase.")] = False,
    name: Annotated[str | None, option("Its name, on the card.", default="device-...")] = None,
    card: Annotated[
        Path | None, option("Where the card goes.", "FILE", default="STORE.card.json")
    ] = None,
    scale: Annotated[
        tuple[float, float] | None,
        option(
            "Your rating scale; a recommender that asks for another one is refused.",
            "LOW HIGH",
            default="of the first file",
        ),
    ] = None,
) -> Result:
    """Make a store with a new identity, and a card (public keys only) for the recommender."""
    from hdpmf.common.data import RatingScale
    from hdpmf.private.device.device_identity import card_of, new_device
    from hdpmf.private.device.policy import Policy

    path = target.path
    card_file = path.with_name(path.name + ".card.json") if card is None else card
    if card_file.exists():
        raise ConfigError(
            f"{card_file} exists already; choose another place for the card with --card"
        )
    if name is not None and not (1 <= len(name) <= 200 and name.isprintable()):
        raise ConfigError("a name has 1 to 200 printable characters")
    with new_device(
        path,
        name=name,
        policy=Policy() if policy is None else Policy.from_toml(read_text(policy)),
        passphrase=new_passphrase() if encrypt else None,
        scale=None if scale is None else RatingScale.of(scale),
    ) as store:
        identity = card_of(store)
        write_card(identity, card_file)
        encrypted = store.encrypted
    fields = {
        "store": str(path),
        "card": str(card_file),
        "name": identity.name,
        "identity": identity.identity,
        "encrypted": encrypted,
    }
    sealed = "encrypted" if encrypt else "not encrypted; --encrypt would seal it"
    text = [
        f"Made {path} ({sealed}), readable by you only.",
        f"This device is {identity.name}, identity {identity.identity}.",
        f"Hand {card_file} to the recommender (hdpmf recommender enroll). There is no "
        "secret in it.",
        "A second device of yours has a ledger of its own, and what both send adds up; with "
        "devices = 2 in the policy of each, both together spend no more than one.",
        f"Next: hdpmf device rate {path} ITEM VALUE; then hdpmf device join {path} "
        "--invitation FILE",
    ]
    return Result(fields, text)


@command
def policy(
    target: StoreOptions,
    change: Annotated[
        Path | None, option("Change what FILE says; all else stays.", "FILE", "--set")
    ] = None,
) -> Result:
    """Print the device's policy, as a TOML file that can be changed and set."""
    import msgspec

    from hdpmf.private.device.policy import Policy

    wanted = None if change is None else read_text(change)
    with target.open() as store, store.transaction():
        if wanted is not None:
            store.set_policy(Policy.from_toml(wanted, store.policy))
        agreed = store.policy
    return Result({"policy": msgspec.to_builtins(agreed)}, agreed.to_toml().splitlines())


_SPENT = 1e-9


@command
def status(
    target: RecommenderStoreOptions,
    card: Annotated[Path | None, option("Write the device's card once more.", "FILE")] = None,
    old_copy: Annotated[
        bool,
        option(
            "Go on with an old or uncounted copy: what was sent since it was made may be sent "
            "again."
        ),
    ] = False,
) -> Result:
    """Show what this device is, what it holds, and what its ratings have left to spend."""
    from hdpmf.private.device.device_identity import card_of

    with target.open(old_copy=old_copy) as store:
        if card is not None:
            write_card(card_of(store), card)
        fields = {"store": str(target.path), **_status_fields(store)}
    return Result(fields, _status_lines(fields))


def write_card(card: DeviceCard, target: Path) -> None:
    """Write a device's card to a file."""
    import msgspec

    from hdpmf.common.base.files import atomic_write

    atomic_write(target, msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n")


def _status_fields(store: DeviceStore) -> dict[str, Any]:
    from hdpmf.private.device.device_identity import digests
    from hdpmf.private.device.disclosures.bounds import privacy_bounds
    from hdpmf.private.device.pinned_servers import pinned_servers, trusted
    from hdpmf.private.device.recommendations import local_model

    model = local_model(store)
    bounds = privacy_bounds(store)
    total = store.ledger.spent_total()
    address = _address(store)
    servers = pinned_servers(store)
    return {
        "name": store.device.name or None,
        "identity": store.identity.public.hex(),
        "encrypted": store.encrypted,
        "ratings": store.n_ratings,
        "address": address,
        "authority": digests(pinned) if (pinned := store.recommender.authority) else [],
        "servers": servers
        and {
            "leader": servers.leader.organisation,
            "helper": servers.helper.organisation,
            "digest": servers.digest,
            "trusted": trusted(store),
        },
        "catalogue": _catalogue_fields(store),
        "budget": _budget_fields(store),
        "guess_at_most": bounds.fields(),
        "spent_total": total if math.isfinite(total) else None,
        "unprotected": math.isinf(total),
        "ledger_entries": len(store.ledger.entries()),
        "tasks_under_way": _task(store, address),
        "model": model and {"run": model.run, "method": model.method, "view": model.view},
    }


def _address(store: DeviceStore) -> str | None:
    """Return the address of this view's recommender, or of the last one."""
    return store.recommender.address or store.device.last_recommender or None


def _task(store: DeviceStore, address: str | None) -> list[str]:
    """Return the task of two servers that is under way."""
    from hdpmf.private.device.recommender_state import RecommenderStates

    task = b"" if address is None else RecommenderStates(store, address).state().task
    return [task.hex()] if task else []


def _catalogue_fields(store: DeviceStore) -> dict[str, Any] | None:
    catalogue = store.pinned_catalogue
    if catalogue is None:
        return None
    return {
        "items": len(catalogue.positions),
        "version": catalogue.number,
        "retired": len(catalogue.known.retired),
        "digest": catalogue.version_digest,
        "scale": [catalogue.known.scale.low, catalogue.known.scale.high],
        "fingerprint": catalogue.known.fingerprint,
        "ratings_left_out": store.n_left_out,
        "items_apart": len(catalogue.apart),
    }


def _budget_fields(store: DeviceStore) -> dict[str, Any] | None:
    if store.pinned_catalogue is None:
        return None
    ratings = store.ratings()
    weights = store.weights()
    policy = store.policy
    left = store.ledger.remaining(ratings, weights, policy)
    fresh = left >= weights.for_ratings(ratings) * policy.own_epsilon
    return {
        "epsilon": policy.own_epsilon,
        "untouched": int(fresh.sum()),
        "partly_spent": int(((left > _SPENT) & ~fresh).sum()),
        "spent": int((left <= _SPENT).sum()),
    }


def _status_lines(fields: dict[str, Any]) -> Iterator[str]:
    from hdpmf.common.methods.registry import at_most
    from hdpmf.common.privacy.accounting.costs import rounded_up

    catalogue = fields["catalogue"]
    budget = fields["budget"]
    model = fields["model"]
    sealed = "encrypted" if fields["encrypted"] else "not encrypted"
    yield f"{fields['store']}: {fields['name'] or 'a device'}, {sealed}"
    yield f"Identity: {fields['identity']}"
    yield f"Recommender: {fields['address'] or 'none yet (hdpmf device join)'}"
    yield from _trust_lines(fields)
    yield f"Ratings: {fields['ratings']}"
    if catalogue is None:
        yield "Catalogue: none yet; it comes with the first conversation"
    else:
        low, high = catalogue["scale"]
        retired = catalogue["retired"]
        unused = catalogue["ratings_left_out"]
        apart = catalogue["items_apart"]
        yield (
            f"Catalogue: version {catalogue['version']}, {catalogue['items']} items rated {low:g} "
            f"to {high:g}"
            + (f", {retired} of them retired" if retired else "")
            + (f"; {unused} of your ratings are not of it and stay unused" if unused else "")
            + (f"; {apart} of its ids are other items here and are kept apart" if apart else "")
        )
        yield f"Digest of the catalogue, the same for everybody: {catalogue['digest']}"
    if budget is not None:
        yield (
            f"Budget (epsilon {budget['epsilon']:g} times a rating's weight, for its whole life): "
            f"{budget['untouched']} ratings untouched, {budget['partly_spent']} partly spent, "
            f"{budget['spent']} spent"
        )
    spent = "without any protection"
    if not fields["unprotected"]:
        spent = f"epsilon {rounded_up(fields['spent_total'], 4)} in all"
    yield f"Ledger: {fields['ledger_entries']} entries; your ratings have spent {spent}"
    bounds = fields["guess_at_most"]
    if bounds["person"] is None:
        yield "What others can guess: no limit (methods without a proof)"
    else:
        yield (
            "How often others can guess right, given everything sent or still to be sent: about "
            f"one rating at most {at_most(bounds['rating'])}, about you at most "
            f"{at_most(bounds['person'])} (at most {at_most(bounds['person_so_far'])} so far)"
        )
    yield f"Under way: {', '.join(fields['tasks_under_way']) or 'no task'}"
    if model is None:
        yield "Model: none yet"
        return
    yield f"Model: {model['method']} of run {model['run']}"


def _trust_lines(fields: dict[str, Any]) -> Iterator[str]:
    """Yield the authority of the recommender, and who sums what this device sends."""
    servers = fields["servers"]
    for name in fields["authority"]:
        yield f"Authority: SHA-256 {name[:16]}..."
    if servers is not None:
        refused = "; the policy does not trust them (servers = ...), so nothing is reported"
        yield (
            f"Two servers: {servers['leader']} and {servers['helper']}, digest {servers['digest']}"
            f"{'' if servers['trusted'] else refused}"
        )
    else:
        yield "Two servers: none pinned"


@command
def recommenders(
    target: StoreOptions,
    address: Annotated[str | None, argument("Which one.", "[ADDRESS]")] = None,
    pause: Annotated[bool, option("Do not answer it for a while.")] = False,
    resume: Annotated[bool, option("Answer it again.")] = False,
    leave: Annotated[bool, option("Answer it no more.")] = False,
    forget: Annotated[
        bool, option("Leave it, and delete its catalogue, model and pins from the store.")
    ] = False,
) -> Result:
    """List the recommenders that you have joined, or pause, resume, leave or forget one."""
    from hdpmf.private.device import memberships

    if sum((pause, resume, leave, forget)) != (address is not None):
        raise ConfigError(
            "give an ADDRESS with one of --pause, --resume, --leave and --forget, or neither"
        )
    with target.open() as store:
        if address is not None and (leave or forget):
            (memberships.forget if forget else memberships.leave)(store, address)
            note("What it was sent cannot be recalled; the ledger keeps it.")
        elif address is not None:
            memberships.pause(store, address, pause)
        known = []
        lines = []
        for each in memberships.joined_recommenders(store):
            fields, words = _recommender(store.at(each.id))
            about = {
                "address": each.address,
                "name": each.name or None,
                "since": each.since,
                "paused": each.paused,
            }
            known.append({**about, **fields})
            called = f"{each.name} ({each.address})" if each.name else each.address
            lines.append(f"{called}{' (paused)' if each.paused else ''}: {words}")
    none = ["None. Join one: hdpmf device join STORE --invitation FILE"]
    return Result({"recommenders": known}, lines or none)


def _recommender(store: DeviceStore) -> tuple[dict[str, Any], str]:
    """Return what the store has of a recommender, for JSON and in words."""
    from hdpmf.private.device.pinned_servers import pinned_servers
    from hdpmf.private.device.recommendations import local_model

    catalogue = store.pinned_catalogue
    model = local_model(store)
    pair = pinned_servers(store)
    fields = {
        "servers": None if pair is None else pair.digest,
        "items": None if catalogue is None else len(catalogue.positions),
        "item_namespace": store.item_namespace,
        "model": None if model is None else model.run,
    }
    sums = "no servers yet" if pair is None else f"{pair.names}, digest {pair.digest}"
    items = "no catalogue yet" if fields["items"] is None else f"{fields['items']:,} items"
    run = "no model yet" if model is None else f"model of run {model.run[:8]}"
    return fields, f"{sums}; {items}, {run}"
