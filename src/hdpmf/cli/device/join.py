"""``hdpmf device join``: pin a recommender and answer it until interrupted."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.device.store import StoreOptions
from hdpmf.cli.options.common import argument, command, option, read_bytes
from hdpmf.cli.output import Result, clean, note
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.net import DeviceTransport
    from hdpmf.common.protocol.invitation import Invitation
    from hdpmf.private.device.store.device_store import DeviceStore


@dataclass(frozen=True)
class PinOptions:
    """What the device pins: given the first time, and confirmed when it changes."""

    address: Annotated[
        str | None,
        argument(
            "The recommender: https://HOST:PORT for sums by two servers, HOST:PORT for sums by "
            "masks; the one of last time by default.",
            "[ADDRESS]",
        ),
    ] = None
    ca: Annotated[
        Path | None, option("The recommender's authority (PEM), pinned the first time.", "FILE")
    ] = None
    roster: Annotated[
        Path | None, option("The devices that may take part, pinned the first time.", "FILE")
    ] = None
    servers: Annotated[
        Path | None, option("The two servers that sum, pinned the first time.", "FILE")
    ] = None
    new_authority: Annotated[
        bool, option("Trust --ca in place of the authority pinned before.")
    ] = False
    new_roster: Annotated[bool, option("Take --roster in place of the roster pinned before.")] = (
        False
    )
    new_servers: Annotated[bool, option("Trust --servers in place of the pair pinned before.")] = (
        False
    )
    invitation: Annotated[
        Path | None, option("Address, authority and any servers in one file.", "FILE")
    ] = None
    another: Annotated[
        bool, option("This is one more recommender, beside those that you have joined.")
    ] = False

    def read_invitation(self) -> Invitation | None:
        """Return the invitation, if there is one."""
        from hdpmf.common.protocol.invitation import Invitation

        if self.invitation is None:
            return None
        if (self.address, self.ca, self.servers) != (None, None, None):
            raise ConfigError(
                "--invitation has the address, the authority and the servers; leave those out"
            )
        return Invitation.read(read_bytes(self.invitation, "the invitation"))

    def read_authority(self) -> bytes | None:
        """Return the authority, if there is one."""
        from hdpmf.common.net.certificates import check_authority

        if self.ca is None:
            return None
        authority = read_bytes(self.ca, "the recommender's authority")
        check_authority(authority)
        return authority


@command
def join(
    target: StoreOptions,
    pins: PinOptions,
    every: Annotated[
        float | None,
        option("How often to look for something new, with two servers.", "SECONDS", default="300"),
    ] = None,
    once: Annotated[bool, option("Leave when a run has ended and its model is here.")] = False,
) -> Result:
    """Connect to a recommender and answer it, within the policy, until interrupted.

    The device decides what it sends; the ledger has it before it leaves. Authority, servers and
    roster are pinned the first time. Compare the digest of the servers with both organisations, or
    that of the roster with other participants, in a way that does not go through the recommender.
    """
    with target.open(serving=True) as store:
        invited = pins.read_invitation()
        if uses_two_servers(store, pins.address if invited is None else invited.address):
            _refuse({"--roster": pins.roster, "--new-roster": pins.new_roster or None}, "HOST:PORT")
            if invited is None:
                store, address = pin_by_servers(store, pins)
            else:
                store, address = _pin_invitation(store, invited, pins)
            with _log_to_stderr(), _stopped_by_signals() as stop:
                fields, done = _report(store, address, stop, once, every)
        else:
            others = {
                "--servers": pins.servers,
                "--new-servers": pins.new_servers or None,
                "--every": every,
            }
            _refuse(others, "https://")
            store, address = pin_by_roster(store, pins, invited)
            transport = _transport(store, address)
            note(f"Answering {address}. Interrupt with Ctrl-C; nothing is lost by that.")
            with _log_to_stderr(), _stopped_by_signals() as stop:
                runs, messages = answer_messages(store, address, transport, stop, once)
            fields = {"address": address, "sums": "masks", "messages": messages, "runs": runs}
            ended = f"{len(runs)} run{'s' if len(runs) != 1 else ''} ended with a model here"
            done = f"Answered {messages} messages; {ended}."
        fields["ledger_entries"] = len(store.ledger.entries())
    text = [
        done,
        f"What was sent: hdpmf device ledger {target.path}. What to watch: hdpmf device "
        f"recommend {target.path}",
    ]
    return Result(fields, text)


def uses_two_servers(store: DeviceStore, address: str | None) -> bool:
    """Return True if the recommender at this address uses two servers."""
    from hdpmf.common.protocol.addresses import HTTPS, plain_address

    return plain_address(_address(store, address)).startswith(HTTPS)


def _address(store: DeviceStore, given: str | None) -> str:
    """Return the recommender's address: given, or the last one."""
    known = store.get("address")
    if given is not None:
        return given
    if known is None:
        raise ConfigError(
            "say where the recommender is: hdpmf device join STORE https://HOST:PORT --ca FILE "
            "--servers FILE, or for sums by masks hdpmf device join STORE HOST:PORT --ca FILE "
            "--roster FILE"
        )
    return known.decode()


def _refuse(given: Mapping[str, object], kind: str) -> None:
    """Raise ConfigError for options that have no effect with this kind of recommender."""
    for name, value in given.items():
        if value is not None:
            raise ConfigError(
                f"{name} is for a recommender at an address like {kind}; leave it out here"
            )


def _pin_authority(store: DeviceStore, authority: bytes, new: bool) -> None:
    """Pin the recommender's authority; a different one only with ``--new-authority``."""
    from hdpmf.private.device.device_identity import digests

    before = store.get("authority")
    given = digests(authority)
    if before is not None and set(given) <= set(digests(before)):
        return  # as it is pinned, also with the one that follows
    if before is not None:
        was = digests(before)[0][:16]
        now = given[0][:16]
        if not new:
            raise ConfigError(
                f"another authority is pinned here (SHA-256 {was}... of its file; --ca has "
                f"{now}...): whoever has the new one could speak as your recommender. If the "
                "recommender told you, in another way, that it has a new one, add --new-authority; "
                "if this is one more recommender, add --another; otherwise leave --ca out"
            )
        note(
            f"The authority is another one than before (SHA-256 {was}... of its file, now "
            f"{now}...)."
        )
    store.put("authority", authority)


def pin_by_servers(store: DeviceStore, pins: PinOptions) -> tuple[DeviceStore, str]:
    """Pin the options; return the store for the recommender, and its address."""
    from hdpmf.common.protocol.addresses import check_folder_address
    from hdpmf.common.protocol.servers import Servers
    from hdpmf.private.device.joined import known_as, place_for, remember
    from hdpmf.private.device.pinned_servers import pin_servers, pinned_servers

    address = known_as(store, check_folder_address(_address(store, pins.address)))
    if pins.new_authority and pins.ca is None:
        raise ConfigError("--new-authority belongs to --ca FILE, which has the new one")
    if pins.new_servers and pins.servers is None:
        raise ConfigError("--new-servers belongs to --servers FILE, which has the new ones")
    pair = None
    if pins.servers is not None:
        pair = Servers.from_json(read_bytes(pins.servers, "the two servers"))
    authority = pins.read_authority()
    with store.transaction():
        store = place_for(store, address, another=pins.another)
        if authority is not None:
            _pin_authority(store, authority, pins.new_authority)
        if pair is not None:
            before = pin_servers(store, pair, new=pins.new_servers)
            if before is not None and before != pair:
                note(
                    f"The servers are other ones than before ({before.names}, digest "
                    f"{before.digest})."
                )
        elif pinned_servers(store) is None:
            raise ConfigError(
                "give the two servers once, with --servers FILE; then they are pinned"
            )
        remember(store, address)
    _note_servers(store)
    return store, address


def _pin_invitation(
    store: DeviceStore, invited: Invitation, pins: PinOptions
) -> tuple[DeviceStore, str]:
    """Pin an invitation; return the store for the recommender, and its address."""
    from hdpmf.common.net.certificates import check_authority
    from hdpmf.private.device.joined import known_as, place_for, remember
    from hdpmf.private.device.pinned_servers import pin_servers

    address = known_as(store, invited.address)
    authority = invited.authority.encode()
    if authority:
        check_authority(authority)
    with store.transaction():
        store = place_for(store, address, another=pins.another)
        if authority:
            _pin_authority(store, authority, pins.new_authority)
        if invited.servers is not None:
            pin_servers(store, invited.servers, new=pins.new_servers)
        remember(store, address)
    _note_servers(store)
    return store, address


def _note_servers(store: DeviceStore) -> None:
    """Note the pinned servers, which people should compare."""
    from hdpmf.private.device.pinned_servers import pinned_servers

    pinned = pinned_servers(store)
    if pinned is not None:
        note(
            f"Sums by two servers: {pinned.leader.organisation} and {pinned.helper.organisation}, "
            f"digest {pinned.digest}. Compare it with both organisations, not through the "
            "recommender. Both together would see your ratings."
        )


def pin_by_roster(
    store: DeviceStore, pins: PinOptions, invited: Invitation | None
) -> tuple[DeviceStore, str]:
    """Pin the options; return the store for the recommender, and its address."""
    from hdpmf.common.net.certificates import check_authority
    from hdpmf.common.protocol.addresses import check_address
    from hdpmf.private.device.joined import known_as, place_for, remember
    from hdpmf.private.device.pinned_servers import pin_roster, pinned_digest

    given = _address(store, pins.address) if invited is None else invited.address
    address = known_as(store, check_address(given))
    if pins.new_authority and pins.ca is None and invited is None:
        raise ConfigError("--new-authority belongs to --ca FILE, which has the new one")
    if pins.new_roster and pins.roster is None:
        raise ConfigError("--new-roster belongs to --roster FILE, which is the new one")
    authority = pins.read_authority()
    if invited is not None:
        authority = invited.authority.encode()
        note(
            f"Invitation: digest {invited.digest}. Compare it with the recommender's "
            "operator in another way."
        )
        check_authority(authority)
    with store.transaction():
        store = place_for(store, address, another=pins.another)
        if authority is not None:
            _pin_authority(store, authority, pins.new_authority)
        elif store.get("authority") is None:
            raise ConfigError(
                "give the recommender's authority once, with --ca FILE; then it is pinned"
            )
        if pins.roster is not None:
            before = pin_roster(store, read_bytes(pins.roster, "the roster"), new=pins.new_roster)
            if before not in ("", pinned_digest(store)):
                note(f"The roster is another one than before (its digest was {before}).")
        elif store.roster is None:
            raise ConfigError(
                "give the roster once, with --roster FILE; then it is pinned. The operator writes "
                "it when this device's card is enrolled"
            )
        remember(store, address)
    pinned = store.roster
    digest = pinned_digest(store)
    if pinned is not None and digest:
        note(
            f"Roster: {len(pinned)} devices for {pinned.n_users} users, digest {digest}. Compare "
            "it with other participants, not through the recommender."
        )
    return store, address


def _report(
    store: DeviceStore, address: str, stop: threading.Event, once: bool, every: float | None
) -> tuple[dict[str, Any], str]:
    """Report to two servers until stopped; return what was done, for JSON and in words."""
    import hdpmf.common.aggregation.two_servers.dap.hpke  # noqa: F401  # a missing extra is an error before anything is agreed to
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
    sent_before = _sent_reports(store)
    answered_before = reporter.answered
    facts_before = kept_facts(store)
    try:
        while not stop.is_set():
            wait = reporter.step()
            if once and reporter.answered not in ("", answered_before):
                break
            stop.wait(wait)
    finally:
        reporter.settle()
    reports = _sent_reports(store) - sent_before
    model = kept_facts(store) != facts_before
    fields = {"address": address, "sums": "two servers", "reports": reports, "model": model}
    news = "a new model is here" if model else "no new model came"
    return fields, f"Reported in {reports} task{'s' if reports != 1 else ''}; {news}."


def _sent_reports(store: DeviceStore) -> int:
    return sum(
        entry.action == "sent" and entry.view == "two-servers" for entry in store.ledger.entries()
    )


def _transport(store: DeviceStore, address: str) -> DeviceTransport:
    from hdpmf.common.net.flower.device import FlowerDevice
    from hdpmf.common.net.keys import NodeKey
    from hdpmf.private.device.device_identity import follow

    authority = store.get("authority")
    key = store.get("node-key")
    if authority is None or key is None:
        raise ConfigError("this store has no node key: it was not made by 'hdpmf device init'")
    return FlowerDevice(
        address, authority, NodeKey.from_bytes(key), follow=lambda told: follow(store, told, note)
    )


def answer_messages(
    store: DeviceStore,
    recommender: str,
    transport: DeviceTransport,
    stop: threading.Event,
    once: bool,
) -> tuple[list[str], int]:
    """Answer until stopped; return the runs that ended with a model, and the number of answers."""
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
    """Yield an event that SIGTERM and the first Ctrl-C set; the second Ctrl-C interrupts."""
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
    """Print the device's own log, inside the block."""
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
