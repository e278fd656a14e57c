"""``hdpmf device``: a store is made, filled, looked at, joined to somebody, forgotten."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from hdpmf.cli.device import disclosures
from hdpmf.common.protocol import encode
from hdpmf.common.protocol.identity import Invitation, read_card
from hdpmf.models import HDPSum
from hdpmf.private.device import recommendations
from hdpmf.private.device.consent import consents, pending, postponed
from hdpmf.private.device.memberships import joined_recommenders
from hdpmf.private.device.recommendations import keep_model, recommend
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import LocalModel
from hdpmf.untrusted.service import keys
from tests.unit.device.reporting_world import (
    POLICY,
    SERVERS,
    START,
    World,
    make_store,
    make_task,
    reporter,
)

from .conftest import Call
from .device_world import PASSPHRASE, TABLE, WORLD, pay

pytestmark = pytest.mark.usefixtures("cheap_passphrases")


def test_init_makes_a_private_store_and_a_public_card(tmp_path: Path, call: Call) -> None:
    where = tmp_path / "store.hdpmf"
    made = call("device", "init", where, "--name", "clinic", "--json").json
    assert (made["encrypted"], made["name"]) == (False, "clinic")
    assert stat.S_IMODE(where.stat().st_mode) == 0o600
    card = read_card(Path(made["card"]).read_bytes())
    assert (card.identity, card.name) == (made["identity"], "clinic")
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
    monkeypatch.setenv("HDPMF_DEVICE_PASSPHRASE_FILE", str(secret))
    assert call("device", "init", where, "--encrypt", "--json").json["encrypted"]
    assert call("device", "status", where).code == 0
    secret.write_text("wrong\n")
    ended = call("device", "status", where)
    assert ended.code == 5
    assert "wrong; nothing" in ended.err
    monkeypatch.delenv("HDPMF_DEVICE_PASSPHRASE_FILE")
    ended = call("device", "status", where)
    assert ended.code == 5
    assert "HDPMF_DEVICE_PASSPHRASE_FILE" in ended.err
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
    assert (before["tasks_under_way"], before["model"], before["address"]) == ([], None, None)
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
            LocalModel(
                recommender="r",
                run="ab" * 16,
                method="hdp-sum",
                view="two-servers",
                survey=None,
                numbers=encode(model.facts_),
            ),
        )
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
    assert found["items"][0]["reason"] in shown.out
    first = found["items"][0]["item"]
    hidden = call("device", "recommend", rated, "-n", "4", "--hide", first, "--json").json
    assert first not in {one["item"] for one in hidden["items"]}
    again = call("device", "recommend", rated, "-n", "4", "--show", first, "--json").json
    assert again["items"][0]["item"] == first
    comedies = call(
        "device", "recommend", rated, "--genre", "Comedy", "--keep-rated", "--json"
    ).json["items"]
    assert comedies
    assert all("Comedy" in one["genres"] for one in comedies)
    assert "there are Action, " in call("device", "recommend", rated, "--genre", "Comdy").err


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


def test_rating_listing_and_removing(rated: Path, call: Call) -> None:
    items = TABLE.ids[:3]
    assert call("device", "rate", rated, items[0], "2", "--json").json["ratings"] == 3
    assert call("device", "rate", rated, items[1], "--remove").code == 0
    assert call("device", "rate", rated, items[1], "--remove").code == 3
    assert call("device", "rate", rated, items[2], "--weight", "0.5").code == 0
    assert call("device", "rate", rated, "--weight", "0.5").code == 0
    listed = call("device", "rate", rated, "--list", "--json").json["ratings"]
    assert [(one["item"], one["value"], one["weight"]) for one in listed] == [
        (items[0], 2.0, 0.5),
        (items[2], 3.0, 0.25),
    ]
    assert listed[0]["title"] == TABLE.titles[0]
    table = call("device", "rate", rated, "--list").out
    assert TABLE.titles[0] in table


def test_a_file_of_ones_own_is_looked_into_before_it_is_taken_in(
    rated: Path, tmp_path: Path, call: Call
) -> None:
    file = tmp_path / "mine.csv"
    titles = [TABLE.titles[place] for place in (0, 5)]
    file.write_text(
        f'title,rating\n"{titles[0]}",5\n"{titles[1]}",4\nNo Such Film,3\n"{titles[1]}",99\n'
    )
    own = ("device", "rate", rated, "--own", file)
    counts = {"new": 1, "changed": 1, "unknown": 1, "off_scale": 1, "repeated": 0}
    looked = call(*own, "--json").json
    assert {name: looked[name] for name in counts} == counts
    assert (looked["taken"], looked["ratings"]) == (0, 3)
    assert "Nothing was changed" in call(*own).out
    assert "Taken in: 2" in call(*own, "--take").out
    listed = call("device", "rate", rated, "--list", "--json").json["ratings"]
    assert {entry["title"]: entry["value"] for entry in listed}.items() >= dict(
        zip(titles, (5.0, 4.0), strict=True)
    ).items()
    assert call("device", "rate", rated, "--list", "--take").code == 2
    assert call("device", "rate", rated, "--own", tmp_path / "none.csv").code != 0


def test_changing_or_removing_what_was_released_is_told_honestly(rated: Path, call: Call) -> None:
    fresh = call("device", "rate", rated, TABLE.ids[0], "2", "--json").json
    assert fresh["released"] == []
    pay(rated)
    said = " ".join(call("device", "ledger", rated).out.split())
    assert "afterwards" not in said
    changed = call("device", "rate", rated, TABLE.ids[0], "4")
    words = " ".join(changed.out.split())
    assert "released on 20" in words
    assert "to films.example:9443 (hdp-sum, run abababab)" in words
    assert (
        "cannot be recalled. The new value is not sent to this recommender: a rating "
        "answers it once." in words
    )
    removed = call("device", "rate", rated, TABLE.ids[1], "--remove", "--json").json
    (release,) = removed["released"]
    assert (release["run"], release["method"], release["recommender"]) == (
        "ab" * 16,
        "hdp-sum",
        "films.example:9443",
    )
    assert "stays sent and cannot be recalled." in release["words"]
    assert "new value" not in release["words"]
    said = " ".join(call("device", "ledger", rated).out.split())
    assert (
        "Of these ratings you changed 1 and removed 1 on this device afterwards. What "
        "was sent stays sent" in said
    )
    (run,) = call("device", "ledger", rated, "--json").json["runs"]
    assert (run["ratings"], run["changed_afterwards"], run["removed_afterwards"]) == (3, 1, 1)
    listed = {
        rating["item"]: rating["released"]
        for rating in call("device", "rate", rated, "--list", "--json").json["ratings"]
    }
    assert [release["changed_afterwards"] for release in listed[TABLE.ids[0]]] == [True]
    assert [release["changed_afterwards"] for release in listed[TABLE.ids[2]]] == [False]
    table = call("device", "rate", rated, "--list").out
    assert table.count("changed since") == 1


def test_a_new_passphrase_is_never_the_one_of_the_environment(
    path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opens stores: taken for the new one, it would make a change of nothing to something
    that looks like one.
    """
    monkeypatch.setenv("HDPMF_DEVICE_PASSPHRASE", PASSPHRASE)
    told = call("device", "passphrase", path)
    assert told.code != 0
    assert "--new-passphrase-file" in told.err
    assert not DeviceStore.is_encrypted(path)


def test_ledger_says_what_was_sent_and_what_it_reveals(rated: Path, call: Call) -> None:
    assert "None of your ratings have ever been sent" in call("device", "ledger", rated).out
    pay(rated)
    said = " ".join(call("device", "ledger", rated).out.split())
    for words in (
        "films.example:9443",
        "for 3 ratings",
        "secure sum",
        "sees one sum over devices",
        "PROVED",
        "at most 63 %",
    ):
        assert words in said, words
    document = call("device", "ledger", rated, "--json").json
    (run,) = document["runs"]
    assert run["cost"]["pure_epsilon"] == pytest.approx(0.5)
    assert (run["cost"]["status"], run["ratings"], run["sent"]) == ("proved", 3, 1)
    assert document["spent_total"] == 1.5
    together = document["spent_together"]
    assert (together["proved"], together["delta"]) == (True, 1e-5)
    assert together["pure_epsilon"] == pytest.approx(1.5)
    assert together["epsilon_at_delta"] == pytest.approx(1.5, rel=1e-3)
    assert "your ratings have used epsilon 1.5" in said
    assert [one["action"] for one in document["entries"]] == ["agreed", "sent"]


def test_questions_are_shown_with_their_numbers_and_answered(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "asked.sqlite"
    store, world = make_store(path=path, policy=msgspec.structs.replace(POLICY, ask=True)), World()
    world.publish(task=make_task())
    monkeypatch.setattr(disclosures.time, "time", lambda: float(START))
    reporter(store, world).step()
    assert len(pending(store)) == 1
    store.close()
    (question,) = call("device", "consent", path, "--json").json["questions"]
    assert (question["method"], question["epsilon"], question["answer"]) == ("hdp-sum", 0.5, None)
    assert question["digest"] == SERVERS.digest
    assert len(question["numbers"]) == question["ratings"] == 6
    said = call("device", "consent", path)
    assert "6 of your ratings would take part" in said.out
    assert "cannot be taken back" in said.out.replace("\n  ", " ")
    for wrong in (("1",), ("1", "maybe"), ("2", "once")):
        assert call("device", "consent", path, *wrong).code != 0
    assert call("device", "consent", path, "1", "later").code == 0
    with DeviceStore.open(path) as opened:
        assert (pending(opened, START), len(postponed(opened, START))) == ([], 1)
    assert call("device", "consent", path, "1", "never").code == 0  # it is listed all the same
    with DeviceStore.open(path) as opened:
        assert [consent.answer for consent in consents(opened)] == ["never"]
    assert call("device", "consent", path, "--json").json["questions"][0]["answer"] == "never"
    assert call("device", "consent", path, "1", "again").code == 0
    with DeviceStore.open(path) as opened:
        assert consents(opened) == []


def test_a_recommender_invites_and_a_device_joins_by_that(
    tmp_path: Path, call: Call, path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "films.csv").write_text("item,title\n1,Alpha\n2,Beta\n")
    shop = tmp_path / "shop"
    assert (
        call("recommender", "init", shop, "--items", tmp_path / "films.csv", "--port", 9443).code
        == 0
    )
    monkeypatch.setattr(keys, "pinned_servers", lambda folder: SERVERS)
    told = call("recommender", "invite", shop, "--json").json
    invitation = Invitation.read(Path(told["file"]).read_bytes())
    assert invitation == Invitation.read(told["link"].encode())
    assert (invitation.address, invitation.servers) == ("https://localhost:9443", SERVERS)
    assert "BEGIN CERTIFICATE" in invitation.authority
    assert (
        Invitation.read(
            Path(
                call("recommender", "invite", shop, "--public-authority", "--json").json["file"]
            ).read_bytes()
        ).authority
        == ""
    )

    from hdpmf.cli.device import join

    monkeypatch.setattr(join, "serve", lambda *_, **__: ({"reports": 0, "model": False}, ""))
    refused = call("device", "join", path, "https://other.example", "--invitation", told["file"])
    assert "leave those out" in refused.err
    joined = call("device", "join", path, "--invitation", told["file"])
    assert joined.code == 0
    with DeviceStore.open(path) as store:
        assert [known.address for known in joined_recommenders(store)] == ["https://localhost:9443"]
        assert store.policy.servers == (SERVERS.digest,)
    where = "https://localhost:9443"
    assert call("device", "recommenders", path, where, "--pause", "--json").json["recommenders"][0][
        "paused"
    ]
    assert "(paused)" in call("device", "recommenders", path).out
    assert not call("device", "recommenders", path, where, "--resume", "--json").json[
        "recommenders"
    ][0]["paused"]
    for wrong in (
        (where,),
        (where, "--pause", "--leave"),
        ("--leave",),
        ("https://nobody.example", "--leave"),
    ):
        assert call("device", "recommenders", path, *wrong).code != 0
    assert "cannot be recalled" in call("device", "recommenders", path, where, "--leave").err
    assert call("device", "recommenders", path, "--json").json["recommenders"] == []
    with DeviceStore.open(path) as store:
        assert store.policy.servers == ()
