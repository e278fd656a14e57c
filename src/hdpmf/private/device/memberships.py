"""The recommenders that a device's owner has joined: several side by side, with one ledger.

Each has its row in the store, with its own catalogue and model, and with what is pinned of it:
authority and servers. Pins are the owner's word, never a message's.
"""

from __future__ import annotations

import msgspec

from hdpmf.common.base.names import plain_letters
from hdpmf.common.protocol.identity import Invitation
from hdpmf.common.protocol.servers import Servers, plain_address, require_two_hosts
from hdpmf.errors import ConfigError
from hdpmf.private.device.consent import withdraw
from hdpmf.private.device.device_identity import digests
from hdpmf.private.device.disclosures.journal import utc_now
from hdpmf.private.device.pinned_servers import pinned_servers
from hdpmf.private.device.recommender_state import RecommenderStates
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import FIRST, Recommender


def joined_recommenders(store: DeviceStore) -> list[Recommender]:
    """Return those that the owner has not left, the oldest first."""
    return [known for known in known_recommenders(store) if not known.left]


def known_recommenders(store: DeviceStore) -> list[Recommender]:
    """Return all of them, the oldest first."""
    known = (row for row in store.tables.recommenders.rows() if row.address)
    return sorted(known, key=lambda row: row.id)


def known_as(store: DeviceStore, address: str) -> str:
    """Return an address as this device writes it, so that the ledger has one entry for it.

    One that is not known is returned in its plain form.
    """
    wanted = plain_address(address)
    return next(
        (
            each.address
            for each in known_recommenders(store)
            if plain_address(each.address) == wanted
        ),
        wanted,
    )


def at_recommender(store: DeviceStore, address: str | None = None) -> DeviceStore:
    """Return the store view of a recommender that was joined.

    By default it is the one that was used last or, if that was left, another one.

    Raises:
        ConfigError: It was never joined.
    """
    known = {each.address: each for each in known_recommenders(store)}
    if address is not None:
        found = known.get(known_as(store, address))
        if found is None:
            raise ConfigError(
                "this device has not joined such a recommender (hdpmf device recommenders "
                "lists them)"
            )
        return store.at(found.id)
    last = known.get(store.device.last_recommender)
    if last is None or last.left:
        here = [*joined_recommenders(store), *(each for each, _ in with_catalogue(store))]
        last = here[0] if here else None
    return store.at(FIRST if last is None else last.id)


def store_of(store: DeviceStore, recommender: str) -> DeviceStore:
    """Return the store view of a recommender that asked for something."""
    found = next(
        (known for known in known_recommenders(store) if known.address == recommender), None
    )
    return store if found is None else store.at(found.id)


def with_catalogue(store: DeviceStore) -> list[tuple[Recommender, DeviceStore]]:
    """Return the recommenders whose catalogue is here, left or not, with their store views."""
    known = ((each, store.at(each.id)) for each in known_recommenders(store))
    return [(each, view) for each, view in known if view.pinned_catalogue is not None]


def store_for(store: DeviceStore, address: str, *, another: bool = False) -> DeviceStore:
    """Return the store view of the recommender at this address.

    Args:
        address: What the owner typed. One that is not known is where the recommender of last time
            has moved to.
        another: It is one more recommender, beside those that are joined.

    Raises:
        ConfigError: Another one is to be joined, and this one is already.
    """
    known, address = (
        {each.address: each for each in known_recommenders(store)},
        known_as(store, address),
    )
    if address in known:
        if another and not known[address].left:
            raise ConfigError(f"{address} is joined already; leave out --another")
        return store.at(known[address].id)
    return store.new_recommender() if another and known else at_recommender(store)


def looks_like_another(store: DeviceStore, name: str, address: str) -> bool:
    """Return True if a recommender at another address that is joined has such a name."""
    return any(
        known.address != known_as(store, address)
        and known.name
        and plain_letters(known.name) == plain_letters(name)
        for known in joined_recommenders(store)
    )


def remember(store: DeviceStore, address: str, invitation: Invitation | None = None) -> None:
    """Record that this view of the store belongs to the recommender at this address.

    It is used by default from now on. Another view with the same address loses it. The name is
    that of the invitation, unless people would take it for another recommender's.
    """
    with store.transaction():
        if invitation is not None:
            alike = looks_like_another(store, invitation.name, address)
            store.change_recommender(name="" if alike else invitation.name)
        before = store.recommender
        same = before.address == address and not before.left
        since = before.since if same and before.since else utc_now()
        for other in known_recommenders(store):
            if other.address == address and other.id != store.recommender_id:
                _change(store, other, address="")
        store.change_recommender(address=address, since=since, paused=False, left=False)
        store.change_device(last_recommender=address)
        _trust_all(store)


def join(store: DeviceStore, invitation: Invitation, *, same_host: bool = False) -> Recommender:
    """Join the recommender of an invitation whose digest the owner has compared.

    Args:
        store: The device. Its policy trusts the two servers from now on.
        invitation: What the recommender says.
        same_host: Allow both servers on one machine, for trials.

    Raises:
        ConfigError: It was joined before, with another authority or other servers, or both servers
            are on one host.
    """
    authority = invitation.authority.encode()
    with store.transaction():
        address = known_as(store, invitation.address)
        known = {each.address: each for each in known_recommenders(store)}
        before = known.get(address)
        if before is not None:
            view = store.at(before.id)
        else:
            view = store.new_recommender() if known else store.at(FIRST)
        pinned = view.recommender.authority or b""
        if before is not None and not before.left:
            same_authority = _covers(pinned, authority)
            if not same_authority or invitation.servers != pinned_servers(view):
                raise ConfigError(
                    "you joined this recommender with another authority or other servers: anyone "
                    "with the new ones could speak as your recommender, or see your ratings. If it "
                    "confirms the change in another way, leave it first"
                )
        elif authority or pinned:
            view.change_recommender(authority=authority)
        if invitation.servers != pinned_servers(view):
            require_two_hosts(invitation.servers, same_host=same_host)
        view.change_recommender(servers=invitation.servers.to_json())
        remember(view, address, invitation)
    return _find(store, address)


def pause(store: DeviceStore, address: str, paused: bool = True) -> None:
    """Stop answering a recommender for a while, or answer it again."""
    with store.transaction():
        _change(store, _find(store, address), paused=paused)


def leave(store: DeviceStore, address: str) -> None:
    """Answer a recommender no more, and take back what was agreed with it.

    What is held for a run with it that nothing has left in is given back. What it was sent it has;
    the ledger stays, and so does the model that it made.
    """
    with store.transaction():
        gone = _find(store, address)
        _change(store, gone, left=True)
        withdraw(store, gone.address)
        _end_runs(store, gone.address)
        pair, kept = pinned_servers(store.at(gone.id)), {known.digest for known in _pairs(store)}
        if pair is not None and pair.digest not in kept:
            policy = store.policy
            trusted = tuple(digest for digest in policy.servers if digest != pair.digest)
            store.set_policy(msgspec.structs.replace(policy, servers=trusted))


def forget(store: DeviceStore, address: str) -> None:
    """Leave a recommender and delete its catalogue, model and pins from the file.

    Ratings stay, and so does the ledger.

    Raises:
        ConfigError: It was never joined.
    """
    with store.transaction():
        address = known_as(store, address)
        view = at_recommender(store, address)
        if any(known.address == address for known in joined_recommenders(store)):
            leave(store, address)
        RecommenderStates(store, address).change(collector=b"")
    view.forget_recommender()


def _end_runs(store: DeviceStore, address: str) -> None:
    """End all runs with a recommender, and release what is held for those that sent nothing.

    None resumes if the owner joins it again.
    """
    book = RecommenderStates(store, address)
    known = book.state()
    if known.task:
        store.runs.drop(known.task)
    book.change(task=b"")
    store.ledger.release_held(
        "the owner left this recommender; nothing of this run had left", address
    )


def _covers(pinned: bytes, given: bytes) -> bool:
    """Return True if an authority is pinned, also with the one that follows it."""
    return pinned == given or (
        bool(pinned and given) and set(digests(given)) <= set(digests(pinned))
    )


def _find(store: DeviceStore, address: str) -> Recommender:
    wanted = known_as(store, address)
    found = next((known for known in joined_recommenders(store) if known.address == wanted), None)
    if found is None:
        raise ConfigError("this device has not joined such a recommender")
    return found


def _pairs(store: DeviceStore) -> list[Servers]:
    """The servers of every recommender that is joined."""
    pairs = (pinned_servers(store.at(known.id)) for known in joined_recommenders(store))
    return [pair for pair in pairs if pair is not None]


def _trust_all(store: DeviceStore) -> None:
    """Let the policy name the servers of every recommender that is joined."""
    policy = store.policy
    pairs = (pair.digest for pair in _pairs(store))
    store.set_policy(
        msgspec.structs.replace(policy, servers=tuple(dict.fromkeys((*policy.servers, *pairs))))
    )


def _change(store: DeviceStore, known: Recommender, **changes: object) -> None:
    store.at(known.id).change_recommender(**changes)
