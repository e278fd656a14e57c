"""The pages say what is there: links, commands with their options, paths, names and imports."""

from __future__ import annotations

import ast
import csv
import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import typer

from hdpmf.cli.main import _UsageError, app
from hdpmf.common.methods import METHODS
from hdpmf.common.privacy.accounting import cost
from hdpmf.common.privacy.accounting.costs import rounded_up
from tests.docs.doc_pages import PAGES, PROMPT, ROOT, SHELLS, calls_on, commands_in, read

HISTORY = {  # they may name what is gone
    Path("CHANGELOG.md"),
    Path("docs/from-1-to-2.md"),
    *(path.relative_to(ROOT) for path in (ROOT / "docs" / "adr").glob("*.md")),
}
FLAGS_OF_OTHERS = {  # Flower's, systemd's, those of modules of tests
    "--trusted-entities",
    "--enable-supernode-auth",
    "--ssl-certfile",
    "--disable-runtime-dependency-installation",
    "--offline",
    "--files",
    "--spec",
}
FOLDERS = ("", "src/hdpmf/", "tests/", "docs/")  # where a path on a page may start


def spans(prose: str) -> list[str]:
    """What stands between backticks."""
    return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)]


@cache
def tree() -> Any:
    """The commands, as click has them."""
    return typer.main.get_command(app)


@cache
def all_flags() -> set[str]:
    """The options of every command, and of the scripts in benchmarks, tests and tools."""
    scripts = [
        path
        for folder in (
            "benchmarks",
            "tests/aggregator",
            "tests/mutants",
            "tools",
        )
        for path in (ROOT / folder).glob("*.py")
    ]
    flags = {
        flag for path in scripts for flag in re.findall(r'"(--[a-z-]+)"', path.read_text("utf-8"))
    }
    groups = [tree()]
    for group in groups:
        groups += getattr(group, "commands", {}).values()
        flags |= {
            flag
            for parameter in group.params
            for flag in (*parameter.opts, *parameter.secondary_opts)
        }
    return flags | {"--help"}


@cache
def all_words() -> set[str]:
    """Every word of our source, tests and scripts, and the names of their files."""
    paths = [
        path for folder in ("src", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")
    ]
    return {
        word for path in paths for word in (path.stem, *re.findall(r"\w+", path.read_text("utf-8")))
    }


def is_a_name(word: str) -> bool:
    """Whether it looks like something in code: CamelCase, or words_with_lines."""
    return re.search(r"[a-z]_?[A-Z]|[a-z]_[a-z]", word) is not None


def begins_a_name(start: str) -> bool:
    """Whether `start...` stands for a name that there is."""
    return any(word.startswith(start) for word in all_words())


def find_command(arguments: list[str]) -> tuple[Any, list[str]]:
    """The command that the arguments name, and the arguments that it gets.

    Raises:
        LookupError: There is none.
    """
    command, rest = tree(), list(arguments)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            raise LookupError(f"no command {rest[0]!r} in {sorted(command.commands)}")
        command = command.commands[rest.pop(0)]
    return command, rest


def wrong_with(arguments: list[str]) -> str:
    """What is wrong with a call on a page; nothing for one that could be typed."""
    try:
        command, rest = find_command(arguments)
    except LookupError as error:
        return str(error)
    known = {
        flag: parameter
        for parameter in command.params
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }
    flags = [word.partition("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)]
    unknown = [flag for flag in flags if flag not in known and flag not in ("-h", "--help")]
    if unknown:
        return f"no option {unknown[0]} of {command.name}"
    method = next((METHODS[word] for word in rest if word in METHODS), None)
    if method is None:
        return ""
    chosen = [
        word.partition("=")[0] for before, word in pairwise(rest) if before in ("--set", "-s")
    ]
    foreign = [name for name in chosen if name not in method.options]
    foreign += [flag for flag in flags if is_foreign(known[flag].name or "", method.options)]
    return f"{method.name} has no {foreign[0]}" if foreign else ""


@cache
def options_of_methods() -> set[str]:
    """The names of all options of all methods."""
    return {name for method in METHODS.values() for name in method.options}


def is_foreign(parameter: str, options: Any) -> bool:
    """Whether it is an option of methods that this one does not have."""
    return parameter in options_of_methods() and parameter not in options


def refused(arguments: list[str]) -> str:
    """Why the command would not even start with these arguments; nothing for a call that could
    be typed as it is.
    """
    command, rest = find_command(arguments)
    try:
        command.make_context(command.name, rest)
    except _UsageError as error:
        return str(error.format_message())
    return ""


def alternatives(span: str) -> Iterator[list[str]]:
    """`hdpmf device init|join` is two calls."""
    yield from (
        list(words)[1:] for words in product(*(word.split("|") for word in shlex.split(span)))
    )


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def resolves(dotted: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("hdpmf"):
                return True  # an extra that is not installed here
            continue
        for part in parts[cut:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def leads_somewhere(page: Path, target: str) -> bool:
    """Whether there is the file that a link on the page names, and in it the heading."""
    place, _, anchor = target.partition("#")
    path = (ROOT / page).parent / place if place else ROOT / page
    if not path.exists():
        return False
    return not anchor or anchor in map(
        slug, re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
    )


@pytest.fixture(params=PAGES, ids=str)
def page(request: pytest.FixtureRequest) -> Path:
    path = request.param
    assert isinstance(path, Path)
    return path


LITERARY = re.compile(r"(?i)\b(?:letters?|walk\w*|reckon\w*|errands?)\b")
"""Words of stories; docs/glossary.md has those of the field."""

DIALECT = re.compile(
    r"(?i)\b(?:whoever|whomever|anew|yardsticks?|it is said|thinks? better of|nobody's business"
    r"|(?:is|are|was|were) told)\b"
)
"""Phrases that a reader stumbles on: name the actor ("anyone who", "the device"), say "again"."""


def plain_prose(text: str) -> str:
    return re.sub(r"`[^`]*`", "", text)


def test_words_are_those_of_the_field(page: Path) -> None:
    prose = plain_prose(read(page)[1])
    assert LITERARY.findall(prose) == [], "docs/glossary.md has the words"
    # The changelog and decisions are history, and proofs have their own style.
    if page.name != "CHANGELOG.md" and page.parent.name not in ("adr", "proofs"):
        assert DIALECT.findall(prose) == [], "write short sentences with actors and verbs"


def test_links_lead_somewhere(page: Path) -> None:
    _, prose = read(page)
    targets = [
        target
        for target in re.findall(r"\]\(([^)\s]+)\)", prose)
        if not re.match(r"[a-z]+:", target)
    ]
    assert [target for target in targets if not leads_somewhere(page, target)] == []


ENTRY_POINTS = {f"hdpmf.{name}" for name in ("methods", "datasets", "metrics", "list_models")}
"""Names of entry points; packages have the modules."""

OWN_METHOD = Path("docs/own-method.md")
"""Its commands need the method that the page writes; test_own_method.py runs them all."""


def test_commands_and_their_options_exist(page: Path) -> None:
    if page in (OWN_METHOD, *HISTORY):
        return
    _, prose = read(page)
    calls = calls_on(page)
    calls += [
        call
        for span in spans(prose)
        if re.match(r"hdpmf( |$)", span)
        for call in alternatives(span)
    ]
    wrong = {" ".join(call): fault for call in calls if (fault := wrong_with(call))}
    assert wrong == {}


def test_commands_in_blocks_can_be_typed(page: Path) -> None:
    if page == OWN_METHOD:
        return
    calls = calls_on(page)
    assert {" ".join(call): fault for call in calls if (fault := refused(call))} == {}


def test_flags_exist(page: Path) -> None:
    _, prose = read(page)
    named = {flag for span in spans(prose) for flag in re.findall(r"(?<!\S)--[a-z-]+", span)}
    assert page in HISTORY or named <= all_flags() | FLAGS_OF_OTHERS


def test_targets_of_make_exist(page: Path) -> None:
    blocks, prose = read(page)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    code = spans(prose) + [
        PROMPT.sub("", line) for block in blocks for line in block.text.splitlines()
    ]
    named = {match[1] for text in code if (match := re.match(r"make ([a-z]+)", text))}
    assert named <= targets


def test_files_exist(page: Path) -> None:
    blocks, prose = read(page)
    code = spans(prose) + [block.text for block in blocks if block.language in SHELLS]
    named = {
        path
        for text in code
        for path in re.findall(r"(?<![\w./~-])[\w./-]+/[\w.-]+\.(?:py|md|toml)\b", text)
    }
    absent = {
        path for path in named if not any((ROOT / folder / path).exists() for folder in FOLDERS)
    }
    assert page in HISTORY or absent == set()


def test_modules_and_names_exist(page: Path) -> None:
    _, prose = read(page)
    named = {name for span in spans(prose) for name in re.findall(r"^hdpmf(?:\.\w+)+", span)}
    assert page in HISTORY or {name for name in named if not resolves(name)} <= ENTRY_POINTS


def test_names_in_code_exist(page: Path) -> None:
    _, prose = read(page)
    named = {
        span.partition("(")[0] for span in spans(prose) if re.fullmatch(r"[\w.:]+(\(.*\))?", span)
    }
    words = {
        word for name in named for word in re.findall(r"\w+(?:\.{3})?", name) if is_a_name(word)
    }
    unknown = {
        word
        for word in words - all_words()
        if not word.endswith("...") or not begins_a_name(word[:-3])
    }
    assert page in HISTORY or unknown == set()


def test_examples_in_python_import_what_exists(page: Path) -> None:
    blocks, _ = read(page)
    for block in blocks:
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text)):
                if (
                    isinstance(node, ast.ImportFrom)
                    and node.module
                    and node.module.startswith("hdpmf")
                ):
                    assert all(resolves(f"{node.module}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ("hdpmf evaluate hdp-sum --json", ""),
        ("hdpmf device init me.sqlite", ""),
        ("hdpmf evaluate hdp-sum --set coding=soft", ""),
        ("hdpmf evaluate hdp-sum --epochs 1", "hdp-sum has no --epochs"),
        ("hdpmf evaluate hdp-sum --set solver=batch", "hdp-sum has no solver"),
        ("hdpmf evaluate hdpmf --bogus", "no option --bogus"),
        ("hdpmf device walk", "no command 'walk'"),
    ],
)
def test_a_stale_command_would_be_noticed(call: str, fault: str) -> None:
    (arguments,) = commands_in(f"rec$ {call}  # a remark")
    assert wrong_with(arguments).startswith(fault)
    assert bool(wrong_with(arguments)) == bool(fault)


def test_a_broken_link_would_be_noticed() -> None:
    readme = Path("README.md")
    assert leads_somewhere(readme, "docs/protocol.md#one-round")
    assert not leads_somewhere(readme, "docs/protocol.md#two-rounds")
    assert not leads_somewhere(readme, "docs/absent.md")


def results() -> dict[tuple[str, str], dict[str, str]]:
    """Table III at K = 10, as it was run: by method and data set."""
    with (ROOT / "docs/results/csv/table3.csv").open(encoding="utf-8", newline="") as file:
        return {
            (row["method"], row["dataset"]): row
            for row in csv.DictReader(file)
            if row["factors"] in ("", "10")
        }


def test_the_table_of_the_readme_is_what_was_run() -> None:
    order = [
        "hdpmf",
        "pdpmf",
        "dpmf",
        "hdp-sum",
        "hdp-bit",
        "user-mean",
        "mf",
        "biased-mf",
    ]
    text = (ROOT / "README.md").read_text("utf-8").replace("**", "")
    rows = [
        line.strip("|").split("|")[2:]
        for line in text.splitlines()
        if re.search(r"\| \d\.\d{3} \(\d\.\d{3}\) \|$", line)
    ]
    measured = results()
    for method, row in zip(order, rows, strict=True):
        for data, cell in zip(("ml-100k", "ml-1m", "douban"), row, strict=True):
            numbers = measured[method, data]
            everything, warm = (float(numbers[name]) for name in ("mse_all_mean", "mse_mean"))
            assert cell.strip() == f"{everything:.3f} ({warm:.3f})", (method, data)


def test_what_privacy_costs_in_the_readme_is_what_was_run() -> None:
    """Against the strongest yardstick without privacy, over all test ratings."""
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    (said,) = re.findall(r"privacy costs `hdp-bit` (.*?)\. On MovieLens", text)
    bits, sums = said.split("`hdp-sum`")
    measured = results()
    for method, numbers in (("hdp-bit", bits), ("hdp-sum", sums)):
        lost = [
            float(measured[method, data]["mse_all_mean"])
            - float(measured["biased-mf", data]["mse_all_mean"])
            for data in ("ml-100k", "ml-1m", "douban")
        ]
        assert re.findall(r"\.\d{3}", numbers) == [f"{more:.3f}"[1:] for more in lost], method


def test_the_epsilons_of_a_person_are_the_accountants() -> None:
    """Of values and of presence, in README: what `hdpmf train` prints."""
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    (said,) = re.findall(r"\*\*Whose epsilon\.\*\* .*?\(\[whose epsilon\]", text)
    people = [(106, 0.364), (166, 0.353)]
    assert [
        (int(n), float(w)) for n, w in re.findall(r"\((\d+) (?:ratings )?of.*?(0\.\d+)\)", said)
    ] == people
    values, presence = (
        [cost("hdp-sum", "sums", unit="user", neighbours=about, weight=[weight] * n)
         for n, weight in people]
        for about in ("value", "presence")
    )  # fmt: skip
    stated = re.findall(r"([\d.]+), or \(([\d.]+), 1e-5\)", said)
    assert stated == [
        (rounded_up(found.pure), rounded_up(found.epsilon_at_delta)) for found in values + presence
    ]
    assert cost("hdp-bit", unit="user", neighbours="presence").status == "no guarantee"
    assert "`hdp-bit`: none" in said


def test_the_lists_of_ten_are_what_was_run() -> None:
    order = [
        "hdpmf", "pdpmf", "hdpmf-paid", "private-popular", "hdp-sum", "hdp-bit",
        "most-popular", "mf", "item-knn", "ials", "ease", "bpr",
    ]  # fmt: skip
    text = (ROOT / "docs/reproduction.md").read_text("utf-8")
    rows = re.findall(r"\| (\d\.\d{4} / \d\.\d{4} / \d\.\d{3}) \|$", text, re.MULTILINE)
    with (ROOT / "docs/results/csv/lists.csv").open(encoding="utf-8", newline="") as file:
        measured = {
            row["method"]: row
            for row in csv.DictReader(file)
            if (row["dataset"], row["x"]) == ("ml-100k", "1.0")
        }
    for method, cell in zip(order, rows, strict=True):
        ndcg, recall, coverage = (
            float(measured[method][f"{name}_at_10_mean"]) for name in ("ndcg", "recall", "coverage")
        )
        assert cell == f"{ndcg:.4f} / {recall:.4f} / {coverage:.3f}", method


def test_numbers_beside_the_papers_are_what_was_run() -> None:
    text = (ROOT / "docs/reproduction.md").read_text("utf-8").replace("*", "")
    rows = [
        line.strip("|").split("|")
        for line in text.splitlines()
        if re.match(r"\| (MF|\w*DPMF) \| \d\.\d{3} /", line)
    ]
    measured = results()
    assert [row[0].strip() for row in rows] == ["MF", "HDPMF", "PDPMF", "DPMF"]
    for name, *cells in rows:
        for data, cell in zip(("ml-100k", "ml-1m", "douban"), cells, strict=True):
            row = measured[name.strip().lower(), data]
            assert (
                cell.strip() == f"{float(row['mse_mean']):.3f} / {float(row['paper_mse_mean']):.3f}"
            ), (name, data)
