"""A made-up ml-100k of three ratings, and machines that have it or have nothing."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hdpmf.common.data import Counts, datasets

U_DATA = b"1\t1\t5\t100\n1\t2\t3\t101\n2\t1\t4\t102\n"
U_ITEM = (
    "1|Caf\xe9 Noir (1994)|01-Jan-1995||url|0|1|0\n"
    "2|unknown|01-Feb-1996||url|1|0|0\n3|None|||url|1|0|1\n"
)
MEMBERS = {
    "u.data": U_DATA,
    "u.item": U_ITEM.encode("latin-1"),
    "u.genre": b"unknown|0\nAction|1\nDrama|2\n\n",
    "ua.base": b"1\t1\t5\t100\n2\t1\t4\t102\n",
    "ua.test": b"1\t2\t3\t101\n",
}


def _pack(members: dict[str, bytes], folder: str = "ml-100k/") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{folder}{name}", data)
    return buffer.getvalue()


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any data."""
    monkeypatch.setenv("HDPMF_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HDPMF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    (tmp_path / "cache").mkdir()
    return tmp_path


@pytest.fixture
def tiny(empty: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine where ml-100k is a data set of three ratings."""
    info = dataclasses.replace(
        datasets.REGISTRY["ml-100k"],
        counts=Counts(2, 2, 3),
        checksums={"u.data": hashlib.sha256(U_DATA).hexdigest()},
    )
    monkeypatch.setitem(datasets.REGISTRY._known, "ml-100k", info)
    return empty


@pytest.fixture
def members() -> dict[str, bytes]:
    """The files in the archive."""
    return dict(MEMBERS)


@pytest.fixture
def pack() -> Callable[[dict[str, bytes]], bytes]:
    """Make an archive of files."""
    return _pack


@pytest.fixture
def whole() -> bytes:
    """The archive as it should be."""
    return _pack(MEMBERS)
