"""``hdpmf device join``: pin a recommender and answer it until interrupted."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.device.store import StoreOptions
from hdpmf.cli.options.common import (
    SameHost,
    argument,
    command,
    option,
    read_bytes,
    warn_about_servers,
)
from hdpmf.cli.output import Result, clean, note
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.protocol.enrolment import Invitation
    from hdpmf.common.protocol.servers import Servers
    from hdpmf.private.device.participant import Participant
    from hdpmf.private.device.store.device_store import DeviceStore


_SHOWN = 200  # of a roster; longer ones are not read by anybody


@dataclass(frozen=True)
class PinOptions:
    """Pins of the device: given the first time, and confirmed when they change."""

    address: Annotated[
        str | None,
        argument("The recommender, https://HOST:PORT; by default the last one.", "[ADDRESS]"),
    ] = None
    invitation: Annotated[
        Path | None, option("Address, authority and any servers in one file.", "FILE")
    ] = None
    ca: Annotated[
        Path | None, option("The recommender's authority (PEM), pinned the first time.", "FILE")
    ] = None
    servers: Annotated[
        Path | None, option("The two servers that sum, pinned the first time.", "FILE")
    ] = None
    new_authority: Annotated[
        bool, option("Trust --ca in place of the authority pinned before.")
    ] = False
    new_servers: Annotated[bool, option("Trust --servers in place of the pair pinned before.")] = (
        False
    )
    roster: Annotated[
        Path | None,
        option("For organisations that sum by masks: who takes part; pinned once.", "FILE"),
    ] = None
    new_roster: Annotated[bool, option("Take --roster in place of the roster pinned before.")] = (
        False
    )
    roster_digest: Annotated[
        str | None,
        option(
            "Of --roster, as an organisation on it read it out to you; else it is asked.", "HEX"
        ),
    ] = None
    another: Annotated[
        bool, option("This is one more recommender, beside those that you have joined.")
    ] = False
    same_host: SameHost = False

    def read_invitation(self) -> Invitation | None:
        """Return the invitation, if there is one."""
        from hdpmf.common.protocol.enrolment import Invitation

        if self.invitation is None:
            return None
        if (self.address, self.ca, self.servers) != (None, None, None):
            raise ConfigError(
                "--invitation has the address, the authority and the servers; leave those out"
            )
        return Invitation.read(read_bytes(self.invitation, "the invitation"))

    def read_authority(self, invited: Invitation | None) -> bytes | None:
        """Return the authority, if there is one."""
        from hdpmf.common.net.certificates import check_authority

        if invited is not None:
            authority = invited.authority.encode()
        elif self.ca is not None:
            authority = read_bytes(self.ca, "the recommender's authority")
        elif self.new_authority:
            raise ConfigError("--new-authority belongs to --ca FILE, which has the new one")
        else:
            return None
        if not authority:
            return None
        check_authority(authority)
        return authority

    def read_servers(self, invited: Invitation | None) -> Servers | None:
        """Return the two servers, if there are any."""
        from hdpmf.common.protocol.servers import Servers

        if invited is not None:
            return invited.servers
        if self.servers is not None:
            return Servers.from_json(read_bytes(self.servers, "the two servers"))
        if self.new_servers:
            raise ConfigError("--new-servers belongs to --servers FILE, which has the new ones")
        return None


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
    """Join a recommender and answer it, within the policy, until interrupted.

    The device decides what it sends; the ledger has it before it leaves. Authority and servers are
    pinned the first time. Compare the digest of the servers with both organisations in a way that
    does not go through the recommender.
    """
    from hdpmf.private.device.pinned_servers import pinned_servers

    with target.open(serving=True) as store:
        store, address = pin(store, pins)
        if every is not None and pinned_servers(store) is None:
            raise ConfigError(
                "--every is for sums by two servers; otherwise the recommender suggests how often"
            )
        with _log_to_stderr(), _stopped_by_signals() as stop:
            fields, done = serve(store, address, stop, once=once, every=every)
        fields["ledger_entries"] = len(store.ledger.entries())
    text = [
        done,
        f"What was sent: hdpmf device ledger {target.path}. What to watch: hdpmf device "
        f"recommend {target.path}",
    ]
    return Result(fields, text)


def _address(store: DeviceStore, given: str | None) -> str:
    """Return the recommender's address: given, or the last one."""
    known = store.device.last_recommender
    if given is not None:
        return given
    if not known:
        raise ConfigError("say who the recommender is: hdpmf device join STORE --invitation FILE")
    return known


def _pin_authority(store: DeviceStore, authority: bytes, new: bool) -> None:
    """Pin the recommender's authority; a different one only with ``--new-authority``."""
    from hdpmf.private.device.device_identity import digests

    before = store.recommender.authority
    given = digests(authority)
    if before and set(given) <= set(digests(before)):
        return  # as it is pinned, also with the one that follows
    if before:
        was = digests(before)[0][:16]
        now = given[0][:16]
        if not new:
            raise ConfigError(
                f"another authority is pinned here (SHA-256 {was}... of its file; --ca has "
                f"{now}...): anyone with the new one could speak as your recommender. If the "
                "recommender told you, in another way, that it has a new one, add --new-authority; "
                "if this is one more recommender, add --another; otherwise leave --ca out"
            )
        note(
            f"The authority is another one than before (SHA-256 {was}... of its file, now "
            f"{now}...)."
        )
    store.change_recommender(authority=authority)


def pin(store: DeviceStore, pins: PinOptions) -> tuple[DeviceStore, str]:
    """Pin the options; return the store for the recommender, and its address."""
    from hdpmf.common.protocol.servers import check_address
    from hdpmf.private.device.memberships import known_as, remember, store_for
    from hdpmf.private.device.pinned_servers import pin_servers, pinned_servers

    invited = pins.read_invitation()
    given = _address(store, pins.address) if invited is None else invited.address
    address = known_as(store, check_address(given))
    authority = pins.read_authority(invited)
    pair = pins.read_servers(invited)
    if invited is not None:
        note(
            f"Invitation: digest {invited.digest}. Compare it with the recommender's "
            "operator in another way."
        )
    if pins.roster is not None and pair is None:
        _compare_roster(store, address, pins)
    elif pins.roster_digest is not None:
        raise ConfigError("--roster-digest belongs to --roster FILE, whose digest it is")
    with store.transaction():
        store = store_for(store, address, another=pins.another)
        if authority is not None:
            _pin_authority(store, authority, pins.new_authority)
        if pair is not None:
            before = pin_servers(store, pair, new=pins.new_servers, same_host=pins.same_host)
            if before is not None and before != pair:
                note(
                    f"The servers are other ones than before ({before.names}, digest "
                    f"{before.digest})."
                )
        if pins.roster is not None:
            if pinned_servers(store) is not None:
                raise ConfigError(
                    "--roster is for organisations that sum by masks; here two servers sum: "
                    "leave it out"
                )
            _pin_roster(store, pins.roster, pins.new_roster)
        elif pins.new_roster:
            raise ConfigError("--new-roster belongs to --roster FILE, which is the new one")
        remember(store, address, invited)
    _note_pins(store)
    return store, address


def _compare_roster(store: DeviceStore, address: str, pins: PinOptions) -> None:
    """Show who is on a roster, and have its digest compared before it is pinned.

    Raises:
        ConfigError: The digest is another one, or there is nobody to ask for it.
    """
    from hdpmf.private.device.memberships import known_recommenders
    from hdpmf.private.device.pinned_servers import preview_roster

    if pins.roster is None:
        return
    enrolled = preview_roster(store, read_bytes(pins.roster, "the roster"))
    before = {known.address: known.roster_digest for known in known_recommenders(store)}
    given = pins.roster_digest
    if given is None:
        if enrolled.digest in before.values():
            return  # it was compared then
        if before.get(address) and not pins.new_roster:
            return  # pinning refuses it
    note(f"The roster {pins.roster} says that these take part:")
    for card in enrolled.cards[:_SHOWN]:
        users = f"{card.users:,} user{'s' if card.users != 1 else ''}"
        note(f"  {card.name}, {users}, key {card.identity[:16]}")
    if len(enrolled) > _SHOWN:
        note(f"  and {len(enrolled) - _SHOWN:,} more")
    note(
        "You are hidden among those of them that are real. Call one that you know, at a number "
        "that you have from elsewhere, and let it read out the digest of its roster."
    )
    if given is None:
        if not sys.stdin.isatty():
            raise ConfigError(
                "compare the digest of --roster with an organisation on it, in a way that does not "
                "go through the recommender, and give it with --roster-digest"
            )
        given = str(typer.prompt("Digest that it read out", err=True))
    if "".join(given.split()).lower() != "".join(enrolled.digest.split()):
        raise ConfigError(
            f"the digest of {pins.roster} is {enrolled.digest}, which is not the one that was "
            "compared: somebody was given another roster. Nothing is pinned; ask the recommender "
            "why, and join by a roster that all have"
        )


def _pin_roster(store: DeviceStore, file: Path, new: bool) -> None:
    from hdpmf.private.device.pinned_servers import pin_roster, pinned_digest

    before = pin_roster(store, read_bytes(file, "the roster"), new=new)
    if before not in ("", pinned_digest(store)):
        note(f"The roster is another one than before (its digest was {before}).")


def _note_pins(store: DeviceStore) -> None:
    """Note the pinned servers or roster, which people should compare."""
    from hdpmf.private.device.pinned_servers import pinned_digest, pinned_servers

    pinned = pinned_servers(store)
    roster = store.roster
    digest = pinned_digest(store)
    if pinned is not None:
        note(
            f"Sums by two servers: {pinned.leader.organisation} and {pinned.helper.organisation}, "
            f"digest {pinned.digest}. Compare it with both organisations, not through the "
            "recommender. Both together would see your ratings."
        )
        warn_about_servers(pinned)
    elif roster is not None and digest:
        note(
            f"Roster: {len(roster)} devices for {roster.n_users} users, digest {digest}. Compare "
            "it with every organisation on it that you know, not through the recommender."
        )


def serve(
    store: DeviceStore,
    address: str,
    stop: threading.Event,
    *,
    once: bool = False,
    every: float | None = None,
) -> tuple[dict[str, Any], str]:
    """Answer until stopped; return what was done, for JSON and in words."""
    from hdpmf.private.device.connection import serve_recommender
    from hdpmf.private.device.model_update import facts_digest
    from hdpmf.private.device.participant import POLL_EVERY
    from hdpmf.private.device.pinned_servers import pinned_servers
    from hdpmf.private.device.recommendations import local_model

    by_servers = pinned_servers(store) is not None
    if by_servers:
        import hdpmf.common.aggregation.two_servers.dap.hpke  # noqa: F401  # a missing extra is an error before anything is agreed to
    if every is not None and not 1 <= every <= 86_400:
        raise ConfigError("--every takes 1 to 86400 seconds")
    whom = "Reporting to the servers that {} names" if by_servers else "Answering {}"
    note(f"{whom.format(address)}. Interrupt with Ctrl-C; nothing is lost by that.")
    sent = _sent(store, by_servers)
    answered: list[str] = []
    last = facts_digest(store)
    runs: list[str] = []

    def after(participant: Participant) -> None:
        nonlocal last
        if not answered:
            answered.append(participant.finished_task)  # before anything was done
        now, model = facts_digest(store), local_model(store)
        if now != last and model is not None:
            last = now
            runs.append(model.run)
            note(f"Run {model.run[:8]} has ended; its model is here.")
        if not once or not participant.complete:
            return
        if participant.finished_task not in ("", *answered) if by_servers else runs:
            stop.set()

    serve_recommender(store, address, stop, note, every=every or POLL_EVERY, after=after)
    sums = "two servers" if by_servers else "direct" if store.roster is None else "masks"
    count = _sent(store, by_servers) - sent
    fields: dict[str, Any] = {"address": address, "sums": sums, "runs": runs}
    news = "a new model is here" if runs else "no new model came"
    if by_servers:
        fields |= {"reports": count, "model": bool(runs)}
        return fields, f"Reported in {count} task{'s' if count != 1 else ''}; {news}."
    fields["messages"] = count
    return fields, f"Sent {count} message{'s' if count != 1 else ''}; {news}."


def _sent(store: DeviceStore, by_servers: bool) -> int:
    """Count what was sent; with two servers reports, and not what is shown beside them."""
    sent = [entry for entry in store.ledger.entries() if entry.action == "sent"]
    return sum(not (by_servers and entry.view == "messages") for entry in sent)


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
