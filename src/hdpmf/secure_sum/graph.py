"""Who keeps shares for whom: every device draws its own holders, at random, when it knows the cohort.

Nobody else has a say in the draw. A recommender that may choose who is asked has to do so before (the plan names the
cohort, and everything is signed together with the plan), so devices that work for it are among a device's holders by
chance only. This is the graph of Bell et al. (2020) against a lying server; two devices are partners, and share a mask,
where one holds shares of the other. With few devices everyone is a holder of everyone.
"""

from __future__ import annotations

import numpy as np

from hdpmf.secure_sum.primitives import add_mask, digest


def draw_holders(participants: np.ndarray, device: int, count: int, draw: bytes) -> tuple[int, ...]:
    """The holders of a device's shares, ascending; a holder's point for shares is its place here, from 1.

    Args:
        participants: Places on the roster of the cohort, ascending.
        device: Whose holders.
        count: How many; everyone else, if there are no more.
        draw: 32 bytes that the device drew for this session.
    """
    if count >= len(participants) - 1:
        return tuple(int(peer) for peer in participants if peer != device)
    words = np.zeros(2 * len(participants), "<u4")
    add_mask(words, digest(b"holders", draw))
    # The smallest of 64 random bits each are a uniform choice (equal ones have a chance of n^2 / 2^65 and do no harm).
    tickets = words.view("<u8")
    tickets[np.searchsorted(participants, device)] = np.iinfo(np.uint64).max
    chosen = np.argpartition(tickets, count - 1)[:count]
    return tuple(participants[np.sort(chosen)].tolist())


def bitmap(devices: np.ndarray | list[int], n_roster: int) -> bytes:
    """A set of devices as one bit per place on the roster."""
    bits = np.zeros(n_roster, np.uint8)
    bits[np.asarray(devices, np.int64)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def read_bitmap(data: bytes) -> np.ndarray:
    """The places whose bits are set, ascending."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little"))


def bitmap_size(n_roster: int) -> int:
    """Bytes of a bitmap."""
    return -(-n_roster // 8)
