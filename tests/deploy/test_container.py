"""The container image as far as it can be tested where no container engine runs: what is in it, and
what it does.

No engine runs in CI, so the image itself is not built there (``image.py`` builds and runs it, with
root and buildah: ``make image``). These tests read the Dockerfile as a
linter does, work out the build context by .dockerignore, and do what its RUN lines do, with a home
and a program that cannot be written.
"""

from __future__ import annotations

import json
import re
import subprocess
from fnmatch import fnmatch
from typing import Any

import pytest
import typer

from hdpmf.cli.main import app
from tests.deploy.page import ROOT

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    """The instructions in their order, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text("utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [
        (line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()
    ]


def stages() -> list[list[Instruction]]:
    found: list[list[Instruction]] = []
    for name, value in instructions():
        if name == "FROM":
            found.append([])
        found[-1].append((name, value))
    return found


def of(stage: list[Instruction], name: str) -> list[str]:
    return [value for found, value in stage if found == name]


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps a path out: the last pattern that fits it, or a folder above
    it, decides.
    """
    patterns = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and line[0] != "#"
    ]
    parts, out = path.split("/"), False
    above = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    for pattern in patterns:
        bare = pattern.removeprefix("!")
        anywhere = bare.startswith("**/")
        fits = any(
            fnmatch(place.split("/")[-1], bare.removeprefix("**/"))
            if anywhere
            else "/" not in place and fnmatch(place, bare)
            for place in above
        )
        out = not pattern.startswith("!") if fits else out
    return out


def context() -> list[str]:
    """The files that the engine would be sent, of those that git knows or that lie around."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    around = [
        ".git/config",
        ".venv/bin/python",
        "shared/data/ml-1m.zip",
        "out/paper/results.sqlite",
        "src/hdpmf/__pycache__/x.pyc",
    ]
    return [name for name in (*listed.stdout.splitlines(), *around) if not ignored(name)]


def test_the_image_runs_without_root() -> None:
    final = stages()[-1]
    (user,) = of(final, "USER")
    assert user == "10001:10001"
    names = [name for name, _ in final]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "RUN" not in names[names.index("USER") :]
    (made,) = of(final, "RUN")
    assert {"useradd", "10001", "/usr/sbin/nologin"} <= set(json.loads(made))


def test_nothing_is_fetched_but_a_named_version_of_python_and_packages() -> None:
    bases = [value for name, value in instructions() if name == "FROM"]
    assert all(re.match(r"python:3\.\d+\.\d+-slim-\w+( AS \w+)?$", base) for base in bases)
    assert len({base.split(" AS ")[0] for base in bases}) == 1
    assert not [name for name, _ in instructions() if name == "ADD"]
    assert not [
        value
        for name, value in instructions()
        if name == "RUN" and ("curl" in value or "http" in value)
    ]
    for name, value in instructions():
        if name in ("RUN", "CMD", "ENTRYPOINT"):
            assert isinstance(json.loads(value), list), f"{name} goes through a shell"


def test_the_build_context_has_the_source_and_nothing_else() -> None:
    sent = context()
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "src/hdpmf/__init__.py",
        "src/hdpmf/cli/doctor.py",
    } <= set(sent)
    assert not [name for name in sent if not name.startswith("src/hdpmf/") and "/" in name]
    assert {name for name in sent if "/" not in name} == {"pyproject.toml", "README.md", "LICENSE"}
    assert not [name for name in sent if "__pycache__" in name]
    copied = [word for value in of(stages()[0], "COPY") for word in value.split()[:-1]]
    assert {name.split("/")[0] for name in sent} == set(copied)


def test_the_example_is_hardened_and_its_commands_can_be_typed() -> None:
    yaml = pytest.importorskip("yaml")
    services: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yml").read_text())[
        "services"
    ]
    assert set(services) == {"recommender", "aggregator", "device"}
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["user"] == "10001:10001"
        assert [mount.split(":")[0] for mount in service["tmpfs"]] == ["/tmp"]
        assert [mount.split(":")[1] for mount in service["volumes"]] == ["/srv/hdpmf"]
        assert service["ulimits"]["core"] == 0
        assert service["mem_limit"]
        command, words = typer.main.get_command(app), list(service["command"])
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context(command.name, words)
