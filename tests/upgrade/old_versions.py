"""What older versions left on disks: unpacked, as they left it."""

from __future__ import annotations

import json
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from old_commands import PASSPHRASE

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = ("0.1.0", "0.2.0")


def unpack(version: str, folder: Path) -> Path:
    """All that a version left (see ``make_fixture`` and ``make_fixture_0_2_0``), in a new
    folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(FIXTURES / f"{version}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def said_before(place: Path) -> dict[str, Any]:
    """What that version's own commands said about its devices."""
    found: dict[str, Any] = json.loads((place / "before.json").read_text())
    return found


def content(folder: Path) -> dict[str, str]:
    """Every file below a folder, by its digest; a link by where it leads."""
    return {
        path.relative_to(folder).as_posix(): str(path.readlink())
        if path.is_symlink()
        else sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def passphrase(device: str) -> str | None:
    """Of a device's store."""
    return PASSPHRASE if device == "ben" else None
