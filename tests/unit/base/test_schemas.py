"""Files and folders of a newer or too old version are refused, and stay as they are."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from hdpmf.common.base.files import LAYOUT_FILE
from hdpmf.common.data import synthetic_world
from hdpmf.common.model.public_model import FORMAT, PublicModel
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.errors import ConfigError, HdpmfError, ModelFileError, StorageError
from hdpmf.models import make_model
from hdpmf.models.files import load_model, public_part
from hdpmf.private.device.ledger import LEVELS
from hdpmf.private.device.state import new_state
from hdpmf.private.device.state_file import StateFile
from hdpmf.untrusted.aggregator.folder import AggregatorConfig, AggregatorFolder
from hdpmf.untrusted.service.folder import Config, ServiceFolder

WORLD = synthetic_world(20, 10, 100, rng=0)
NEWER = "newer hdpmf; upgrade"
OLDER = "before 1.0"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a file or folder of each kind."""
    folder = tmp_path / "place"
    model = make_model("hdp-sum", rng=0).fit(WORLD)
    model.save(folder / "model")
    StateFile.create(folder / "ana.sqlite", new_state(LEVELS["middle"])).close()
    items = catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table)
    ServiceFolder.create(folder / "recommender", Config(name="shop"), items)
    server = AggregatorConfig(role="leader", organisation="x", name="localhost")
    AggregatorFolder.create(folder / "leader", server)
    public_part(model).save(folder / "published")
    return folder


def _sqlite(path: Path, number: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {number}")
    connection.close()


def _json(path: Path, number: int) -> None:
    about = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(about | {"format": number, "something new": {"nobody": "knows"}}))


def _layout(path: Path, number: int) -> None:
    path.write_text(f"{number}\n")
    (path.parent / "config.toml").write_text("something = 'that this version does not know'\n")


def _content(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


KINDS: dict[str, tuple[Callable[[Path, int], None], Callable[[Path], object]]] = {
    "ana.sqlite": (_sqlite, StateFile.open),
    f"recommender/{LAYOUT_FILE}": (_layout, lambda path: ServiceFolder(path.parent)),
    f"leader/{LAYOUT_FILE}": (_layout, lambda path: AggregatorFolder(path.parent)),
    "model/recommender/model.json": (_json, lambda path: load_model(path.parents[1])),
    "model/devices/devices.json": (_json, lambda path: load_model(path.parents[1])),
    "published/model.json": (_json, lambda path: PublicModel.load(path.parent)),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_is_newer_is_refused_untouched(place: Path, name: str) -> None:
    write, opens = KINDS[name]
    write(place / name, 999)
    before = _content(place)
    with pytest.raises(HdpmfError, match=NEWER) as caught:
        opens(place / name)
    assert isinstance(caught.value, ConfigError | ModelFileError)
    assert _content(place) == before


def test_what_is_older_or_damaged_is_refused(place: Path) -> None:
    number = place / "recommender" / LAYOUT_FILE
    number.write_text("1\n")
    with pytest.raises(ConfigError, match=OLDER):
        ServiceFolder(number.parent)
    number.write_text("two")
    with pytest.raises(StorageError, match="no number of a layout"):
        ServiceFolder(number.parent)
    number.unlink()
    with pytest.raises(ConfigError, match=OLDER):
        ServiceFolder(number.parent)
    _json(place / "published" / "model.json", FORMAT - 1)
    with pytest.raises(ModelFileError, match=OLDER):
        PublicModel.load(place / "published")
