"""The recommender takes the masks off a sum, with the shares that devices gave it, some of which may be wrong.

A share that is not the one its dealer spoke of (``DealtShares.checks``) is its holder's lie: honest holders keep no
such share. It is left out, as if it had not come. Shares that are what the dealer spoke of but do not lie on one
polynomial are the dealer's lie; they are decoded with errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hdpmf.errors import SecureSumError
from hdpmf.secure_sum.messages import DeviceKeys, Unmasking
from hdpmf.secure_sum.plan import commitment_of, pair_info, self_mask_key, share_check
from hdpmf.secure_sum.primitives import KEY_BYTES, Agreement, add_mask
from hdpmf.secure_sum.shamir import correct, join


class WrongSharesError(SecureSumError):
    """A secret could not be put together.

    Attributes:
        liars: Devices that gave or dealt wrong shares (places on the roster).
    """

    def __init__(self, message: str, liars: frozenset[int]) -> None:
        super().__init__(f"{message}; the sum is broken off and stays masked")
        self.liars = liars


@dataclass
class Unmasker:
    """What the recommender knows when shares arrive.

    Attributes:
        digest: Of the plan.
        threshold: Shares that it takes.
        holders: Of every device that dealt shares.
        partners: Of every device that dealt shares: with whom it shares masks.
        keys: What every device advertised.
        checks: What every dealer said about its shares, by holder.
        answers: The shares that devices gave.
        liars: Filled here: devices that gave or dealt wrong shares.
    """

    digest: bytes
    threshold: int
    holders: Mapping[int, tuple[int, ...]]
    partners: Mapping[int, frozenset[int]]
    keys: Mapping[int, DeviceKeys]
    checks: Mapping[int, Mapping[int, bytes]]
    answers: Mapping[int, Unmasking]
    liars: set[int] = field(default_factory=set)

    def remove_masks(self, total: np.ndarray, survivors: frozenset[int]) -> None:
        """Take the masks off the sum of the survivors' masked vectors, in place.

        Raises:
            WrongSharesError: A secret cannot be put together. Nothing was taken off.
        """
        lost = sorted(device for device in self.holders.keys() - survivors if survivors & self.partners[device])
        # Everything is put together before any mask comes off: a sum either comes out right or not at all.
        seeds = [self._secret(device, "seeds") for device in sorted(survivors)]
        agreements = {device: Agreement(self._secret(device, "keys")) for device in lost}
        for seed in seeds:
            add_mask(total, self_mask_key(self.digest, seed), subtract=True)
        for device, agreement in agreements.items():
            for peer in survivors & self.partners[device]:
                key = agreement.key(self.keys[peer].mask, self.digest, pair_info(b"pair mask", device, peer))
                add_mask(total, key, subtract=peer < device)

    def _secret(self, device: int, kind: Literal["seeds", "keys"]) -> bytes:
        """A device's seed or mask key; whoever lied about it is noted."""
        holders = self.holders[device]
        given = {
            point: (holder, share)
            for point, holder in enumerate(holders, start=1)
            if holder in self.answers and (share := getattr(self.answers[holder], kind).get(device)) is not None
        }
        secret = self._join(device, kind, {point: share for point, (_, share) in given.items()})
        if secret is not None:
            return secret
        shares = {
            point: share for point, (holder, share) in given.items() if self._is_dealt(device, holder, kind, share)
        }
        self.liars.update(holder for point, (holder, _) in given.items() if point not in shares)
        secret = self._join(device, kind, shares)
        if secret is not None:
            return secret
        answered = len(self.answers.keys() & set(holders))
        if len(shares) < self.threshold and len(given) == answered:
            raise WrongSharesError(
                f"{len(shares)} right shares of device {device} arrived and it takes {self.threshold}",
                frozenset(self.liars),
            )
        # Either holders that answered kept no share, because what they got was not what the dealer spoke of, or the
        # shares are not on one polynomial: both are the dealer's doing.
        self.liars.add(device)
        secret = self._join(device, kind, correct(shares, self.threshold) or {})
        if secret is None:
            raise WrongSharesError(f"device {device} dealt wrong shares", frozenset(self.liars))
        return secret

    def _join(self, device: int, kind: str, shares: Mapping[int, bytes]) -> bytes | None:
        """What the shares give, if it is what the device advertised."""
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
        first, second = self.checks[device][holder][:KEY_BYTES], self.checks[device][holder][KEY_BYTES:]
        return share_check(self.digest, device, holder, kind, share) == (first if kind == "seeds" else second)
