"""``hdpmf doctor``, ``methods`` and ``demo``: the installation, and the methods."""

from __future__ import annotations

import importlib.metadata as packages
import json
import os
import platform
import re
import shlex
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from hdpmf.cli.data import dataset_fields
from hdpmf.cli.inference import item_fields, list_table
from hdpmf.cli.options import (
    DATASET_NAMES,
    argument,
    command,
    option,
)
from hdpmf.cli.output import Block, Result, Table, privacy_line
from hdpmf.common.methods import METHODS, Method, method_named
from hdpmf.errors import ConfigError, MissingExtraError

_PACKAGES = (
    "hdpmf",
    "numpy",
    "scipy",
    "numba",
    "polars",
    "msgspec",
    "safetensors",
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
    "dask": "experiments on a cluster (--backend dask://HOST:8786)",
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


# Enough ratings per item that the noise of epsilon 1 leaves something to see, few enough to train
# in seconds.
_WORLD: dict[str, Any] = {"n_users": 3_000, "n_items": 800, "n_ratings": 400_000}
_QUICK_WORLD: dict[str, Any] = {"n_users": 300, "n_items": 100, "n_ratings": 9_000}

_RECOMMENDING = "hdp-sum"  # the most accurate one that is proved to hide values and presence
_N_RECOMMENDED = 5


@command
def demo(
    quick: Annotated[bool, option("Little data: to see that it runs.")] = False,
) -> Result:
    """Train every method on synthetic data; print a table and recommendations."""
    from hdpmf.common.data import load_dataset
    from hdpmf.common.privacy import PrivacySpec
    from hdpmf.models import compare, make_model
    from hdpmf.models.training import FarFromConvergedWarning

    begin = time.perf_counter()
    world = load_dataset("synthetic", **(_QUICK_WORLD if quick else _WORLD))
    models = {
        name: make_model(name, **({"rng": 0} if "rng" in method.options else {}))
        for name, method in METHODS.items()
        if not method.lists_only
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FarFromConvergedWarning)  # the table says so
        found = compare(models.values(), world, weights=PrivacySpec(), progress=True)
    user = world.users.ids[0].item()
    recommended = models[_RECOMMENDING].recommend(user, _N_RECOMMENDED)
    rows = list(found)
    numbers = ("mse", "mae", "epsilon", "fit_seconds")
    text: list[Block] = [
        Table(
            ("method", *numbers, "epsilon is"),
            [
                (
                    row["model"],
                    *("" if row[name] is None else f"{row[name]:.3f}" for name in numbers),
                    row["epsilon_is"],
                )
                for row in rows
            ],
            numeric=numbers,
            title=found.title,
        ),
        *(
            f"{METHODS[name].label}. {privacy_line(models[name].privacy, 'explain', name)}"
            for name in (_RECOMMENDING, "hdpmf")
        ),
        "",
        list_table(recommended, f"For user {user}, by {METHODS[_RECOMMENDING].label}:"),
        "",
        f"all of it took {time.perf_counter() - begin:.1f} s",
    ]
    fields = {
        "data": world.name,
        "methods": rows,
        "recommendations": {"user": user, "items": item_fields(recommended)},
    }
    return Result(fields, text)
