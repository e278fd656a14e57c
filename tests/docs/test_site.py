"""The site of the documentation: it is built without a network, asks nobody for anything, and no
link is dead.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from functools import cache
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from urllib.parse import unquote

import pytest

import hdpmf

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def tool():
    spec = spec_from_file_location("site_tool", ROOT / "tools" / "site.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Page(HTMLParser):
    """Links, names that links can lead to, and what a page loads by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.names: set[str] = {""}
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.names |= {name for key in ("id", "name") if (name := found.get(key))}
        if tag == "a" and found.get("href"):
            self.links.add(found["href"])
        elif tag in ("script", "img", "iframe", "source") and found.get("src"):
            self.loads.add(found["src"])
        elif (
            tag == "link"
            and found.get("rel") not in ("canonical", "prev", "next")
            and found.get("href")
        ):
            self.loads.add(found["href"])


@cache
def parsed(path: Path) -> Page:
    return Page(path.read_text("utf-8"))


def dead_links(site: Path) -> dict[str, list[str]]:
    """By page: links and files to load that are not there."""
    pages = {path: parsed(path) for path in site.rglob("*.html")}
    dead = defaultdict(list)
    for path, page in pages.items():
        if (
            path.name == "404.html"
        ):  # served for any address, so that its links start at the root of a server
            continue
        for link in sorted(page.links | page.loads):
            place, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", place) or place.startswith("//"):
                continue
            target = Path(os.path.normpath(path.parent / unquote(place))) if place else path
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].names if target in pages else {""}
            # A page of the report makes names by its script only for what it opens itself.
            if not target.is_file() or (target.suffix == ".html" and unquote(anchor) not in known):
                dead[str(path.relative_to(site))].append(link)
    return dict(dead)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built in a copy, where whoever asked the network would wait in vain."""
    folder = tmp_path_factory.mktemp("site")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "results.sqlite")
    for name in ("docs", "src", "tools", "deploy"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "mkdocs.yml", *(path.name for path in ROOT.glob("*.md"))):
        shutil.copy(ROOT / name, folder / name)
    web = ("README.md", "core/README.md", "examples/node")
    for name in ("spec/wire.md", *(f"clients/web/{own}" for own in web)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    (folder / "build" / "site" / "0.1.0").mkdir(parents=True)
    nowhere = dict.fromkeys(
        ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"
    )
    command = [sys.executable, str(folder / "tools" / "site.py")]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | nowhere,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout + done.stderr
    return folder / "build" / "site"


@pytest.fixture(scope="module")
def version(site: Path) -> Path:
    return site / tool().VERSION


def test_no_link_is_dead(site: Path) -> None:
    shutil.rmtree(site / "0.1.0", ignore_errors=True)
    assert dead_links(site) == {}


def test_a_dead_link_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there">b</a><a href="c.html">c</a><img src="d.png">'
    )
    (tmp_path / "b.html").write_text(
        '<h1 id="here">b</h1><a href="a.html">a</a><a href="https://example.org">e</a>'
    )
    assert dead_links(tmp_path) == {"a.html": ["b.html#there", "c.html", "d.png"]}


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = {link for path in site.rglob("*.html") for link in parsed(path).loads}
    assert {link for link in loaded if re.match(r"(https?:)?//", link)} == set()
    for path in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import) *[\"']?(https?:)?//", path.read_text("utf-8")), path


def test_every_page_is_there_and_the_home_page_is_the_readme(version: Path) -> None:
    pages = list((ROOT / "docs").rglob("*.md"))
    assert len(pages) > 25
    for path in pages:
        assert (version / path.relative_to(ROOT / "docs").with_suffix(".html")).is_file(), path
    assert "Good recommendations, although nobody has to trust" in (
        version / "index.html"
    ).read_text("utf-8")
    assert (version / "results" / "csv" / "figure_epsilon.csv").is_file()
    assert "github.com" not in (version / "proofs" / "index.html").read_text("utf-8")


def test_the_home_page_begins_with_code_a_picture_and_three_doors_and_has_no_formula_before(
    version: Path,
) -> None:
    text = (version / "index.html").read_text("utf-8")
    article = text[text.index("<article") :]
    head = article[: article.index('<h2 id="results"')]
    pictures = re.findall(r'<img[^>]* src="([^"]+)"', head)
    assert pictures == ["images/persons.svg"]
    words = re.sub(r"<(?!img)[^>]+>", "", head)  # code is in colours
    assert words.index("pip install") < words.index("load_dataset") < words.index("<img")
    doors = re.findall(r'<strong><a href="([^"]+)">', head)
    assert doors == ["app.html", "deploy.html", "tutorial.html"]
    assert "W_ij" not in head
    assert "W_ij" in article


def test_the_api_has_every_public_name(version: Path) -> None:
    names = {name for path in (version / "api").glob("*.html") for name in parsed(path).names}
    public = {name.rpartition(".")[2] for name in names if name.startswith("hdpmf.")}
    assert set(hdpmf.__all__) <= public
    models = (version / "api" / "models.html").read_text("utf-8")
    assert "epsilon" in models
    assert ":::" not in models


def test_search_and_dark_mode_are_there(version: Path) -> None:
    index = json.loads((version / "search.json").read_text("utf-8"))
    assert len(index["items"]) > 100
    assert 'data-md-color-scheme="slate"' in (version / "index.html").read_text("utf-8")


def test_versions_stand_side_by_side(site: Path, tmp_path: Path) -> None:
    menu = json.loads((site / "versions.json").read_text("utf-8"))
    assert [entry["version"] for entry in menu] == [tool().VERSION, "0.1.0"]
    assert menu[0]["aliases"] == ["latest"]
    assert f"{tool().VERSION}/index.html" in (site / "index.html").read_text("utf-8")
    for version in ("0.9.0", "0.10.0"):
        (tmp_path / "html").mkdir()
        tool().publish(tmp_path / "html", tmp_path / "site", version)
    assert [e["version"] for e in json.loads((tmp_path / "site/versions.json").read_text())] == [
        "0.10.0",
        "0.9.0",
    ]
