"""Who is whose neighbour: a ring in an order drawn from a public seed, each device joined to the nearest on both sides.

This is the graph of Bell et al. (2020): every device has exactly ``degree`` neighbours, and as long as each survivor
has more than half of its neighbours left, the survivors hang together (cutting a ring needs a gap of ``degree / 2``
in a row, and whoever stands at the gap has then lost half of its neighbours). With few devices everyone is a neighbour
of everyone.

Besides its neighbours a device has as many *witnesses*, drawn at random from everybody: it gives no share unless they
were told the same survivor list. Neighbours would not do for that, because a recommender could tell one list along one
part of the ring and another along the rest, each of them true only near by.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hdpmf.secure_sum.primitives import add_mask, device_bytes, digest


class NeighbourGraph:
    """The neighbours of every participant.

    Args:
        participants: Their places on the roster, ascending.
        degree: Neighbours of each; even, or one less than there are participants.
        seed: 32 public bytes.
    """

    def __init__(self, participants: np.ndarray, degree: int, seed: bytes) -> None:
        words = np.zeros(2 * len(participants), "<u4")
        add_mask(words, seed)
        # Sorting by 64 random bits is a uniform order (equal keys have a chance of n^2 / 2^65 and do no harm).
        self.ring: tuple[int, ...] = tuple(participants[np.argsort(words.view("<u8"), kind="stable")].tolist())
        self.degree = min(degree, len(participants) - 1)
        self._participants = participants
        self._seed = seed
        self._place = {device: place for place, device in enumerate(self.ring)}
        # A ring cut open, with its ends repeated, so that a device and its neighbours are one slice. Where everyone is
        # a neighbour the slice is the whole ring.
        half = self.degree // 2
        self._everyone = degree >= len(participants) - 1
        self._cut_open = self.ring[-half:] + self.ring + self.ring[:half]

    def of(self, device: int) -> tuple[int, ...]:
        """The neighbours of a device, ascending. A neighbour's point for shares is its place here, from 1."""
        place = self._place[device]
        around = self.ring if self._everyone else self._cut_open[place : place + self.degree + 1]
        return tuple(sorted(peer for peer in around if peer != device))

    def witnesses(self, device: int) -> tuple[int, ...]:
        """The devices whose signatures of the survivor list this device wants to see; as many as it has neighbours."""
        words = np.zeros(2 * len(self._participants), "<u4")
        add_mask(words, digest(b"witnesses", self._seed, device_bytes(device)))
        draws = words.view("<u8")
        draws[np.searchsorted(self._participants, device)] = np.iinfo(np.uint64).max
        chosen = np.argpartition(draws, self.degree - 1)[: self.degree]
        return tuple(self._participants[np.sort(chosen)].tolist())


def graph_seed(beacon: bytes, roster: bytes) -> bytes:
    """The seed of the graph. Nothing that the recommender is free to choose goes in besides the beacon."""
    return digest(b"graph", beacon, roster)


@lru_cache(maxsize=8)
def neighbour_graph(participants: bytes, degree: int, seed: bytes) -> NeighbourGraph:
    """The graph over the devices of a bitmap; kept, because a simulation asks for it once per device."""
    return NeighbourGraph(read_bitmap(participants), degree, seed)


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
