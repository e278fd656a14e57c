"""Whether training has come far enough to be worth anything."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from hdpmf.ratings import Ratings

if TYPE_CHECKING:
    from hdpmf.models.factorization import Factorization

_ROWS = 50_000
_FAR = 1.5
"""Factors start near zero, so that a model that has hardly begun is several times worse than the users' means; one that
has arrived is better, even with the paper's noise at epsilon 1 (docs/methods.md)."""


class FarFromConvergedWarning(UserWarning):
    """A model fits the ratings that it was trained on worse than a mean does."""


def warn_if_far(model: Factorization, train: Ratings) -> None:
    """Warn where the model is much worse on its own training ratings than each user's own mean is."""
    rows = slice(None, None, max(1, len(train) // _ROWS))
    users, items, values = train.user_codes[rows], train.item_codes[rows], train.values[rows]
    error = float(np.mean((model._predict_codes(users, items) - values) ** 2))
    if error <= _FAR * float(np.mean((model.devices_.means[users] - values) ** 2)):
        return
    epochs = len(model.history_)
    noise = "" if type(model).__name__ == "MF" else ", or its noise drowns them"
    warnings.warn(
        f"{type(model).__name__} fits its own training ratings worse than each user's own mean does: after {epochs} "
        f"epochs at learning rate {model.learning_rate:g} it is far from converged{noise}; train longer, or with a "
        "larger rate",
        FarFromConvergedWarning,
        stacklevel=4,
    )
