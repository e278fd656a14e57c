"""How pages look: their templates in one frame, their sentences, the files that they load."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from hdpmf.transport.extras import needs
from hdpmf.web.wording import Wording

with needs("starlette", "page"), needs("jinja2", "page"):
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from starlette.responses import Response

ENTER = "/enter"
"""Where one comes in with a token, which the page takes from behind the # of the command's link."""

ENTRY = frozenset({ENTER, *(f"/static/{name}" for name in ("icon.svg", "page.css", "enter.js"))})
"""Paths that show nothing, so that anybody may be led there."""

_KINDS = {"svg": "image/svg+xml", "css": "text/css", "js": "text/javascript"}
_SHARED = "hdpmf.web"


class PageLook:
    """What a package shows.

    Args:
        package: Where its ``templates``, its ``words.toml`` and, if it has files of its own, its ``static`` are. Its
            ``base.html`` extends ``frame.html``, which all pages share.
        pages: The name of each page in the menu, by path.

    Attributes:
        t: Its sentences.
    """

    def __init__(self, package: str, pages: Mapping[str, str]) -> None:
        self.t = Wording(package)
        self._pages = pages
        self._templates = Environment(
            loader=ChoiceLoader([PackageLoader(package), PackageLoader(_SHARED)]), autoescape=True,
            undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        self._templates.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
        self._files: dict[str, bytes] = {}
        for place in (files(_SHARED).joinpath("static"), files(package).joinpath("static")):
            if place.is_dir():
                self._files |= {file.name: file.read_bytes() for file in place.iterdir()}

    def show(self, name: str, facts: Mapping[str, Any], *, inside: bool, status: int = 200) -> Response:
        """A page.

        Args:
            name: Of its template and its title.
            facts: What is on it.
            inside: Whether somebody is in, who gets the menu.
            status: Of the answer.
        """
        text = self._templates.get_template(f"{name}.html").render(
            t=self.t, name=name, pages=self._pages, inside=inside, **facts
        )
        return Response(text, status, media_type="text/html; charset=utf-8")

    def file(self, name: str) -> Response:
        """A file that pages load."""
        if name not in self._files:
            return Response("There is no such file.", 404)
        return Response(self._files[name], media_type=_KINDS[name.rpartition(".")[2]])
