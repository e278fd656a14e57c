"""The public files and how they are served: what devices cannot be told wrongly, and what nobody
else gets.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("pyhpke")

from hdpmf.common.data import IdIndex, RatingScale
from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.model.published_model import read_model
from hdpmf.common.protocol import ItemFacts
from hdpmf.common.protocol.catalogue import catalogue_table, known_items
from hdpmf.common.protocol.documents import file_digest, read_document, to_base64
from hdpmf.common.protocol.published import Model, file_name
from hdpmf.common.protocol.task import task_id
from hdpmf.errors import ConfigError
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.participants import Participants
from hdpmf.untrusted.service.publish import PublicFiles
from hdpmf.untrusted.service.token_issuer import TokenIssuer
from hdpmf.untrusted.service.website import Website, serve_website

TABLE = catalogue_table(IdIndex(range(5)), RatingScale(1.0, 5.0, 1.0))


class Client:
    """Asks an application without a network."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def request(
        self, method: str, path: str, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="https://shop") as client:
                return await client.request(method, path, headers=headers)

        return asyncio.run(ask())

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        return self.request("GET", path, headers)


def facts(mean: float) -> ItemFacts:
    zeros = np.zeros(5, np.float32)
    return ItemFacts(
        catalogue="c",
        mean=mean,
        bias=zeros,
        variance=zeros,
        popularity=zeros,
    )


@pytest.fixture
def service(tmp_path: Path) -> ServiceFolder:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return ServiceFolder.create(tmp_path / "shop", Config(name="shop", port=port), TABLE)


@pytest.fixture
def client(service: ServiceFolder) -> Client:
    PublicFiles(service).write(b"a task")
    return Client(Website(service.path / "public", TokenIssuer(Participants())).app)


def finish(service: ServiceFolder, run: bytes, mean: float) -> None:
    (service.path / "runs" / run.hex()).mkdir()
    about = {"run": run.hex(), "reports": [3, 3]}
    known = known_items(TABLE)
    zeros = Bytes(np.zeros((5, 1), np.int8), np.ones(1, np.float32))
    lists = ListModel(
        form="linear",
        encode=zeros,
        decode=zeros,
        entries=Entries.none(5),
        output=np.zeros(5, np.float32),
        heads=np.arange(5),
        n_items=5,
        about={},
    )
    model = PublicModel(about, known.items, known.scale, None, facts(mean), lists=lists)
    service.finish(run, model, b"{}")


def index_of(service: ServiceFolder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((service.path / "public" / "index.json").read_bytes())
    return found


def test_the_index_names_files_by_what_is_in_them(service: ServiceFolder) -> None:
    finish(service, b"\1" * 16, 3.5)
    PublicFiles(service).write(b"a task")
    index = index_of(service)
    public = service.path / "public"
    assert set(index) == {
        "name", "catalogue", "task", "model", "servers",
        "keys", "type", "version",
    }  # fmt: skip
    assert index["task"] == to_base64(task_id(b"a task"))
    assert (public / file_name("task", index["task"])).read_bytes() == b"a task"
    catalogue = (public / file_name("catalogue", index["catalogue"])).read_bytes()
    assert catalogue == service.items.to_bytes()
    document = (public / file_name("model", index["model"])).read_bytes()
    model = read_document(Model, document, "a model")
    assert (model.mean, model.run) == (3.5, to_base64(b"\1" * 16))
    files = {name: (public / name).read_bytes() for name in model.files}
    assert read_model(model, files)[0].mean == 3.5
    for digest, data in ((index["catalogue"], catalogue), (index["model"], document)):
        assert digest == file_digest(data)
    assert (index["servers"], index["keys"]) == ("", "")


def test_files_of_the_index_before_stay_and_older_ones_go(service: ServiceFolder) -> None:
    kept: list[set[str]] = []
    for number in range(4):
        PublicFiles(service).write(bytes([number]))
        kept.append({path.name for path in (service.path / "public").glob("task-*")})
    ids = [to_base64(task_id(bytes([number]))) for number in range(4)]
    names = [file_name("task", each) for each in ids]
    assert kept == [{names[0]}, {names[0], names[1]}, {names[1], names[2]}, {names[2], names[3]}]


def test_what_a_kill_left_half_done_is_done_again(
    service: ServiceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    PublicFiles(service).write(b"first")
    before = index_of(service)

    def killed(path: Path, data: bytes) -> None:
        if Path(path).name == "index.json":
            raise KeyboardInterrupt
        Path(path).write_bytes(data)

    monkeypatch.setattr("hdpmf.untrusted.service.publish.atomic_write", killed)
    with pytest.raises(KeyboardInterrupt):
        PublicFiles(service).write(b"second")
    assert index_of(service) == before
    assert (service.path / "public" / file_name("task", before["task"])).exists()
    monkeypatch.undo()
    PublicFiles(service).write(b"second")
    assert index_of(service)["task"] == to_base64(task_id(b"second"))


def test_digests_and_caching(client: Client, service: ServiceFolder) -> None:
    index = client.get("/index.json")
    assert (index.status_code, index.json()) == (200, index_of(service))
    assert index.headers["cache-control"] == "no-cache"
    file = client.get("/" + file_name("catalogue", index.json()["catalogue"]))
    assert "immutable" in file.headers["cache-control"]
    for answer in (index, file):
        digest = sha256(answer.content)
        assert (
            answer.headers["content-digest"]
            == f"sha-256=:{base64.b64encode(digest.digest()).decode()}:"
        )
        assert answer.headers["etag"] == f'"{digest.hexdigest()}"'


def test_what_a_device_has_is_not_sent_again(client: Client, service: ServiceFolder) -> None:
    tag = client.get("/index.json").headers["etag"]
    for known in (tag, f'"other", W/{tag}', "*"):
        again = client.get("/index.json", headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert client.get("/index.json", headers={"if-none-match": '"other"'}).status_code == 200
    PublicFiles(service).write(b"another task")
    changed = client.get("/index.json", headers={"if-none-match": tag})
    assert changed.status_code == 200
    assert changed.json()["task"] == to_base64(task_id(b"another task"))


def test_nothing_but_public_files_is_there(client: Client, service: ServiceFolder) -> None:
    (service.path / "public" / "secret.key").write_bytes(b"secret")
    (service.path / "public" / f"task-{'0' * 64}.msgpack.tmp").write_bytes(b"secret")
    for path in (
        "/",
        "/secret.key",
        "/../config.toml",
        "/..%2fconfig.toml",
        "/%2e%2e/config.toml",
        "/public/index.json",
        "//config.toml",
        f"/task-{'0' * 64}.msgpack.tmp",
        f"/task-{'0' * 64}.msgpack",
        "/index.json%00",
        f"/task-{'0' * 64}.msgpack%0a",
        "/roster.json",
    ):
        assert client.get(path).status_code == 404, path
    head = client.request("HEAD", "/index.json")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(client.get("/index.json").content))
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, "/index.json").status_code == 405


def test_without_an_index_there_is_nothing(service: ServiceFolder) -> None:
    assert (
        Client(Website(service.path / "public", TokenIssuer(Participants())).app)
        .get("/index.json")
        .status_code
        == 404
    )


def test_over_tls_and_by_one_process_at_a_time(
    service: ServiceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    PublicFiles(service).write()
    with serve_website(service, TokenIssuer(Participants())) as address:
        assert address == f"https://localhost:{service.config.port}"
        with (
            pytest.raises(ConfigError, match="cannot listen"),
            serve_website(service, TokenIssuer(Participants())),
        ):
            pass
        trust = ssl.create_default_context(cafile=str(service.tls_folder / "authority.pem"))
        with httpx.Client(verify=trust, trust_env=False) as client:
            assert client.get(f"{address}/index.json").json() == index_of(service)
    with pytest.raises(httpx.ConnectError), httpx.Client(verify=trust, trust_env=False) as client:
        client.get(f"{address}/index.json")
