"""Backup of a recommender's folder to one file, as it was at one instant, and restore.

Everything that a new machine needs is in it, secret keys too: whoever has the file can speak as
this recommender. Locks and the service's last state are left out.

A restore undoes no release, and rewinds no run that continued after the backup: devices keep their
own ledgers, repeat their answers to exactly the same offer without drawing again, and refuse
everything else. Nobody pays twice. Such a run ends as it would have, or is given up.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import msgspec

from hdpmf.common.base.files import new_folder
from hdpmf.errors import ConfigError, StorageError, made_by_newer
from hdpmf.untrusted.service.folder import ServiceFolder

_FORMAT = 1
_MANIFEST = "backup.json"
_MADE_ANEW = ("state.json",)
_ATTEMPTS, _PAUSE = 40, 0.25
_Seen = dict[str, tuple[int, ...] | str]


class Backup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The manifest of a backup.

    Attributes:
        made: Time (UTC, ISO 8601).
        files: SHA-256 of every file; of a link, its target.
        format: Version of the manifest; files in it have numbers of their own.
    """

    name: str
    made: str
    files: dict[str, str]
    format: int = _FORMAT


class _ManifestVersion(msgspec.Struct):
    """The part of a manifest that every version has."""

    format: int = _FORMAT


def back_up(folder: Path, file: Path, *, sleep: Callable[[float], None] = time.sleep) -> Backup:
    """Write a recommender's folder to a file that only its owner can read; the service may run.

    Files are copied until none has changed meanwhile, so that all of them are of one instant.

    Raises:
        ConfigError: It is no recommender, or the file exists.
        StorageError: The disk refused, or the folder changed all the time.
    """
    service = ServiceFolder(folder)
    if file.exists():
        raise ConfigError(f"{file} exists already; choose another name for the backup")
    part = file.with_name(f".{file.name}.part")
    try:
        for _ in range(_ATTEMPTS):
            before = _seen(folder)
            made = _write(service, part, before)
            if made is not None and _seen(folder) == before:
                os.replace(part, file)
                return made
            sleep(_PAUSE)
    except OSError as error:
        raise StorageError(f"could not write {file}: {error.strerror}; nothing is there") from error
    finally:
        part.unlink(missing_ok=True)
    raise StorageError(
        f"{folder} changed all the time while it was copied; try again between two rounds"
    )


def restore(file: Path, folder: Path) -> Backup:
    """Make a recommender's folder of a backup, whole or not at all.

    Raises:
        ConfigError: It is no backup, or the folder is in use.
        StorageError: The backup is damaged, or the disk refused.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty; a backup is restored to a new folder")
    try:
        with tarfile.open(file, "r:") as archive, new_folder(folder) as staging:
            archive.extractall(staging, filter="data")
            made = _checked(staging, file)
            (staging / _MANIFEST).unlink()
            (staging / "runs").mkdir(exist_ok=True)
            staging.chmod(0o700)
            ServiceFolder(staging)  # refuses what is no recommender
    except FileNotFoundError:
        raise ConfigError(f"there is no backup at {file}") from None
    except (tarfile.TarError, EOFError) as error:
        raise StorageError(
            f"{file} is no backup of a recommender, or damaged ({type(error).__name__})"
        ) from None
    return made


def _seen(folder: Path) -> _Seen:
    """Every file that belongs to a backup, and what tells whether it has changed."""
    seen: _Seen = {}
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        try:
            found = path.lstat()
            link = stat.S_ISLNK(found.st_mode)
            seen[name] = (
                os.readlink(path) if link else (found.st_ino, found.st_mtime_ns, found.st_size)
            )
        except FileNotFoundError:
            continue
    return seen


def _files(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        here = Path(root)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        links = [name for name in folders if (here / name).is_symlink()]
        for name in sorted((*files, *links)):
            if not name.startswith(".") and not (here == folder and name in _MADE_ANEW):
                yield here / name


def _write(service: ServiceFolder, part: Path, seen: _Seen) -> Backup | None:
    """Write the archive; None where a file went away meanwhile."""
    digests: dict[str, str] = {}
    descriptor = os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, was in seen.items():
                path = service.path / name
                try:
                    info = archive.gettarinfo(path, name)
                    data = b"" if isinstance(was, str) else path.read_bytes()
                except FileNotFoundError:
                    return None
                info.uname = info.gname = ""
                info.uid = info.gid = 0
                if info.isfile():
                    info.size = len(data)
                archive.addfile(info, io.BytesIO(data) if info.isfile() else None)
                digests[name] = was if isinstance(was, str) else sha256(data).hexdigest()
            made = Backup(
                name=service.config.name,
                made=datetime.now(UTC).isoformat(timespec="seconds"),
                files=digests,
            )
            about = tarfile.TarInfo(_MANIFEST)
            text = msgspec.json.encode(made)
            about.size = len(text)
            about.mode = 0o600
            archive.addfile(about, io.BytesIO(text))
        stream.flush()
        os.fsync(stream.fileno())
    return made


def _checked(staging: Path, file: Path) -> Backup:
    """Return the manifest, if every file is there with its digest."""
    try:
        about = (staging / _MANIFEST).read_bytes()
        if msgspec.json.decode(about, type=_ManifestVersion).format > _FORMAT:
            raise ConfigError(made_by_newer(file))
        made = msgspec.json.decode(about, type=Backup)
    except FileNotFoundError:
        raise StorageError(f"{file} is no backup of a recommender, or was cut short") from None
    except msgspec.MsgspecError:
        raise StorageError(f"{file} is no backup that this version can read") from None
    found = {}
    for path in _files(staging):
        name = path.relative_to(staging).as_posix()
        if name != _MANIFEST:
            found[name] = (
                os.readlink(path) if path.is_symlink() else sha256(path.read_bytes()).hexdigest()
            )
    if found != made.files:
        raise StorageError(f"{file} is damaged: its files are not those that were backed up")
    return made
