"""The recommender's folder: enrolment, and versions of its items."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hdpmf.common.data import IdIndex, ItemTable, RatingScale
from hdpmf.common.protocol.catalogue import catalogue_table, check_chain
from hdpmf.errors import ConfigError, RatingsError
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.keys import change_items
from tests.unit.service.tables import table


def test_a_folder_in_use_or_not_set_up_is_refused(tmp_path: Path) -> None:
    ServiceFolder.create(tmp_path / "r", Config(name='ünï "quoted"'), table())
    assert ServiceFolder(tmp_path / "r").config.name == 'ünï "quoted"'
    with pytest.raises(ConfigError, match="not empty"):
        ServiceFolder.create(tmp_path / "r", Config(name="test"), table())
    with pytest.raises(ConfigError, match="recommender init"):
        ServiceFolder(tmp_path / "nothing")
    (tmp_path / "r" / "config.toml").write_text("name = 'x'\n[pace]\npause = -1\n")
    with pytest.raises(ConfigError, match="pause"):
        ServiceFolder(tmp_path / "r")
    for bad in ("http://app.example/", "app.example", 'https://a/"', "https://a/#b"):
        with pytest.raises(ConfigError, match="app is an address"):
            Config(name="test", app=bad)
    app = "https://app.example/"
    ServiceFolder.create(tmp_path / "s", Config(name="test", app=app), table())
    assert ServiceFolder(tmp_path / "s").config.app == app


def test_numbers_are_texts_in_a_catalogue_of_texts(tmp_path: Path) -> None:
    table = catalogue_table(IdIndex(["a", "b"]), RatingScale(1.0, 5.0, 1.0))
    folder = ServiceFolder.create(tmp_path / "r", Config(name="test"), table)
    change_items(folder, ItemTable.build([12, 7], ["", ""], [[], []], [None, None]))
    assert folder.catalogue.ids == ("a", "b", "7", "12")
    assert folder.known.items.ids.tolist() == ["a", "b", "7", "12"]


def test_two_changes_at_once_come_one_after_another(tmp_path: Path) -> None:
    """Of two versions with one number devices would take only one."""
    from concurrent.futures import ThreadPoolExecutor

    table = catalogue_table(IdIndex([1]), RatingScale(1.0, 5.0, 1.0))
    ServiceFolder.create(tmp_path / "r", Config(name="test"), table)

    def add(item: int) -> int:
        return len(
            change_items(
                ServiceFolder(tmp_path / "r"), ItemTable.build([item], [""], [[]], [None])
            ).links
        )

    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(add, range(2, 18)))
    assert sorted(numbers) == list(range(2, 18))
    items = ServiceFolder(tmp_path / "r").items
    check_chain(items)
    assert sorted(map(int, items.table.ids)) == list(range(1, 18))


def test_public_popularity_is_read_for_the_items_in_their_order(tmp_path: Path) -> None:
    table = catalogue_table(IdIndex([3, 1, 2]), RatingScale(1.0, 5.0, 1.0))
    folder = ServiceFolder.create(tmp_path / "r", Config(name="test"), table)
    assert folder.public_popularity(folder.known.items) is None
    (tmp_path / "r" / "popularity.csv").write_text("item,popularity\n1,10\n3,30\n9,90\n")
    found = folder.public_popularity(folder.known.items)
    assert found is not None
    known = dict(zip(folder.known.items.ids.tolist(), found.tolist(), strict=True))
    assert (known[1], known[3]) == (10.0, 30.0)
    assert np.isnan(known[2])
    (tmp_path / "r" / "popularity.csv").write_text("item,popularity\n1,many\n")
    with pytest.raises(RatingsError, match="popularity"):
        folder.public_popularity(folder.known.items)
