"""Files: atomic writes, locks, numbered layouts of folders, and SQLite files of ours.

The modules ``fcntl`` and ``resource`` are imported where they are needed: the library can be
imported on systems without them.
"""

import errno
import os
import shutil
import sqlite3
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hdpmf.errors import ConfigError, StorageError, made_by_newer, made_by_older

T = TypeVar("T")


def read_config(path: Path, kind: type[T], missing: str) -> T:
    """Return an operator's TOML file as a value of a msgspec type.

    Args:
        kind: The type; it checks the values.
        missing: The message where there is no file.

    Raises:
        ConfigError: The file is missing, no TOML, or has wrong values.
    """
    import msgspec

    try:
        plain = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(missing) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    try:
        return msgspec.convert(plain, kind)
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None


def atomic_write(path: str | os.PathLike[str], data: bytes, *, mode: int = 0o644) -> None:
    """Write ``data`` to ``path`` whole or not at all.

    The bytes go to a temporary file beside the target, reach the disk, and are renamed over it. If
    anything fails, what was at ``path`` before is still there and the temporary file is gone.

    Args:
        path: The file to write; its folder must exist.
        data: The whole content.
        mode: Permission bits of the file; 0o600 for anything private.

    Raises:
        StorageError: The disk is full, read-only, or permission is missing.
    """
    target = Path(path)
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        reason = error.strerror or type(error).__name__
        remedy = "choose another folder"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "free space or choose another folder"
        elif isinstance(error, FileNotFoundError):
            remedy = f"make the folder {target.parent} or choose another"
        raise StorageError(
            f"could not write {target}: {reason}. Nothing was changed there; {remedy}, then run "
            "the same command again."
        ) from error


@contextmanager
def storage_errors(what: str, advice: str = "") -> Iterator[None]:
    """Raise StorageError for an OSError inside: what could not be done, why, and what to do."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what}: {error.strerror}{advice}") from error


def read_file(path: Path) -> bytes:
    """Return what is in a file; StorageError where it cannot be read."""
    with storage_errors(f"cannot read {path}"):
        return path.read_bytes()


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a folder to fill; it replaces ``target`` whole or not at all.

    Raises:
        StorageError: The disk refused; what was there before is unchanged.
    """
    staging: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        staging.chmod(0o755)
        yield staging
        _swap_in(staging, target)
    except OSError as error:
        raise StorageError(
            f"could not save to {target}: {error.strerror or error}. What was there before "
            "is unchanged."
        ) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def _swap_in(staging: Path, target: Path) -> None:
    """Move the finished folder into place; on failure an earlier one is put back."""
    if not target.exists():
        staging.rename(target)
        return
    aside = staging.with_name(staging.name + ".old")
    target.rename(aside)
    try:
        staging.rename(target)
    except OSError:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


LAYOUT_FILE = "format"
"""The file with the number. It is written before the folder's config."""

_CONFIG_FILE = "config.toml"  # every folder of ours has one


@dataclass(frozen=True)
class FolderLayout:
    """The layout that folders of a kind have; one of another layout is neither read nor written."""

    number: int

    def mark(self, folder: Path) -> None:
        """Write the number into a new folder."""
        atomic_write(folder / LAYOUT_FILE, f"{self.number}\n".encode())

    def check(self, folder: Path) -> None:
        """Refuse a folder of another version. One without a config is left alone.

        Raises:
            ConfigError: It is of an older or a newer version.
            StorageError: Its number cannot be read.
        """
        if not (folder / _CONFIG_FILE).exists():
            return
        path = folder / LAYOUT_FILE
        try:
            found = int(path.read_text("ascii"))
        except FileNotFoundError:
            raise ConfigError(made_by_older(folder)) from None
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{path} cannot be read, or is no number of a layout: {error}"
            ) from error
        if found != self.number:
            raise ConfigError((made_by_newer if found > self.number else made_by_older)(folder))


def lock_file(descriptor: int, *, wait: bool = False, shared: bool = False) -> None:
    """Lock an open file for this process, until the file is closed or the process ends.

    Args:
        wait: Wait for another process that has it, as long as it takes.
        shared: Let others have it who share it, too.

    Raises:
        BlockingIOError: Another process has it.
        StorageError: The system has no such locks.
        OSError: The system refuses for another reason.
    """
    try:
        import fcntl
    except ImportError:
        raise StorageError(
            "this system has no locks on files, so two processes could use one file at once; "
            "devices, recommenders and servers run on Linux"
        ) from None
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)


def allow_open_files(wanted: int) -> None:
    """Let this process have so many files and connections open, or as many as the system allows.

    Often there are 1,024 only.
    """
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        application: Tells it from other SQLite files.
        schema: The newest one that this version knows.
        safe: What is safe when the disk refuses, and what to do then.
        remedy: What to do about a damaged file.
    """

    name: str
    application: int
    schema: int
    safe: str
    remedy: str

    @contextmanager
    def errors(self, path: Path) -> Iterator[None]:
        """Errors of SQLite in words of ours. SQLite's own never contain a value."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise StorageError(f"{path} refused a change: {error}") from error
        except sqlite3.OperationalError as error:
            raise StorageError(f"cannot use {path}: {error}. {self.safe}") from error
        except sqlite3.DatabaseError as error:
            raise StorageError(
                f"{path} is damaged or not {self.name} ({error}); {self.remedy}"
            ) from error
        except UnicodeDecodeError as error:  # a name in the file, or in SQLite's own words about it
            raise StorageError(f"{path} is damaged; {self.remedy}") from error

    def is_ours(self, connection: sqlite3.Connection) -> bool:
        """Check that the file was made as one of this kind."""
        return bool(connection.execute("PRAGMA application_id").fetchone()[0] == self.application)

    def read_schema(self, connection: sqlite3.Connection, path: Path) -> int:
        """Return the file's schema; raise if it is newer than ours."""
        schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if schema > self.schema:
            raise ConfigError(made_by_newer(path))
        return schema

    def check(self, connection: sqlite3.Connection, path: Path) -> int:
        """Return the file's schema; raise if it is newer than ours, or damaged."""
        schema = self.read_schema(connection, path)
        if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise StorageError(f"{path} is damaged; {self.remedy}")
        return schema


def count_tables(connection: sqlite3.Connection) -> int:
    """Count tables, indexes and the like."""
    return int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def make_durable(connection: sqlite3.Connection) -> None:
    """Make commits durable, also if the power fails; readers do not wait."""
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = FULL")
