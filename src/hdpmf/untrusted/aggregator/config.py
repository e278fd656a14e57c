"""The configuration file of a server, edited by its operator."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from hdpmf.errors import ConfigError
from hdpmf.untrusted.aggregator.tasks import Rules, ServerRole


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on what callers may use of one server.

    Attributes:
        connections: At a time, in each worker; more are closed at once.
        per_address: Of these, from one address.
        header_seconds: For a request's headers.
        body_seconds: For the rest of it.
        waiting_uploads: Reports that wait to be written down, in each worker; more are asked to
            come back.
        waiting_reports: Reports that wait to be aggregated; more are asked to come back.
        retry_after: Seconds after which they should.
        task_bytes: Of a task with its list of devices.
        job_reports: Reports of an aggregation job.
    """

    connections: int = 4096
    per_address: int = 256
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    waiting_uploads: int = 1024
    waiting_reports: int = 1_000_000
    retry_after: int = 30
    task_bytes: int = 64 << 20
    job_reports: int = 256

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be more than 0")


class TaskRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions for the tasks that a server accepts.

    Attributes:
        minimum: Reports that any sum is over, at least, whatever a task says.
        most_items: Entries of a task's vectors, at most (items, for tasks of ratings).
        allow_noiseless: Take tasks of others (SumVec) without noise: for tests of clients, never
            for people's data.
        skew: Seconds that a device's clock may be ahead.
        keep: Seconds after the end of a task during which its sums can be collected.
        lease: Seconds after which another worker takes over what one has begun.
    """

    minimum: int = Rules.minimum
    most_items: int = Rules.most_items
    allow_noiseless: bool = Rules.allow_noiseless
    skew: float = Rules.skew
    keep: float = Rules.keep
    lease: float = Rules.lease

    def __post_init__(self) -> None:
        _ = self.rules

    @property
    def rules(self) -> Rules:
        """The same as ``Rules``."""
        return Rules(**msgspec.structs.asdict(self))


class AggregatorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of one of the two servers.

    Attributes:
        role: Devices upload to the leader.
        organisation: Who runs it.
        name: Host name or address under which everybody reaches it; its certificate is for this.
        host: Address that it listens on.
        port: And the port, which is also that of its public address.
        database: URL of SQLAlchemy; empty for a SQLite file in the folder.
        tasks: Which tasks it takes part in.
        limits: What others may take of it.
    """

    role: ServerRole
    organisation: str
    name: str
    host: str = "127.0.0.1"
    port: int = 9444
    database: str = ""
    tasks: TaskRules = TaskRules()
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


_REMARKS = {
    "connections": "Connections at a time, in each worker, and how many of them from one address.",
    "header_seconds": "Seconds for a request's headers, and for the rest of it.",
    "waiting_uploads": "Reports that wait to be written down, and to be aggregated; more are "
    "asked to come back.",
    "retry_after": "Seconds after which they should.",
    "minimum": "Reports that any sum is over, at least, whatever a task says.",
    "most_items": "Largest vectors.",
    "allow_noiseless": "Take tasks of others without noise: for tests of clients, never for "
    "people's data.",
    "skew": "Seconds that a device's clock may be ahead.",
    "keep": "Seconds after its end during which a task can be collected.",
    "lease": "Seconds after which another worker takes over what one has begun.",
    "task_bytes": "Largest task with its list of devices, and reports in an aggregation job.",
}


def config_file(config: AggregatorConfig) -> bytes:
    """Return the file's text, with comments."""
    lines = [
        "# One of two servers that sum reports. Read anew whenever it starts.",
        "# role, organisation, name and port are on the card that others have pinned: "
        "they stay as they are.",
        *(
            f"{name} = {_toml(getattr(config, name))}"
            for name in ("role", "organisation", "name", "port")
        ),
        "# Address to listen on.",
        f"host = {_toml(config.host)}",
        "# A database elsewhere: postgresql+psycopg://USER@HOST/NAME, which several "
        "workers can share.",
        f"database = {_toml(config.database)}",
    ]
    for section, part in (("tasks", config.tasks), ("limits", config.limits)):
        lines += ["", f"[{section}]"]
        for name in part.__struct_fields__:
            if name in _REMARKS:
                lines.append(f"# {_REMARKS[name]}")
            lines.append(f"{name} = {_toml(getattr(part, name))}")
    return "\n".join([*lines, ""]).encode()


def _toml(value: object) -> str:
    """Return a TOML value; JSON strings, numbers and booleans are TOML."""
    return msgspec.json.encode(value).decode()
