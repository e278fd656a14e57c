"""Constructor parameters as scikit-learn knows them: nothing happens in ``__init__``, everything can be read back."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any, Self

from hdpmf.errors import ConfigError

_RENAMED = {"device": "on"}
_GPU = {"cuda": "gpu"}


def with_current_names(params: Mapping[str, Any], *, stacklevel: int | None = 3) -> dict[str, Any]:
    """Parameters by today's names: ``device="cuda"`` was what ``on="gpu"`` is now.

    The warning points ``stacklevel`` calls up; with None there is none.
    """
    current = {name: value for name, value in params.items() if name not in _RENAMED}
    for old in params.keys() & _RENAMED.keys():
        new, value = _RENAMED[old], _GPU.get(params[old], params[old])
        if stacklevel is not None:
            text = f"{old}={params[old]!r} is deprecated; write {new}={value!r}"
            warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)
        current.setdefault(new, value)
    return current


class Parameters:
    """Gives a class ``get_params``, ``set_params`` and a readable repr, from the signature of its ``__init__``."""

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        """The names that ``__init__`` takes."""
        if cls.__init__ is object.__init__:
            return ()
        return tuple(name for name in inspect.signature(cls.__init__).parameters if name not in ("self", *_RENAMED))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, by name (``deep`` is there for scikit-learn and changes nothing)."""
        return {name: getattr(self, name) for name in self.parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Change arguments; unknown names are errors."""
        known = self.parameter_names()
        for name, value in with_current_names(params).items():
            if name not in known:
                raise ConfigError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({arguments})"
