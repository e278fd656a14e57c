"""Privacy statements as HTML, Markdown or JSON: the same facts, and nothing that is not in them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import cache
from html import escape
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from hdpmf.common.privacy.statement.document import PrivacyStatement
from hdpmf.errors import ConfigError

FORMATS = (".html", ".md", ".json")

_ABOUT = {
    "model": "a model that was trained in one process",
    "run": "one run of a federation",
    "recommender": "all runs of a recommender",
}


def render(statement: PrivacyStatement, name: str | Path) -> bytes:
    """Return the statement in the format that a file's name ends in.

    Raises:
        ConfigError: It ends in none of ``FORMATS``.
    """
    ending = Path(name).suffix.lower()
    if ending == ".json":
        return statement.to_json()
    if ending not in FORMATS:
        raise ConfigError(
            f"a statement is written as {', '.join(FORMATS)}; {Path(name).name} is none of them"
        )
    text = (
        _templates()
        .get_template(f"statement{ending}")
        .render(
            s=statement,
            parts=[
                (part, list(questions))
                for part, questions in groupby(statement.questions, lambda each: each.part)
            ],
            about=_ABOUT[statement.kind],
            picture=flow_svg(statement.flow) if ending == ".html" else "",
        )
    )
    return (text.rstrip() + "\n").encode()


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("hdpmf.common.privacy.statement"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # A cell of a Markdown table has no bars or breaks of its own.
    environment.filters["cell"] = lambda text: str(text).replace("|", "\\|").replace("\n", " ")
    return environment


_BOX, _GAP, _HEIGHT, _LINE = 190, 150, 96, 17
_LETTERS = 22  # in a line of a box


def flow_svg(flow: Sequence[tuple[str, str]]) -> str:
    """Return a picture of the way of the data, from place to place."""
    parts = []
    for position, (place, sent) in enumerate(flow):
        left = 10 + position * (_BOX + _GAP)
        parts.append(f'<rect class="box" x="{left}" y="42" width="{_BOX}" height="{_HEIGHT}"/>')
        parts += _lines(place, left + _BOX / 2, 42 + _HEIGHT / 2, "place")
        if position + 1 < len(flow):
            begin, end = left + _BOX, left + _BOX + _GAP
            parts.append(
                f'<path class="arrow" d="M{begin} 90H{end - 9}"/>'
                f'<path class="head" d="M{end - 10} 84l10 6-10 6z"/>'
            )
            parts += _lines(sent, begin + _GAP / 2, 45, "sent", 19)
    width = 20 + len(flow) * _BOX + (len(flow) - 1) * _GAP
    words = escape("; then ".join(f"{place}: {sent or 'the end'}" for place, sent in flow))
    return (
        f'<svg viewBox="0 0 {width} 150" role="img" aria-label="{words}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _lines(text: str, middle: float, centre: float, kind: str, width: int = _LETTERS) -> list[str]:
    lines = textwrap.wrap(text, width)
    top = centre - (len(lines) - 1) * _LINE / 2 + 5
    return [
        f'<text class="{kind}" x="{middle:g}" y="{top + row * _LINE:g}">{escape(line)}</text>'
        for row, line in enumerate(lines)
    ]
