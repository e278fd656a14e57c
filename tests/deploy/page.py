"""The commands on docs/deploy.md, and those of the units in deploy/, as they are written there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "deploy.md"


class Line(NamedTuple):
    """A command on the page.

    Attributes:
        prompt: Whose it is.
        text: The command.
    """

    prompt: str
    text: str

    @property
    def words(self) -> list[str]:
        """As the shell would split it."""
        return shlex.split(self.text)


def section(title: int | str) -> list[Line]:
    """The commands of a section, in their order; by its number, or its whole title."""
    begin = f"{title}. .*?" if isinstance(title, int) else re.escape(title)
    found = re.search(
        rf"^## {begin}\n.*?(?=^## )", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert found is not None, f"{PAGE.name} has no section {title}"
    blocks = re.findall(r"^```console\n(.*?)^```$", found[0], re.DOTALL | re.MULTILINE)
    lines = [
        re.fullmatch(r"(\w+)\$ +(\S.*)", line) for block in blocks for line in block.splitlines()
    ]
    assert all(lines), f"section {title} of {PAGE.name} has a line that is no command of a host"
    return [Line(match[1], match[2]) for match in lines if match is not None]


def file_of(title: str, word: str) -> str:
    """The file of a section that has this word in its first line."""
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## )", PAGE.read_text("utf-8"), re.S | re.M)
    assert found is not None
    files = re.findall(r"^```\n(.*?)^```$", found[0], re.DOTALL | re.MULTILINE)
    (file,) = (file for file in files if word in file.splitlines()[0])
    return str(file)


def unit_command(unit: str) -> str:
    """What ``systemctl start`` of a unit runs; "hdpmf-NAME" is deploy/NAME.service."""
    text = (ROOT / "deploy" / f"{unit.removeprefix('hdpmf-')}.service").read_text("utf-8")
    (command,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    return str(command)
