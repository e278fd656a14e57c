"""``hdpmf device`` without a network: a store is made, looked at, asked for recommendations and
forgotten.
"""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hdpmf.common.protocol import encode
from hdpmf.common.protocol.enrolment import read_card
from hdpmf.models import HDPSum
from hdpmf.private.device import recommendations
from hdpmf.private.device.recommendations import keep_model, recommend
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import LocalModel

from .conftest import Call
from .device_world import PASSPHRASE, TABLE, WORLD, pay

pytestmark = pytest.mark.usefixtures("cheap_passphrases")


def test_init_makes_a_private_store_and_a_public_card(tmp_path: Path, call: Call) -> None:
    where = tmp_path / "silo.hdpmf"
    made = call("device", "init", where, "--users", "3", "--name", "clinic", "--json").json
    assert (made["users"], made["encrypted"], made["name"]) == (3, False, "clinic")
    assert stat.S_IMODE(where.stat().st_mode) == 0o600
    card = read_card(Path(made["card"]).read_bytes())
    assert (card.identity, card.users, card.name) == (made["identity"], 3, "clinic")
    with DeviceStore.open(where) as store:
        assert store.identity.public.hex() == card.identity
        assert store.identity.secret_bytes().hex() not in Path(made["card"]).read_text()
    again = tmp_path / "card again"
    assert call("device", "status", where, "--card", again).code == 0
    assert again.read_bytes() == Path(made["card"]).read_bytes()


def test_the_passphrase_comes_from_a_file_or_the_environment(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, secret = tmp_path / "store", tmp_path / "passphrase"
    secret.write_text(PASSPHRASE + "\n")
    assert call("device", "init", where, "--encrypt", "--passphrase-file", secret, "--json").json[
        "encrypted"
    ]
    ended = call("device", "status", where)
    assert ended.code == 5
    assert "HDPMF_DEVICE_PASSPHRASE" in ended.err
    assert call("device", "status", where, "--passphrase-file", secret).code == 0
    secret.write_text("wrong\n")
    ended = call("device", "status", where, "--passphrase-file", secret)
    assert ended.code == 5
    assert "wrong; nothing" in ended.err
    monkeypatch.setenv("HDPMF_DEVICE_PASSPHRASE", PASSPHRASE)
    for command in (
        ("rate", where, "7", "3"),
        ("status", where),
        ("ledger", where),
        ("policy", where),
    ):
        ended = call("device", *command)
        assert ended.code == 0
        assert PASSPHRASE not in ended.out + ended.err


def test_status(rated: Path, call: Call) -> None:
    before = call("device", "status", rated, "--json").json
    assert before["ratings"] == 3
    assert before["catalogue"]["items"] == 40
    assert before["budget"] == {"epsilon": 1.0, "untouched": 3, "partly_spent": 0, "spent": 0}
    assert (before["roster"], before["runs_under_way"], before["model"], before["address"]) == (
        None,
        [],
        None,
        None,
    )
    pay(rated)
    half = call("device", "status", rated, "--json").json
    assert (half["budget"]["partly_spent"], half["spent_total"], half["ledger_entries"]) == (
        3,
        1.5,
        2,
    )
    assert "3 partly spent" in call("device", "status", rated).out


def test_recommend_is_local(rated: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    # Lists go by the clock, and a new hour could begin between two of them.
    monkeypatch.setattr(recommendations, "time", SimpleNamespace(time=lambda: 2e9))
    assert call("device", "recommend", rated).code == 2
    model = HDPSum(rng=0).fit(WORLD)
    with DeviceStore.open(rated) as store:
        keep_model(
            store,
            LocalModel(recommender="r", run="ab" * 16, method="hdp-sum", view="sums", plan=None,
                       numbers=encode(model.facts_)),
        )  # fmt: skip
    found = call("device", "recommend", rated, "-n", "4", "--json").json
    assert len(found["items"]) == 4
    assert not {one["item"] for one in found["items"]} & set(TABLE.ids[:3])
    with DeviceStore.open(
        rated
    ) as store:  # by what is chosen and liked, so that predicted ratings need not fall
        expected = [(one.item, one.score) for one in recommend(store, 4)]
    assert [(one["item"], one["score"]) for one in found["items"]] == expected
    shown = call("device", "recommend", rated, "-n", "4")
    assert found["items"][0]["title"] in shown.out
    assert "nothing was sent" in shown.err
    assert call("device", "recommend", rated, "--user", "nobody").code == 3
    assert found["items"][0]["reason"] in shown.out
    everyone = call("device", "recommend", rated, "-n", "4", "--all-users", "--json").json
    assert everyone["lists"] == [{"user": "me", "items": found["items"]}]
    assert everyone["method"] == "hdp-sum"
    comedies = call(
        "device", "recommend", rated, "--genre", "Comedy", "--keep-rated", "--json"
    ).json["items"]
    assert comedies
    assert all("Comedy" in one["genres"] for one in comedies)
    assert "there are Action, " in call("device", "recommend", rated, "--genre", "Comdy").err
    assert call("device", "recommend", rated, "--user", "me", "--all-users").code == 2


def test_forgetting_everything_warns_and_deletes(rated: Path, call: Call) -> None:
    ended = call("device", "forget", rated, "--everything", "--yes", "--json")
    assert "spent a second time" in ended.err
    assert ended.json == {
        "store": str(rated), "forgotten": "everything", "ledger_kept": False,
        "hdpmf_version": ended.json["hdpmf_version"],
    }  # fmt: skip
    assert [one.name for one in rated.parent.iterdir()] == ["me.hdpmf.card.json"]


@pytest.mark.parametrize(
    "command", ["status", "rate", "recommend", "ledger", "policy", "forget", "join"]
)
def test_no_store_is_said_by_every_command(tmp_path: Path, call: Call, command: str) -> None:
    extra = {"rate": ("7", "3"), "forget": ("--ratings", "--yes")}.get(command, ())
    ended = call("device", command, tmp_path / "absent", *extra, "--json")
    assert ended.code == 2
    assert "hdpmf device init" in ended.json["error"]["message"]


def test_a_damaged_store(path: Path, call: Call) -> None:
    path.write_bytes(path.read_bytes()[:3000])
    ended = call("device", "status", path, "--json")
    assert ended.code == 8
    assert "damaged" in ended.json["error"]["message"]


def test_without_the_federation_extra_it_says_what_to_install(tmp_path: Path) -> None:
    script = (
        "import sys\nsys.modules['cryptography'] = None\n"
        "from hdpmf.cli.main import run\nrun(['device', 'init', sys.argv[1], '--json'])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "store"], capture_output=True, text=True
    )
    assert ended.returncode == 9, ended.stderr
    assert "hdpmf[federation]" in json.loads(ended.stdout)["error"]["message"]
    assert list(tmp_path.iterdir()) == []
