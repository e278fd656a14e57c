"""BPR, trained until lists of pairs held out are best.

It is pair-wise: what a user rated should come before what the user did not rate (Rendle et al.
2009). The score is that of a linear item-item model of low rank, (x E) D^T, where x is what else
the user rated: it begins as a compressed EASE and is then trained on pairs, the hardest of some
random unrated items against each rated one. A device puts its own ratings in, as for EASE.
"""

import math
from typing import Any

import numpy as np
from numba import njit

from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.untrusted.recommender.lists.training import (
    STRENGTH,
    Presence,
    compress,
    item_item,
    train_to_best,
)

# scores of EASE are below 1; a pair's loss takes the logistic of this times their difference
_SLOPE = 10.0


def train_bpr(presence: Presence, *, epochs: int = 30, seed: int = 0, **options: Any) -> ListModel:
    """Train BPR; see `PairwiseTraining` for its options.

    The number of epochs is the best one, at most ``epochs``, for held-out pairs.
    """
    return train_to_best(
        presence, lambda pairs: PairwiseTraining(pairs, seed=seed, **options), epochs, seed
    )


class PairwiseTraining:
    """Epochs of pair-wise training, beginning with EASE."""

    def __init__(
        self,
        presence: Presence,
        *,
        rank: int = 128,
        learning_rate: float = 0.005,
        reg: float = 0.001,
        negatives: int = 16,
        seed: int = 0,
        strength: float = STRENGTH,
    ) -> None:
        start = compress(item_item(presence, strength), rank, 0)
        everything = np.arange(presence.n_items)
        encode, decode = start.encode.rows(everything), start.decode.rows(everything)
        sizes = max(float(np.linalg.norm(encode)), 1e-9), max(float(np.linalg.norm(decode)), 1e-9)
        balance = math.sqrt(sizes[0] / sizes[1])
        self._encode = np.ascontiguousarray(encode / balance, np.float32)
        self._decode = np.ascontiguousarray(decode * balance, np.float32)
        self._seen_encode = np.full(len(encode), 1e-2, np.float32)
        self._seen_decode = np.full(len(decode), 1e-2, np.float32)
        self._matrix = presence.matrix
        self._rates = np.float32(learning_rate), np.float32(reg)
        self._negatives, self._seed, self._epoch = negatives, seed, 0

    def epoch(self) -> None:
        """One pass over all pairs."""
        rng = np.random.default_rng([self._seed, self._epoch])
        users = rng.permutation(self._matrix.shape[0])
        state = np.uint64(rng.integers(1, 2**63))
        _epoch(
            self._matrix.indptr,
            self._matrix.indices,
            users,
            self._encode,
            self._decode,
            self._seen_encode,
            self._seen_decode,
            *self._rates,
            self._negatives,
            state,
        )
        self._epoch += 1

    def model(self) -> ListModel:
        """Return the model for devices."""
        n = len(self._encode)
        return ListModel(
            "linear",
            Bytes.of(self._encode),
            Bytes.of(self._decode),
            Entries.none(n),
            np.zeros(n, np.float32),
            about={"kind": "bpr"},
        )


@njit(cache=True)
def _next(state: np.uint64) -> np.uint64:
    """A step of xorshift64."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    return state ^ (state << np.uint64(17))


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def _epoch(
    start: np.ndarray,
    items: np.ndarray,
    users: np.ndarray,
    encode: np.ndarray,
    decode: np.ndarray,
    seen_encode: np.ndarray,
    seen_decode: np.ndarray,
    rate: np.float32,
    reg: np.float32,
    negatives: int,
    state: np.uint64,
) -> None:
    n_items, rank = encode.shape
    rated = np.zeros(n_items, np.bool_)
    latent = np.empty(rank, np.float32)
    without = np.empty(rank, np.float32)
    step = np.empty(rank, np.float32)
    for user in users:
        own = items[start[user] : start[user + 1]]
        if len(own) < 2 or len(own) > n_items - 1:
            continue
        part = np.float32(1.0 / math.sqrt(len(own)))
        latent[:] = 0.0
        step[:] = 0.0
        for item in own:
            rated[item] = True
            for k in range(rank):
                latent[k] += part * encode[item, k]
        for item in own:
            best, hardest = np.float32(-1e30), np.int64(-1)
            for _ in range(negatives):
                state = _next(state)
                other = np.int64(state % np.uint64(n_items))
                if rated[other]:
                    continue
                score = np.float32(0.0)
                for k in range(rank):
                    score += latent[k] * decode[other, k]
                if score > best:
                    best, hardest = score, other
            if hardest < 0:
                continue
            wanted = np.float32(0.0)
            for k in range(rank):
                without[k] = latent[k] - part * encode[item, k]
                wanted += without[k] * decode[item, k]
            apart = float(_SLOPE * (wanted - best))
            pull = np.float32(_SLOPE / (1.0 + math.exp(min(apart, 50.0))))
            size = np.float32(0.0)
            for k in range(rank):
                size += without[k] * without[k]
            seen_decode[item] += pull * pull * size / rank
            seen_decode[hardest] += pull * pull * size / rank
            up, down = rate / math.sqrt(seen_decode[item]), rate / math.sqrt(seen_decode[hardest])
            for k in range(rank):
                step[k] += pull * (decode[item, k] - decode[hardest, k])
                decode[item, k] += up * (pull * without[k] - reg * decode[item, k])
                decode[hardest, k] -= down * (pull * latent[k] + reg * decode[hardest, k])
        size = np.float32(0.0)
        for k in range(rank):
            step[k] *= part / len(own)
            size += step[k] * step[k]
        for item in own:
            seen_encode[item] += size / rank
            scale = rate / math.sqrt(seen_encode[item])
            for k in range(rank):
                encode[item, k] += scale * (step[k] - reg * encode[item, k] / len(own))
            rated[item] = False
