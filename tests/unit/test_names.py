"""Names in the source: a class has a name of its own, and a variable says what it is."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import hdpmf

SOURCE = Path(hdpmf.__file__).parent


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {
        path.relative_to(SOURCE): ast.parse(path.read_text("utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }


def classes_of_one_name(trees: dict[Path, ast.Module]) -> dict[str, list[str]]:
    """The files that define a public class of a name that another file has too, by that name."""
    places = defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path))
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def bound_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every name that a variable or a parameter gets, with its line."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.MatchAs(name=str(name))
            ):
                yield name, node.lineno
            case (
                ast.MatchStar(name=str(name))
                | ast.MatchMapping(rest=str(name))
                | ast.ExceptHandler(name=str(name))
            ):
                yield name, node.lineno


def test_no_two_public_classes_share_a_name(trees: dict[Path, ast.Module]):
    assert classes_of_one_name(trees) == {}


def test_no_variable_is_called_one(trees: dict[Path, ast.Module]):
    places = [
        f"{path}:{line}"
        for path, tree in trees.items()
        for name, line in bound_names(tree)
        if name == "one"
    ]
    assert places == [], "name what it is"


def test_two_classes_of_one_name_would_be_noticed():
    twice = {
        Path(name): ast.parse("class Plan:\n    class Inner: ...") for name in ("a.py", "b.py")
    }
    assert classes_of_one_name(twice) == {"Plan": ["a.py", "b.py"], "Inner": ["a.py", "b.py"]}


@pytest.mark.parametrize(
    "code",
    [
        "one = 1",
        "one: int = 1",
        "for one in (): pass",
        "[one for one in ()]",
        "lambda one: 0",
        "def f(*, one): pass",
        "def f(*one): pass",
        "first, *one = ()",
        "(one := 1)",
        "with f() as one: pass",
        "try: pass\nexcept E as one: pass",
        "match x:\n case one: pass",
        "match x:\n case [*one]: pass",
        "match x:\n case {**one}: pass",
    ],
)
def test_a_variable_called_one_would_be_noticed(code):
    assert "one" in dict(bound_names(ast.parse(code)))
