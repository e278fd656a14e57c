"""``hdpmf doctor`` and ``hdpmf health``: check the installation, and check that a service
answers.
"""

from __future__ import annotations

import importlib
import importlib.metadata as packages
import json as json_module
import os
import pkgutil
import platform
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import typer

from hdpmf.cli.options.common import DATASET_NAMES, Json
from hdpmf.cli.output import print_json, print_lines, print_table

_SHOWN = (
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


def doctor(json: Json = False) -> None:
    """Tell what is installed, threads, caches, data found, extras missing and the command to get
    them.
    """
    report = examine()
    if json:
        print_json(report)
        return
    installed = {"python": report["python"], **report["versions"]}
    print_table(
        ("package", "version"), [(name, found or "missing") for name, found in installed.items()]
    )
    kernels = report["kernels"]
    rows = [
        ("cores", f"{report['cores']} for this process, {report['machine_cores']} in the machine"),
        (
            "kernel cache",
            f"{kernels['cache']} ({'writable' if kernels['writable'] else 'NOT writable'})",
        ),
        ("kernels", _compiled_in_words(kernels["compiled"])),
        ("GPU", report["gpu"]),
        *((name, value or "not set") for name, value in report["environment"].items()),
        ("data cache", report["data_cache"]),
    ]
    print_lines("")
    print_table(("place", "found"), rows)
    print_lines("")
    print_table(
        ("data set", "where"),
        [
            (name, dataset["found"] or dataset["how_to_get"])
            for name, dataset in report["datasets"].items()
        ],
    )
    print_lines("")
    print_table(
        ("extra", "state"),
        [
            (
                name,
                f"missing {', '.join(extra['missing'])}; run: {extra['command']}"
                if extra["missing"]
                else "installed",
            )
            for name, extra in report["extras"].items()
        ],
    )


def examine() -> dict[str, Any]:
    """Everything that ``doctor`` knows, as plain values."""
    from hdpmf.cli.data import listed
    from hdpmf.common.base.threads import available_cores
    from hdpmf.common.data import cache_folder
    from hdpmf.private.kernels.gpu.availability import explain

    return {
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _SHOWN},
        "cores": available_cores(),
        "machine_cores": os.cpu_count() or 1,
        "kernels": _kernels(),
        "gpu": explain(),
        "environment": {
            name: os.environ.get(name) for name in ("HDPMF_DATA", "HDPMF_CACHE", "NUMBA_CACHE_DIR")
        },
        "data_cache": str(cache_folder()),
        "datasets": {
            name: {key: known[key] for key in ("title", "found", "how_to_get")}
            for name, known in ((name, listed(name)) for name in DATASET_NAMES)
        },
        "extras": _extras(),
    }


def _version(name: str) -> str | None:
    try:
        return packages.version(name)
    except packages.PackageNotFoundError:
        return None


def _kernels() -> dict[str, Any]:
    """Where Numba keeps the compiled kernels of this installation, and which are there for
    today's source.
    """
    caches: set[Path] = set()
    compiled: dict[str, bool] = {}
    for module, kernel in _cached_kernels():
        folder = Path(kernel.stats.cache_path)
        source = Path(module.__file__ or "")
        caches.add(folder)
        # Numba's name for a kernel's index; an index older than the source is not used.
        line = kernel.py_func.__code__.co_firstlineno
        found = folder.glob(f"{source.stem}.{kernel.py_func.__qualname__}-{line}.*.nbi")
        fresh = any(index.stat().st_mtime >= source.stat().st_mtime for index in found)
        compiled[source.stem] = compiled.get(source.stem, True) and fresh
    return {
        "cache": ", ".join(sorted(map(str, caches))),
        "compiled": compiled,
        "writable": all(os.access(_nearest(folder), os.W_OK) for folder in caches),
    }


def _compiled_in_words(compiled: dict[str, bool]) -> str:
    waiting = [name for name, ready in compiled.items() if not ready]
    if not waiting:
        return "compiled"
    return (
        f"compiled, but for {', '.join(waiting)}: the first training that needs one "
        "does it, in a few seconds"
    )


def _cached_kernels() -> Iterator[tuple[ModuleType, Any]]:
    from numba.core.dispatcher import Dispatcher

    from hdpmf.private import kernels

    for entry in pkgutil.iter_modules(kernels.__path__):
        module = importlib.import_module(f"{kernels.__name__}.{entry.name}")
        for kernel in vars(module).values():
            own = isinstance(kernel, Dispatcher) and kernel.py_func.__module__ == module.__name__
            if own and kernel.stats.cache_path is not None:
                yield module, kernel


def _nearest(folder: Path) -> Path:
    """The folder, or the one it would be made in."""
    return next((place for place in (folder, *folder.parents) if place.exists()), folder)


def _extras() -> dict[str, dict[str, Any]]:
    """The optional dependencies, from the package's own metadata."""
    about = packages.distribution("hdpmf")
    wanted: dict[str, list[str]] = {
        name: [] for name in about.metadata.get_all("Provides-Extra") or ()
    }
    for requirement in about.requires or ():
        extra = re.search(r"""extra\s*==\s*['"]([^'"]+)""", requirement)
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        if extra and name and extra[1] in wanted:
            wanted[extra[1]].append(name[0])
    return {
        extra: {
            "missing": [name for name in names if _version(name) is None],
            "command": _install_command(about, extra),
        }
        for extra, names in wanted.items()
    }


def _install_command(about: packages.Distribution, extra: str) -> str:
    """The pip command for the way in which this very installation was made (a checkout, or by
    name).
    """
    target, flags = "hdpmf", ""
    origin = json_module.loads(about.read_text("direct_url.json") or "{}")
    if "dir_info" in origin:
        target = url2pathname(urlsplit(origin["url"]).path)
        flags = "-e " if origin["dir_info"].get("editable") else ""
    return (
        f"{shlex.quote(sys.executable)} -m pip install {flags}{shlex.quote(f'{target}[{extra}]')}"
    )


_SECONDS = 5.0


def health(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            envvar="HDPMF_FOLDER",
            help="A recommender's or a server's folder, or a device's store.",
        ),
    ],
    json: Json = False,
) -> None:
    """Ask the process that serves PATH whether it is well; nothing is written. Exit code 12 if
    it is not.
    """
    found = _asked(path)
    if json:
        print_json({"path": str(path), "healthy": True, **found})
    else:
        print_lines(f"{path}: {found['says']}")


def _asked(path: Path) -> dict[str, Any]:
    from hdpmf.errors import ConfigError

    if path.is_file():
        return _device(path)
    if (path / "card.json").is_file():
        return _server(path)
    if (path / "config.toml").is_file():
        return _recommender(path)
    raise ConfigError(f"{path} is no folder of a recommender or a server, and no device's store")


def _server(path: Path) -> dict[str, Any]:
    from hdpmf.errors import FederationError
    from hdpmf.untrusted.aggregator.folder import AggregatorFolder

    place = AggregatorFolder(path)
    config = place.config
    status = _get(config.host, config.port, config.name, place.card.authority)
    if status != 200:
        raise FederationError(f"the server of {path} answers {status}; its log says why")
    return {"kind": config.role, "says": f"the {config.role} answers"}


def _recommender(path: Path) -> dict[str, Any]:
    from hdpmf.errors import FederationError, StorageError
    from hdpmf.untrusted.service.folder import ServiceFolder

    place = ServiceFolder(path)
    if not place.served():
        raise FederationError(f"nothing serves {path}: hdpmf recommender serve {path}")
    try:
        authority = (place.transport_folder / "tls" / "authority.pem").read_text("ascii")
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot read the authority of {path}: {error}") from error
    _get(
        place.config.host, place.config.port, place.config.names[0], authority
    )  # any answer is a sign of life
    return {"kind": "recommender", "says": "the recommender answers"}


def _device(path: Path) -> dict[str, Any]:
    from hdpmf.common.base.platform import lock_file
    from hdpmf.errors import FederationError, StorageError

    try:
        with path.with_name(path.name + ".lock").open() as stream:
            lock_file(stream.fileno(), shared=True)
    except BlockingIOError:
        return {"kind": "device", "says": "the device answers its recommender"}
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StorageError(f"cannot look at {path}: {error.strerror}") from error
    raise FederationError(f"nothing answers a recommender from {path}: hdpmf device join {path}")


def _get(host: str, port: int, name: str, authority: str) -> int:
    """The status of ``/healthz`` by HTTPS, from this machine, by the certificate that the folder
    has.
    """
    import http.client
    import socket
    import ssl

    from hdpmf.errors import TransportError

    near = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104  # a comparison
    try:
        trust = ssl.create_default_context(cadata=authority)
        with (
            socket.create_connection((near, port), _SECONDS) as plain,
            trust.wrap_socket(plain, server_hostname=name) as secured,
        ):
            connection = http.client.HTTPConnection(name, port, timeout=_SECONDS)
            connection.sock = secured
            connection.request("GET", "/healthz")
            return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise TransportError(
            f"nothing answers well on {near}:{port} ({error or type(error).__name__})"
        ) from error
