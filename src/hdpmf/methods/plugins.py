"""Files with methods of the user's: ``--plugin FILE`` and the modules that an experiment imports."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from hdpmf.errors import ConfigError, HdpmfError
from hdpmf.methods.registry import METHODS

PLUGINS: list[Path] = []
"""The files that were loaded here, so that other processes can load them too."""


def load_plugin(file: str | Path) -> None:
    """Run a Python file that adds methods (``hdpmf.add_method``); once, however often it is asked for.

    Raises:
        ConfigError: It is not there, fails, or adds no method.
    """
    path = Path(file).resolve()
    if path in PLUGINS:
        return
    spec = spec_from_file_location(path.stem, path) if path.suffix == ".py" and path.is_file() else None
    if spec is None or spec.loader is None or not path.stem.isidentifier():
        raise ConfigError(f"{file} is no Python file with a method; docs/own-method.md has one")
    if path.stem in sys.modules:
        raise ConfigError(f"{file}: there is a module {path.stem!r} already; give the file another name")
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
    """Import a module of the user's that adds methods: a file in the folder ``beside``, else as Python finds it.

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
            f"cannot import {name!r} ({error}); put {name.removesuffix('.py')}.py {where}, or on PYTHONPATH"
        ) from error
