"""``hdpmf device join``: pin a recommender and answer it until interrupted."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.device.store import StoreOptions
from hdpmf.cli.options.common import Json, read_bytes, with_option_groups
from hdpmf.cli.output import clean, note, print_json, print_lines
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.net import DeviceTransport
    from hdpmf.common.protocol.invitation import Invitation
    from hdpmf.private.device.store.device_store import DeviceStore


def address_of(store: DeviceStore, given: str | None) -> str:
    """The recommender's address: the one that was given, or the one of last time."""
    known = store.get("address")
    if given is None and known is None:
        raise ConfigError(
            "say where the recommender is: hdpmf device join STORE https://HOST:PORT --ca "
            "FILE --servers FILE, or for "
            "sums by masks hdpmf device join STORE HOST:PORT --ca FILE --roster FILE"
        )
    return given if given is not None else (known or b"").decode()


def pin_authority(store: DeviceStore, authority: bytes, new: bool) -> None:
    """Pin the recommender's authority; another one than before only by the owner's word."""
    from hdpmf.private.device.device_identity import digests

    before = store.get("authority")
    given = digests(authority)
    if before is not None and set(given) <= set(digests(before)):
        return  # as it is pinned, also with the one that follows
    if before is not None:
        was, now = digests(before)[0][:16], given[0][:16]
        if not new:
            raise ConfigError(
                f"another authority is pinned here (SHA-256 {was}... of its file; --ca has "
                f"{now}...): whoever has the "
                "new one could speak as your recommender. If the recommender told you, in "
                "another way, that it has a "
                "new one, add --new-authority; if this is one more recommender, add --another; "
                "otherwise leave --ca out"
            )
        note(
            f"The authority is another one than before (SHA-256 {was}... of its file, now "
            f"{now}...)."
        )
    store.put("authority", authority)


def uses_two_servers(store: DeviceStore, address: str | None) -> bool:
    """Whether the recommender at this address uses two servers."""
    from hdpmf.common.protocol.addresses import HTTPS, plain_address

    return plain_address(address_of(store, address)).startswith(HTTPS)


def refuse_options(given: dict[str, object], kind: str) -> None:
    """Options that have no effect with this kind of recommender are an error."""
    for name, value in given.items():
        if value is not None:
            raise ConfigError(
                f"{name} is for a recommender at an address like {kind}; leave it out here"
            )


def pin_two_servers(
    store: DeviceStore,
    address: str | None,
    ca: Path | None,
    servers: Path | None,
    new_authority: bool = False,
    new_servers: bool = False,
    another: bool = False,
) -> tuple[DeviceStore, str]:
    """Pin what is given, and say what is pinned; the store at the recommender's place, and its
    address.
    """
    from hdpmf.common.net.certificates import check_authority
    from hdpmf.common.protocol.addresses import check_folder_address
    from hdpmf.common.protocol.servers import Servers
    from hdpmf.private.device.joined import known_as, place_for, remember
    from hdpmf.private.device.pinned_servers import pin_servers, pinned_servers

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
                note(
                    f"The servers are other ones than before ({before.names}, digest "
                    f"{before.digest})."
                )
        elif pinned_servers(store) is None:
            raise ConfigError(
                "give the two servers once, with --servers FILE; then they are pinned"
            )
        remember(store, where)
    _note_pair(store)
    return store, where


def read_invitation(
    file: Path, address: str | None, ca: Path | None, servers: Path | None
) -> Invitation:
    """The invitation in a file, which says what the other options say."""
    from hdpmf.common.protocol.invitation import Invitation

    if not (address is None and ca is None and servers is None):
        raise ConfigError(
            "--invitation has the address, the authority and the servers; leave those out"
        )
    return Invitation.read(read_bytes(file, "the invitation"))


def pin_invitation(
    store: DeviceStore,
    found: Invitation,
    new_authority: bool,
    new_servers: bool,
    another: bool = False,
) -> tuple[DeviceStore, str]:
    """Pin what an invitation says; the store at the recommender's place, and its address."""
    from hdpmf.common.net.certificates import check_authority
    from hdpmf.private.device.joined import known_as, place_for, remember
    from hdpmf.private.device.pinned_servers import pin_servers

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
    from hdpmf.private.device.pinned_servers import pinned_servers

    pinned = pinned_servers(store)
    if pinned is not None:
        note(
            f"Sums by two servers: {pinned.leader.organisation} and "
            f"{pinned.helper.organisation}, digest "
            f"{pinned.digest}. Compare it with both organisations, not through the "
            "recommender. Both together would "
            "see your ratings."
        )


def report_until(
    store: DeviceStore, address: str, stop: threading.Event, once: bool, every: float | None
) -> dict[str, Any]:
    """Report in every period until stopped; what happened."""
    import hdpmf.common.aggregation.two_servers.dap.hpke  # noqa: F401 - what is not installed is said before anything is agreed to
    from hdpmf.common.net.web import WebDoor
    from hdpmf.private.device.device_identity import follow
    from hdpmf.private.device.model_update import kept_facts
    from hdpmf.private.device.participant import LOOK_EVERY, Participant

    if every is not None and not 1 <= every <= 86_400:
        raise ConfigError("--every takes 1 to 86400 seconds")
    door = WebDoor(address, store.get("authority") or b"")
    reporter = Participant(
        store,
        door,
        recommender=address,
        every=every or LOOK_EVERY,
        follow=lambda told: door.trust(follow(store, told, note)),
        log=note,
    )
    note(
        f"Reporting to the servers that {address} names. Interrupt with Ctrl-C; nothing "
        "is lost by that."
    )
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
    return sum(
        entry.action == "sent" and entry.view == "two-servers" for entry in store.ledger.entries()
    )


@with_option_groups
def join(
    target: StoreOptions,
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="[ADDRESS]",
            help="The recommender: https://HOST:PORT for sums by two servers, HOST:PORT for "
            "sums by masks; the one of "
            "last time by default.",
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca", metavar="FILE", help="The recommender's authority (PEM), pinned the first time."
        ),
    ] = None,
    roster: Annotated[
        Path | None,
        typer.Option(
            "--roster",
            metavar="FILE",
            help="The devices that may take part, pinned the first time.",
        ),
    ] = None,
    servers: Annotated[
        Path | None,
        typer.Option(
            "--servers", metavar="FILE", help="The two servers that sum, pinned the first time."
        ),
    ] = None,
    new_authority: Annotated[
        bool,
        typer.Option(
            "--new-authority", help="Trust --ca in place of the authority that was pinned before."
        ),
    ] = False,
    new_roster: Annotated[
        bool,
        typer.Option(
            "--new-roster", help="Take --roster in place of the roster that was pinned before."
        ),
    ] = False,
    new_servers: Annotated[
        bool,
        typer.Option(
            "--new-servers", help="Trust --servers in place of the pair that was pinned before."
        ),
    ] = False,
    invitation: Annotated[
        Path | None,
        typer.Option(
            "--invitation", metavar="FILE", help="Address, authority and any servers in one file."
        ),
    ] = None,
    another: Annotated[
        bool,
        typer.Option(
            "--another", help="This is one more recommender, beside those that you have joined."
        ),
    ] = False,
    every: Annotated[
        float | None,
        typer.Option(
            "--every",
            metavar="SECONDS",
            help="How often to look for something new, with two servers.",
            show_default="300",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Leave when a run has ended and its model is here.")
    ] = False,
    json: Json = False,
) -> None:
    """Connect to a recommender and answer it, within the policy, until interrupted.

    The device decides what it sends; the ledger has it before it leaves. Authority, servers and
    roster are pinned the first time. Compare the digest of the servers with both organisations, or
    that of the roster with other participants, in a way that does not go through the recommender.
    """
    with target.open(serving=True) as store:
        invited = None if invitation is None else read_invitation(invitation, address, ca, servers)
        if uses_two_servers(store, address if invited is None else invited.address):
            refuse_options({"--roster": roster, "--new-roster": new_roster or None}, "HOST:PORT")
            if invited is None:
                store, where = pin_two_servers(
                    store, address, ca, servers, new_authority, new_servers, another
                )
            else:
                store, where = pin_invitation(store, invited, new_authority, new_servers, another)
            with _log_to_stderr(), _stopped_by_signals() as stop:
                told = report_until(store, where, stop, once, every)
            told["ledger_entries"] = len(store.ledger.entries())
            if json:
                print_json(told)
            else:
                print_lines(*words_of(told, target.path))
            return
        refuse_options(
            {"--servers": servers, "--new-servers": new_servers or None, "--every": every},
            "https://",
        )
        store, where = _pin(store, address, ca, roster, new_authority, new_roster, another, invited)
        transport = _transport(store, where)
        note(f"Answering {where}. Interrupt with Ctrl-C; nothing is lost by that.")
        with _log_to_stderr(), _stopped_by_signals() as stop:
            runs, messages = _answer(store, where, transport, stop, once)
        entries = len(store.ledger.entries())
    if json:
        facts = {
            "address": where,
            "sums": "masks",
            "messages": messages,
            "runs": runs,
            "ledger_entries": entries,
        }
        print_json(facts)
        return
    print_lines(
        f"Answered {messages} messages; {len(runs)} run{'s' if len(runs) != 1 else ''} "
        "ended with a model here.",
        f"What was sent: hdpmf device ledger {target.path}. What to watch: hdpmf device "
        f"recommend {target.path}",
    )


def _pin(
    store: DeviceStore,
    address: str | None,
    ca: Path | None,
    roster: Path | None,
    new_authority: bool = False,
    new_roster: bool = False,
    another: bool = False,
    invited: Invitation | None = None,
) -> tuple[DeviceStore, str]:
    """Pin what is given, and say what is pinned; the store at the recommender's place, and its
    address.
    """
    from hdpmf.common.net.certificates import check_authority
    from hdpmf.common.protocol.addresses import check_address
    from hdpmf.private.device.joined import known_as, place_for, remember
    from hdpmf.private.device.pinned_servers import pin_roster, pinned_digest

    address = known_as(
        store, check_address(address_of(store, address) if invited is None else invited.address)
    )
    if new_authority and ca is None and invited is None:
        raise ConfigError("--new-authority belongs to --ca FILE, which has the new one")
    if new_roster and roster is None:
        raise ConfigError("--new-roster belongs to --roster FILE, which is the new one")
    authority = None if ca is None else read_bytes(ca, "the recommender's authority")
    if invited is not None:
        authority = invited.authority.encode()
        note(
            f"Invitation: digest {invited.digest}. Compare it with the recommender's "
            "operator in another way."
        )
    if authority is not None:
        check_authority(authority)
    with store.transaction():
        store = place_for(store, address, another=another)
        if authority is not None:
            pin_authority(store, authority, new_authority)
        elif store.get("authority") is None:
            raise ConfigError(
                "give the recommender's authority once, with --ca FILE; then it is pinned"
            )
        if roster is not None:
            before = pin_roster(store, read_bytes(roster, "the roster"), new=new_roster)
            if before not in ("", pinned_digest(store)):
                note(f"The roster is another one than before (its digest was {before}).")
        elif store.roster is None:
            raise ConfigError(
                "give the roster once, with --roster FILE; then it is pinned. The operator "
                "writes it when this "
                "device's card is enrolled"
            )
        remember(store, address)
    pinned, digest = store.roster, pinned_digest(store)
    if pinned is not None and digest:
        note(
            f"Roster: {len(pinned)} devices for {pinned.n_users} users, digest {digest}. "
            "Compare it with "
            "other participants, not through the recommender."
        )
    return store, address


def _transport(store: DeviceStore, address: str) -> DeviceTransport:
    from hdpmf.common.net.flower.device import FlowerDevice
    from hdpmf.common.net.keys import NodeKey
    from hdpmf.private.device.device_identity import follow

    authority, key = store.get("authority"), store.get("node-key")
    if authority is None or key is None:
        raise ConfigError("this store has no node key: it was not made by 'hdpmf device init'")
    return FlowerDevice(
        address, authority, NodeKey.from_bytes(key), follow=lambda told: follow(store, told, note)
    )


def _answer(
    store: DeviceStore,
    recommender: str,
    transport: DeviceTransport,
    stop: threading.Event,
    once: bool,
) -> tuple[list[str], int]:
    """Answer until stopped; the runs that ended with a model, and how many messages were
    answered.
    """
    from hdpmf.private.device.messages import in_slots
    from hdpmf.private.device.participant import Participant
    from hdpmf.private.device.recommendations import kept_model

    agent = Participant(store, recommender=recommender, log=note)
    ended: list[str] = []
    messages = 0

    def latest() -> str | None:
        model = kept_model(store)
        return None if model is None else model.run

    last = latest()

    def answer(data: bytes) -> bytes:
        nonlocal messages, last
        reply = agent.answer(data)
        messages += 1
        now = latest()
        if now is not None and now != last:
            last = now
            ended.append(now)
            note(f"Run {now[:8]} has ended; its model is here.")
        if once and ended and not agent.expects_lists:
            stop.set()
        return reply

    try:
        transport.serve(in_slots(answer), stop)
    finally:
        agent.settle()
    return ended, messages


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM (a service manager) and the first Ctrl-C set; the second Ctrl-C
    interrupts.
    """
    stop = threading.Event()
    before: dict[signal.Signals, Callable[..., object] | int | None] = {}

    def end(number: int, frame: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, end)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _log_to_stderr() -> Iterator[None]:
    """What the device's own log says, for its owner."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s %(message)s"))
    ours = logging.getLogger("hdpmf")
    level = ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        ours.setLevel(level)


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record))
