"""Small files that people name on the command line."""

from __future__ import annotations

from pathlib import Path

from hdpmf.errors import ConfigError, StorageError


def read_bytes(path: Path, what: str = "") -> bytes:
    """What a file holds; ``what`` says in an error what was looked for in it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {f'{what} from ' if what else ''}{path}: {error.strerror}") from None


def read_text(path: Path, what: str = "") -> str:
    """The same as text."""
    try:
        return read_bytes(path, what).decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"cannot read {f'{what} from ' if what else ''}{path}: it is not text") from None


def make_folder(folder: Path) -> None:
    """Before the work, so that a place that cannot be written to costs no time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {folder}: {error.strerror}; choose another with --out") from error
