"""Numbered schemas: files of a newer or too old version are refused and stay as they are; steps
are taken once each, in order; tables change only with their number.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
import sqlalchemy as sa

from hdpmf.common.base.files import LAYOUT_FILE, FolderLayout
from hdpmf.common.data import synthetic_world
from hdpmf.common.model.priors import Prior
from hdpmf.common.model.public_model import FORMAT, PublicModel
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.errors import ConfigError, HdpmfError, ModelFileError, StorageError
from hdpmf.lab.experiments import Store
from hdpmf.models import make_model
from hdpmf.models.files import load_model, public_part
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.aggregator import datastore as aggregator_store
from hdpmf.untrusted.aggregator.datastore import ServerDatabase, metadata
from hdpmf.untrusted.aggregator.folder import AggregatorConfig, AggregatorFolder
from hdpmf.untrusted.recommender.release import Release
from hdpmf.untrusted.service.folder import Config, ServiceFolder

WORLD = synthetic_world(20, 10, 100, rng=0)
SCHEMAS = {
    "results": ("2", "99bf290c6feeeb3913558055851c8ff5e72437e8bf11be5d20dff6b5ee2d40f8"),
    "server's database": ("6", "35b5f289c47505349c647bebebc043240cddcde9bcd01214484eb4f73e928196"),
}
NEWER = "newer hdpmf; upgrade"


OLDER = "before 1.0"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a file or folder of each kind."""
    folder = tmp_path / "place"
    model = make_model("hdp-sum", rng=0).fit(WORLD)
    model.save(folder / "models" / "hdp-sum")
    DeviceStore.create(folder / "ana.sqlite").close()
    items = catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table)
    ServiceFolder.create(folder / "recommender", Config(name="shop"), items)
    public_part(model).save(folder / "recommender" / "model")
    Store(folder / "results", create=True).close()
    return folder


def _sqlite(path: Path, number: int = 999) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {number}")
    connection.close()


def _json(path: Path, number: int = 999) -> None:
    about = json.loads(path.read_text())
    about["format"] = number
    about["something new"] = {"nobody": "knows"}
    path.write_text(json.dumps(about))


def _refused(
    place: Path,
    opens: Callable[[], object],
    error: type[HdpmfError] = ConfigError,
    match: str = NEWER,
) -> None:
    before = _content(place)
    with pytest.raises(error, match=match):
        opens()
    assert _content(place) == before


def _content(folder: Path) -> dict[str, str]:
    """Every file below a folder, by its digest."""
    return {
        path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


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


def test_folders_models_and_results_from_before_1_0(place: Path) -> None:
    recommender = place / "recommender"
    (recommender / LAYOUT_FILE).write_text("1\n")
    _refused(place, lambda: ServiceFolder(recommender), match=OLDER)
    (recommender / LAYOUT_FILE).unlink()
    _refused(place, lambda: ServiceFolder(recommender), match=OLDER)
    _sqlite(place / "results" / "results.sqlite", 1)
    _refused(place, lambda: Store(place / "results"), match=OLDER)
    _json(recommender / "model" / "model.json", FORMAT - 1)
    _refused(place, lambda: PublicModel.load(recommender / "model"), ModelFileError, OLDER)


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
    model = make_model("hdp-bit", rng=0).fit(WORLD)
    monkeypatch.setattr("hdpmf.untrusted.recommender.release.FORMAT", 999)
    model.release_.save(path)
    monkeypatch.undo()
    _refused(tmp_path, lambda: Release.load(path), ModelFileError)


def test_a_newer_servers_folder_and_database(tmp_path: Path) -> None:
    path = tmp_path / "leader"
    config = AggregatorConfig(role="leader", organisation="x", name="localhost")
    AggregatorFolder.create(path, config)
    url = f"sqlite:///{path}/data.sqlite"
    _at_schema(url, "999")
    _refused(path, lambda: ServerDatabase(url))
    (path / "format").write_text("999\n")
    _refused(path, lambda: AggregatorFolder(path))


def test_the_steps_of_a_folder_are_taken_once_each_in_order(tmp_path: Path) -> None:
    taken: list[str] = []
    (tmp_path / "config.toml").write_text("")
    (tmp_path / LAYOUT_FILE).write_text("1\n")

    def second(folder: Path) -> None:
        taken.append("second")
        if taken.count("second") == 1:
            raise StorageError("the disk is full")

    kind = FolderLayout("a folder", steps=(lambda folder: taken.append("first"), second))
    with pytest.raises(StorageError, match="full"):
        kind.migrate(tmp_path)
    assert (tmp_path / LAYOUT_FILE).read_text() == "2\n"
    with pytest.raises(ConfigError, match="older layout"):
        kind.require_newest(tmp_path)
    for _ in range(2):
        kind.migrate(tmp_path)
    assert taken == ["first", "second", "second"]
    assert (tmp_path / LAYOUT_FILE).read_text() == "3\n"
    (tmp_path / LAYOUT_FILE).write_text("4\n")
    with pytest.raises(ConfigError, match="newer hdpmf; upgrade"):
        kind.migrate(tmp_path)
    for damaged in ("", "0", "two", "-1", "9" * 40):
        (tmp_path / LAYOUT_FILE).write_text(damaged)
        with pytest.raises(StorageError, match="damaged"):
            kind.migrate(tmp_path)
    kind.migrate(tmp_path / "nothing here")


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
    named = first.identity
    first.close()

    def colour(connection: sa.Connection) -> None:
        taken.append("colour")
        connection.execute(sa.text("ALTER TABLE facts ADD COLUMN colour TEXT"))

    def fails(connection: sa.Connection) -> None:
        connection.execute(sa.text("UPDATE facts SET colour = 'red'"))
        if taken.count("colour") == 1:
            raise KeyboardInterrupt

    ours = aggregator_store.MIGRATIONS
    monkeypatch.setattr(aggregator_store, "MIGRATIONS", (*ours, colour, fails))
    with pytest.raises(KeyboardInterrupt):
        ServerDatabase(url)
    assert _columns(tmp_path / "x.sqlite") == {"name", "value"}  # all of it or nothing
    for _ in range(2):
        ServerDatabase(url).close()
    assert taken == ["colour", "colour"]
    connection = sqlite3.connect(tmp_path / "x.sqlite")
    assert set(connection.execute("SELECT * FROM facts")) == {
        ("schema", str(3 + len(ours)), "red"),
        ("role", "leader", "red"),
        ("identity", named, "red"),
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
    Store(tmp_path, create=True).close()
    ServerDatabase(f"sqlite:///{tmp_path}/server").close()
    found = {
        "results": _tables(tmp_path / "results.sqlite"),
        "server's database": _tables(
            tmp_path / "server", schema=str(1 + len(aggregator_store.MIGRATIONS))
        ),
    }
    assert len(metadata.tables) > 5
    assert found == SCHEMAS


def _tables(path: Path, schema: str = "") -> tuple[str, str]:
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY sql"
        ).fetchall()
        text = "\n".join(" ".join(str(sql).split()) for (sql,) in rows)
        number = schema or str(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()
    return number, sha256(text.encode()).hexdigest()
