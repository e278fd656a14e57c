"""Blocks of code on pages are run as they are written; those that are not say why."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from hdpmf.cli.main import run
from hdpmf.lab.experiments import Store, parse_experiment, resolve, run_experiments
from tests.docs.doc_pages import PAGES, ROOT, calls_on, read

pytestmark = pytest.mark.slow

# Python blocks that need what is not here, by page and first line.
PYTHON_NOT_RUN = {
    (
        "docs/gpu.md",
        'model = HDPMF(n_factors=10, epochs=100, on="gpu"',
    ): "a GPU; benchmarks/gpu.py runs it where there is one",
}

# Commands that are run, by how they begin. One that is neither here nor below fails: say which it
# is.
COMMANDS_RUN = ("methods", "doctor", "privacy explain", "aggregator init", "--version")

# Commands that are parsed (test_docs.py) and not run, by how they begin: the first that fits
# counts.
COMMANDS_NOT_RUN = {
    "paper run": "an hour; tests/unit/paper",
    "paper report": "the results of an hour; tests/unit/paper",
    "audit": "minutes; tests/cli/test_audit.py and tests/privacy",
    "recommender": "a service, tests/deploy runs docs/deploy.md as it is written",
    "aggregator pair": "two servers; tests/deploy",
    "aggregator admit": "two servers; tests/deploy",
    "aggregator serve": "a service; tests/deploy",
    "aggregator status": "a service; tests/deploy",
    "aggregator rotate-keys": "a server's folder; tests/cli/test_aggregator.py",
    "device join": "a recommender; tests/deploy",
    "device rate": "somebody's own file; tests/deploy",
    "device recommend": "a recommender; tests/deploy",
    "device ledger": "a recommender; tests/deploy",
    "evaluate hdpmf --data ml-1m": "a GPU",
    "evaluate": "seconds to minutes each; tests/cli/test_evaluate.py and tests/paper",
    "train": "seconds; tests/cli/test_models.py",
    "privacy statement": "a model or a recommender; tests/cli/test_statement.py, tests/federation",
    "recommend": "the model before it; tests/cli/test_models.py",
    "experiment": "somebody's own file; tests/cli/test_experiment.py",
    "data info": "somebody's own file; tests/cli/test_data.py",
    "device init": "a passphrase, or a home folder; tests/cli/test_device.py",
}
PAGES_NOT_RUN = {
    Path("docs/deploy.md"): "tests/deploy runs it as it is written, on hosts of their own",
    Path("docs/own-method.md"): "tests/cli/test_own_method.py runs it as it is written",
    Path("docs/serving.md"): "tests/docs/test_serving.py runs it as it is written",
    Path("docs/tutorials/five-commands.md"): "test_a_list_with_titles_in_five_commands runs it",
}
# Pages whose commands are run from the first to the last, whatever stands above.
RUN_WHOLE = {
    Path("docs/tutorials/own-data.md"),
    Path("docs/tutorials/privacy-wishes.md"),
}

PYTHON_PAGES = [
    page for page in PAGES if any(block.language == "python" for block in read(page)[0])
]
SHELL_PAGES = [page for page in PAGES if calls_on(page)]


def reason_python(page: Path, text: str) -> str:
    if page in PAGES_NOT_RUN:
        return PAGES_NOT_RUN[page]
    found = (
        why
        for (name, start), why in PYTHON_NOT_RUN.items()
        if name == str(page) and text.startswith(start)
    )
    return next(found, "")


def begins(words: str, start: str) -> bool:
    return words == start or words.startswith(f"{start} ")


def reason_command(page: Path, call: list[str]) -> str:
    if page in RUN_WHOLE or page in PAGES_NOT_RUN:
        return PAGES_NOT_RUN.get(page, "")
    words = shlex.join(call)
    if any(begins(words, start) for start in COMMANDS_RUN):
        return ""
    return next((why for start, why in COMMANDS_NOT_RUN.items() if begins(words, start)), "")


def prepare_experiments(folder: Path) -> None:
    """What a block on docs/experiments.md reads: the results of the page's own file, on a small
    world.
    """
    (text,) = [
        b.text
        for b in read(Path("docs/experiments.md"))[0]
        if b.language == "toml" and "stronger-privacy" in b.text
    ]
    head, _, rest = text.partition("\n[")
    small = re.sub(
        r"datasets = .*", 'datasets = ["synthetic"]\nepochs = 2\nseeds = [0, 1]', head
    ) + (f"\n[{rest}" if rest else "")
    small += "\n[data.synthetic]\nworld = { n_users = 40, n_items = 30, n_ratings = 900 }\n"
    small += "[split]\nper_user = 3\n" if "[split]" not in small else ""
    experiment, files = resolve(parse_experiment(small, "stronger-privacy.toml"))
    with Store(folder / "out" / "stronger", create=True) as store:
        run_experiments([experiment], store, files=files, n_jobs=1)


PREPARED = {Path("docs/experiments.md"): prepare_experiments}


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=str)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [
        block
        for block in read(page)[0]
        if block.language == "python" and not reason_python(page, block.text)
    ]
    if not blocks:
        pytest.skip("every block of this page needs something else; see PYTHON_NOT_RUN")
    monkeypatch.chdir(tmp_path)
    PREPARED.get(page, lambda folder: None)(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in blocks:
            exec(compile(block.text, str(page), "exec"), names)


OUTPUT = re.compile(r"^```python\n(.*?)^```\n\n^```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES_WITH_OUTPUT = [page for page in PAGES if OUTPUT.search((ROOT / page).read_text("utf-8"))]


@pytest.mark.parametrize("page", PAGES_WITH_OUTPUT, ids=str)
def test_a_block_prints_what_stands_below_it(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for code, output in OUTPUT.findall((ROOT / page).read_text("utf-8")):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(page), "exec"), {"__name__": "__main__"})
        assert printed.getvalue() == output


def test_the_readme_shows_output() -> None:
    assert Path("README.md") in PAGES_WITH_OUTPUT


@pytest.mark.parametrize("page", SHELL_PAGES, ids=str)
def test_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    wanted = [call for call in calls_on(page) if not reason_command(page, call)]
    monkeypatch.chdir(tmp_path)
    if page in RUN_WHOLE:
        with contextlib.redirect_stdout(io.StringIO()):
            names: dict[str, Any] = {}
            for block in read(page)[0]:
                if block.language == "python":
                    exec(compile(block.text, str(page), "exec"), names)
    for call in wanted:
        known = page in RUN_WHOLE or any(begins(shlex.join(call), start) for start in COMMANDS_RUN)
        assert known, (
            f"{shlex.join(call)}: is it quick (COMMANDS_RUN), or why is it not run "
            "(COMMANDS_NOT_RUN)?"
        )
        with pytest.raises(SystemExit) as ended:
            run(call)
        assert not ended.value.code, (shlex.join(call), capsys.readouterr().err)


def test_a_list_with_titles_in_five_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path("docs/tutorials/five-commands.md")
    monkeypatch.chdir(tmp_path)
    python, shell = read(page)[0]
    names: dict[str, Any] = {}
    exec(compile(python.text, str(page), "exec"), names)
    assert shell.text.count("$ ") == 5
    assert shell.text.startswith("$ pip install .")
    printed = []
    for call in calls_on(page):
        with pytest.raises(SystemExit) as ended:
            run(call)
        said = capsys.readouterr()
        assert not ended.value.code, (shlex.join(call), said.err)
        printed.append(said.out)
    assert len(printed) == 4
    suggested = next(line for line in printed[0].splitlines() if line.startswith("use it with: "))
    assert shlex.split(suggested)[3:] == ["hdpmf", *calls_on(page)[1]]
    titles = [title for title in names["films"].titles if title in printed[3]]
    assert len(titles) >= 5


def test_what_is_not_run_is_there() -> None:
    """A reason for a block or a command that no page has would hide the next one."""
    texts = {
        (str(page), b.text)
        for page in PYTHON_PAGES
        for b in read(page)[0]
        if b.language == "python"
    }
    for name, start in PYTHON_NOT_RUN:
        assert any(page == name and text.startswith(start) for page, text in texts), (name, start)
    calls = [(page, call) for page in SHELL_PAGES for call in calls_on(page)]
    for start in COMMANDS_NOT_RUN:
        assert any(begins(shlex.join(call), start) for _, call in calls), start
    assert sum(not reason_command(page, call) for page, call in calls) >= 8


def run_cell(source: str, name: str, names: dict[str, Any]) -> Any:
    """Run a cell as notebooks do, and return the value of its last line, if that is one."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    return (
        eval(compile(ast.Expression(last.value), name, "eval"), names)
        if isinstance(last, ast.Expr)
        else None
    )


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs").rglob("*.ipynb")), ids=lambda path: path.name
)
def test_the_notebook_shows_what_it_prints(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    cells = [
        cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"
    ]
    assert len(cells) >= 3
    for cell in cells:
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            result = run_cell("".join(cell["source"]), str(path), names)
        shown = "".join(text for output in cell["outputs"] for text in output.get("text", ()))
        assert told.getvalue() == shown
        pictures = [output["data"] for output in cell["outputs"] if "data" in output]
        assert len(pictures) == (result is not None)
        for picture in pictures:
            assert result._repr_html_() == "".join(picture["text/html"])
    assert os.listdir(tmp_path) == []
