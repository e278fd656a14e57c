"""``hdpmf device join``, with a recommender that offers too much and publishes its model."""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.private.device.store.device_store import DeviceStore

from .conftest import Call

pytestmark = pytest.mark.slow


def test_join_needs_to_know_where_and_whom(rated: Path, tmp_path: Path, call: Call) -> None:
    def said(*arguments: object) -> str:
        ended = call("device", "join", rated, *arguments, "--json")
        assert ended.code == 2
        return str(ended.json["error"]["message"])

    assert "who the recommender is" in said()
    assert "host:port" in said("http://films.example")
    assert "host:port" in said("films.example:9443")
    (tmp_path / "ca.pem").write_text("no certificate")
    assert "authority" in said("https://films.example:9443", "--ca", tmp_path / "ca.pem").lower()
    assert "cannot read" in said("https://films.example:9443", "--ca", tmp_path / "absent.pem")


def test_join_twice_at_a_time(path: Path, call: Call) -> None:
    with DeviceStore.open(path, serving=True):
        ended = call("device", "join", path, "https://films.example:9443", "--json")
    assert ended.code == 8
    assert "in use" in ended.json["error"]["message"]
