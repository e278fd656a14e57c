"""The mark on a store that is on its way to another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from hdpmf.device.named_values import NamedValues
from hdpmf.errors import ConfigError

_MOVED = "moved"


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Where a store is on its way.

    Attributes:
        state: ``left`` (exported; closed here), ``returning`` (its owner takes it back, and the export goes),
            ``travelling`` (the export itself), ``arriving`` (imported, and the export goes).
        at: When it was exported.
        file: Where the export was written to.
        digest: SHA-256 of the export; the export itself does not know it.
    """

    state: Literal["left", "returning", "travelling", "arriving"]
    at: str
    file: str
    digest: str = ""


def read_moved(values: NamedValues) -> Moved | None:
    """The mark in a file."""
    data = values.get(_MOVED)
    return None if data is None else msgspec.msgpack.decode(data, type=Moved)


def write_moved(values: NamedValues, moved: Moved | None) -> None:
    """Put the mark into a file, or take it out."""
    values.set(_MOVED, None if moved is None else msgspec.msgpack.encode(moved))


def refuse_moved(path: Path, moved: Moved | None) -> None:
    """Refuse a store that is on the move: there is one ledger, and it goes on in one place."""
    if moved is None:
        return
    if moved.state == "travelling":
        raise ConfigError(
            f"{path} is an export, not a store to use; bring it in with: hdpmf device import {path} STORE"
        )
    if moved.state == "arriving":
        raise ConfigError(f"the import that makes {path} was not finished; run the same 'hdpmf device import' again")
    raise ConfigError(
        f"{path} was moved away ({moved.at}, to {moved.file}): its ledger goes on where that was imported. If it never "
        f"was, take it back: hdpmf device unmove {path} {moved.file}"
    )
