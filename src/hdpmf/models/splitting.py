"""The private part of a model, split: some users of it, and none of the others."""

from __future__ import annotations

import copy
from typing import TypeVar

import numpy as np

from hdpmf.errors import ConfigError
from hdpmf.models.base import Estimator
from hdpmf.models.baselines import Baseline
from hdpmf.models.factorization import Factorization
from hdpmf.models.one_round import OneRound

M = TypeVar("M", bound=Estimator)


def of_users(model: M, users: np.ndarray) -> M:
    """A copy of a model with only these users (positions)."""
    if not isinstance(model, Factorization | OneRound | Baseline):
        raise ConfigError(
            f"what {type(model).__name__} learned is not kept user by user, so it cannot be split; save it as a whole"
        )
    part = copy.copy(model)
    part.devices_ = model.devices_.only(np.unique(users))
    if hasattr(part, "rng"):
        part.rng = None
    if isinstance(part, Factorization):
        part.history_ = ()
    if isinstance(part, OneRound):
        part.n_silent_ = 0
    return part
