"""The files that a recommender publishes for devices; any web server could serve their folder.

::

    public/index.json                what there is now; written last
    public/catalogue-SHA256.msgpack  the items, with all their versions
    public/task-ID.msgpack           what two servers sum, while they take reports
    public/facts-SHA256.msgpack      the item facts of the last run
    public/lists-SHA256.msgpack      the model for lists, where there is one
    public/authority-SHA256.msgpack  the recommender's authority, and the one that follows

All but the index never change: their names say what is in them. Files that the index does not name
any more stay until the one after it, for devices that have just read it.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from hdpmf.common.base.files import atomic_write
from hdpmf.common.net.authority_rotation import authority_message
from hdpmf.common.protocol import ItemFacts, encode
from hdpmf.common.protocol.task import task_id
from hdpmf.errors import StorageError
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.keys import pinned_servers

INDEX = "index.json"
_FILE = re.compile(r"(authority|catalogue|task|facts|lists)-[0-9a-f]{64}\.msgpack")


class PublicFiles:
    """The folder that devices read from."""

    def __init__(self, service: ServiceFolder) -> None:
        self._service = service
        self.path = service.path / "public"
        self._tls = service.tls_folder

    def write(self, task: bytes | None = None) -> None:
        """Bring the folder up to date: files first, then the index that names them.

        Args:
            task: The published task that takes reports now.
        """
        try:
            self.path.mkdir(exist_ok=True)
        except OSError as error:
            raise StorageError(f"could not make {self.path}: {error.strerror}") from error
        before = self._named()
        pinned = pinned_servers(self._service.path)
        model = self._service.model()
        facts = None if model is None else model.numbers
        index: dict[str, Any] = {
            "name": self._service.config.name,
            "catalogue": self._keep("catalogue", encode(self._service.current_items)),
            "task": None,
            "model": None,
            "lists": None,
            "servers": None if pinned is None else pinned.digest,
            "authority": None,
        }
        if (self._tls / "authority.pem").exists():
            index["authority"] = self._keep("authority", authority_message(self._tls))
        if task is not None:
            name = task_id(task).hex()
            index["task"] = {"file": self._put(f"task-{name}.msgpack", task), "id": name}
        if model is not None and isinstance(facts, ItemFacts):
            index["model"] = self._keep("facts", encode(facts)) | {"run": model.about["run"]}
            if model.lists is not None:
                index["lists"] = self._keep("lists", encode(model.lists))
        atomic_write(self.path / INDEX, msgspec.json.format(msgspec.json.encode(index), indent=1))
        self._drop_all_but(before | self._named())

    def _keep(self, kind: str, data: bytes) -> dict[str, str]:
        digest = sha256(data).hexdigest()
        return {"file": self._put(f"{kind}-{digest}.msgpack", data), "sha256": digest}

    def _put(self, name: str, data: bytes) -> str:
        if not (self.path / name).exists():
            atomic_write(self.path / name, data)
        return name

    def _named(self) -> set[str]:
        """The files that the index names."""
        try:
            index = msgspec.json.decode((self.path / INDEX).read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError):
            return set()
        return {entry["file"] for entry in index.values() if isinstance(entry, dict)}

    def _drop_all_but(self, names: set[str]) -> None:
        for path in self.path.iterdir():
            if is_public(path.name) and path.name not in names | {INDEX}:
                path.unlink(missing_ok=True)


def is_public(name: str) -> bool:
    """Return whether this is the name of a file that devices may ask for."""
    return name == INDEX or _FILE.fullmatch(name) is not None


def public_file(folder: Path, name: str) -> bytes | None:
    """A public file; None where there is none of this name."""
    if not is_public(name):
        return None
    try:
        return (folder / name).read_bytes()
    except OSError:
        return None
