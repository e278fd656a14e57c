"""List models that are trained epoch by epoch, until lists of pairs held out are best.

BPR is pair-wise: what a user rated should come before what the user did not rate (Rendle et al.
2009). The score is that of a linear item-item model of low rank, (x E) D^T, where x is what else
the user rated: it begins as a compressed EASE and is then trained on pairs, the hardest of some
random unrated items against each rated one. A device puts its own ratings in, as for EASE.

The neural model is a denoising autoencoder of who rated what (one hidden layer, tanh), with
PyTorch. Half of what a user rated is left out of the input, and all of it is to come out. The
squared error is as good as any loss here, and better than the softmax of variational autoencoders
on data of this size (docs/lists.md).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.untrusted.recommender.lists.presence import Presence, train_to_best
from hdpmf.untrusted.recommender.lists.training import STRENGTH, compress, item_item

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
        n, rank = self._encode.shape
        nothing = np.zeros(rank, np.float32), np.zeros(n, np.float32)
        return ListModel(
            "linear",
            Bytes.of(self._encode),
            Bytes.of(self._decode),
            Entries.none(n),
            *nothing,
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


def train_neural(
    presence: Presence,
    *,
    hidden: int = 256,
    dropout: float = 0.5,
    learning_rate: float = 0.001,
    reg: float = 0.003,
    epochs: int = 100,
    batch: int = 256,
    on: str = "cpu",
    seed: int = 0,
) -> ListModel:
    """Train the autoencoder.

    The number of epochs is the best one, at most ``epochs``, for held-out pairs.
    """

    def states(pairs: Presence) -> AutoencoderTraining:
        return AutoencoderTraining(pairs, hidden, dropout, learning_rate, reg, batch, on, seed)

    return train_to_best(presence, states, epochs, seed)


class AutoencoderTraining:
    """Training of the autoencoder, epoch by epoch.

    First weights, order and dropout are drawn on the CPU, so that they depend on the seed only.
    """

    def __init__(
        self,
        presence: Presence,
        hidden: int,
        dropout: float,
        learning_rate: float,
        reg: float,
        batch: int,
        on: str,
        seed: int,
    ) -> None:
        import torch

        self._torch: Any = torch
        self._device = (
            "cuda" if on == "gpu" or (on == "auto" and torch.cuda.is_available()) else "cpu"
        )
        self._rng = np.random.default_rng([seed, 11])
        n = presence.n_items

        def drawn(shape: tuple[int, ...], spread: float) -> Any:
            values = (self._rng.standard_normal(shape) * spread).astype(np.float32)
            return torch.tensor(values, device=self._device, requires_grad=True)

        self._encode, self._decode = drawn((n, hidden), n**-0.5), drawn((n, hidden), hidden**-0.5)
        self._hidden, self._output = drawn((hidden,), 0.0), drawn((n,), 0.0)
        self._parameters = [self._encode, self._decode, self._hidden, self._output]
        self._optimizer = torch.optim.Adam(self._parameters, lr=learning_rate)
        self._matrix, self._dropout, self._reg, self._batch = presence.matrix, dropout, reg, batch

    def epoch(self) -> None:
        """One pass over all users."""
        torch = self._torch
        order = self._rng.permutation(self._matrix.shape[0])
        for first in range(0, len(order), self._batch):
            rows = self._matrix[order[first : first + self._batch]].toarray()
            kept = rows * (self._rng.random(rows.shape, np.float32) >= self._dropout)
            wanted, given = (
                torch.from_numpy(np.ascontiguousarray(x)).to(self._device) for x in (rows, kept)
            )
            length = given.pow(2).sum(1, keepdim=True).sqrt().clamp(min=1e-6)
            latent = torch.tanh((given / length) @ self._encode + self._hidden)
            loss = (latent @ self._decode.T + self._output - wanted).pow(2).sum(1).mean()
            loss = loss + self._reg * (self._encode.pow(2).sum() + self._decode.pow(2).sum())
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()

    def model(self) -> ListModel:
        """Return the model for devices."""
        encode, decode, hidden, output = (
            values.detach().cpu().numpy() for values in self._parameters
        )
        entries = Entries.none(len(decode))
        return ListModel(
            "autoencoder",
            Bytes.of(encode),
            Bytes.of(decode),
            entries,
            hidden.copy(),
            output.copy(),
            about={"kind": "neural"},
        )
