"""What an operator asks of the process that serves a folder: begin a run, or give one up. A
file, put there whole.
"""

from __future__ import annotations

import secrets

import msgspec

from hdpmf.common.base.files import atomic_write
from hdpmf.common.protocol.federation import RUN_BYTES
from hdpmf.errors import ConfigError, HdpmfError, StorageError
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.settings import RunSettings

_FILE = "requested.json"


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request.

    Attributes:
        run: Id (hex) of the run: of a new one that is to begin under it, so that a request is met
            once, whatever is killed; or of the one that is to be given up.
        settings: What the new run is about; None to give up.
    """

    run: str
    settings: RunSettings | None = None


def ask_for_run(folder: ServiceFolder, settings: RunSettings) -> str:
    """Leave the request for a run; its id."""
    if request_in(folder) is not None:
        raise ConfigError(
            f"a request waits in {folder.path / _FILE} already; let it be met, or delete the file"
        )
    run = secrets.token_hex(RUN_BYTES)
    _write(folder, Request(run=run, settings=settings))
    return run


def ask_to_give_up(folder: ServiceFolder, run: bytes) -> None:
    """Leave the request to give a run up; it goes before any other."""
    _write(folder, Request(run=run.hex()))


def request_in(folder: ServiceFolder) -> Request | None:
    """The request that waits in a folder."""
    path = folder.path / _FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Request)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, HdpmfError) as error:
        raise StorageError(f"{path} cannot be read ({error}); delete it, and ask again") from None


def drop_request(folder: ServiceFolder) -> None:
    """It is met, or cannot be."""
    (folder.path / _FILE).unlink(missing_ok=True)


def _write(folder: ServiceFolder, request: Request) -> None:
    atomic_write(folder.path / _FILE, msgspec.json.format(msgspec.json.encode(request), indent=1))
