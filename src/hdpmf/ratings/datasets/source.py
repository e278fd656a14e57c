"""Getting members out of archives and folders, with errors of our own."""

from __future__ import annotations

import hashlib
import lzma
import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from hdpmf.errors import DatasetError
from hdpmf.ratings.datasets.info import DatasetInfo

# What the standard library raises for archives that are truncated, corrupted, encrypted or exotic.
ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    KeyError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
)
# The largest member we expect is 24 MB; an archive that unpacks to more than this is not one of ours.
_MEMBER_LIMIT = 1 << 30


def read_members(info: DatasetInfo, path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """Read files out of a zip archive or a folder, wherever in it they lie.

    Raises:
        DatasetError: The archive is damaged, a member is missing, or its checksum is wrong.
    """
    try:
        members = _from_folder(path, names) if path.is_dir() else _from_zip(path, names)
    except ARCHIVE_ERRORS as error:
        raise DatasetError(
            f"{path.name} is not a usable archive of {info.title} (truncated, corrupted or something else); "
            f"{info.how_to_get()}"
        ) from error
    for name in names:
        if name not in members:
            raise DatasetError(f"{path.name} has no member '{name}', so it is not {info.title}; {info.how_to_get()}")
        expected = info.checksums.get(name)
        if expected is not None and hashlib.sha256(members[name]).hexdigest() != expected:
            raise DatasetError(
                f"'{name}' in {path.name} is not the one of {info.title} (its SHA-256 differs); {info.how_to_get()}"
            )
    return members


def _from_folder(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in names if (path / name).is_file()}


def _from_zip(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = PurePosixPath(member.filename).name
            # Archives packed on a Mac carry shadow files of the same name.
            if name not in names or name in found or member.filename.startswith("__MACOSX"):
                continue
            with archive.open(member) as stream:
                data = stream.read(_MEMBER_LIMIT + 1)
            if len(data) > _MEMBER_LIMIT:
                raise ValueError("member too large")
            found[name] = data
    return found
