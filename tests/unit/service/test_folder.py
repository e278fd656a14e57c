"""The recommender's folder: enrolment, runs that survive, cohorts that add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hdpmf.common.data import IdIndex, ItemTable, RatingScale
from hdpmf.common.protocol import CatalogueVersion, DeviceCard
from hdpmf.common.protocol.catalogue import catalogue_table, check_chain
from hdpmf.common.protocol.enrolment import Enrolled, devices_needed, read_card
from hdpmf.errors import ConfigError
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.keys import change_items
from tests.world import table


def card(number: int, **change: Any) -> DeviceCard:
    fields = {"name": f"d{number}", "identity": f"{number:064x}", "users": 1} | change
    return DeviceCard(**fields)


@pytest.mark.parametrize(
    "wrong",
    [
        {"identity": f"{1:064x}"},
        {"name": "d1"},
        {"identity": "xyz"},
        {"identity": f"{2:064x}".replace("2", "G")},
        {"users": 0},
        {"name": ""},
        {"name": "a\x1b[2J"},
    ],
)
def test_a_device_is_counted_once_and_its_card_must_make_sense(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    folder = ServiceFolder.create(tmp_path / "r", Config(name="test"), table())
    before = folder.enroll([card(1)]).digest
    with pytest.raises(ConfigError):
        folder.enroll([card(3), card(2, **wrong)])
    assert folder.enrolled.digest == before
    assert len(folder.enrolled) == 1


def test_the_digest_is_of_keys_and_users_in_order() -> None:
    enrolled, other = Enrolled([card(1), card(2)]), Enrolled([card(2), card(1)])
    assert len({enrolled.digest, other.digest, Enrolled([card(1), card(2, users=2)]).digest}) == 3
    assert Enrolled.from_json(enrolled.to_json()).digest == enrolled.digest
    with pytest.raises(ConfigError, match="changed by hand"):
        Enrolled.from_json(enrolled.to_json().replace(b'"users": 1', b'"users": 9', 1))
    assert enrolled.without("d1").cards == (card(2),)
    with pytest.raises(ConfigError, match="no device"):
        enrolled.without("d9")


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"name": "a"}', b"\xff\xfe"])
def test_what_is_no_card_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError):
        read_card(data)


def test_devices_needed_counts_on_the_smallest() -> None:
    assert devices_needed([5, 1, 1, 1], 3) == 3
    assert devices_needed([5, 1, 1, 1], 4) == 4
    assert devices_needed([1, 1], 3) is None


def test_a_folder_in_use_or_not_set_up_is_refused(tmp_path: Path) -> None:
    ServiceFolder.create(tmp_path / "r", Config(name='ünï "quoted"'), table())
    assert ServiceFolder(tmp_path / "r").config.name == 'ünï "quoted"'
    with pytest.raises(ConfigError, match="not empty"):
        ServiceFolder.create(tmp_path / "r", Config(name="test"), table())
    with pytest.raises(ConfigError, match="recommender init"):
        ServiceFolder(tmp_path / "nothing")
    (tmp_path / "r" / "config.toml").write_text("name = 'x'\n[pace]\nattempts = 0\n")
    with pytest.raises(ConfigError, match="attempts"):
        ServiceFolder(tmp_path / "r")


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
    assert isinstance(items, CatalogueVersion)
    check_chain(items)
    assert sorted(map(int, items.table.ids)) == list(range(1, 18))
