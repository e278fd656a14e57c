from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.cli.options.common import DATASET_NAMES

from .conftest import Call


def test_list(call: Call) -> None:
    found = call("data", "list", "--json").json["datasets"]
    assert [one["name"] for one in found] == list(DATASET_NAMES)
    assert all(one["title"] and one["how_to_get"] for one in found)
    shown = call("data", "list").out
    assert all(one["title"] in shown for one in found)


def test_list_says_how_to_get_what_is_absent(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HDPMF_DATA", raising=False)
    assert "hdpmf data get ml-1m" in call("data", "list").out


def test_info(call: Call) -> None:
    found = call("data", "info", "synthetic", "--json").json
    assert (found["users"], found["items"], found["ratings"]) == (600, 400, 40_000)
    assert [one["rating"] for one in found["distribution"]] == ["1", "2", "3", "4", "5"]
    assert sum(one["count"] for one in found["distribution"]) == 40_000
    shown = call("data", "info", "synthetic").out
    assert "40,000 ratings" in shown
    assert "#" * 40 in shown


def test_info_of_what_is_absent(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HDPMF_DATA", raising=False)
    result = call("data", "info", "yelp")
    assert result.code == 4
    assert "--from FILE" in result.err


def test_get_from_a_file(
    call: Call, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HDPMF_CACHE", str(tmp_path))
    result = call("data", "get", "ml-100k", "--from", data_folder / "ml-100k.zip", "--json")
    assert result.json["path"] == str(tmp_path / "ml-100k.zip")
    assert (tmp_path / "ml-100k.zip").stat().st_size == result.json["bytes"]
    monkeypatch.delenv("HDPMF_DATA", raising=False)
    assert str(tmp_path / "ml-100k.zip") in call("data", "list").out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("get", "movies"), 4),
        (("get", "synthetic"), 2),
        (("get", "yelp"), 4),
        (("get", "ml-100k", "--from", "absent.zip"), 4),
        (("info", "movies"), 4),
    ],
)
def test_what_cannot_be_got(call: Call, arguments: tuple[str, ...], code: int) -> None:
    result = call("data", *arguments)
    assert result.code == code
    assert result.err.count("\n") == 1
    assert result.out == ""


def test_get_refuses_something_else(
    call: Call, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HDPMF_CACHE", str(tmp_path))
    assert call("data", "get", "douban", "--from", files[0]).code == 4
    assert list(tmp_path.iterdir()) == []
