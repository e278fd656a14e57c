"""A device's side of one secure sum."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec
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
    SumPolicy,
    check_roster,
    commitment_of,
    keys_text,
    pair_check,
    pair_info,
    self_mask_key,
    survivors_text,
)
from hdpmf.common.aggregation.masks.primitives import (
    KEY_BYTES,
    WIDE_WORD,
    WORD,
    Agreement,
    add_mask,
    new_secret,
    seal,
    unseal,
)
from hdpmf.common.aggregation.masks.roster import (
    DeviceIdentity,
    Roster,
    bitmap_size,
    draw_holders,
    read_bitmap,
)
from hdpmf.common.aggregation.masks.shamir import SHARE_BYTES, split
from hdpmf.errors import SecureSumError


class _Suspended(msgspec.Struct, frozen=True):
    """A session between two messages. PRIVATE: with it the device's masks come off."""

    plan: SumPlan
    steps_left: int
    vector: bytes | None
    holders: tuple[int, ...]
    own: DeviceKeys
    seed: bytes
    mask_secret: bytes
    channel_secret: bytes
    mask_keys: dict[int, bytes]
    channels: dict[int, bytes]
    held: dict[int, bytes]
    partners: tuple[int, ...]
    survivors: bytes


_UNCHANGED = (
    "holders", "own", "seed", "mask_secret", "mask_keys", "channels", "held", "survivors"
)  # fmt: skip


class SecureSumClient:
    """One device in one secure sum. Made for one session, and of no use after it.

    ``answer`` takes the recommender's messages in their order and returns the replies. Whatever is
    out of order, not signed as it should be, or less than the policy requires, ends the session:
    the object forgets its secrets and its vector and refuses everything after that.

    Args:
        identity: The device's long-lived key; it must be on the roster.
        roster: The roster that this device has pinned.
        vector: Words (``IntegerCoding`` makes them of integers).
        policy: The device's requirements.
        about: Context of the vector; masks cancel only among devices with the same one.
    """

    def __init__(
        self,
        identity: DeviceIdentity,
        roster: Roster,
        vector: np.ndarray,
        policy: SumPolicy | None = None,
        about: bytes = b"",
    ) -> None:
        if vector.ndim != 1 or vector.dtype not in (WORD, WIDE_WORD):
            raise SecureSumError(
                "the vector must be one of words (unsigned); IntegerCoding makes them of integers"
            )
        self._identity = identity
        self._roster = roster
        self._policy = SumPolicy() if policy is None else policy
        self._about = about
        self.device = roster.index(identity.public)
        self._vector: np.ndarray | None = vector
        self._handlers: list[tuple[type, Callable[[Any], ToRecommender]]] = [
            (Confirmations, self._unmask),
            (Survivors, self._confirm),
            (Inbox, self._mask),
            (PartnerKeys, self._deal),
            (SumPlan, self._accept),
        ]
        self._seed = b""
        self._mask_secret = b""
        self._channel: Agreement | None = None
        self._mask_key: Agreement | None = None
        self._mask_keys: dict[int, bytes] = {}
        self._channels: dict[int, bytes] = {}
        self._held: dict[int, bytes] = {}
        self._partners: set[int] = set()
        self._survivors = b""

    def suspend(self) -> bytes | None:
        """Return the session as bytes, to resume it in another process; None when it is over.

        Whoever resumes it must be the only one: two answers to one step would give away what one
        must not.
        """
        if self.over or self._channel is None:
            return None
        state = _Suspended(
            plan=self._plan,
            steps_left=len(self._handlers),
            vector=None if self._vector is None else self._vector.tobytes(),
            channel_secret=self._channel.secret_bytes(),
            partners=tuple(self._partners),
            **{name: getattr(self, f"_{name}") for name in _UNCHANGED},
        )
        return msgspec.msgpack.encode(state)

    @classmethod
    def resume(
        cls,
        data: bytes,
        identity: DeviceIdentity,
        roster: Roster,
        policy: SumPolicy | None = None,
        about: bytes = b"",
    ) -> SecureSumClient:
        """Return the session that `suspend` gave the bytes of."""
        state = msgspec.msgpack.decode(data, type=_Suspended)
        plan = state.plan
        client = cls(identity, roster, np.frombuffer(state.vector or b"", plan.word), policy, about)
        if state.vector is None:
            client._vector = None
        del client._handlers[state.steps_left :]
        client._set_plan(plan)
        for name in _UNCHANGED:
            setattr(client, f"_{name}", getattr(state, name))
        client._channel = Agreement(state.channel_secret)
        client._mask_key = Agreement(state.mask_secret)
        client._partners = set(state.partners)
        client._listed = int.from_bytes(state.survivors, "little")
        return client

    def __repr__(self) -> str:
        return f"SecureSumClient(device {self.device}, {'open' if self._handlers else 'over'})"

    @property
    def over(self) -> bool:
        """True when this session has ended, well or not."""
        return not self._handlers

    def answer(self, message: ToDevice) -> ToRecommender:
        """Return the reply to the recommender's next message; SecureSumError ends the session."""
        if not self._handlers:
            raise SecureSumError(
                "this session is over; a new sum needs a new SecureSumClient with new keys"
            )
        expected, handler = self._handlers.pop()
        answered = False
        try:
            if not isinstance(message, expected):
                raise SecureSumError(
                    f"a {type(message).__name__} is out of turn here; {expected.__name__} was due"
                )
            if not isinstance(message, SumPlan) and message.session != self._plan.session:
                raise SecureSumError(f"{type(message).__name__} belongs to another session")
            reply = handler(message)
            answered = True
            return reply
        finally:
            if not answered or not self._handlers:
                self._forget()

    def _forget(self) -> None:
        self._handlers.clear()
        self._vector = None
        self._seed = self._mask_secret = b""
        for secrets in (self._channels, self._held):
            secrets.clear()
        self._channel = self._mask_key = None

    def _accept(self, plan: SumPlan) -> Advertisement:
        check_roster(plan, self._roster)
        self._policy.check(plan, len(self._roster))
        if not int.from_bytes(plan.participants, "little") >> self.device & 1:
            raise SecureSumError("the plan does not ask this device")
        if self._vector is None or len(self._vector) != plan.length:
            raise SecureSumError(
                f"the plan is for vectors of {plan.length} words; this device has another length"
            )
        if self._vector.dtype != plan.word:
            raise SecureSumError("the plan is for words of another width than this device's")
        self._set_plan(plan)
        # Drawn now, when the cohort cannot be changed any more, and by nobody but this device.
        draw = new_secret()
        self._holders = draw_holders(
            read_bitmap(plan.participants), self.device, plan.neighbours, draw
        )
        self._seed = new_secret()
        self._mask_secret = new_secret()
        self._channel = Agreement(new_secret())
        self._mask_key = Agreement(self._mask_secret)
        fields = (
            self._channel.public,
            self._mask_key.public,
            commitment_of(self._digest, self._seed),
        )
        signature = self._identity.sign(keys_text(self._digest, self.device, *fields))
        self._own = DeviceKeys(
            channel=fields[0], mask=fields[1], commitment=fields[2], signature=signature
        )
        return Advertisement(session=plan.session, keys=self._own, draw=draw)

    def _set_plan(self, plan: SumPlan) -> None:
        self._plan = plan
        self._participants = int.from_bytes(plan.participants, "little")
        self._digest = plan.digest_about(self._about)

    def _deal(self, message: PartnerKeys) -> DealtShares:
        peers = message.keys
        if self.device in peers:
            raise SecureSumError("this device's own keys came back as a partner's")
        self._check_holders("keys", peers)
        public = [key for keys in (self._own, *peers.values()) for key in (keys.channel, keys.mask)]
        if len(set(public)) != len(public):
            raise SecureSumError("a one-time key was sent twice; every device makes its own")
        for peer, keys in peers.items():
            text = keys_text(self._digest, peer, keys.channel, keys.mask, keys.commitment)
            if not self._roster.verifies(peer, keys.signature, text):
                raise SecureSumError(
                    f"the keys of device {peer} are not signed by its identity on the roster"
                )
        self._mask_keys = {peer: keys.mask for peer, keys in peers.items()}
        degree = len(self._holders)
        threshold = self._plan.threshold
        seeds = split(self._seed, threshold, degree)
        mask_keys = split(self._mask_secret, threshold, degree)
        points = {peer: point for point, peer in enumerate(self._holders)}
        sealed = {}
        checks = {}
        for peer, keys in peers.items():
            outgoing, self._channels[peer] = self._channel_keys(peer, keys.channel)
            if peer in points:
                shares = seeds[points[peer]] + mask_keys[points[peer]]
                sealed[peer] = seal(outgoing, shares)
                checks[peer] = pair_check(self._digest, self.device, peer, shares)
        return DealtShares(session=self._plan.session, sealed=sealed, checks=checks)

    def _mask(self, message: Inbox) -> MaskedVector:
        partners = set(message.partners)
        if not partners <= self._channels.keys() or not message.sealed.keys() <= partners:
            raise SecureSumError("the partners named are not those whose keys came")
        self._check_holders("shares", partners)
        for peer, sealed in message.sealed.items():
            # Shares that do not open, or are not those that the recommender was told of, are not
            # kept: whoever is to blame, this device goes on, and whoever dealt them has so many
            # fewer.
            shares = unseal(self._channels[peer], sealed)
            if shares is not None and message.checks[peer] == pair_check(
                self._digest, peer, self.device, shares
            ):
                self._held[peer] = shares
        self._channels.clear()
        if self._vector is None or self._mask_key is None:  # no mutant: they go together
            raise SecureSumError("this session is over")
        total = self._vector.copy()
        add_mask(total, self_mask_key(self._digest, self._seed))
        for peer in partners:
            info = pair_info(b"pair mask", self.device, peer)
            key = self._mask_key.key(self._mask_keys[peer], self._digest, info)
            add_mask(total, key, subtract=self.device > peer)
        self._vector = None
        self._partners = partners
        return MaskedVector(session=self._plan.session, words=total.tobytes())

    def _confirm(self, message: Survivors) -> Confirmation:
        listed = message.survivors
        bits = int.from_bytes(listed, "little")
        if len(listed) != bitmap_size(len(self._roster)) or bits & ~self._participants:
            raise SecureSumError("the survivor list names devices that were not asked")
        if not bits >> self.device & 1:
            raise SecureSumError(
                "this device is not on the survivor list; it gives no shares for a sum without it"
            )
        if bits.bit_count() < self._plan.minimum:
            raise SecureSumError(
                f"{bits.bit_count()} devices survived; the sum must be over at least "
                f"{self._plan.minimum}"
            )
        alive = {peer for peer in (*self._mask_keys, *self._holders) if bits >> peer & 1}
        if not alive <= self._partners:
            raise SecureSumError(
                "the survivor list names a device that this one was told had dealt no shares"
            )
        self._mask_keys.clear()
        self._check_holders("survivors", alive)
        self._survivors = listed
        self._listed = bits
        signature = self._identity.sign(survivors_text(self._digest, self.device, listed))
        return Confirmation(session=self._plan.session, signature=signature)

    def _unmask(self, message: Confirmations) -> Unmasking:
        signatures = message.signatures
        if not set(signatures) <= set(self._holders):
            raise SecureSumError(
                "a signature of the survivor list came from a device that holds no share of this "
                "one"
            )
        if not all(self._listed >> holder & 1 for holder in signatures):
            raise SecureSumError("a device confirmed the survivor list that is not on it")
        if len(signatures) < self._plan.threshold:
            raise SecureSumError(
                f"{len(signatures)} holders confirmed the survivor list; the threshold is "
                f"{self._plan.threshold}, so no share is given"
            )
        # The threshold is enough: which signatures are passed on is the recommender's choice
        # anyway.
        for holder in sorted(signatures)[: self._plan.threshold]:
            text = survivors_text(self._digest, holder, self._survivors)
            if not self._roster.verifies(holder, signatures[holder], text):
                raise SecureSumError(
                    f"device {holder} did not sign the survivor list that this device was told; no "
                    "share is given"
                )
        # One kind of share per device, decided here by the confirmed list: nobody can ask for the
        # other one.
        listed = self._listed
        return Unmasking(
            session=self._plan.session,
            seeds={
                peer: held[:SHARE_BYTES] for peer, held in self._held.items() if listed >> peer & 1
            },
            keys={
                peer: held[SHARE_BYTES:]
                for peer, held in self._held.items()
                if not listed >> peer & 1
            },
        )

    def _check_holders(self, what: str, devices: Collection[int]) -> None:
        there = len(set(self._holders).intersection(devices))
        if there < self._plan.threshold:
            raise SecureSumError(
                f"{what} of {there} holders of this device's shares; the threshold is "
                f"{self._plan.threshold}, so this sum is off"
            )

    def _channel_keys(self, peer: int, theirs: bytes) -> tuple[bytes, bytes]:
        if self._channel is None:
            raise SecureSumError("this session is over")
        info = pair_info(b"channel", self.device, peer)
        both = self._channel.key(theirs, self._digest, info, 2 * KEY_BYTES)
        up, down = both[:KEY_BYTES], both[KEY_BYTES:]
        return (up, down) if self.device < peer else (down, up)
