"""``hdpmf doctor``, ``cite`` and ``methods``: the installation, and the methods."""

import importlib.metadata as packages
import json
import platform
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib.resources import files
from typing import Annotated, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from hdpmf.cli.options import argument, command
from hdpmf.cli.output import Block, Result, Table
from hdpmf.common.methods import METHODS, Method, method_named

_PACKAGES = ("hdpmf", "numpy", "scipy", "numba", "polars", "msgspec")

_PURPOSES = {
    "federation": "devices and a recommender on machines of their own",
    "servers": "one of the two servers that sum reports",
    "tokens": "tokens of a recommender for reports to two servers, faster",
    "gpu": 'training on a GPU (on="gpu")',
    "flower": "the paper's rounds over machines, on Flower",
    "dask": "experiments on a cluster (--backend dask://HOST:8786)",
    "bench": "benchmarks against other libraries",
    "docs": "the site of the documentation (make docs)",
    "dev": "every check and test (make test)",
}
"""What each extra is for."""


@command
def doctor() -> Result:
    """Show what is installed, what is missing for what you want to do, and how to install it."""
    from hdpmf.common.base.threads import available_cores
    from hdpmf.common.data import cache_folder
    from hdpmf.private.kernels.gpu.availability import explain

    fields = {
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "cores": available_cores(),
        "gpu": explain(),
        "data_cache": str(cache_folder()),
        "extras": _extras(),
    }
    return Result(fields, _lines(fields))


@command
def cite() -> Result:
    """Print BibTeX entries of the paper and of this version of hdpmf."""
    text = files("hdpmf.cli").joinpath("citation.bib").read_text(encoding="utf-8")
    text = text.replace("VERSION", packages.version("hdpmf"))
    return Result({"bibtex": text}, text.splitlines())


def _lines(fields: dict[str, Any]) -> Iterator[Block]:
    installed = {"python": fields["python"], **fields["versions"]}
    versions = [(name, found or "missing") for name, found in installed.items()]
    yield Table(("package", "version"), versions)
    settings = {"cores": "cores", "GPU": "gpu", "data cache": "data_cache"}
    rows = [(name, str(fields[field])) for name, field in settings.items()]
    yield from ("", Table(("setting", "value"), rows))
    extras = [
        (
            name,
            extra["purpose"],
            f"missing {', '.join(extra['missing'])}; run: {extra['command']}"
            if extra["missing"]
            else "installed",
        )
        for name, extra in fields["extras"].items()
    ]
    yield from ("", Table(("extra", "for", "state"), extras))


def _version(name: str) -> str | None:
    try:
        return packages.version(name)
    except packages.PackageNotFoundError:
        return None


def _extras() -> dict[str, dict[str, Any]]:
    """Return the optional dependencies, from the package's metadata."""
    about = packages.distribution("hdpmf")
    extras = about.metadata.get_all("Provides-Extra") or ()
    wanted: dict[str, list[str]] = {name: [] for name in extras}
    for requirement in about.requires or ():
        extra = re.search(r"""extra\s*==\s*['"]([^'"]+)""", requirement)
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        if extra and name and extra[1] in wanted:
            wanted[extra[1]].append(name[0])
    return {
        extra: {
            "purpose": _PURPOSES.get(extra, ""),
            "missing": [name for name in names if _version(name) is None],
            "command": _install_command(about, extra),
        }
        for extra, names in wanted.items()
    }


def _install_command(about: packages.Distribution, extra: str) -> str:
    """Return the pip command that fits this installation: a checkout, or by name."""
    target = "hdpmf"
    flags = ""
    origin = json.loads(about.read_text("direct_url.json") or "{}")
    if "dir_info" in origin:
        target = url2pathname(urlsplit(origin["url"]).path)
        flags = "-e " if origin["dir_info"].get("editable") else ""
    python = shlex.quote(sys.executable)
    return f"{python} -m pip install {flags}{shlex.quote(f'{target}[{extra}]')}"


@command
def methods(
    method: Annotated[str | None, argument("Only this one.", "METHOD", words=METHODS)] = None,
) -> Result:
    """List the methods with the worth of their epsilon, or describe METHOD."""
    chosen = tuple(METHODS.values()) if method is None else (method_named(method),)
    text: Iterator[Block] | list[Block]
    if method is not None:
        text = _description(chosen[0])
    else:
        rows = [
            (known.name, known.claim().status, known.claim().against, known.summary)
            for known in chosen
        ]
        text = [Table(("method", "epsilon is", "against who sees", "what it is"), rows)]
    return Result({"methods": [_method_fields(known) for known in chosen]}, text)


def _description(method: Method) -> Iterator[Block]:
    claim = method.claim()
    yield from (f"{method.label}: {method.summary}", "")
    yield from (method.form.sent, method.form.stays_open, "")
    against = f"against an observer of: {claim.against}"
    yield f"epsilon: {claim.status.upper()}, {against}; {claim.reason}"
    yield ""
    defaults = {name: method.default(name) for name in method.options}
    rows = [
        (option.flag, "" if defaults[name] is None else str(defaults[name]), option.words)
        for name, option in method.options.items()
    ]
    yield Table(("option", "default", ""), rows) if rows else "It has no options."


def _method_fields(method: Method) -> dict[str, Any]:
    return {
        "name": method.name,
        "label": method.label,
        "summary": method.summary,
        "family": method.family,
        "views": list(method.views),
        "claims": {view: asdict(claim) for view, claim in method.form.claims.items()},
        "options": {
            name: {
                "flag": option.flag,
                "default": method.default(name),
                "help": option.help,
            }
            for name, option in method.options.items()
        },
        "fixed": dict(method.fixed),
    }
