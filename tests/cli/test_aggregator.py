"""``hdpmf aggregator``: set up, pair, admit, look, and refuse."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from .conftest import Call

pytest.importorskip("pyhpke")

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.identity import Identity, PartyKey
from hdpmf.common.protocol.servers import Collector, Servers, card_to_json, read_server

OPTIONS = {
    "leader": (
        "--role",
        "leader",
        "--organisation",
        "North",
        "--name",
        "localhost",
        "--listen",
        9501,
    ),
    "helper": (
        "--role",
        "helper",
        "--organisation",
        "South",
        "--name",
        "sums.south.example",
        "--listen",
        9502,
    ),
}


@pytest.fixture
def pair(call: Call, tmp_path: Path) -> tuple[Path, Path]:
    """Two servers that have not met."""
    folders = tmp_path / "leader", tmp_path / "helper"
    for folder in folders:
        assert call("aggregator", "init", folder, *OPTIONS[folder.name]).code == 0
    return folders


def collector(path: Path, name: str) -> Collector:
    card = Collector(
        organisation=name,
        hpke=to_base64(KeyPair.generate().config.encode()),
        identity=PartyKey.generate().public,
    )
    path.write_bytes(card_to_json(card))
    return card


def test_a_server_is_set_up_with_secret_keys_and_a_public_card(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "leader"
    made = call("aggregator", "init", folder, *OPTIONS["leader"], "--json").json
    assert (made["role"], made["url"], made["partner"]) == (
        "leader",
        "https://localhost:9501",
        None,
    )
    assert folder.stat().st_mode & 0o777 == 0o700
    keys = [
        *(folder / "keys").iterdir(),
        folder / "tls" / "server.key",
        folder / "tls" / "server.key",
    ]
    keys += [folder / "hpke-keys", folder / "noise-key"]
    assert len(keys) == 7
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in keys)
    card = (folder / "card.json").read_bytes()
    assert read_server(card).authority.startswith("-----BEGIN CERTIFICATE-----")
    party = (folder / "keys" / "party.key").read_bytes()
    assert party.hex().encode() not in card
    signing = Identity((folder / "keys" / "signing.key").read_bytes())
    assert to_base64(signing.public) == read_server(card).signing
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["leader"]


def test_both_of_a_pair_write_the_same_file(call: Call, pair: tuple[Path, Path]) -> None:
    leader, helper = pair
    first = call("aggregator", "pair", leader, helper / "card.json", "--json").json
    second = call("aggregator", "pair", helper, leader / "card.json", "--json").json
    assert first["digest"] == second["digest"]
    assert (first["partner"], second["partner"]) == ("South", "North")
    assert (leader / "servers.json").read_bytes() == (helper / "servers.json").read_bytes()
    servers = Servers.from_json((leader / "servers.json").read_bytes())
    assert (servers.leader.organisation, servers.helper.organisation) == ("North", "South")
    assert first["digest"] in call("aggregator", "status", leader).out


def test_a_partner_is_pinned_for_good(call: Call, pair: tuple[Path, Path], tmp_path: Path) -> None:
    leader, helper = pair
    for _ in range(2):  # the same one again is nothing new
        assert call("aggregator", "pair", leader, helper / "card.json").code == 0
    other = tmp_path / "other"
    call("aggregator", "init", other, *OPTIONS["helper"])
    before = (leader / "servers.json").read_bytes()
    refused = call("aggregator", "pair", leader, other / "card.json")
    assert refused.code == 2
    assert "is paired with 'South'" in refused.err
    assert (leader / "servers.json").read_bytes() == before


def test_two_servers_on_one_machine_are_for_trials(
    call: Call, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    leader, _ = pair
    neighbour = tmp_path / "neighbour"
    call("aggregator", "init", neighbour, *OPTIONS["helper"], "--name", "127.0.0.1")
    refused = call("aggregator", "pair", leader, neighbour / "card.json")
    assert refused.code == 2
    assert "both servers are on one host (localhost)" in refused.err
    assert not (leader / "servers.json").exists()
    allowed = call("aggregator", "pair", leader, neighbour / "card.json", "--same-host")
    assert allowed.code == 0
    assert "WARNING: both servers are on one machine" in allowed.err
    assert (leader / "servers.json").exists()


def test_recommenders_are_admitted_and_dismissed(
    call: Call, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    leader, _ = pair
    assert "no recommender may have sums" in call("aggregator", "admit", leader).out
    cards = {name: collector(tmp_path / f"{name}.json", name) for name in ("shop", "films")}
    paths = [tmp_path / f"{name}.json" for name in cards]
    found = call("aggregator", "admit", leader, *paths, "--json").json["collectors"]
    assert {(card["organisation"], card["identity"]) for card in found} == {
        (name, card.identity) for name, card in cards.items()
    }
    assert call("aggregator", "admit", leader, paths[0], "--json").json["collectors"] == found
    assert "called 'nobody'" in call("aggregator", "admit", leader, "--remove", "nobody").err
    left = call("aggregator", "admit", leader, "--remove", "shop", "--json").json["collectors"]
    assert [card["organisation"] for card in left] == ["films"]


def test_limits_are_read_from_the_file(call: Call, pair: tuple[Path, Path]) -> None:
    leader, _ = pair
    config = leader / "config.toml"
    config.write_text(config.read_text().replace("waiting_uploads = 1024", "waiting_uploads = 0"))
    refused = call("aggregator", "status", leader)
    assert refused.code == 2
    assert "waiting_uploads must be more than 0" in refused.err


def test_a_server_without_a_partner_does_not_run(call: Call, pair: tuple[Path, Path]) -> None:
    refused = call("aggregator", "serve", pair[0])
    assert refused.code == 2
    assert "has no partner yet" in refused.err


def test_several_workers_need_a_database_that_they_share(
    call: Call, pair: tuple[Path, Path]
) -> None:
    leader, helper = pair
    call("aggregator", "pair", leader, helper / "card.json")
    refused = call("aggregator", "serve", leader, "--workers", 2)
    assert refused.code == 2
    assert "postgresql+psycopg" in refused.err


def test_a_taken_port_is_an_error_of_one_line(call: Call, pair: tuple[Path, Path]) -> None:
    leader, helper = pair
    call("aggregator", "pair", leader, helper / "card.json")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = leader / "config.toml"
        config.write_text(
            config.read_text().replace("port = 9501", f"port = {taken.getsockname()[1]}")
        )
        refused = call("aggregator", "serve", leader)
    assert refused.code == 2
    assert "cannot listen on 127.0.0.1" in refused.err


def test_a_new_key_by_hand(call: Call, pair: tuple[Path, Path]) -> None:
    leader, _ = pair
    card = (leader / "card.json").read_bytes()
    first = call("aggregator", "rotate-keys", leader, "--json").json["keys"]
    assert [key["id"] for key in first] == [1, 0]
    assert "number 1" in call("aggregator", "status", leader).out
    assert "2 older, for reports under way" in call("aggregator", "rotate-keys", leader).out
    erased = call("aggregator", "rotate-keys", leader, "--erase")
    assert "none older" in erased.out
    assert [key["id"] for key in call("aggregator", "status", leader, "--json").json["keys"]] == [3]
    assert (leader / "card.json").read_bytes() == card


def test_a_new_epoch_by_hand(call: Call, pair: tuple[Path, Path]) -> None:
    leader, helper = pair
    call("aggregator", "pair", leader, helper / "card.json")
    first = call("aggregator", "epoch", leader, "--json").json
    said = call("aggregator", "epoch", leader)
    epoch = call("aggregator", "status", leader, "--json").json["epoch"]
    assert first["ended_tasks"] == 0
    assert f"epoch {epoch} has begun" in said.out
    assert epoch > first["epoch"]
