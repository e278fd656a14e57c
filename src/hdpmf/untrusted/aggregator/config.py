"""The configuration file of a server, edited by its operator."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from hdpmf.errors import ConfigError
from hdpmf.untrusted.aggregator.tasks import Rules, ServerRole


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on what callers may use of one server. The descriptions are comments in the file."""

    connections: Annotated[int, Meta(description="Connections at a time, in each worker.")] = 4096
    per_address: Annotated[int, Meta(description="Of these, from one address.")] = 256
    header_seconds: Annotated[float, Meta(description="Time for a request's headers.")] = 10.0
    body_seconds: Annotated[float, Meta(description="Time for the rest of a request.")] = 60.0
    waiting_uploads: Annotated[
        int, Meta(description="Uploads in memory, in each worker; above this: 503, try again.")
    ] = 1024
    waiting_reports: Annotated[
        int, Meta(description="Reports to be aggregated; above this: 503, try again.")
    ] = 1_000_000
    retry_after: Annotated[int, Meta(description="Seconds to wait after a 503.")] = 30
    task_bytes: Annotated[
        int, Meta(description="Largest task with its list of devices, in bytes.")
    ] = 64 << 20
    job_reports: Annotated[int, Meta(description="Reports of an aggregation job.")] = 256

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be more than 0")


class AggregatorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of one of the two servers.

    Attributes:
        organisation: The one that runs it.
        name: Public host name or address; its certificate is for this.
        host: Address that it listens on.
        port: Port that it listens on, also of its public address.
        database: URL of SQLAlchemy; empty for a SQLite file in the folder.
    """

    role: ServerRole
    organisation: str
    name: str
    host: str = "127.0.0.1"
    port: int = 9444
    database: str = ""
    tasks: Rules = Rules()
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if not 0 < self.port < 1 << 16:
            raise ConfigError(f"port must be from 1 to 65535, not {self.port}")
        if self.database and not self.database.startswith(("sqlite:///", "postgresql+psycopg://")):
            raise ConfigError(
                "database must be sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME"
            )

    @property
    def url(self) -> str:
        """The server's public address."""
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"https://{name}:{self.port}"


def read_config(path: Path) -> AggregatorConfig:
    """Read the operator's file; raise ConfigError if it is missing or invalid."""
    try:
        plain = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"{path.parent} is no server's folder; set one up with: hdpmf aggregator init"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    try:
        return msgspec.convert(plain, AggregatorConfig)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None


_ON_CARD = ("role", "organisation", "name", "port")


def config_file(config: AggregatorConfig) -> bytes:
    """Return the file's text, with comments."""
    lines = [
        "# One of two servers that sum reports. Read when it starts.",
        f"# {', '.join(_ON_CARD)}: on the card that others have pinned; do not change them.",
        *(f"{key} = {_toml(getattr(config, key))}" for key in _ON_CARD),
        "# Address to listen on.",
        f"host = {_toml(config.host)}",
        "# A database that several workers can share: postgresql+psycopg://USER@HOST/NAME.",
        f"database = {_toml(config.database)}",
    ]
    for section, part in (("tasks", config.tasks), ("limits", config.limits)):
        lines += ["", f"[{section}]"]
        for field in msgspec.structs.fields(part):
            lines.append(f"# {field.type.__metadata__[0].description}")
            lines.append(f"{field.name} = {_toml(getattr(part, field.name))}")
    return "\n".join([*lines, ""]).encode()


def _toml(value: object) -> str:
    """Return a TOML value; JSON strings, numbers and booleans are TOML."""
    return msgspec.json.encode(value).decode()
