"""HTML building blocks that the sections of a report share. Everything is escaped unless it is
`Html` already.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from hdpmf.common.methods import METHODS
from hdpmf.lab.experiments import Cell
from hdpmf.lab.experiments.store import StoredClaim
from hdpmf.lab.report.content import anchor, four, plain


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Html | None | Iterable["Child"]


def join(children: Child) -> Html:
    """Children in a row: plain text is escaped, None is nothing."""
    if children is None:
        return Html("")
    if isinstance(children, Html):
        return children
    if isinstance(children, str):
        return Html(html.escape(children))
    return Html("".join(map(join, children)))


def tag(name: str, *children: Child, **attributes: str | bool | int | float | None) -> Html:
    """An element. ``class_`` and ``for_`` lose their underscore, others turn ``_`` into ``-``;
    None leaves one out.
    """
    text = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        text += f" {label}" if value is True else f' {label}="{html.escape(str(value))}"'
    return Html(f"<{name}{text}>{join(children)}</{name}>")


def number_attribute(value: float) -> str:
    """A number as the store has it, for attributes."""
    return repr(float(value))


def data_block(document: Any) -> str:
    """JSON for a script element of type application/json: nothing in it can end the element or
    start a comment.
    """
    text = json.dumps(document, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def csp_hash(source: str) -> str:
    """The hash by which a Content-Security-Policy lets one inline script or style in."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() + "'"


GREEK = {"epsilon": "ε", "lambda": "λ"}

STATUS_WORDS = {"none": "no privacy", "nominal": "nominal", "proved": "proved"}


def symbol(name: str) -> Html:
    """A name of the paper's with its subscript: epsilon_uc becomes ε with uc below."""
    base, _, low = name.partition("_")
    if base in ("epsilon", "f") and (not low or low.isalpha()):
        return (
            tag("i", GREEK.get(base, base))
            if not low
            else Html(tag("i", GREEK.get(base, base)) + tag("sub", low))
        )
    return tag("span", name)


def number(cell: Cell, metric: str, *, strong: bool = False, stars: int = 0) -> Html:
    """A cell's number, linked to its runs; where there is none, the reason."""
    summary = cell.summary(metric)
    link = f"#{anchor(cell)}"
    if cell.status in ("diverged", "failed"):
        return tag("a", cell.status, class_=f"number none {cell.status}", href=link)
    if not summary.values:
        word = "not measured" if cell.mse.values else "not run"
        return tag("a", word, class_="number none", href=link)
    value: Child = four(summary.mean)
    mean = tag("b", value) if strong else tag("span", value)
    sup = tag("sup", "*" * stars, class_="stars") if stars else None
    deviation = f" ± {four(summary.std)}" if math.isfinite(summary.std) else ""
    spread = tag("span", deviation, class_="spread") if deviation else None
    shown = tag(
        "a",
        mean,
        spread,
        sup,
        class_="number",
        href=link,
        data_metric=metric,
        data_mean=number_attribute(summary.mean),
        data_std=number_attribute(summary.std),
    )
    if cell.status == "missing":
        total = len(cell.run_ids)
        return Html(
            shown + tag("span", f" {len(summary.values)} of {total} seeds", class_="partial")
        )
    return shown


def claim_chip(claim: StoredClaim | None, *, with_epsilon: bool = True) -> Html:
    """What an epsilon stands on, short."""
    if claim is None:
        return tag("span", "unknown", class_="chip")
    words = STATUS_WORDS.get(claim.status, claim.status)
    if claim.epsilon is not None and with_epsilon:
        words = f"ε {plain(claim.epsilon)} {words}"
    return tag(
        "span", words, class_=f"chip {slug(claim.status)}", title=f"{claim.view}; {claim.reason}"
    )


def guarantee(cell: Cell) -> str:
    """What a cell's epsilon is worth, for what and against whom, short enough for a legend."""
    claim = cell.claim
    if claim is None:
        return "unknown"
    if claim.status != "proved" or cell.method not in METHODS:
        return STATUS_WORDS.get(claim.status, claim.status)
    method = METHODS[cell.method]
    stated = method.claim()
    what = (
        "values"
        if stated.presence is None
        else "values and presence"
        if stated.about == "value"
        else "presence"
    )
    return f"proved: {what}; {'secure sums' if method.headline == 'sums' else 'all messages'} seen"


def table(
    head: Sequence[Child],
    rows: Iterable[Sequence[Child]],
    *,
    class_: str = "",
    label: str = "",
    numeric: int = 99,
) -> Html:
    """A plain table in a container of its own that scrolls; columns from ``numeric`` on are
    aligned right.
    """
    header = tag(
        "tr",
        [tag("th", text, scope="col", class_=_side(i, numeric)) for i, text in enumerate(head)],
    )
    body = [
        tag(
            "tr",
            [
                tag(
                    "th" if i == 0 else "td",
                    entry,
                    scope="row" if i == 0 else None,
                    class_=_side(i, numeric),
                )
                for i, entry in enumerate(row)
            ],
        )
        for row in rows
    ]
    return scroller(
        tag("table", tag("thead", header), tag("tbody", body), class_=class_ or None), label
    )


def scroller(content: Html, label: str) -> Html:
    """A box that scrolls sideways by itself, reachable by keyboard."""
    return tag(
        "div", content, class_="scroll", tabindex=0, role="region", aria_label=label or "table"
    )


_FOLD = '<details class="fold">'


def section(anchor_id: str, title: Child, *children: Child, lead: Child = None) -> Html:
    """A section that unfolds below its heading."""
    lead_part = tag("p", lead, class_="lead") if lead is not None else None
    folded = Html(
        f"{_FOLD}{tag('summary', tag('h2', title))}{join([lead_part, *children])}</details>"
    )
    return tag("section", folded, id=anchor_id)


def unfolded(part: Html) -> Html:
    """A section that is open from the start."""
    return Html(part.replace(_FOLD, f"{_FOLD[:-1]} open>", 1))


def slug(text: str) -> str:
    """A word as a class name; anything odd falls away."""
    return "".join(
        char
        for char in text.replace(" ", "-")
        if char.isascii() and (char.isalnum() or char == "-")
    )


def _side(position: int, numeric: int) -> str | None:
    return "right" if position >= numeric else None
