"""The pages of the documentation, and the blocks of code on them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in (
        "*.md",
        "docs/*.md",
        "docs/adr/*.md",
        "docs/tutorials/*.md",
        "src/hdpmf/common/privacy/proofs/*.md",
    )
    for path in ROOT.glob(pattern)
)
SHELLS = ("", "console", "bash", "sh")
PROMPT = re.compile(r"^(?:\w*\$ +)?")


class Block(NamedTuple):
    """A fenced or an indented block of code."""

    language: str
    text: str


def split_page(text: str) -> tuple[list[Block], str]:
    """The blocks of code of a page, and the page without them."""
    blocks = [
        Block(*match)
        for match in re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    ]
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"(?:^ {4}\S.*\n)+", prose, re.MULTILINE)
    return blocks + [Block("", block) for block in indented if "    hdpmf " in block], prose


def read(page: Path) -> tuple[list[Block], str]:
    """A page of the repository, split."""
    return split_page((ROOT / page).read_text("utf-8"))


def commands_in(block: str) -> Iterator[list[str]]:
    """The calls of hdpmf in a block of shell, as lists of arguments."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(PROMPT.sub("", line.strip()), comments=True)
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            if words[0] == "hdpmf":
                yield words[1:end]
            words = words[end + 1 :]


def calls_on(page: Path) -> list[list[str]]:
    """All calls of hdpmf in the blocks of a page."""
    return [
        call
        for block in read(page)[0]
        if block.language in SHELLS
        for call in commands_in(block.text)
    ]
