"""Jinja2 templates, sentences and static files of a page."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from hdpmf.common.web.local_server import ENTER
from hdpmf.errors import needs

with needs("starlette", "page"), needs("jinja2", "page"):
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from starlette.responses import Response


class Wording:
    """Sentences of a page by name, such as ``rate.title``, from its package's ``words.toml``."""

    def __init__(self, package: str) -> None:
        self.sentences = _sentences(package)

    def __call__(self, name: str, **values: object) -> str:
        """A sentence with its values."""
        return self.sentences[name].format(**values) if values else self.sentences[name]

    def count(self, name: str, n: int, **values: object) -> str:
        """A sentence about ``n`` things: ``name.one`` or ``name.many``."""
        return self(f"{name}.{'one' if n == 1 else 'many'}", n=f"{n:,}", **values)


@cache
def _sentences(package: str) -> Mapping[str, str]:
    return _flat(tomllib.loads(files(package).joinpath("words.toml").read_text("utf-8")))


def _flat(table: Mapping[str, object], before: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        else:
            found[before + name] = str(value)
    return found


ENTRY = frozenset(
    {
        ENTER,
        *(f"/static/{name}" for name in ("icon.svg", "page.css", "enter.js", "app.webmanifest")),
    }
)
"""Paths that show nothing, so that anybody may be led there."""

_KINDS = {
    "svg": "image/svg+xml",
    "css": "text/css",
    "js": "text/javascript",
    "webmanifest": "application/manifest+json",
}

_SHARED = "hdpmf.common.web"


@cache
def _environment(package: str) -> Environment:
    """Return the templates of a package, each of which is compiled once."""
    found = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(_SHARED)]), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    found.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    return found


class PageTemplates:
    """Templates, sentences (``t``) and static files of one package.

    Its ``base.html`` extends ``frame.html``, which all pages share. ``pages`` are the names of
    pages in the menu, by path.
    """

    def __init__(self, package: str, pages: Mapping[str, str]) -> None:
        self.t = Wording(package)
        self._pages = pages
        self._templates = _environment(package)
        self._files: dict[str, bytes] = {}
        for folder in (files(_SHARED).joinpath("static"), files(package).joinpath("static")):
            if folder.is_dir():
                self._files |= {file.name: file.read_bytes() for file in folder.iterdir()}

    def show(
        self, name: str, facts: Mapping[str, Any], *, inside: bool, status: int = 200
    ) -> Response:
        """Render a page with these values; ``inside`` shows the menu."""
        text = self._templates.get_template(f"{name}.html").render(
            t=self.t, name=name, pages=self._pages, inside=inside, **facts
        )
        return Response(text, status, media_type="text/html; charset=utf-8")

    def file(self, name: str) -> Response:
        """Return a static file."""
        if name not in self._files:
            return Response("There is no such file.", 404)
        return Response(self._files[name], media_type=_KINDS[name.rpartition(".")[2]])
