"""The code of a method, as part of what its results stand for."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from uuid import uuid4

_OURS = "hdpmf."


@cache
def source_digest(estimator: str | type) -> str:
    """SHA-256 of the file that an estimator is written in, and of those beside it that this one imports.

    Empty for our own, whose methods have versions. Where there is no source to be read, a word that never comes again:
    then no result can be taken for a later one's.
    """
    module, name = (
        estimator.split(":") if isinstance(estimator, str) else (estimator.__module__, estimator.__qualname__)
    )
    if module.startswith(_OURS):
        return ""
    digest = hashlib.sha256(name.encode())
    file = getattr(sys.modules.get(module) or import_module(module), "__file__", None)
    try:
        if file is None:  # a notebook's cell
            digest.update(inspect.getsource(estimator).encode())  # type: ignore[arg-type]  # no file: it is a class
        else:
            for path in _with_neighbours(Path(file)):
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
    except (OSError, TypeError, SyntaxError, ValueError):
        return uuid4().hex
    return digest.hexdigest()


def _with_neighbours(file: Path) -> list[Path]:
    """The file and all files in its folder (or package) that it imports, directly or not."""
    found: set[Path] = set()
    left = [file]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += _imported(path)
    return sorted(found)


def _imported(file: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(_roots(file), alias.name)
        elif isinstance(node, ast.ImportFrom):
            roots = [file.parents[node.level - 1]] if node.level else _roots(file)
            for alias in node.names:
                yield from _files(roots, f"{node.module or ''}.{alias.name}".strip("."))


def _roots(file: Path) -> list[Path]:
    """Where an absolute import of our neighbours begins: beside the file, or beside its package."""
    roots = [file.parent]
    while (roots[-1] / "__init__.py").exists():
        roots.append(roots[-1].parent)
    return roots


def _files(roots: list[Path], dotted: str) -> Iterator[Path]:
    """The files that a dotted name may stand for; its last word may be a name inside a module."""
    parts = dotted.split(".")
    for root in roots:
        for length in range(1, len(parts) + 1):
            place = root.joinpath(*parts[:length])
            yield from (path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file())
