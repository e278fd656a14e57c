"""The recommender takes the masks off a sum, with the shares that devices gave it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hdpmf.errors import SecureSumError
from hdpmf.secure_sum.messages import DeviceKeys, Unmasking
from hdpmf.secure_sum.plan import commitment_of, pair_info, self_mask_key
from hdpmf.secure_sum.primitives import Agreement, add_mask
from hdpmf.secure_sum.shamir import join


def remove_masks(
    total: np.ndarray,
    plan_digest: bytes,
    threshold: int,
    neighbours: Mapping[int, tuple[int, ...]],
    keys: Mapping[int, DeviceKeys],
    masked_with: frozenset[int],
    survivors: frozenset[int],
    answers: Mapping[int, Unmasking],
) -> None:
    """Take the masks off the sum of the survivors' masked vectors, in place.

    Args:
        total: The sum of masked vectors.
        plan_digest: Of the plan.
        threshold: Shares that it takes.
        neighbours: Of each device.
        keys: What every device advertised.
        masked_with: Devices whose masks went into vectors (those that dealt shares).
        survivors: Devices whose vectors are in the sum.
        answers: The shares that devices gave.
    """
    lost = sorted(device for device in masked_with - survivors if survivors.intersection(neighbours[device]))
    seed_shares = {peer: answer.seeds for peer, answer in answers.items()}
    key_shares = {peer: answer.keys for peer, answer in answers.items()}
    seeds: dict[int, bytes] = {}
    secrets: dict[int, Agreement] = {}
    # Everything is put together before any mask comes off: a sum either comes out right or not at all.
    for device in sorted(survivors):
        seed = _secret_of(device, neighbours[device], threshold, seed_shares)
        if seed is None or commitment_of(plan_digest, seed) != keys[device].commitment:
            raise SecureSumError(f"a share of device {device}'s seed is wrong; the sum is broken off")
        seeds[device] = seed
    for device in lost:
        secret = _secret_of(device, neighbours[device], threshold, key_shares)
        agreement = None if secret is None else Agreement(secret)
        if agreement is None or agreement.public != keys[device].mask:
            raise SecureSumError(f"a share of device {device}'s mask key is wrong; the sum is broken off")
        secrets[device] = agreement
    for seed in seeds.values():
        add_mask(total, self_mask_key(plan_digest, seed), subtract=True)
    for device, agreement in secrets.items():
        for peer in survivors.intersection(neighbours[device]):
            key = agreement.key(keys[peer].mask, plan_digest, pair_info(b"pair mask", device, peer))
            add_mask(total, key, subtract=peer < device)


def _secret_of(
    device: int, neighbours: tuple[int, ...], threshold: int, given: Mapping[int, Mapping[int, bytes]]
) -> bytes | None:
    shares = {
        point: given[peer][device]
        for point, peer in enumerate(neighbours, start=1)
        if peer in given and device in given[peer]
    }
    if len(shares) < threshold:
        raise SecureSumError(
            f"{len(shares)} shares of device {device} arrived and it takes {threshold}; the sum is broken off and "
            "stays masked"
        )
    return join(shares, len(neighbours))
