"""A device's side of one secure sum."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from hdpmf.errors import SecureSumError
from hdpmf.secure_sum.graph import bitmap_size
from hdpmf.secure_sum.messages import (
    Advertisement,
    Confirmation,
    Confirmations,
    DealtShares,
    DeviceKeys,
    Inbox,
    MaskedVector,
    NeighbourKeys,
    SumPlan,
    Survivors,
    ToDevice,
    ToRecommender,
    Unmasking,
)
from hdpmf.secure_sum.plan import (
    SumPolicy,
    check_roster,
    commitment_of,
    graph_of,
    keys_text,
    pair_info,
    self_mask_key,
    survivors_text,
)
from hdpmf.secure_sum.primitives import KEY_BYTES, WIDE_WORD, WORD, Agreement, add_mask, new_secret, seal, unseal
from hdpmf.secure_sum.roster import DeviceIdentity, Roster
from hdpmf.secure_sum.shamir import SHARE_BYTES, split


class SecureSumClient:
    """One device in one secure sum. Made for one session, and of no use after it.

    ``answer`` takes the recommender's messages in their order and gives the replies. Whatever is out of order, not
    signed as it should be, or less than the policy insists on, ends the session: the object forgets its secrets and
    its vector and refuses everything after that.

    Args:
        identity: The device's long-lived key; it must be on the roster.
        roster: The roster that this device has pinned.
        vector: The device's words (``IntegerCoding`` makes them of integers).
        policy: What the device insists on.
    """

    def __init__(
        self, identity: DeviceIdentity, roster: Roster, vector: np.ndarray, policy: SumPolicy | None = None
    ) -> None:
        if vector.ndim != 1 or vector.dtype not in (WORD, WIDE_WORD):
            raise SecureSumError("the vector must be one of words (unsigned); IntegerCoding makes them of integers")
        self._identity = identity
        self._roster = roster
        self._policy = SumPolicy() if policy is None else policy
        self.device = roster.place(identity.public)
        self._vector: np.ndarray | None = vector
        self._handlers: list[tuple[type, Callable[[Any], ToRecommender]]] = [
            (Confirmations, self._unmask),
            (Survivors, self._confirm),
            (Inbox, self._mask),
            (NeighbourKeys, self._deal),
            (SumPlan, self._accept),
        ]
        self._seed = b""
        self._mask_secret = b""
        self._channel: Agreement | None = None
        self._mask_key: Agreement | None = None
        self._mask_keys: dict[int, bytes] = {}
        self._channels: dict[int, bytes] = {}
        self._held: dict[int, bytes] = {}

    def __repr__(self) -> str:
        return f"SecureSumClient(device {self.device}, {'open' if self._handlers else 'over'})"

    @property
    def over(self) -> bool:
        """Whether this session has ended, well or not."""
        return not self._handlers

    def answer(self, message: ToDevice) -> ToRecommender:
        """The reply to the recommender's next message; a SecureSumError ends the session."""
        if not self._handlers:
            raise SecureSumError("this session is over; a new sum needs a new SecureSumClient with new keys")
        expected, handler = self._handlers.pop()
        answered = False
        try:
            if not isinstance(message, expected):
                raise SecureSumError(f"a {type(message).__name__} is out of turn here; {expected.__name__} was due")
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
        self._policy.check(plan)
        participants = int.from_bytes(plan.participants, "little")
        if not participants >> self.device & 1:
            raise SecureSumError("the plan does not ask this device")
        if self._vector is None or len(self._vector) != plan.length:
            raise SecureSumError(f"the plan is for vectors of {plan.length} words; this device has another length")
        if self._vector.dtype != plan.word:
            raise SecureSumError("the plan is for words of another width than this device's")
        self._plan = plan
        self._participants = participants
        self._digest = plan.digest
        graph = graph_of(plan)
        self._neighbours = graph.of(self.device)
        self._witnesses = graph.witnesses(self.device)
        self._seed, self._mask_secret = new_secret(), new_secret()
        self._channel = Agreement(new_secret())
        self._mask_key = Agreement(self._mask_secret)
        fields = (self._channel.public, self._mask_key.public, commitment_of(self._digest, self._seed))
        signature = self._identity.sign(keys_text(self._digest, self.device, *fields))
        self._own = DeviceKeys(channel=fields[0], mask=fields[1], commitment=fields[2], signature=signature)
        return Advertisement(session=plan.session, keys=self._own)

    def _deal(self, message: NeighbourKeys) -> DealtShares:
        peers = message.keys
        self._check_neighbours("keys", peers)
        public = [key for keys in (self._own, *peers.values()) for key in (keys.channel, keys.mask)]
        if len(set(public)) != len(public):
            raise SecureSumError("a one-time key was sent twice; every device makes its own")
        for peer, keys in peers.items():
            text = keys_text(self._digest, peer, keys.channel, keys.mask, keys.commitment)
            if not self._roster.verifies(peer, keys.signature, text):
                raise SecureSumError(f"the keys of device {peer} are not signed by its identity on the roster")
        self._mask_keys = {peer: keys.mask for peer, keys in peers.items()}
        degree, threshold = len(self._neighbours), self._plan.threshold
        seeds = split(self._seed, threshold, degree)
        mask_keys = split(self._mask_secret, threshold, degree)
        sealed = {}
        for point, peer in enumerate(self._neighbours):
            if peer in peers:
                outgoing, incoming = self._channel_keys(peer, peers[peer].channel)
                self._channels[peer] = incoming
                sealed[peer] = seal(outgoing, seeds[point] + mask_keys[point])
        return DealtShares(session=self._plan.session, sealed=sealed)

    def _mask(self, message: Inbox) -> MaskedVector:
        self._check_neighbours("shares", message.sealed)
        if not message.sealed.keys() <= self._channels.keys():
            raise SecureSumError("shares came from a device whose keys did not")
        for peer, sealed in message.sealed.items():
            self._held[peer] = unseal(self._channels[peer], sealed)
        self._channels.clear()
        if self._vector is None or self._mask_key is None:
            raise SecureSumError("this session is over")
        total = self._vector.copy()
        add_mask(total, self_mask_key(self._digest, self._seed))
        for peer in self._held:
            info = pair_info(b"pair mask", self.device, peer)
            key = self._mask_key.key(self._mask_keys[peer], self._digest, info)
            add_mask(total, key, subtract=self.device > peer)
        self._vector = None
        self._mask_keys.clear()
        return MaskedVector(session=self._plan.session, words=total.tobytes())

    def _confirm(self, message: Survivors) -> Confirmation:
        listed = message.survivors
        bits = int.from_bytes(listed, "little")
        if len(listed) != bitmap_size(len(self._roster)) or bits & ~self._participants:
            raise SecureSumError("the survivor list names devices that were not asked")
        if not bits >> self.device & 1:
            raise SecureSumError("this device is not on the survivor list; it gives no shares for a sum without it")
        if bits.bit_count() < self._plan.minimum:
            raise SecureSumError(
                f"{bits.bit_count()} devices survived; the sum must be over at least {self._plan.minimum}"
            )
        self._alive = {peer for peer in self._neighbours if bits >> peer & 1}
        if not self._alive <= self._held.keys():
            raise SecureSumError("the survivor list names a neighbour that never sent its shares")
        self._check_neighbours("survivors", self._alive)
        self._survivors, self._listed = listed, bits
        signature = self._identity.sign(survivors_text(self._digest, self.device, listed))
        return Confirmation(session=self._plan.session, signature=signature)

    def _unmask(self, message: Confirmations) -> Unmasking:
        signatures = message.signatures
        if not set(signatures) <= set(self._witnesses):
            raise SecureSumError("a signature of the survivor list came from a device that is not a witness")
        if not all(self._listed >> witness & 1 for witness in signatures):
            raise SecureSumError("a device confirmed the survivor list that is not on it")
        if len(signatures) < self._plan.threshold:
            raise SecureSumError(
                f"{len(signatures)} witnesses confirmed the survivor list; the threshold is {self._plan.threshold}, so "
                "no share is given"
            )
        # The threshold is enough: which signatures are passed on is the recommender's choice anyway.
        for witness in sorted(signatures)[: self._plan.threshold]:
            text = survivors_text(self._digest, witness, self._survivors)
            if not self._roster.verifies(witness, signatures[witness], text):
                raise SecureSumError(
                    f"device {witness} did not sign the survivor list that this device was told; no share is given"
                )
        # One kind of share per neighbour, decided here by the confirmed list: nobody can ask for the other one.
        return Unmasking(
            session=self._plan.session,
            seeds={peer: held[:SHARE_BYTES] for peer, held in self._held.items() if peer in self._alive},
            keys={peer: held[SHARE_BYTES:] for peer, held in self._held.items() if peer not in self._alive},
        )

    def _check_neighbours(self, what: str, devices: Collection[int]) -> None:
        if not set(devices) <= set(self._neighbours):
            raise SecureSumError(f"{what} came for a device that is not a neighbour in the graph")
        if len(devices) < self._plan.threshold:
            raise SecureSumError(
                f"{what} of {len(devices)} neighbours; the threshold is {self._plan.threshold}, so this sum is off"
            )

    def _channel_keys(self, peer: int, theirs: bytes) -> tuple[bytes, bytes]:
        """The keys for sealing to a peer and for opening what it sealed."""
        if self._channel is None:
            raise SecureSumError("this session is over")
        info = pair_info(b"channel", self.device, peer)
        both = self._channel.key(theirs, self._digest, info, 2 * KEY_BYTES)
        up, down = both[:KEY_BYTES], both[KEY_BYTES:]
        return (up, down) if self.device < peer else (down, up)
