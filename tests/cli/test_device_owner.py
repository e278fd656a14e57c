"""What the owner's page does, on the command line: a catalogue, hiding, consent, invitations;
and opening the page.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hdpmf.cli.device import disclosures
from hdpmf.common.protocol.enrolment import Invitation
from hdpmf.common.web import browser
from hdpmf.private.device.consent import consents, pending, postponed
from hdpmf.private.device.disclosures.refusals import RefusalBook
from hdpmf.private.device.memberships import joined_recommenders
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.page.serving import PageServing
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

pytestmark = pytest.mark.slow

FILMS = "item,title,genres,year\n1,Alpha,Drama,1990\n2,Beta,War,1991\n"


def test_a_catalogue_of_a_file_can_be_searched_and_rated(tmp_path: Path, call: Call, path: Path):
    (tmp_path / "films.csv").write_text(FILMS)
    assert call("device", "catalogue", path, tmp_path / "films.csv", "--json").json["items"] == 2
    found = call("device", "rate", path, "--search", "alp", "--json").json["items"]
    assert [entry["title"] for entry in found] == ["Alpha"]
    assert call("device", "catalogue", path, tmp_path / "nothing.csv").code != 0
    assert call("device", "rate", path, "2", "5").code == 0
    assert call("device", "rate", path, "--genre", "War", "--weight", "0.1").code == 0
    told = call("device", "everything", path).json
    assert [(rating["title"], rating["value"], rating["weight"]) for rating in told["ratings"]] == [
        ("Beta", 5.0, 0.1)
    ]
    assert (
        "no such genre" in call("device", "rate", path, "--genre", "Opera", "--weight", "0.1").err
    )
    assert call("device", "rate", path, "--genre", "War").code != 0
    assert call("device", "rate", path, "2", "--genre", "War", "--weight", "0.1").code != 0


def test_marks_are_rules_and_the_least_of_them_counts(tmp_path: Path, call: Call, path: Path):
    """What is asked for may not be what counts, and then it says so."""
    (tmp_path / "films.csv").write_text(FILMS + "3,Gamma,,1992\n")
    call("device", "catalogue", path, tmp_path / "films.csv")
    for item in "23":
        call("device", "rate", path, item, "5")

    def weights() -> list[float]:
        return [row["weight"] for row in call("device", "everything", path).json["ratings"]]

    told = call("device", "rate", path, "--genre", "War", "--weight", "0.1", "--json").json
    assert "Items without a genre (1) could be of a marked one" in told["held"][0]
    assert weights() == [0.1, 0.1]
    told = call("device", "rate", path, "2", "--weight", "0.5", "--json").json
    assert told["held"] == [
        "It weighs 0.1: you gave it the weight 0.5; the genre war is marked as sensitive."
    ]
    assert not call("device", "rate", path, "2", "--weight", "0.02", "--json").json["held"]
    assert weights() == [0.02, 0.1]
    assert call("device", "rate", path, "3", "--unmark", "--json").json["held"] == []
    assert weights() == [0.02, 1.0]
    told = call("device", "rate", path, "--genre", "", "--weight", "0.3")
    assert (told.code, weights()) == (0, [0.02, 0.3])
    told = call("device", "rate", path, "--genre", "war", "--weight", "1", "--json").json
    assert told["held"] == ["1 of them weigh less than 1, by other marks or their own weight."]
    assert weights() == [0.02, 0.3]
    told = call("device", "everything", path).json
    assert told["marks"][-1] == {"genre": "", "weight": 0.3}
    for wrong in (["--unmark"], ["2", "--unmark", "--weight", "1"]):
        assert call("device", "rate", path, *wrong).code != 0


def test_hiding_stays_on_the_device(call: Call, path: Path):
    told = call("device", "hide", path, "7", "--json").json
    assert (told["item"], told["hidden"], told["all_hidden"]) == ("7", True, 1)
    assert call("device", "hide", path, "7", "--again", "--json").json["all_hidden"] == 0
    assert call("device", "ledger", path, "--json").json["entries"] == []


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


def test_never_is_said_to_a_recommender_before_it_asks(tmp_path: Path, call: Call) -> None:
    path = tmp_path / "quiet.sqlite"
    make_store(path=path).close()
    told = call("device", "consent", path, "https://films.example/", "never", "--json").json
    assert (told["recommender"], told["has_left"]) == ("https://films.example", False)
    assert call("device", "consent", path, "--json").json["never"] == ["https://films.example"]
    assert (
        "Never, whatever it asks for: https://films.example" in call("device", "consent", path).out
    )
    assert call("device", "consent", path, "https://films.example", "once").code != 0
    assert call("device", "consent", path, "https://films.example", "again").code == 0
    assert call("device", "consent", path, "--json").json["never"] == []


def test_a_recommender_invites_and_a_device_joins_by_that(
    tmp_path: Path, call: Call, path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "films.csv").write_text(FILMS)
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
    assert "its key never changes" in joined.err  # its card was made by version 1.0.0
    assert "its key never changes" in call("device", "status", path).out
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


def test_a_recommender_without_two_servers_invites_too(
    tmp_path: Path, call: Call, path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "films.csv").write_text(FILMS)
    shop = tmp_path / "shop"
    assert (
        call(
            "recommender",
            "init",
            shop,
            "--items",
            tmp_path / "films.csv",
            "--reach",
            "shop.example",
        ).code
        == 0
    )
    told = call("recommender", "invite", shop, "--json").json
    assert (told["name"], Invitation.read(Path(told["file"]).read_bytes()).name) == (None, "")
    config = (shop / "config.toml").read_text()
    for name, right in (("films.example", False), ("Film  Shop", True)):
        (shop / "config.toml").write_text(config.replace('"recommender"', f'"{name}"'))
        assert (call("recommender", "invite", shop).code == 0) == right
    told = call("recommender", "invite", shop, "--json").json
    invitation = Invitation.read(Path(told["file"]).read_bytes())
    assert told["name"] == invitation.name == "Film Shop"
    bad = call("recommender", "init", tmp_path / "bad", "--items", tmp_path / "films.csv",
               "--name", "Film\u202eshop")  # fmt: skip
    assert "cannot be seen" in bad.err
    assert not (tmp_path / "bad").exists()
    assert invitation == Invitation.read(told["link"].encode())
    assert (told["address"], told["sums"], told["servers"]) == (
        "https://shop.example:9443",
        "direct",
        None,
    )
    assert (invitation.address, invitation.servers, invitation.digest) == (
        told["address"],
        None,
        told["digest"],
    )
    assert "BEGIN CERTIFICATE" in invitation.authority
    said = call("recommender", "invite", shop, "--address", "https://other.example:1")
    assert Invitation.read(Path(told["file"]).read_bytes()).address == "https://other.example:1"
    assert "digest of the invitation" in said.out
    assert call("recommender", "invite", shop, "--public-authority").code == 0
    assert Invitation.read(Path(told["file"]).read_bytes()).authority == ""
    assert (
        "host:port" in call("recommender", "invite", shop, "--address", "http://shop.example").err
    )
    call("recommender", "invite", shop)

    answered: list[str] = []

    def answer(
        store: DeviceStore, where: str, *_: object, **__: object
    ) -> tuple[dict[str, object], str]:
        answered.append(where)
        return {"runs": [], "messages": 0}, "done"

    monkeypatch.setattr("hdpmf.cli.device.join.serve", answer)
    file = ("--invitation", told["file"])
    assert call("device", "join", path, *file).code == 0
    assert "noisy numbers to the recommender directly" in call("device", "recommenders", path).out
    cards = [call("device", "init", tmp_path / f"d{n}", "--json").json["card"] for n in range(3)]
    assert call("recommender", "enroll", shop, f"{path}.card.json", *cards).code == 0
    assert (
        "leave those out"
        in call("device", "join", path, *file, "--servers", "x", "--roster", "y").err
    )
    assert "--every is for" in call("device", "join", path, *file, "--every", "5").err
    told = call("recommender", "enroll", shop, "--json").json
    roster = ("--roster", shop / "roster.json", "--roster-digest", told["digest"])
    done = call("device", "join", path, *file, *roster)
    for card in told["devices"]:
        assert f"  {card['name']}, 1 user" in done.err
    assert (done.code, answered[-1]) == (0, "https://shop.example:9443")
    assert invitation.digest in done.err
    (known,) = call("device", "recommenders", path, "--json").json["recommenders"]
    assert (known["address"], known["servers"], known["roster"]["devices"]) == (
        "https://shop.example:9443",
        None,
        4,
    )
    assert known["roster"]["digest"] in done.err
    assert "sums by masks among 4 devices" in call("device", "recommenders", path).out


def test_opening_refuses_what_makes_no_sense(call: Call, path: Path):
    assert "--idle takes" in call("device", "open", path, "--no-browser", "--idle", "0").err
    assert "--every takes" in call("device", "open", path, "--no-browser", "--every", "0").err
    assert "old copies" in call("device", "open", path, "--no-browser", "--old-copy").err
    assert call("device", "open", path, "--no-browser", "--port", "70000").code != 0


def test_who_names_no_store_opens_the_usual_one(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    served: list[Path] = []
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(PageServing, "serve", lambda self, store, ready: served.append(store))
    assert call("device", "open", "--no-browser").code == 0
    assert served == [tmp_path / "hdpmf" / "store.sqlite"]


def test_the_link_is_opened_by_way_of_a_private_file(monkeypatch: pytest.MonkeyPatch):
    opened: list[str] = []

    def look(address: str) -> bool:
        place = Path(address.removeprefix("file://"))
        assert place.stat().st_mode & 0o077 == 0
        assert place.parent.stat().st_mode & 0o077 == 0
        opened.append(place.read_text("utf-8"))
        return True

    monkeypatch.setattr(browser.webbrowser, "open", look)
    with browser.browser_opener(True) as show:
        show("http://p1.localhost:1/enter#secret")
    assert len(opened) == 1
    assert 'action="http://p1.localhost:1/enter"' in opened[0]
    assert 'name="token" value="secret"' in opened[0]
    with browser.browser_opener(False) as show:
        show("http://p1.localhost:1/enter#secret")
    assert len(opened) == 1


def test_what_was_refused_is_in_the_ledger_in_words_and_as_json(call: Call, path: Path):
    with DeviceStore.open(path) as store:
        book = RefusalBook(store, "films.example")
        for _ in range(2):
            book.note("policy", "the policy allows epsilon 1 at most")
        for number in range(30):
            book.note("protocol", f"nonsense\x1b[2J number {number}.")
        book.settle()
    said = " ".join(call("device", "ledger", path).out.split())
    assert "None of your ratings have ever been sent" in said
    assert "(the last 20; --all for all)" in said
    assert "\x1b" not in said
    assert "number 29." in said
    assert "epsilon 1 at most" not in said
    assert "epsilon 1 at most" in " ".join(call("device", "ledger", path, "--all").out.split())
    told = call("device", "ledger", path, "--json").json["refusals"]
    assert told["refused"][0]["count"] == 2
    assert told["refused"][0]["epsilon"] is None
    assert told["dropped"] == {}
    assert call("device", "everything", path).json["sent"]["refusals"] == told
    assert "What was refused" in call("device", "forget", path, "--ratings", "--yes").err
    assert call("device", "ledger", path, "--json").json["refusals"] == told
