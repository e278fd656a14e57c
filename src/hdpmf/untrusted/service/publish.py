"""The files that a recommender publishes for devices; any web server could serve their folder.

::

    public/index.json                what there is now; written last
    public/catalogue-SHA256.msgpack  the items, with all their versions
    public/task-ID.msgpack           what two servers sum, while they take reports
    public/facts-SHA256.msgpack      the item facts of the last run
    public/authority-SHA256.msgpack  the recommender's authority, and the one that follows
    public/keys-SHA256.msgpack       the keys of the two servers, each list signed by its server

All but the index never change: their names say what is in them. Files that the index does not name
any more stay until the one after it, for devices that have just read it.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from hdpmf.common.base.files import atomic_write, storage_errors
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.protocol import AnyCatalogue, encode
from hdpmf.common.protocol.task import task_id
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.keys import pinned_servers

INDEX = "index.json"
_FILE = re.compile(r"(authority|catalogue|task|facts|keys)-[0-9a-f]{64}\.msgpack")


class PublicFiles:
    """The folder that devices read from."""

    def __init__(self, service: ServiceFolder) -> None:
        self._service = service
        self.path = service.path / "public"

    def write(self, task: bytes | None = None, keys: bytes | None = None) -> None:
        """Bring the folder up to date: files first, then the index that names them.

        Args:
            task: The published task that takes reports now.
            keys: The lists of the two servers' keys.
        """
        with storage_errors(f"could not make {self.path}"):
            self.path.mkdir(exist_ok=True)
        before = self._named()
        service = self._service
        pinned = pinned_servers(service.path)
        files = public_files(
            service.current_items,
            service.model(),
            task=task,
            name=service.config.name,
            servers=None if pinned is None else pinned.digest,
            keys=keys,
        )
        index = files.pop(INDEX)
        for name, data in files.items():
            if not (self.path / name).exists():
                atomic_write(self.path / name, data)
        atomic_write(self.path / INDEX, index)
        self._drop_all_but(before | self._named())

    def server_keys(self) -> bytes | None:
        """The lists of the two servers' keys that are published; None if there are none."""
        for name in self._named():
            if name.startswith("keys-"):
                return public_file(self.path, name)
        return None

    def _named(self) -> set[str]:
        try:
            index = msgspec.json.decode((self.path / INDEX).read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError):
            return set()
        return {entry["file"] for entry in index.values() if isinstance(entry, dict)}

    def _drop_all_but(self, names: set[str]) -> None:
        for path in self.path.iterdir():
            if is_public(path.name) and path.name not in names | {INDEX}:
                path.unlink(missing_ok=True)


def public_files(
    items: AnyCatalogue,
    model: PublicModel | None = None,
    *,
    task: bytes | None = None,
    name: str = "",
    servers: str | None = None,
    keys: bytes | None = None,
) -> dict[str, bytes]:
    """Return the files, by name, that tell devices all of this; the index is the last one.

    Args:
        model: Of the last run.
        task: That two servers take reports for now.
        name: The recommender's, for people.
        servers: Digest of the pair.
        keys: The lists of the two servers' keys, each signed by its server.
    """
    files: dict[str, bytes] = {}

    def keep(kind: str, data: bytes) -> dict[str, str]:
        digest = sha256(data).hexdigest()
        file = f"{kind}-{digest}.msgpack"
        files[file] = data
        return {"file": file, "sha256": digest}

    index: dict[str, Any] = {"name": name, "catalogue": keep("catalogue", encode(items))}
    index |= dict.fromkeys(("task", "model"))
    index |= {"servers": servers, "keys": None}
    if keys is not None:
        index["keys"] = keep("keys", keys)
    if task is not None:
        named = task_id(task).hex()
        files[f"task-{named}.msgpack"] = task
        index["task"] = {"file": f"task-{named}.msgpack", "id": named}
    if model is not None:
        index["model"] = keep("facts", encode(model.numbers)) | {"run": model.about["run"]}
    files[INDEX] = msgspec.json.format(msgspec.json.encode(index), indent=1)
    return files


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
