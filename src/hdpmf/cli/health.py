"""``hdpmf health``: whether what serves a folder or a store is there and answers; for containers and monitors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hdpmf.cli.shared.options import Json
from hdpmf.cli.shared.output import print_json, print_lines

_SECONDS = 5.0


def health(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", envvar="HDPMF_FOLDER", help="A recommender's or a server's folder, or a device's store."
        ),
    ],
    json: Json = False,
) -> None:
    """Ask the process that serves PATH whether it is well; nothing is written. Exit code 12 if it is not."""
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
    from hdpmf.aggregator.folder import AggregatorFolder
    from hdpmf.errors import FederationError

    place = AggregatorFolder(path)
    config = place.config
    status = _get(config.host, config.port, config.name, place.card.authority)
    if status != 200:
        raise FederationError(f"the server of {path} answers {status}; its log says why")
    return {"kind": config.role, "says": f"the {config.role} answers"}


def _recommender(path: Path) -> dict[str, Any]:
    from hdpmf.errors import FederationError, StorageError
    from hdpmf.service.folder import ServiceFolder

    place = ServiceFolder(path)
    if not place.served():
        raise FederationError(f"nothing serves {path}: hdpmf recommender serve {path}")
    try:
        authority = (place.transport_folder / "tls" / "authority.pem").read_text("ascii")
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot read the authority of {path}: {error}") from error
    _get(place.config.host, place.config.port, place.config.names[0], authority)  # any answer is a sign of life
    return {"kind": "recommender", "says": "the recommender answers"}


def _device(path: Path) -> dict[str, Any]:
    from hdpmf.errors import FederationError, StorageError
    from hdpmf.system import lock_file

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
    """The status of ``/healthz`` by HTTPS, from this machine, by the certificate that the folder has."""
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
        raise TransportError(f"nothing answers well on {near}:{port} ({error or type(error).__name__})") from error
