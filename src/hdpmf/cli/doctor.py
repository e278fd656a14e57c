"""``hdpmf doctor``: check the installation."""

from __future__ import annotations

import importlib.metadata as packages
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from hdpmf.cli.data import dataset_fields
from hdpmf.cli.options.common import DATASET_NAMES, argument, command
from hdpmf.cli.output import Block, Result, Table
from hdpmf.errors import ConfigError, MissingExtraError

_PACKAGES = (
    "hdpmf",
    "numpy",
    "scipy",
    "numba",
    "polars",
    "msgspec",
    "safetensors",
    "matplotlib",
    "typer",
    "rich",
)
_VARIABLES = ("HDPMF_DATA", "HDPMF_CACHE", "NUMBA_CACHE_DIR")

_PURPOSES = {
    "federation": "devices and a recommender on machines of their own",
    "servers": "one of the two servers that sum reports",
    "postgres": "a sum server's database in PostgreSQL",
    "tokens": "tokens of a recommender for reports to two servers, faster",
    "page": "the pages in the browser (hdpmf device open)",
    "gpu": 'training on a GPU (on="gpu")',
    "flower": "the paper's rounds over machines, on Flower",
    "optuna": 'search for parameters by Optuna (search="bayes")',
    "dask": "experiments on a cluster (--backend dask://HOST:8786)",
    "traces": "OpenTelemetry traces of services (OTEL_EXPORTER_OTLP_ENDPOINT)",
    "bench": "benchmarks against other libraries",
    "docs": "the site of the documentation (make docs)",
    "dev": "every check and test (make test)",
}
"""What each extra is for."""


@command
def doctor(
    wanted: Annotated[
        list[str] | None,
        argument(f"Only what this needs: {', '.join(_PURPOSES)}.", "[EXTRA]...", _PURPOSES),
    ] = None,
) -> Result:
    """Show what is installed, what is missing for what you want to do, and how to install it.

    With EXTRA, only whether these can be used: the exit code is 9 if something is missing.
    """
    if wanted:
        return _check_extras(wanted)
    report = examine()
    return Result(report, _report_text(report))


def _check_extras(wanted: list[str]) -> Result:
    from hdpmf.private.kernels.gpu.availability import explain

    known = _extras()
    unknown = next((name for name in wanted if name not in known), None)
    if unknown is not None:
        raise ConfigError(f"there is no extra {unknown!r}; choose from {', '.join(known)}")
    extras = {name: known[name] for name in wanted}
    missing = any(extra["missing"] for extra in extras.values())
    gpu = explain() if "gpu" in wanted else None
    text: list[Block] = [_extras_table(extras), *([] if gpu is None else [f"GPU: {gpu}"])]
    return Result(
        {"extras": extras, "gpu": gpu}, text, exit_code=MissingExtraError.exit_code * missing
    )


def _extras_table(extras: dict[str, dict[str, Any]]) -> Table:
    rows = [
        (
            name,
            extra["purpose"],
            f"missing {', '.join(extra['missing'])}; run: {extra['command']}"
            if extra["missing"]
            else "installed",
        )
        for name, extra in extras.items()
    ]
    return Table(("extra", "for", "state"), rows)


def examine() -> dict[str, Any]:
    """Return the facts that ``doctor`` shows."""
    from hdpmf.common.base.threads import available_cores
    from hdpmf.common.data import cache_folder
    from hdpmf.private.kernels.gpu.availability import explain

    return {
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "cores": available_cores(),
        "machine_cores": os.cpu_count() or 1,
        "gpu": explain(),
        "environment": {name: os.environ.get(name) for name in _VARIABLES},
        "data_cache": str(cache_folder()),
        "datasets": {
            name: {key: known[key] for key in ("title", "found", "how_to_get")}
            for name, known in ((name, dataset_fields(name)) for name in DATASET_NAMES)
        },
        "extras": _extras(),
    }


def _report_text(report: dict[str, Any]) -> Iterator[Block]:
    installed = {"python": report["python"], **report["versions"]}
    versions = [(name, found or "missing") for name, found in installed.items()]
    yield Table(("package", "version"), versions)
    cores = f"{report['cores']} for this process, {report['machine_cores']} in the machine"
    rows = [
        ("cores", cores),
        ("GPU", report["gpu"]),
        *((name, value or "not set") for name, value in report["environment"].items()),
        ("data cache", report["data_cache"]),
    ]
    yield from ("", Table(("setting", "value"), rows))
    rows = [
        (name, each["found"] or each["how_to_get"]) for name, each in report["datasets"].items()
    ]
    yield from ("", Table(("data set", "where"), rows))
    yield from ("", _extras_table(report["extras"]))


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
