"""What a newer version made is refused in words, and not a byte of it changes; tables change
with their number.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
import sqlalchemy as sa
from old_versions import FIXTURES, VERSIONS, content, unpack

from hdpmf.common.data import synthetic_world
from hdpmf.common.model.priors import Prior
from hdpmf.common.model.public_model import PublicModel
from hdpmf.errors import ConfigError, HdpmfError, ModelFileError
from hdpmf.lab.experiments import Store
from hdpmf.models import make_model
from hdpmf.models.files import load_model
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.aggregator import datastore as aggregator_store
from hdpmf.untrusted.aggregator.config import AggregatorConfig
from hdpmf.untrusted.aggregator.datastore import ServerDatabase, metadata
from hdpmf.untrusted.aggregator.folder import AggregatorFolder
from hdpmf.untrusted.recommender.release import Release
from hdpmf.untrusted.service.backup import back_up, restore
from hdpmf.untrusted.service.folder import ServiceFolder

NEWER = "newer hdpmf; upgrade"


@pytest.fixture(params=VERSIONS)
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Everything that this version has brought forward or made."""
    folder = unpack(request.param, tmp_path / "place")
    DeviceStore.open(folder / "ana.sqlite").close()
    ServiceFolder(folder / "recommender")
    return folder


def _sqlite(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.close()


def _json(path: Path) -> None:
    about = json.loads(path.read_text())
    about["format"], about["something new"] = 999, {"nobody": "knows"}
    path.write_text(json.dumps(about))


def _refused(
    place: Path, opens: Callable[[], object], error: type[HdpmfError] = ConfigError
) -> None:
    before = content(place)
    with pytest.raises(error, match=NEWER):
        opens()
    assert content(place) == before


def test_a_newer_device_store(place: Path) -> None:
    _sqlite(place / "ana.sqlite")
    _refused(place, lambda: DeviceStore.open(place / "ana.sqlite"))


def test_newer_results(place: Path) -> None:
    _sqlite(place / "results" / "results.sqlite")
    _refused(place, lambda: Store(place / "results"))
    _refused(place, lambda: Store(place / "results", create=True))


def test_a_newer_recommenders_folder(place: Path) -> None:
    path = place / "recommender"
    (path / "format").write_text("999\n")
    (path / "config.toml").write_text("something = 'that this version does not know'\n")
    _refused(place, lambda: ServiceFolder(path))


def test_a_newer_backup(place: Path, tmp_path: Path) -> None:
    back_up(place / "recommender", tmp_path / "a.backup")
    (tmp_path / "there").mkdir()
    with tarfile.open(tmp_path / "a.backup") as archive:
        archive.extractall(tmp_path / "there", filter="data")
    _json(tmp_path / "there" / "backup.json")
    with tarfile.open(place / "b.backup", "w") as archive:
        archive.add(tmp_path / "there", ".")
    _refused(place, lambda: restore(place / "b.backup", place / "new"))


def test_a_newer_layout_inside_a_backup(place: Path) -> None:
    back_up(place / "recommender", place / "a.backup")
    with tarfile.open(place / "a.backup") as archive:
        archive.extractall(place / "there", filter="data")
    about = json.loads((place / "there" / "backup.json").read_text())
    (place / "there" / "format").write_text("999\n")
    about["files"]["format"] = sha256(b"999\n").hexdigest()
    (place / "there" / "backup.json").write_text(json.dumps(about))
    with tarfile.open(place / "b.backup", "w") as archive:
        for path in (place / "there").iterdir():
            archive.add(path, path.name)
    _refused(place, lambda: restore(place / "b.backup", place / "new"))


def test_newer_models(place: Path) -> None:
    for part in ("recommender/model.json", "devices/devices.json"):
        folder = place / "copy" / part.split("/")[0]
        shutil.copytree(place / "models" / "hdp-sum", folder)
        _json(folder / part)
        _refused(place, lambda folder=folder: load_model(folder), ModelFileError)  # type: ignore[misc]
    _json(place / "recommender" / "model" / "model.json")
    _refused(place, lambda: PublicModel.load(place / "recommender" / "model"), ModelFileError)


def test_a_newer_prior(place: Path) -> None:
    path = place / "a.prior"
    path.write_text(json.dumps({"format": 999, "something": "else"}))
    _refused(place, lambda: Prior.read(path), ModelFileError)


def test_a_newer_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.release"
    model = make_model("hdp-bit", rng=0).fit(synthetic_world(20, 10, 100, rng=0))
    monkeypatch.setattr("hdpmf.untrusted.recommender.release.FORMAT", 999)
    model.release_.save(path)
    monkeypatch.undo()
    _refused(tmp_path, lambda: Release.load(path), ModelFileError)


@pytest.mark.parametrize("version", [*VERSIONS[1:], "today"])
def test_a_newer_servers_folder_and_database(tmp_path: Path, version: str) -> None:
    path = tmp_path / "leader"
    if version == "today":
        AggregatorFolder.create(
            path, AggregatorConfig(role="leader", organisation="x", name="localhost")
        )
    else:
        unpack(version, tmp_path)
    url = f"sqlite:///{path}/data.sqlite"
    _at_schema(url, "999")
    _refused(path, lambda: ServerDatabase(url))
    (path / "format").write_text("999\n")
    _refused(path, lambda: AggregatorFolder(path))


def _at_schema(url: str, number: str) -> None:
    database = ServerDatabase(url)
    with database.write() as connection:
        connection.execute(
            sa.text("UPDATE facts SET value = :number WHERE name = 'schema'"), {"number": number}
        )
    database.close()


def test_a_servers_database_comes_forward_by_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, taken = f"sqlite:///{tmp_path}/x.sqlite", list[str]()
    first = ServerDatabase(url)
    first.claim_role("leader")
    first.close()

    def colour(connection: sa.Connection) -> None:
        taken.append("colour")
        connection.execute(sa.text("ALTER TABLE facts ADD COLUMN colour TEXT"))

    def fails(connection: sa.Connection) -> None:
        connection.execute(sa.text("UPDATE facts SET colour = 'red'"))
        if taken.count("colour") == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(aggregator_store, "MIGRATIONS", (colour, fails))
    with pytest.raises(KeyboardInterrupt):
        ServerDatabase(url)
    assert _columns(tmp_path / "x.sqlite") == {"name", "value"}  # all of it or nothing
    for _ in range(2):
        ServerDatabase(url).close()
    assert taken == ["colour", "colour"]
    connection = sqlite3.connect(tmp_path / "x.sqlite")
    assert set(connection.execute("SELECT * FROM facts")) == {
        ("schema", "3", "red"),
        ("role", "leader", "red"),
    }
    connection.close()


def _columns(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    try:
        return {row[1] for row in connection.execute("PRAGMA table_info(facts)")}
    finally:
        connection.close()


def test_tables_change_only_with_their_schema(tmp_path: Path) -> None:
    """Whoever changes tables raises the schema, writes a step for older files, and writes the
    new digest down here.
    """
    DeviceStore.create(tmp_path / "device").close()
    Store(tmp_path, create=True).close()
    ServerDatabase(f"sqlite:///{tmp_path}/server").close()
    found = {
        "device store": _tables(tmp_path / "device"),
        "results": _tables(tmp_path / "results.sqlite"),
        "server's database": _tables(
            tmp_path / "server", schema=str(1 + len(aggregator_store.MIGRATIONS))
        ),
    }
    assert len(metadata.tables) > 5
    assert found == json.loads((FIXTURES / "schemas.json").read_text())


def _tables(path: Path, schema: str = "") -> dict[str, str]:
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY sql"
        ).fetchall()
        text = "\n".join(" ".join(str(sql).split()) for (sql,) in rows)
        number = schema or str(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()
    return {"schema": number, "tables": sha256(text.encode()).hexdigest()}
