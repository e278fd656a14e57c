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
