"""A deep model: a denoising autoencoder of who rated what (one hidden layer, tanh), with PyTorch.

Half of what a user rated is left out of the input, and all of it is to come out. The squared error
is as good as any loss here, and better than the softmax of variational autoencoders on data of this
size (docs/lists.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.untrusted.recommender.lists.presence import Presence, train_to_best


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
    """Train it.

    The number of epochs is the best one (at most ``epochs``) on pairs held out of what was
    released.
    """

    def states(pairs: Presence) -> AutoencoderTraining:
        return AutoencoderTraining(pairs, hidden, dropout, learning_rate, reg, batch, on, seed)

    return train_to_best(presence, states, epochs, seed)


class AutoencoderTraining:
    """Epochs of training.

    The first weights and the order are drawn on the CPU, so that a seed decides them.
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
        """As devices get it."""
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
