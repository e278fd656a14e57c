"""``hdpmf device join`` with a recommender that uses two servers: pin the pair, then report in every period."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdpmf.cli.device.pinning import address_of, pin_authority
from hdpmf.cli.shared.files import read_bytes
from hdpmf.cli.shared.output import note
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.device.store import DeviceStore
    from hdpmf.protocol.invitation import Invitation


def by_two_servers(store: DeviceStore, address: str | None) -> bool:
    """Whether the recommender at this address uses two servers."""
    from hdpmf.protocol.addresses import HTTPS, plain_address

    return plain_address(address_of(store, address)).startswith(HTTPS)


def refuse_options(given: dict[str, object], kind: str) -> None:
    """Options that have no effect with this kind of recommender are an error."""
    for name, value in given.items():
        if value is not None:
            raise ConfigError(f"{name} is for a recommender at an address like {kind}; leave it out here")


def pin_two_servers(
    store: DeviceStore,
    address: str | None,
    ca: Path | None,
    servers: Path | None,
    new_authority: bool = False,
    new_servers: bool = False,
    another: bool = False,
) -> tuple[DeviceStore, str]:
    """Pin what is given, and say what is pinned; the store at the recommender's place, and its address."""
    from hdpmf.device.joined import known_as, place_for, remember
    from hdpmf.device.pair import pin_servers, pinned_servers
    from hdpmf.protocol.addresses import check_folder_address
    from hdpmf.protocol.servers import Servers
    from hdpmf.transport.certificates import check_authority

    where = known_as(store, check_folder_address(address_of(store, address)))
    if new_authority and ca is None:
        raise ConfigError("--new-authority belongs to --ca FILE, which has the new one")
    if new_servers and servers is None:
        raise ConfigError("--new-servers belongs to --servers FILE, which has the new ones")
    authority = None if ca is None else read_bytes(ca, "the recommender's authority")
    pair = None if servers is None else Servers.from_json(read_bytes(servers, "the two servers"))
    if authority is not None:
        check_authority(authority)
    with store.transaction():
        store = place_for(store, where, another=another)
        if authority is not None:
            pin_authority(store, authority, new_authority)
        if pair is not None:
            before = pin_servers(store, pair, new=new_servers)
            if before is not None and before != pair:
                note(f"The servers are other ones than before ({before.names}, digest {before.digest}).")
        elif pinned_servers(store) is None:
            raise ConfigError("give the two servers once, with --servers FILE; then they are pinned")
        remember(store, where)
    _note_pair(store)
    return store, where


def read_invitation(file: Path, address: str | None, ca: Path | None, servers: Path | None) -> Invitation:
    """The invitation in a file, which says what the other options say."""
    from hdpmf.protocol.invitation import Invitation

    if not (address is None and ca is None and servers is None):
        raise ConfigError("--invitation has the address, the authority and the servers; leave those out")
    return Invitation.read(read_bytes(file, "the invitation"))


def pin_invitation(
    store: DeviceStore, found: Invitation, new_authority: bool, new_servers: bool, another: bool = False
) -> tuple[DeviceStore, str]:
    """Pin what an invitation says; the store at the recommender's place, and its address."""
    from hdpmf.device.joined import known_as, place_for, remember
    from hdpmf.device.pair import pin_servers
    from hdpmf.transport.certificates import check_authority

    where, authority = known_as(store, found.address), found.authority.encode() or None
    if authority is not None:
        check_authority(authority)
    with store.transaction():
        store = place_for(store, where, another=another)
        if authority is not None:
            pin_authority(store, authority, new_authority)
        if found.servers is not None:
            pin_servers(store, found.servers, new=new_servers)
        remember(store, where)
    _note_pair(store)
    return store, where


def _note_pair(store: DeviceStore) -> None:
    """Say which servers are pinned, and that people compare them."""
    from hdpmf.device.pair import pinned_servers

    pinned = pinned_servers(store)
    if pinned is not None:
        note(
            f"Sums by two servers: {pinned.leader.organisation} and {pinned.helper.organisation}, digest "
            f"{pinned.digest}. Compare it with both organisations, not through the recommender. Both together would "
            "see your ratings."
        )


def report_until(
    store: DeviceStore, address: str, stop: threading.Event, once: bool, every: float | None
) -> dict[str, Any]:
    """Report in every period until stopped; what happened."""
    import hdpmf.dap.hpke  # noqa: F401 - what is not installed is said before anything is agreed to
    from hdpmf.device.facts import kept_facts
    from hdpmf.device.following import follow
    from hdpmf.device.reporting import LOOK_EVERY, Reporter
    from hdpmf.transport.web import WebDoor

    if every is not None and not 1 <= every <= 86_400:
        raise ConfigError("--every takes 1 to 86400 seconds")
    door = WebDoor(address, store.get("authority") or b"")
    reporter = Reporter(
        store,
        door,
        recommender=address,
        every=every or LOOK_EVERY,
        follow=lambda told: door.trust(follow(store, told, note)),
        log=note,
    )
    note(f"Reporting to the servers that {address} names. Interrupt with Ctrl-C; nothing is lost by that.")
    sent, before, facts = _sent(store), reporter.answered, kept_facts(store)
    try:
        while not stop.is_set():
            wait = reporter.step()
            if once and reporter.answered not in ("", before):
                break
            stop.wait(wait)
    finally:
        reporter.settle()
    return {
        "address": address,
        "sums": "two servers",
        "reports": _sent(store) - sent,
        "model": kept_facts(store) != facts,
    }


def words_of(told: dict[str, Any], path: Path) -> list[str]:
    """The same for people."""
    tasks, model = told["reports"], "a new model is here" if told["model"] else "no new model came"
    return [
        f"Reported in {tasks} task{'s' if tasks != 1 else ''}; {model}.",
        f"What was sent: hdpmf device ledger {path}. What to watch: hdpmf device recommend {path}",
    ]


def _sent(store: DeviceStore) -> int:
    return sum(entry.action == "sent" and entry.view == "two-servers" for entry in store.ledger.entries())
