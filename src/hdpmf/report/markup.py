"""HTML from Python values. Everything is escaped unless it came from here."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable
from typing import Any


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
    """An element. ``class_`` and ``for_`` lose their underscore, others turn ``_`` into ``-``; None leaves one out."""
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
    """JSON for a script element of type application/json: nothing in it can end the element or start a comment."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def csp_hash(source: str) -> str:
    """The hash by which a Content-Security-Policy lets one inline script or style in."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() + "'"
