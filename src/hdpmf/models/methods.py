"""Models by the names of their methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hdpmf.methods import method_named
from hdpmf.models.params import with_current_names

if TYPE_CHECKING:
    from hdpmf.models.base import Estimator


def make_model(name: str, **params: Any) -> Estimator:
    """A model of the method ``name``; a parameter that the method does not have is an error that names those it has."""
    model: Estimator = method_named(name).configure(**with_current_names(params))
    return model
