"""The recommender's side of a secure sum, which is not trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hdpmf.common.aggregation.masks.messages import (
    Advertisement,
    Confirmation,
    Confirmations,
    DealtShares,
    DeviceKeys,
    Inbox,
    MaskedVector,
    PartnerKeys,
    SumPlan,
    Survivors,
    ToDevice,
    ToRecommender,
    Unmasking,
)
from hdpmf.common.aggregation.masks.plan import (
    check_roster,
    commitment_of,
    keys_text,
    pair_info,
    self_mask_key,
    share_check,
    survivors_text,
)
from hdpmf.common.aggregation.masks.primitives import KEY_BYTES, Agreement, add_mask, is_low_order
from hdpmf.common.aggregation.masks.roster import Roster, bitmap, draw_holders, read_bitmap
from hdpmf.common.aggregation.masks.shamir import correct, join
from hdpmf.errors import SecureSumError


class WrongSharesError(SecureSumError):
    """A secret could not be joined; ``liars`` gave or dealt wrong shares."""

    def __init__(self, message: str, liars: frozenset[int]) -> None:
        super().__init__(f"{message}; the sum is broken off and stays masked")
        self.liars = liars


@dataclass
class Unmasker:
    """The recommender's state while shares arrive; it fills ``liars``."""

    digest: bytes
    threshold: int
    holders: Mapping[int, tuple[int, ...]]
    partners: Mapping[int, frozenset[int]]
    keys: Mapping[int, DeviceKeys]
    checks: Mapping[int, Mapping[int, bytes]]
    answers: Mapping[int, Unmasking]
    liars: set[int] = field(default_factory=set)

    def remove_masks(self, total: np.ndarray, survivors: frozenset[int]) -> None:
        """Remove the masks from the sum in place; raise WrongSharesError if that is impossible."""
        lost = sorted(
            device
            for device in self.holders.keys() - survivors
            if survivors & self.partners[device]
        )
        # Everything is put together before any mask comes off: a sum either comes out right or not
        # at all.
        seeds = [self._secret(device, "seeds") for device in sorted(survivors)]
        agreements = {device: Agreement(self._secret(device, "keys")) for device in lost}
        for seed in seeds:
            add_mask(total, self_mask_key(self.digest, seed), subtract=True)
        for device, agreement in agreements.items():
            for peer in survivors & self.partners[device]:
                key = agreement.key(
                    self.keys[peer].mask, self.digest, pair_info(b"pair mask", device, peer)
                )
                add_mask(total, key, subtract=peer < device)

    def _secret(self, device: int, kind: Literal["seeds", "keys"]) -> bytes:
        """A device's seed or mask key; whoever lied about it is noted."""
        holders = self.holders[device]
        given = {
            point: (holder, share)
            for point, holder in enumerate(holders, start=1)
            if holder in self.answers
            and (share := getattr(self.answers[holder], kind).get(device)) is not None
        }
        secret = self._join(device, kind, {point: share for point, (_, share) in given.items()})
        if secret is not None:
            return secret
        shares = {
            point: share
            for point, (holder, share) in given.items()
            if self._is_dealt(device, holder, kind, share)
        }
        self.liars.update(holder for point, (holder, _) in given.items() if point not in shares)
        secret = self._join(device, kind, shares)
        if secret is not None:
            return secret
        answered = len(self.answers.keys() & set(holders))
        if len(shares) < self.threshold and len(given) == answered:
            raise WrongSharesError(
                f"{len(shares)} right shares of device {device} arrived and it takes "
                f"{self.threshold}",
                frozenset(self.liars),
            )
        # Either holders that answered kept no share, because what they got was not what the dealer
        # spoke of, or the shares are not on one polynomial: both are the dealer's doing.
        self.liars.add(device)
        secret = self._join(device, kind, correct(shares, self.threshold) or {})
        if secret is None:
            raise WrongSharesError(f"device {device} dealt wrong shares", frozenset(self.liars))
        return secret

    def _join(self, device: int, kind: str, shares: Mapping[int, bytes]) -> bytes | None:
        """Join shares; None unless the result is what the device advertised."""
        if len(shares) < self.threshold:
            return None
        secret = join(shares, len(self.holders[device]))
        keys = self.keys[device]
        if secret is None:
            return None
        right = (
            commitment_of(self.digest, secret) == keys.commitment
            if kind == "seeds"
            else Agreement(secret).public == keys.mask
        )
        return secret if right else None

    def _is_dealt(self, device: int, holder: int, kind: str, share: bytes) -> bool:
        first = self.checks[device][holder][:KEY_BYTES]
        second = self.checks[device][holder][KEY_BYTES:]
        return share_check(self.digest, device, holder, kind, share) == (
            first if kind == "seeds" else second
        )


@dataclass(frozen=True)
class SumResult:
    """The sum of the survivors' vectors, their roster numbers, and devices with wrong shares."""

    total: np.ndarray
    survivors: tuple[int, ...]
    liars: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Phase:
    """A step: the message that it awaits, its handler, and the step's end."""

    expects: type
    take: Callable[[int, Any], None]
    close: Callable[[], dict[int, ToDevice]]


class SecureSumServer:
    """The recommender in one secure sum.

    ``advance`` closes the current step and returns the messages of the next one, by device;
    ``receive`` takes replies. The caller decides when to close a step (when ``waiting`` is empty,
    or at a deadline): devices that have not answered have dropped out. When ``advance`` returns no
    more messages, ``result`` is there. A refused message changes nothing; a step that cannot go on
    raises SecureSumError and ends the session with the sum still masked.

    Only the sum of masked vectors is kept, so memory does not grow with devices times length.
    Devices with another ``about`` find no partners here.
    """

    def __init__(self, plan: SumPlan, roster: Roster, about: bytes = b"") -> None:
        check_roster(plan, roster)
        self.plan = plan
        self._roster = roster
        self._digest = plan.digest_about(about)
        self._participants = read_bitmap(plan.participants)
        self._holders: dict[int, tuple[int, ...]] = {}
        self._partners: dict[int, set[int]] = {}
        self._expected: frozenset[int] = frozenset()
        self._answered: set[int] = set()
        self._phases = [
            _Phase(Unmasking, self._take_unmasking, self._finish),
            _Phase(Confirmation, self._take_confirmation, self._pass_confirmations),
            _Phase(MaskedVector, self._take_vector, self._list_survivors),
            _Phase(DealtShares, self._take_shares, self._pass_shares),
            _Phase(Advertisement, self._take_keys, self._pass_keys),
        ]
        self._keys: dict[int, DeviceKeys] = {}
        self._public: set[bytes] = set()
        self._sealed: dict[int, DealtShares] = {}
        self._checks: dict[int, dict[int, bytes]] = {}
        self._signatures: dict[int, bytes] = {}
        self._answers: dict[int, Unmasking] = {}
        self._total = np.zeros(plan.length, plan.word)
        self._dealers: frozenset[int] = frozenset()
        self._survivors: frozenset[int] = frozenset()
        self._liars: frozenset[int] = frozenset()
        self._started = False
        self._result: SumResult | None = None

    def __repr__(self) -> str:
        awaited = self._phases[-1].expects.__name__ if self._phases else "nothing"
        return f"SecureSumServer({len(self._participants)} devices, awaits {awaited})"

    @property
    def waiting(self) -> frozenset[int]:
        """Devices that have been asked in this step and have not answered."""
        return self._expected - self._answered

    @property
    def liars(self) -> frozenset[int]:
        """Devices that gave or dealt wrong shares; known when the sum has ended."""
        return self._liars

    @property
    def result(self) -> SumResult:
        """The sum, once there is one."""
        if self._result is None:
            raise SecureSumError(
                "there is no sum: the session is not at its end, or was broken off"
            )
        return self._result

    def receive(self, device: int, message: ToRecommender) -> None:
        """Take a device's reply; ``device`` is whom the transport has authenticated."""
        if not self._phases or not self._started:
            raise SecureSumError(
                "this session takes no messages: it has not begun, is at its end or was broken off"
            )
        phase = self._phases[-1]
        if not isinstance(message, phase.expects):
            raise SecureSumError(
                f"{type(message).__name__} is out of turn here; {phase.expects.__name__} was due"
            )
        if message.session != self.plan.session:
            raise SecureSumError(f"{type(message).__name__} belongs to another session")
        if device not in self._expected:
            raise SecureSumError(
                "the device is not on the roster, was not asked, or has dropped out before"
            )
        if device in self._answered:
            raise SecureSumError(f"device {device} has answered already in this step")
        phase.take(device, message)
        self._answered.add(device)

    def advance(self) -> dict[int, ToDevice]:
        """Close the current step; return the messages of the next by device, none at the end."""
        if not self._started:
            self._started = True
            return self._ask(dict.fromkeys(self._participants.tolist(), self.plan))
        if not self._phases:
            raise SecureSumError(
                "this session is over; a new sum needs a new plan and a new SecureSumServer"
            )
        phase = self._phases.pop()
        closed = False
        try:
            messages = phase.close()
            closed = True
        finally:
            if not closed:
                self._phases.clear()
        return self._ask(messages)

    def _ask(self, messages: dict[int, ToDevice]) -> dict[int, ToDevice]:
        self._expected = frozenset(messages)
        self._answered = set()
        return messages

    def _take_keys(self, device: int, message: Advertisement) -> None:
        keys = message.keys
        text = keys_text(self._digest, device, keys.channel, keys.mask, keys.commitment)
        if not self._roster.verifies(device, keys.signature, text):
            raise SecureSumError(
                f"the keys of device {device} are not signed by its identity on the roster"
            )
        # Either would make honest partners of this device refuse, and the sum lose them.
        if (
            self._public & {keys.channel, keys.mask}
            or is_low_order(keys.channel)
            or is_low_order(keys.mask)
        ):
            raise SecureSumError(f"the keys of device {device} are of low order, or another's")
        self._public |= {keys.channel, keys.mask}
        self._keys[device] = keys
        self._holders[device] = draw_holders(
            self._participants, device, self.plan.neighbours, message.draw
        )

    def _pass_keys(self) -> dict[int, ToDevice]:
        there = self._well_connected(self._answered, "advertised keys")
        return {
            device: PartnerKeys(
                session=self.plan.session,
                keys={peer: self._keys[peer] for peer in sorted(partners)},
            )
            for device, partners in self._pair_up(there).items()
        }

    def _pair_up(self, there: frozenset[int]) -> dict[int, set[int]]:
        """Return the partners of each device: its holders, and those whose holder it is."""
        partners: dict[int, set[int]] = {
            device: set(there.intersection(self._holders[device])) for device in sorted(there)
        }
        for device in there:
            for holder in there.intersection(self._holders[device]):
                partners[holder].add(device)
        return partners

    def _take_shares(self, device: int, message: DealtShares) -> None:
        if message.sealed.keys() != self._expected.intersection(self._holders[device]):
            raise SecureSumError(f"device {device} did not deal a share to each of its holders")
        self._sealed[device] = message

    def _pass_shares(self) -> dict[int, ToDevice]:
        self._dealers = self._well_connected(self._answered, "dealt shares")
        self._partners = self._pair_up(self._dealers)
        self._checks = {device: self._sealed[device].checks for device in self._dealers}
        messages: dict[int, ToDevice] = {}
        for device, partners in self._partners.items():
            dealers = [peer for peer in sorted(partners) if device in self._sealed[peer].sealed]
            messages[device] = Inbox(
                session=self.plan.session,
                partners=tuple(sorted(partners)),
                sealed={peer: self._sealed[peer].sealed[device] for peer in dealers},
                checks={peer: self._checks[peer][device] for peer in dealers},
            )
        self._sealed.clear()
        return messages

    def _take_vector(self, device: int, message: MaskedVector) -> None:
        size = self._total.nbytes
        if len(message.words) != size:
            raise SecureSumError(
                f"device {device} sent {len(message.words)} bytes of words; the plan says {size}"
            )
        self._total += np.frombuffer(message.words, self.plan.word)

    def _list_survivors(self) -> dict[int, ToDevice]:
        # Vectors are added as they come, so a survivor cannot be left out any more: all are well
        # connected, or it ends.
        survivors = frozenset(self._answered)
        if self._well_connected(survivors, "sent vectors") != survivors:
            raise SecureSumError(
                "a device has lost too many holders; the sum is broken off and stays masked"
            )
        self._survivors = survivors
        message = Survivors(
            session=self.plan.session, survivors=bitmap(sorted(survivors), len(self._roster))
        )
        self._listed = message.survivors
        return dict.fromkeys(sorted(survivors), message)

    def _take_confirmation(self, device: int, message: Confirmation) -> None:
        if not self._roster.verifies(
            device, message.signature, survivors_text(self._digest, device, self._listed)
        ):
            raise SecureSumError(f"device {device} did not sign the survivor list")
        self._signatures[device] = message.signature

    def _pass_confirmations(self) -> dict[int, ToDevice]:
        signatures = {
            device: {
                peer: self._signatures[peer]
                for peer in self._holders[device]
                if peer in self._signatures
            }
            for device in sorted(self._answered)
        }
        # A device that sees fewer would refuse; the others' shares may still be enough.
        messages: dict[int, ToDevice] = {
            device: Confirmations(session=self.plan.session, signatures=seen)
            for device, seen in signatures.items()
            if len(seen) >= self.plan.threshold
        }
        if len(messages) < self.plan.threshold:
            raise SecureSumError(
                f"{len(signatures)} devices confirmed the survivors, too few for each other; the "
                "sum is broken off and stays masked"
            )
        return messages

    def _take_unmasking(self, device: int, message: Unmasking) -> None:
        held_for = {peer for peer in self._partners[device] if device in self._holders[peer]}
        # Fewer are allowed: a device keeps no shares that are not what their dealer said.
        if not (
            message.seeds.keys() <= held_for & self._survivors
            and message.keys.keys() <= held_for - self._survivors
        ):
            raise SecureSumError(f"device {device} gave shares that are not asked for")
        self._answers[device] = message

    def _finish(self) -> dict[int, ToDevice]:
        unmasker = Unmasker(
            self._digest,
            self.plan.threshold,
            {device: self._holders[device] for device in self._dealers},
            {device: frozenset(partners) for device, partners in self._partners.items()},
            self._keys,
            self._checks,
            self._answers,
        )
        try:
            unmasker.remove_masks(self._total, self._survivors)
        except WrongSharesError as error:
            self._liars = error.liars
            raise
        self._liars = frozenset(unmasker.liars)
        self._total.flags.writeable = False
        self._result = SumResult(self._total, tuple(sorted(self._survivors)), self._liars)
        self._answers.clear()
        return {}

    def _well_connected(self, devices: set[int] | frozenset[int], what: str) -> frozenset[int]:
        """Return the devices that have at least the threshold of holders among themselves."""
        there = set(devices)
        while True:
            weak = [
                peer
                for peer in there
                if len(there.intersection(self._holders[peer])) < self.plan.threshold
            ]
            if not weak:
                break
            there.difference_update(weak)
        if len(there) < self.plan.minimum:
            raise SecureSumError(
                f"{len(devices)} devices {what}, {len(there)} of them with enough holders; the sum "
                f"needs {self.plan.minimum} and is broken off"
            )
        return frozenset(there)
