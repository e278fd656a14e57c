"""Measure the shape of the source tree, and print it beside what architecture asks for.

One number is law: with more lines of src than the ceiling in pyproject.toml the exit code is 1. The
rest is a mirror. ``--paths`` also counts the files in which code runs for four everyday jobs;
``--unused`` lists functions that only tests call.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "hdpmf"
FLOWER_PUBLIC = ("flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.simulation")
QUESTION = re.compile(r"(What|How|Whether|Where|Who|Which)\b")

WANTED = {
    "lines of src": 50_000,
    "files": 230,
    "commands": 40,
    "options": 250,
    "modules with exactly one importer": 35,
    "header share, %": 9,
    "folders with more than 25 entries": 0,
    "docstrings that ask a question": 60,
    "imports of Flower beyond its public modules": 0,
    "files to fit": 20,
    "files to evaluate": 40,
    "files of a run by two servers": 90,
    "files from experiment to report": 55,
}

EXPERIMENT = """
name = "house"
title = "House"
datasets = ["synthetic"]
methods = ["hdp-sum", "user-mean"]
seeds = [0]
[vary]
parameter = "epsilon"
values = [1.0]
"""


def modules() -> dict[str, ast.Module]:
    """Return the syntax tree of every module, by its dotted name."""
    trees = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[name] = ast.parse(path.read_text())
    return trees


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield every import as (module, name); the name of ``import x`` is empty."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.module, alias.name) for alias in node.names)


def single_importers(trees: dict[str, ast.Module]) -> list[str]:
    """Return the modules that exactly one other module imports."""
    importers: dict[str, set[str]] = defaultdict(set)
    for importer, tree in trees.items():
        for module, name in imports(tree):
            target = f"{module}.{name}" if f"{module}.{name}" in trees else module
            if target in trees and target != importer:
                importers[target].add(importer)
    packages = {name.rpartition(".")[0] for name in trees}
    return sorted(name for name in trees if name not in packages and len(importers[name]) == 1)


def header_lines(tree: ast.Module) -> int:
    """Count the lines of a module up to the end of its docstring and imports."""
    last = 0
    for node in tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        guarded = isinstance(node, ast.If | ast.With) and all(
            isinstance(inner, ast.Import | ast.ImportFrom) for inner in node.body
        )
        if not (is_docstring or guarded or isinstance(node, ast.Import | ast.ImportFrom)):
            break
        last = node.end_lineno or last
    return last


def questions(trees: dict[str, ast.Module]) -> list[str]:
    """Return the docstrings that begin with a question word, as ``module: first line``."""
    found = []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for name, tree in trees.items():
        for node in ast.walk(tree):
            text = ast.get_docstring(node) if isinstance(node, kinds) else None
            if text and QUESTION.match(text):
                found.append(f"{name}: {text.splitlines()[0]}")
    return found


def flower_beyond(trees: dict[str, ast.Module]) -> list[str]:
    """Return imports of Flower that are not of its public modules."""
    return [
        f"{importer}: {module}"
        for importer, tree in trees.items()
        for module, _ in imports(tree)
        if module.split(".")[0] == "flwr" and module not in FLOWER_PUBLIC
    ]


def full_folders() -> list[str]:
    """Return the folders with more than 25 entries."""
    folders = [SOURCE, *(path for path in SOURCE.rglob("*") if path.is_dir())]
    counts = {
        folder: sum(entry.name != "__pycache__" for entry in folder.iterdir())
        for folder in folders
        if folder.name != "__pycache__"
    }
    return [
        f"{path.relative_to(SOURCE.parent)}: {n}" for path, n in sorted(counts.items()) if n > 25
    ]


def unused(trees: dict[str, ast.Module]) -> list[str]:
    """Return top-level functions and classes whose name no other code of src mentions."""
    mentions: Counter[str] = Counter()
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                mentions[node.id] += 1
            elif isinstance(node, ast.Attribute):
                mentions[node.attr] += 1
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                mentions.update(re.findall(r"\w+", node.value) if len(node.value) < 80 else ())
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [
        f"{name}.{node.name}"
        for name, tree in trees.items()
        for node in tree.body
        if isinstance(node, kinds) and not mentions[node.name] and not node.decorator_list
    ]


def options_by_command() -> dict[str, int]:
    """Count the options of every command of ``hdpmf``, but for ``--help``."""
    import typer

    from hdpmf.cli.main import app

    found: dict[str, int] = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                walk(inner, (*words, name))
        else:
            found[" ".join(words)] = sum(
                each.param_type_name == "option" and each.name != "help" for each in command.params
            )

    walk(typer.main.get_command(app), ())
    return found


def ceiling(root: Path) -> int:
    """Return the most lines that src may have, by the pyproject.toml in a folder."""
    with (root / "pyproject.toml").open("rb") as file:
        return int(tomllib.load(file)["tool"]["hdpmf"]["house"]["src-lines"])


def lines_of_src(root: Path) -> dict[Path, int]:
    """Count the lines of every module under a folder's src, blank lines and comments included."""
    files = (root / "src").rglob("*.py")
    return {path: len(path.read_text().splitlines()) for path in files}


def check(root: Path) -> None:
    """Exit with an error if src has more lines than its ceiling.

    Raises:
        SystemExit: It has.
    """
    lines, most = sum(lines_of_src(root).values()), ceiling(root)
    if lines > most:
        sys.exit(
            f"src has {lines:,} lines, and the ceiling in pyproject.toml is {most:,}: take as much "
            "away as you bring; the ceiling rises only by a decision in docs/adr that says what "
            "was tried first"
        )


def trace(job: str) -> None:
    """Run one everyday job in this process and print the files in which its code ran."""
    files: set[str] = set()

    def profile(frame, event, argument):  # type: ignore[no-untyped-def]
        code = frame.f_code
        # Modules and classes are no functions.
        if event == "call" and "/src/hdpmf/" in code.co_filename and code.co_flags & 1:
            files.add(code.co_filename)

    import hdpmf

    with tempfile.TemporaryDirectory() as folder:
        commands = _commands(job, Path(folder))
        if job == "fit":
            train = hdpmf.synthetic_world(60, 40, 600, rng=0)
            hdpmf.HDPSum(epsilon=1.0, rng=0).fit(train)  # what only the first one does is no path
        else:
            from hdpmf.cli.main import run
        threading.setprofile(profile)
        sys.setprofile(profile)
        try:
            if job == "fit":
                hdpmf.HDPSum(epsilon=1.0, rng=0).fit(train)
            for command in commands:
                try:
                    run(command)
                except SystemExit as end:
                    if end.code:
                        raise
        finally:
            sys.setprofile(None)
    print("\n" + json.dumps(sorted(file.partition("/src/")[2] for file in files)))


def _commands(job: str, folder: Path) -> list[list[str]]:
    synthetic = ["--data", "synthetic"]
    match job:
        case "evaluate":
            return [["evaluate", "hdp-sum", *synthetic]]
        case "two servers":
            by = ["--method", "hdp-pairs", "--sample", "12"]
            return [["federate", "simulate", *synthetic, *by]]
        case "experiment":
            file, results, page = folder / "house.toml", folder / "results", folder / "page"
            file.write_text(EXPERIMENT)
            return [
                ["experiment", "run", str(file), "--out", str(results)],
                ["experiment", "report", str(page), "--results", str(results)],
            ]
    return []


def paths() -> dict[str, list[str]]:
    """Return the files in which code runs, for each everyday job."""
    found = {}
    for job in ("fit", "evaluate", "two servers", "experiment"):
        command = [sys.executable, __file__, "--trace", job]
        done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
        if done.returncode:
            sys.exit(f"{job}: {done.stderr.strip().splitlines()[-1]}")
        found[job] = json.loads(done.stdout.splitlines()[-1])
    return {
        "files to fit": found["fit"],
        "files to evaluate": found["evaluate"],
        "files of a run by two servers": found["two servers"],
        "files from experiment to report": found["experiment"],
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--paths", action="store_true", help="count the files that four jobs cross")
    parser.add_argument("--list", action="store_true", help="name what is counted")
    parser.add_argument(
        "--unused", action="store_true", help="list what no other code of src names"
    )
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="only hold the ceiling")
    parser.add_argument("--trace", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.check:
        check(arguments.check)
        return
    if arguments.trace:
        trace(arguments.trace)
        return
    trees = modules()
    if arguments.unused:
        print("\n".join(unused(trees)))
        return
    lines = lines_of_src(ROOT)
    commands = options_by_command()
    headers = sum(map(header_lines, trees.values()))
    named = {
        "modules with exactly one importer": single_importers(trees),
        "folders with more than 25 entries": full_folders(),
        "docstrings that ask a question": questions(trees),
        "imports of Flower beyond its public modules": flower_beyond(trees),
    }
    measured = {
        "lines of src": sum(lines.values()),
        "files": len(lines),
        "commands": len(commands),
        "options": sum(commands.values()),
        "header share, %": round(100 * headers / sum(lines.values()), 1),
    }
    if arguments.paths:
        named |= paths()
    measured |= {name: len(found) for name, found in named.items()}
    print(f"{'the house':<46}{'is':>8}{'wanted':>9}")
    for name, wanted in WANTED.items():
        if name in measured:
            mark = "" if measured[name] <= wanted else "  *"
            print(f"{name:<46}{measured[name]:>8,}{wanted:>9,}{mark}")
    if arguments.list:
        named["options"] = [f"{count:3}  {name}" for name, count in commands.items()]
        for name, found in named.items():
            print(f"\n{name}:", *found, sep="\n  ")
    check(ROOT)


if __name__ == "__main__":
    main()
