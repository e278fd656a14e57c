"""What an estimator that ``learn``s keeps in attributes ending in an underscore, for its file; all of it is private."""

from __future__ import annotations

from typing import Any

import numpy as np

from hdpmf.errors import ConfigError
from hdpmf.models.base import Estimator

_PARTS = ("catalogue_", "devices_")
_PREFIX = "learned."


def learned_by(model: Estimator) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Plain values and arrays, by name.

    Raises:
        ConfigError: An attribute is neither.
    """
    values: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, value in vars(model).items():
        if not name.endswith("_") or name in _PARTS:
            continue
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            arrays[_PREFIX + name] = value
        elif isinstance(value, (bool, int, float, str, type(None), np.generic)):
            values[name] = value.item() if isinstance(value, np.generic) else value
        else:
            raise ConfigError(
                f"{type(model).__name__}.{name} is a {type(value).__name__}, which cannot be saved; keep arrays of "
                "numbers, numbers and strings"
            )
    return values, arrays


def restore(model: Estimator, values: dict[str, Any], state: dict[str, np.ndarray]) -> None:
    """Put back what was saved; takes its arrays out of ``state``."""
    for name, value in values.items():
        setattr(model, name, value)
    for name in [name for name in state if name.startswith(_PREFIX)]:
        setattr(model, name.removeprefix(_PREFIX), state.pop(name))
