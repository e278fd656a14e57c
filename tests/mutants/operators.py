"""Small faults in Python source: a comparison turned round, a term with the other sign, a refusal
left out.

Each is a replacement of one piece of text, so that everything else of a file stays as it is,
comments included.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_ORDERS = ast.Lt, ast.LtE, ast.Gt, ast.GtE
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "//",
    ast.Pow: "*",
    ast.LShift: ">>",
    ast.RShift: "<<",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.BitXor: "&",
}
_SKIPPED = "no mutant"
"""A line with this comment is left alone, and a statement with it at its end or just before it. The
reason comes after it: the changed code would mean the same.
"""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault.

    Attributes:
        path: The file.
        line: Where, from 1.
        column: Where in the line, from 1.
        start: Where the replaced text begins in the file's bytes.
        end: Where it ends.
        old: That text.
        new: What takes its place.
    """

    path: Path
    line: int
    column: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {_short(self.old)} -> {_short(self.new)}"

    def applied(self, source: bytes) -> bytes:
        """The file with the fault."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutants_of(path: Path, source: bytes) -> list[Mutant]:
    """All faults of a file, in its order."""
    lines = source.split(b"\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    found = []
    tree = ast.parse(source)
    skipped = _skipped(tree, source.decode().split("\n"))
    for node, new in _changes(tree):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        if node.lineno not in skipped:
            found.append(
                Mutant(
                    path,
                    node.lineno,
                    node.col_offset + 1,
                    start,
                    end,
                    source[start:end].decode(),
                    new,
                )
            )
    return sorted(found, key=lambda mutant: (mutant.start, mutant.end, mutant.new))


def _skipped(tree: ast.Module, lines: list[str]) -> set[int]:
    """Lines with the comment, all lines of a statement that has it at its end or before it, and
    constants of modules: they are decisions (tests/unit/test_numbers.py has those that matter).
    """
    found = {number for number, line in enumerate(lines, 1) if _SKIPPED in line}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            end = node.end_lineno or node.lineno
            before = node.lineno - 1
            while before and lines[before - 1].lstrip().startswith("#"):
                before -= 1
            if any(_SKIPPED in line for line in (*lines[before : node.lineno - 1], lines[end - 1])):
                found.update(range(node.lineno, end + 1))
    return found


def _changes(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Pieces of code and what may stand in their place. Words for people and types are left
    alone, and assertions.
    """
    match tree:
        case ast.keyword(arg="strict"):  # of zip: an assertion that two lists are equally long
            return
        case (
            ast.FunctionDef(name="__repr__" | "__str__")
            | ast.AnnAssign(value=None)
            | ast.JoinedStr()
            | ast.Import()
        ):
            return
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.ImportFrom() | ast.Assert():
            return
        case ast.Raise():
            yield tree, "pass"
            return
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield tree, "pass"
        case ast.Break():
            yield tree, "continue"
        case ast.Continue():
            yield tree, "break"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield test, f"(not ({ast.unparse(test)}))"
        case ast.Compare(left=left, ops=[op], comparators=[right]) if not (
            isinstance(op, _ORDERS) and _reads_clock(tree)
        ):
            yield tree, f"(({ast.unparse(left)}) {_COMPARE[type(op)]} ({ast.unparse(right)}))"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY and not _is_text(
            left, right
        ):
            yield tree, f"(({ast.unparse(left)}) {_BINARY[type(op)]} ({ast.unparse(right)}))"
        case ast.BoolOp(op=op, values=values):
            word = " or " if isinstance(op, ast.And) else " and "
            yield tree, "(" + word.join(f"({ast.unparse(value)})" for value in values) + ")"
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield tree, f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield tree, str(not value)
        case ast.Constant(value=int(value)):
            yield tree, str(value + 1)
        case ast.Constant(value=float(value)):
            yield tree, repr(2 * value or 1.0)
        case ast.Call(func=ast.Attribute(attr="maximum" | "minimum" | "clip"), args=[first, *_]):
            arguments = tree.args  # the clamp is dropped: the argument that is no constant
            kept = next((one for one in arguments if not isinstance(one, ast.Constant)), first)
            yield tree, f"({ast.unparse(kept)})"
        case _:
            pass
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _changes(child)


def _reads_clock(compared: ast.Compare) -> bool:
    """Return True if the machine's clock is compared: that it shows an instant exactly, so that
    < and <= differ, is seen by nobody. That the comparison is turned round is another fault.
    """
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("monotonic", "time", "perf_counter")
        for node in ast.walk(compared)
    )


def _is_text(*sides: ast.expr) -> bool:
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in sides
    )


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 70 else words[:67] + "..."
