"""All methods by name: ours, and those of other packages by the entry point ``hdpmf.methods``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points

from hdpmf.errors import ConfigError
from hdpmf.methods.builtin import BUILTIN
from hdpmf.methods.method import Method

ENTRY_POINT = "hdpmf.methods"


class Methods(Mapping[str, Method]):
    """The registered methods, by name, in the order in which tables show them.

    An entry point names a ``Method`` or a sequence of them; it is loaded when somebody first looks.
    """

    def __init__(self, builtin: tuple[Method, ...]) -> None:
        self._known = {method.name: method for method in builtin}
        self._looked = False

    def __getitem__(self, name: str) -> Method:
        known = self._all()
        if name not in known:
            raise KeyError(name)
        return known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def add(self, method: Method) -> Method:
        """Register a method; the same one twice is fine, another one of that name is not."""
        if not isinstance(method, Method):
            raise ConfigError(f"only a Method can be registered, not {type(method).__name__}")
        if self._known.setdefault(method.name, method) != method:
            raise ConfigError(f"there is a method {method.name!r} already; give yours another name")
        return method

    def discard(self, name: str) -> None:
        """Forget a method that was added."""
        self._known.pop(name, None)

    def _all(self) -> dict[str, Method]:
        if not self._looked:
            self._looked = True
            for entry in entry_points(group=ENTRY_POINT):
                found = entry.load()
                for method in (found,) if isinstance(found, Method) else tuple(found):
                    self.add(method)
        return self._known


METHODS = Methods(BUILTIN)
"""Everything that evaluates, compares, explains, accounts, runs or reports looks here."""


def method_named(name: str) -> Method:
    """The method of that name.

    Raises:
        ConfigError: There is none.
    """
    if name not in METHODS:
        raise ConfigError(f"unknown method {name!r}; choose from {', '.join(METHODS)}")
    return METHODS[name]


def federated() -> tuple[str, ...]:
    """The methods that can run between machines, by name."""
    return tuple(name for name, method in METHODS.items() if method.views)


def method_with(mechanism: str) -> Method:
    """The method that a mechanism stands for, where nothing says which of them it is."""
    return next(method for method in METHODS.values() if method.mechanism == mechanism)


def method_of(model: object) -> Method | None:
    """The method that a model (an estimator) is of, by its class and the parameters that methods fix."""
    for kind in type(model).__mro__:
        path = f"{kind.__module__}:{kind.__qualname__}"
        for method in METHODS.values():
            same = method.estimator is kind or method.estimator == path
            if same and all(getattr(model, name, None) == value for name, value in method.fixed.items()):
                return method
    return None
