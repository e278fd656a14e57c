"""What the engines work on: facts of ratings, and facts of runs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, repr=False)
class RatingColumns:
    """Facts of ratings, in the order of one side.

    A view is a training set over the shared ratings: a fold, a split, a sample, the targets of a mechanism.

    Attributes:
        target: What the model should predict, one row per view or one for all of them.
        coefficient: How much a residual counts, in the same way, or None where all count 1.
        members: Bit v says that the rating is in view v (int32), or None where all are in all.
    """

    target: Tensor
    coefficient: Tensor | None = None
    members: Tensor | None = None

    def of_view(self, view: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Target, coefficient and membership (as booleans) in one view."""
        target = self.target[min(view, len(self.target) - 1)]
        coefficient = None if self.coefficient is None else self.coefficient[min(view, len(self.coefficient) - 1)]
        members = None if self.members is None else (self.members >> view & 1).bool()
        return target, coefficient, members


@dataclass(frozen=True, slots=True, repr=False)
class RunTensors:
    """What differs between runs that are trained together.

    Attributes:
        view: The view that each run trains on (int32).
        reg: Regularisation (float32).
        seed: Of its noise (int64).
        noise_scale: Scale b of its noise, 0 for none (float32).
    """

    view: Tensor
    reg: Tensor
    seed: Tensor
    noise_scale: Tensor

    def __len__(self) -> int:
        return len(self.view)


def padded(n_factors: int) -> int:
    """The row width that holds ``n_factors`` numbers on a device: a power of two from 4 on."""
    width = 4
    while width < n_factors:
        width *= 2
    return width


def pad(matrix: Tensor) -> Tensor:
    """A copy with zero columns added up to the padded width (the last dimension is that of factors)."""
    factors = matrix.shape[-1]
    out = torch.zeros((*matrix.shape[:-1], padded(factors)), dtype=torch.float32, device=matrix.device)
    out[..., :factors] = matrix
    return out
