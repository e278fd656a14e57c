"""``hdpmf device join``: answer a recommender, with the code that is installed here and nothing else."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hdpmf.cli.device.pinning import address_of, pin_authority
from hdpmf.cli.device.store import StoreOptions
from hdpmf.cli.device.two_servers import (
    by_two_servers,
    pin_invitation,
    pin_two_servers,
    read_invitation,
    refuse_options,
    report_until,
    words_of,
)
from hdpmf.cli.shared.files import read_bytes
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import clean, note, print_json, print_lines
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.device.store import DeviceStore
    from hdpmf.protocol.invitation import Invitation
    from hdpmf.transport import DeviceTransport


@grouped
def join(
    target: StoreOptions,
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="[ADDRESS]",
            help="The recommender: https://HOST:PORT for sums by two servers, HOST:PORT for sums by masks; the one of "
            "last time by default.",
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option("--ca", metavar="FILE", help="The recommender's authority (PEM), pinned the first time."),
    ] = None,
    roster: Annotated[
        Path | None,
        typer.Option("--roster", metavar="FILE", help="The devices that may take part, pinned the first time."),
    ] = None,
    servers: Annotated[
        Path | None,
        typer.Option("--servers", metavar="FILE", help="The two servers that sum, pinned the first time."),
    ] = None,
    new_authority: Annotated[
        bool,
        typer.Option("--new-authority", help="Trust --ca in place of the authority that was pinned before."),
    ] = False,
    new_roster: Annotated[
        bool, typer.Option("--new-roster", help="Take --roster in place of the roster that was pinned before.")
    ] = False,
    new_servers: Annotated[
        bool, typer.Option("--new-servers", help="Trust --servers in place of the pair that was pinned before.")
    ] = False,
    invitation: Annotated[
        Path | None,
        typer.Option("--invitation", metavar="FILE", help="Address, authority and any servers in one file."),
    ] = None,
    another: Annotated[
        bool, typer.Option("--another", help="This is one more recommender, beside those that you have joined.")
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
    once: Annotated[bool, typer.Option("--once", help="Leave when a run has ended and its model is here.")] = False,
    json: Json = False,
) -> None:
    """Connect to a recommender and answer it, within the policy, until interrupted.

    The device decides what it sends; the ledger has it before it leaves. Authority, servers and roster are pinned the
    first time. Compare the digest of the servers with both organisations, or that of the roster with other
    participants, in a way that does not go through the recommender.
    """
    with target.open(serving=True) as store:
        invited = None if invitation is None else read_invitation(invitation, address, ca, servers)
        if by_two_servers(store, address if invited is None else invited.address):
            refuse_options({"--roster": roster, "--new-roster": new_roster or None}, "HOST:PORT")
            if invited is None:
                store, where = pin_two_servers(store, address, ca, servers, new_authority, new_servers, another)
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
        refuse_options({"--servers": servers, "--new-servers": new_servers or None, "--every": every}, "https://")
        store, where = _pin(store, address, ca, roster, new_authority, new_roster, another, invited)
        transport = _transport(store, where)
        note(f"Answering {where}. Interrupt with Ctrl-C; nothing is lost by that.")
        with _log_to_stderr(), _stopped_by_signals() as stop:
            runs, messages = _answer(store, where, transport, stop, once)
        entries = len(store.ledger.entries())
    if json:
        facts = {"address": where, "sums": "masks", "messages": messages, "runs": runs, "ledger_entries": entries}
        print_json(facts)
        return
    print_lines(
        f"Answered {messages} messages; {len(runs)} run{'s' if len(runs) != 1 else ''} ended with a model here.",
        f"What was sent: hdpmf device ledger {target.path}. What to watch: hdpmf device recommend {target.path}",
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
    """Pin what is given, and say what is pinned; the store at the recommender's place, and its address."""
    from hdpmf.device.joined import known_as, place_for, remember
    from hdpmf.device.rosters import pin_roster, pinned_digest
    from hdpmf.protocol.addresses import check_address
    from hdpmf.transport.certificates import check_authority

    address = known_as(store, check_address(address_of(store, address) if invited is None else invited.address))
    if new_authority and ca is None and invited is None:
        raise ConfigError("--new-authority belongs to --ca FILE, which has the new one")
    if new_roster and roster is None:
        raise ConfigError("--new-roster belongs to --roster FILE, which is the new one")
    authority = None if ca is None else read_bytes(ca, "the recommender's authority")
    if invited is not None:
        authority = invited.authority.encode()
        note(f"Invitation: digest {invited.digest}. Compare it with the recommender's operator in another way.")
    if authority is not None:
        check_authority(authority)
    with store.transaction():
        store = place_for(store, address, another=another)
        if authority is not None:
            pin_authority(store, authority, new_authority)
        elif store.get("authority") is None:
            raise ConfigError("give the recommender's authority once, with --ca FILE; then it is pinned")
        if roster is not None:
            before = pin_roster(store, read_bytes(roster, "the roster"), new=new_roster)
            if before not in ("", pinned_digest(store)):
                note(f"The roster is another one than before (its digest was {before}).")
        elif store.roster is None:
            raise ConfigError(
                "give the roster once, with --roster FILE; then it is pinned. The operator writes it when this "
                "device's card is enrolled"
            )
        remember(store, address)
    pinned, digest = store.roster, pinned_digest(store)
    if pinned is not None and digest:
        note(
            f"Roster: {len(pinned)} devices for {pinned.n_users} users, digest {digest}. Compare it with "
            "other participants, not through the recommender."
        )
    return store, address


def _transport(store: DeviceStore, address: str) -> DeviceTransport:
    from hdpmf.device.following import follow
    from hdpmf.transport.flower.device import FlowerDevice
    from hdpmf.transport.keys import NodeKey

    authority, key = store.get("authority"), store.get("node-key")
    if authority is None or key is None:
        raise ConfigError("this store has no node key: it was not made by 'hdpmf device init'")
    return FlowerDevice(address, authority, NodeKey.from_bytes(key), follow=lambda told: follow(store, told, note))


def _answer(
    store: DeviceStore, recommender: str, transport: DeviceTransport, stop: threading.Event, once: bool
) -> tuple[list[str], int]:
    """Answer until stopped; the runs that ended with a model, and how many messages were answered."""
    from hdpmf.device.agent import DeviceAgent
    from hdpmf.device.local_model import kept_model
    from hdpmf.device.slots import in_slots

    agent = DeviceAgent(store, recommender=recommender, log=note)
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
    """An event that SIGTERM (a service manager) and the first Ctrl-C set; the second Ctrl-C interrupts."""
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
