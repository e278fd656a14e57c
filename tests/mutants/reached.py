"""Which tests run which lines: only those can notice a fault there.

As a plugin of pytest (``-p reached``) it appends a line of JSON for each test to the file that
``REACHED`` names: the test, a digest of its file, its seconds, and the lines of functions of
PACKAGES that it ran, counted from where each begins. Threads are followed, other processes are not.
Test files that have not changed since are not measured again: delete the file to measure all, after
larger changes of the source.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

_Cached = type(lru_cache(lambda: None))
PACKAGES = (
    "common/privacy",
    "private/client",
    "private/device",
    "untrusted/aggregator",
    "common/aggregation/two_servers",
    "common/net",
)
Place = tuple[str, str, int]
"""A file below src, the qualified name of a function in it, and a line of it, from 0."""


@dataclass(frozen=True, slots=True)
class Test:
    """A test: its name for pytest, its seconds, how many lines it runs, and whether it is slow."""

    name: str
    seconds: float
    lines: int
    slow: bool

    @property
    def file(self) -> str:
        """Where it stands."""
        return self.name.partition("::")[0]


@dataclass(slots=True)
class Reached:
    """What was measured.

    Attributes:
        files: Test files that were measured.
        tests: All tests.
        by_place: The tests that run a line.
    """

    files: set[str] = field(default_factory=set)
    tests: list[Test] = field(default_factory=list)
    by_position: dict[Place, list[Test]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def read(cls, path: Path, root: Path) -> Reached:
        """What still holds: of test files that are as they were, and the last word on each test."""
        rows: dict[str, dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            row = json.loads(line)
            if _digest(root / row["test"].partition("::")[0]) == row["digest"]:
                rows[row["test"]] = row
        found = cls()
        for name, row in rows.items():
            places = [
                (file, function, line)
                for file, functions in row["ran"].items()
                for function, lines in functions.items()
                for line in lines
            ]
            test = Test(name, row["seconds"], len(places), row["slow"])
            found.files.add(test.file)
            if name != test.file:  # which is there to say that the file was measured
                found.tests.append(test)
            for place in places:
                found.by_position[place].append(test)
        return found

    def running(self, path: str, source: bytes, line: int) -> list[Test]:
        """The tests that run the statement on a line of a file below src; none for what runs on
        import.
        """
        known, found = _functions(source), {}
        for each in _statement(source, line):
            if each in known:
                found.update(dict.fromkeys(self.by_position.get((path, *known[each]), ())))
        return list(found)


@lru_cache(256)
def _functions(source: bytes) -> dict[int, tuple[str, int]]:
    """For every line of a function: the innermost one's qualified name, and how far it is from
    its beginning.
    """
    known: dict[int, tuple[str, int]] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inside = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                inside = f"{name}."
                if not isinstance(child, ast.ClassDef):
                    lines = range(child.lineno, (child.end_lineno or child.lineno) + 1)
                    known.update({line: (name, line - child.lineno) for line in lines})
            visit(child, inside)

    visit(ast.parse(source), "")
    return known


def _statement(source: bytes, line: int) -> range:
    """The lines of the innermost statement around a line; of one with a body, those before the
    body.
    """
    found = range(line, line + 1)
    smallest = sys.maxsize
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            body = getattr(node, "body", None)
            end = body[0].lineno if body else (node.end_lineno or node.lineno) + 1
            if node.lineno <= line < end and end - node.lineno < smallest:
                found, smallest = range(node.lineno, end), end - node.lineno
    return found


@cache
def _digest(path: Path) -> str | None:
    """What was measured holds for this file and these packages."""
    if not path.exists():
        return None
    return hashlib.sha256(path.read_bytes() + repr(PACKAGES).encode()).hexdigest()


def _forget() -> None:
    """What was computed for an earlier test is computed again, so that it counts for every test
    that needs it.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("hdpmf."):
            for value in list(vars(module).values()):
                if isinstance(value, _Cached):
                    value.cache_clear()


class _Recorder:
    """Notes the lines of the packages that run."""

    def __init__(self) -> None:
        self._source = next(
            f"{folder}/" for folder in sys.path if (Path(folder) / "hdpmf").is_dir()
        )
        self._lines: dict[str, set[int]] = defaultdict(set)
        self._tracers: dict[CodeType, Any] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if code not in self._tracers:
            # Templates of pages run as code as well, under their own names.
            ours = code.co_filename.endswith(".py") and code.co_filename.startswith(
                tuple(f"{self._source}hdpmf/{package}/" for package in PACKAGES)
            )
            self._tracers[code] = self._tracer(self._lines[code.co_filename]) if ours else None
        return self._tracers[code]

    @staticmethod
    def _tracer(lines: set[int]) -> Any:
        def trace(frame: FrameType, event: str, argument: object) -> Any:
            lines.add(frame.f_lineno)
            return trace

        return trace

    def ran(self) -> dict[str, dict[str, list[int]]]:
        """The lines of functions that ran, by file and function."""
        found: dict[str, dict[str, list[int]]] = {}
        for name, lines in self._lines.items():
            known = _functions(_read(name))
            functions: dict[str, list[int]] = defaultdict(list)
            for function, line in sorted(known[line] for line in lines if line in known):
                functions[function].append(line)
            if functions:
                found[name.removeprefix(self._source)] = functions
        return found


@cache
def _read(name: str) -> bytes:
    return Path(name).read_bytes()


def _write(
    name: str, path: Path, seconds: float, slow: bool, ran: dict[str, dict[str, list[int]]]
) -> None:
    row = {"test": name, "digest": _digest(path), "seconds": seconds, "slow": slow, "ran": ran}
    with open(os.environ["REACHED"], "a") as stream:
        stream.write(json.dumps(row) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every file is written down, also where none of its tests will run, and every slow test,
    which is not followed.
    """
    for path, name in {item.path: item.nodeid.partition("::")[0] for item in items}.items():
        _write(name, path, 0.0, False, {})
    for item in items:
        if _is_slow(item):
            _write(item.nodeid, item.path, 0.0, True, {})


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None and item.get_closest_marker("paper") is None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Follow one test, fixtures included. What a shared fixture runs counts for the test that
    made it. One that fails without a fault says nothing about faults, and is left out.
    """
    _forget()
    recorder = _Recorder()
    failed = item.session.testsfailed
    begin = time.perf_counter()
    threading.settrace(recorder)
    sys.settrace(recorder)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]  # that is how it is taken away
        if item.session.testsfailed == failed:
            seconds = time.perf_counter() - begin
            _write(item.nodeid, item.path, seconds, False, recorder.ran())
