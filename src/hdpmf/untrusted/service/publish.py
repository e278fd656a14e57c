"""The folder of public files (``protocol.published``); any web server could serve it.

Files that the index does not name any more stay until the one after it, for devices that have just
read it.
"""

from pathlib import Path

from hdpmf.common.base.files import atomic_write, storage_errors
from hdpmf.common.base.names import claimed_name
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.model.published_model import publish_model
from hdpmf.common.protocol import CatalogueVersion, ItemFacts
from hdpmf.common.protocol.documents import file_digest, read_document, to_base64
from hdpmf.common.protocol.identity import Invitation
from hdpmf.common.protocol.published import (
    INDEX,
    INVITATION,
    MAX_INDEX,
    Index,
    Kind,
    Model,
    file_name,
    is_public,
)
from hdpmf.common.protocol.servers import plain_address
from hdpmf.common.protocol.task import task_id
from hdpmf.errors import ConfigError, FederationError, ProtocolError
from hdpmf.untrusted.service.folder import UNNAMED, ServiceFolder
from hdpmf.untrusted.service.keys import pinned_servers


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
        before = self._named()
        service = self._service
        pinned = pinned_servers(service.path)
        self._make()
        if pinned is not None:
            self.invite()
        files = public_files(
            service.current_items,
            service.model(),
            task=task,
            name=service.config.name,
            servers="" if pinned is None else pinned.digest,
            keys=keys,
        )
        index = files.pop(INDEX)
        for name, data in files.items():
            if not (self.path / name).exists():
                atomic_write(self.path / name, data)
        atomic_write(self.path / INDEX, index)
        self._drop_all_but(before | self._named())

    def _make(self) -> None:
        with storage_errors(f"could not make {self.path}"):
            self.path.mkdir(exist_ok=True)

    def invite(self) -> Invitation:
        """Show what people are invited to, and return it.

        Raises:
            ConfigError: No pair of servers is pinned yet.
        """
        config, pinned = self._service.config, pinned_servers(self._service.path)
        if pinned is None:
            raise ConfigError(
                "no pair of servers is pinned yet: hdpmf recommender servers FOLDER servers.json"
            )
        name = "" if config.name == UNNAMED else claimed_name(config.name)
        made = Invitation(address=plain_address(config.address), servers=pinned, name=name)
        self._make()
        atomic_write(self.path / INVITATION, made.to_json())
        return made

    def server_keys(self) -> bytes | None:
        """The lists of the two servers' keys that are published; None if there are none."""
        index = self._index()
        return public_file(self.path, file_name("keys", index.keys)) if index else None

    def _index(self) -> Index | None:
        data = public_file(self.path, INDEX)
        try:
            return None if data is None else read_document(Index, data, "an index", MAX_INDEX)
        except ProtocolError:
            return None

    def _named(self) -> set[str]:
        index = self._index()
        if index is None:
            return set()
        parts: dict[Kind, str] = {"catalogue": index.catalogue, "keys": index.keys}
        parts |= {"task": index.task, "model": index.model}
        names = {file_name(kind, digest) for kind, digest in parts.items() if digest}
        document = public_file(self.path, file_name("model", index.model))
        if document is not None:
            names |= read_document(Model, document, "a model").files.keys()
        return names

    def _drop_all_but(self, names: set[str]) -> None:
        for path in self.path.iterdir():
            if is_public(path.name) and path.name not in names | {INDEX, INVITATION}:
                path.unlink(missing_ok=True)


def public_files(
    items: CatalogueVersion,
    model: PublicModel | None = None,
    *,
    task: bytes | None = None,
    name: str = "",
    servers: str = "",
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

    def keep(kind: Kind, data: bytes, digest: str = "") -> str:
        digest = digest or file_digest(data)
        files[file_name(kind, digest)] = data
        return digest

    shown = ""
    if model is not None:
        if not isinstance(model.numbers, ItemFacts) or model.lists is None:
            raise FederationError("the model in this folder is not that of a run")
        run, reports = bytes.fromhex(model.about["run"]), tuple(model.about["reports"])
        document, arrays = publish_model(
            model.numbers, model.lists, run=to_base64(run), reports=reports
        )
        files |= arrays
        shown = keep("model", document.to_bytes())
    index = Index(
        name=name,
        servers=servers,
        catalogue=keep("catalogue", items.to_bytes()),
        keys="" if keys is None else keep("keys", keys),
        task="" if task is None else keep("task", task, to_base64(task_id(task))),
        model=shown,
    )
    files[INDEX] = index.to_bytes()
    return files


def public_file(folder: Path, name: str) -> bytes | None:
    """A public file; None where there is none of this name."""
    if not is_public(name):
        return None
    try:
        return (folder / name).read_bytes()
    except OSError:
        return None
