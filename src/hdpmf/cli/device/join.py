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

from hdpmf.cli.device.store import StoreOptions
from hdpmf.cli.options import (
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
    from hdpmf.common.protocol.identity import Invitation
    from hdpmf.common.protocol.servers import Servers
    from hdpmf.private.device.participant import Participant
    from hdpmf.private.device.store.device_store import DeviceStore


@dataclass(frozen=True)
class PinOptions:
    """Pins of the device: given the first time, and confirmed when they change."""

    address: Annotated[
        str | None,
        argument("The recommender, https://HOST:PORT; by default the last one.", "[ADDRESS]"),
    ] = None
    invitation: Annotated[
        Path | None, option("Address, authority and servers in one file.", "FILE")
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
    another: Annotated[
        bool, option("This is one more recommender, beside those that you have joined.")
    ] = False
    same_host: SameHost = False

    def read_invitation(self) -> Invitation | None:
        """Return the invitation, if there is one."""
        from hdpmf.common.protocol.identity import Invitation

        if self.invitation is None:
            return None
        if (self.address, self.ca, self.servers) != (None, None, None):
            raise ConfigError(
                "--invitation has the address, the authority and the servers; leave those out"
            )
        return Invitation.read(read_bytes(self.invitation, "the invitation"))

    def read_authority(self, invited: Invitation | None) -> bytes | None:
        """Return the authority, if there is one."""
        from hdpmf.common.protocol.servers import check_authority

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
        option("How often to look for something new.", "SECONDS", default="300"),
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
        if pinned_servers(store) is None:
            raise ConfigError("no pair of servers is pinned: hdpmf device join --invitation FILE")
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
        return
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
    from hdpmf.private.device.pinned_servers import pin_servers

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
        remember(store, address, invited)
    _note_pins(store)
    return store, address


def _note_pins(store: DeviceStore) -> None:
    """Note the pinned servers, which people should compare."""
    from hdpmf.private.device.pinned_servers import pinned_servers

    pinned = pinned_servers(store)
    if pinned is not None:
        note(
            f"Sums by two servers: {pinned.leader.organisation} and {pinned.helper.organisation}, "
            f"digest {pinned.digest}. Compare it with both organisations, not through the "
            "recommender. Both together would see your ratings."
        )
        warn_about_servers(pinned)


def serve(
    store: DeviceStore,
    address: str,
    stop: threading.Event,
    *,
    once: bool = False,
    every: float | None = None,
) -> tuple[dict[str, Any], str]:
    """Answer until stopped; return what was done, for JSON and in words."""
    import hdpmf.common.aggregation.two_servers.dap.hpke  # noqa: F401  # a missing extra is an error before anything is agreed to
    from hdpmf.private.device.connection import serve_recommender
    from hdpmf.private.device.participant import POLL_EVERY
    from hdpmf.private.device.recommendations import facts_digest, local_model

    if every is not None and not 1 <= every <= 86_400:
        raise ConfigError("--every takes 1 to 86400 seconds")
    note(
        f"Reporting to the servers that {address} names. Interrupt with Ctrl-C; nothing is lost by "
        "that."
    )
    sent = _sent(store)
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
        if once and participant.finished_task not in ("", *answered):
            stop.set()

    serve_recommender(store, address, stop, note, every=every or POLL_EVERY, after=after)
    count = _sent(store) - sent
    fields = {"address": address, "runs": runs, "reports": count, "model": bool(runs)}
    news = "a new model is here" if runs else "no new model came"
    return fields, f"Reported in {count} task{'s' if count != 1 else ''}; {news}."


def _sent(store: DeviceStore) -> int:
    """Count the reports that were sent."""
    return sum(entry.action == "sent" for entry in store.ledger.entries())


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
