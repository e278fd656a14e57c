"""All methods by name: built in, from entry points (``hdpmf.methods``), and from plugin files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from hdpmf.common.methods.builtin import BUILTIN
from hdpmf.common.methods.method import Method
from hdpmf.errors import ConfigError, HdpmfError

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
    """Return the method of an estimator, by its class and the parameters that methods fix."""
    for kind in type(model).__mro__:
        path = f"{kind.__module__}:{kind.__qualname__}"
        for method in METHODS.values():
            same = method.estimator is kind or method.estimator == path
            if same and all(
                getattr(model, name, None) == value for name, value in method.fixed.items()
            ):
                return method
    return None


PLUGINS: list[Path] = []
"""The files that were loaded here, so that other processes can load them too."""


def load_plugin(file: str | Path) -> None:
    """Run a Python file that adds methods (``hdpmf.add_method``), once.

    Raises:
        ConfigError: It is not there, fails, or adds no method.
    """
    path = Path(file).resolve()
    if path in PLUGINS:
        return
    spec = (
        spec_from_file_location(path.stem, path)
        if path.suffix == ".py" and path.is_file()
        else None
    )
    if spec is None or spec.loader is None or not path.stem.isidentifier():
        raise ConfigError(f"{file} is no Python file with a method; docs/own-method.md has one")
    if path.stem in sys.modules:
        raise ConfigError(
            f"{file}: there is a module {path.stem!r} already; give the file another name"
        )
    before = set(METHODS)
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)  # last, so that a file beside it hides nothing of anybody's
    module = sys.modules[path.stem] = module_from_spec(spec)
    # Bytecode is known by seconds and size: a file changed at once would run as it was before.
    writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[path.stem]
        if isinstance(error, HdpmfError):
            raise
        raise ConfigError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
    finally:
        sys.dont_write_bytecode = writes_none
    if set(METHODS) == before:
        raise ConfigError(f"{file} adds no method; let it call hdpmf.add_method(name, estimator)")
    PLUGINS.append(path)


def load_module(name: str, beside: Path | None = None) -> None:
    """Import a user's module that adds methods: from the folder ``beside``, else from the path.

    Raises:
        ConfigError: There is none, or it fails.
    """
    file = None if beside is None else beside / f"{name.removesuffix('.py')}.py"
    if file is not None and file.is_file():
        load_plugin(file)
        return
    if any(path.stem == name.removesuffix(".py") for path in PLUGINS):
        return
    try:
        import_module(name)
    except ImportError as error:
        where = "beside the experiment" if beside is None else f"in {beside}"
        raise ConfigError(
            f"cannot import {name!r} ({error}); put {name.removesuffix('.py')}.py {where}, "
            "or on PYTHONPATH"
        ) from error
