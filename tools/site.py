"""Build the documentation's site (``make docs``): pages, API, and versions side by side.

Pages are written to be read in the repository, too. So they are put together in ``build/docs``
first, where links lead from page to page: the README becomes the home page, proofs and decisions
get folders, and files of the source that a page links to come along. The site of this version goes
to ``build/site/VERSION``; other versions that are there stay, and each shows all in its menu.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
STAGE, HTML, SITE = ROOT / "build" / "docs", ROOT / "build" / "html", ROOT / "build" / "site"
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]

LINK = re.compile(r"(\]\(|<img src=\")([^)\s\"]+)(\)|\")")
FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)

REDIRECT = """<!doctype html>
<meta charset="utf-8">
<title>hdpmf</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
<p><a href="{version}/index.html">The documentation of hdpmf {version}</a></p>
"""


def places(root: Path) -> dict[Path, Path]:
    """Return each file of the repository with its path in the site, both relative."""
    found = {Path("README.md"): Path("index.md")}
    found |= {
        Path(name): Path(name.lower())
        for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
    }
    found[Path("clients/web/README.md")] = Path("app.md")
    found[Path("clients/web/core/README.md")] = Path("core.md")
    found[Path("spec/wire.md")] = Path("wire.md")
    for path in sorted((root / "docs").rglob("*")):
        if path.is_file() and path.suffix != ".ipynb":
            found[path.relative_to(root)] = path.relative_to(root / "docs")
    found[Path("docs/adr")] = Path("adr/index.md")
    for path in sorted((root / "src/hdpmf/common/privacy/proofs").glob("*.md")):
        name = "index.md" if path.name == "README.md" else path.name
        found[path.relative_to(root)] = Path("proofs") / name
    return found


def rewritten(
    text: str, source: Path, known: dict[Path, Path], root: Path
) -> tuple[str, set[Path]]:
    """Return a page with links that work in the site, and the source files to copy for them."""
    here, needed = known[source].parent, set[Path]()

    def lead(match: re.Match[str]) -> str:
        target, _, anchor = match[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        path = Path(os.path.normpath(source.parent / target))
        if path not in known and (root / path).is_file():
            needed.add(path)
        place = known.get(path, Path("files") / path)
        return f"{match[1]}{os.path.relpath(place, here)}{'#' if anchor else ''}{anchor}{match[3]}"

    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(lead, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(lead, text[end:])]), needed


def api_pages(root: Path) -> Iterator[tuple[Path, str]]:
    """The public names, a page for each module that has them."""
    tree = ast.parse((root / "src/hdpmf/__init__.py").read_text("utf-8"))
    typed = next(node for node in tree.body if isinstance(node, ast.If))
    homes = {
        node.module: [alias.name for alias in node.names]
        for node in typed.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
    }
    lines = ["# API", "", "What `from hdpmf import ...` gives. Everything else may change.", ""]
    for module, names in homes.items():
        page = module.removeprefix("hdpmf.")
        listed = ", ".join(f"[`{name}`]({page}.md#{module}.{name})" for name in names)
        lines.append(f"- [`{module}`]({page}.md): {listed}")
        body = "\n\n".join(f"::: {module}.{name}" for name in names)
        yield Path("api") / f"{page}.md", f"# `{module}`\n\n{body}\n"
    yield Path("api/index.md"), "\n".join(lines) + "\n"


def decisions_page(root: Path) -> str:
    """The records of decisions, by their titles."""
    lines = ["# Decisions", "", "What was decided, and why.", ""]
    for path in sorted((root / "docs/adr").glob("*.md")):
        lines.append(f"- [{path.read_text('utf-8').splitlines()[0].lstrip('# ')}]({path.name})")
    return "\n".join(lines) + "\n"


def notebook_page(path: Path) -> str:
    """A notebook as a page: its text, its code, and what the code showed."""
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "text/html" in data:
                parts.append("".join(data["text/html"]))
                continue
            shown = output.get("text") or data.get("text/plain") or []
            parts.append("```text\n" + "".join(shown).rstrip() + "\n```")
    return "\n\n".join(parts) + "\n"


def stage(root: Path, folder: Path) -> None:
    """Put the pages together."""
    shutil.rmtree(folder, ignore_errors=True)
    known = places(root)
    copied: dict[Path, Path] = {}
    pages: dict[Path, str] = dict(api_pages(root)) | {Path("adr/index.md"): decisions_page(root)}
    for source, place in known.items():
        if (root / source).is_dir():
            continue
        if source.suffix == ".md":
            pages[place], needed = rewritten(
                (root / source).read_text("utf-8"), source, known, root
            )
            copied |= {path: Path("files") / path for path in needed}
        else:
            copied[source] = place
    for path in sorted((root / "docs").rglob("*.ipynb")):
        pages[path.relative_to(root / "docs").with_suffix(".md")] = notebook_page(path)
    for place, text in pages.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, encoding="utf-8")
    for source, place in copied.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / source, folder / place)


def publish(html: Path, site: Path, version: str) -> None:
    """Put a built version beside the others, newest first in the menu, and lead visitors to it."""
    shutil.rmtree(site / version, ignore_errors=True)
    site.mkdir(parents=True, exist_ok=True)
    shutil.move(html, site / version)
    there = [path.name for path in site.iterdir() if re.fullmatch(r"\d+(\.\d+)*", path.name)]
    there.sort(key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    menu = [
        {"version": name, "title": name, "aliases": ["latest"] * (name == there[0])}
        for name in there
    ]
    (site / "versions.json").write_text(json.dumps(menu, indent=1), encoding="utf-8")
    (site / "index.html").write_text(REDIRECT.format(version=there[0]), encoding="utf-8")


def main() -> None:
    """Build it, strictly: a link that leads nowhere ends it."""
    stage(ROOT, STAGE)
    shutil.rmtree(HTML, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--clean",
        "--strict",
        "-f",
        str(ROOT / "mkdocs.yml"),
    ]
    done = subprocess.run(command, cwd=ROOT, check=False)  # noqa: S603  # our own command
    if done.returncode:
        sys.exit(done.returncode)
    publish(HTML, SITE, VERSION)
    print(
        f"open {SITE.relative_to(Path.cwd()) if SITE.is_relative_to(Path.cwd()) else SITE}"
        "/index.html"
    )


if __name__ == "__main__":
    main()
