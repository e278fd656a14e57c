"""Moving to another computer on the page: at most one store goes on, whatever is clicked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hdpmf.common.web.local_server import BrowserSessions
from hdpmf.errors import ConfigError
from hdpmf.private.device.store import transfer
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.page.http import OwnerPage
from hdpmf.private.page.owner import Owner
from tests.world import Clock

from .conftest import ORIGIN, PASSPHRASE, Client, Person, address_of, complaints

FILE = "file-passphrase-é"
MOVE = {"new": FILE, "again": FILE}


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Person]:
    """The same person at another computer, without a store."""
    (tmp_path / "other").mkdir()
    sessions = BrowserSessions(idle=60, clock=(clock := Clock()))
    owner = Owner(tmp_path / "other" / "me.sqlite", lambda line: None)
    there = Person(owner.path, clock, sessions, owner)
    there.page = OwnerPage(owner, address_of(owner.path), sessions, lambda: None)
    there.client = Client(there.page.app())
    there.enter()
    yield there
    there.client.close()
    owner.end()


def csrf(person: Person, path: str) -> str:
    return re.search(r'data-csrf="([^"]+)"', person.get(path).text)[1]  # type: ignore[index]


def click(person: Person, path: str, fields: dict[str, str], page: str = "/moved"):
    data = {"csrf": csrf(person, page)} | fields
    return person.client.post(path, data=data, headers={"origin": ORIGIN}, follow_redirects=False)


def take_in(person: Person, data: bytes, passphrase: str = FILE) -> str:
    escaped = passphrase.encode("unicode_escape").decode().replace("\\xe9", "\\u00e9")
    head = {"origin": ORIGIN, "x-csrf": csrf(person, "/welcome")}
    head |= {"content-type": "application/octet-stream"}
    head |= {"x-fields": f'{{"passphrase": "{escaped}", "kind": "export"}}'}
    return person.client.post("/welcome/bring", content=data, headers=head).json()["next"]


def moved(person: Person, **fields: str) -> bytes:
    """Move away, and save the file."""
    assert person.post("/settings/move", MOVE | fields).headers["location"] == "/moved"
    answer = click(person, "/moved/file", {})
    assert answer.headers["content-disposition"] == 'attachment; filename="hdpmf.export"'
    return answer.content


def test_a_store_goes_to_another_computer_whole(person: Person, other: Person) -> None:
    with person.owner.store() as store:
        identity = store.identity.public
    data = moved(person)
    assert identity not in data
    # Here it is closed, on every page and after a restart.
    for path in ("/", "/rate", "/settings", "/recommendations"):
        assert person.get(path).headers["location"] == "/moved"
    assert "It is closed here" in person.get("/moved").text
    with pytest.raises(ConfigError, match="was moved away"):
        DeviceStore.open(person.path)
    with pytest.raises(ConfigError, match="was moved away"):
        person.owner.open(None)

    assert take_in(other, b"something else") == "/welcome"
    assert any("is no export" in words for words in complaints(other.get("/welcome").text))
    assert take_in(other, data, "wrong") == "/welcome"
    assert not other.path.exists()
    assert [path.name for path in other.path.parent.iterdir()] == ["me.sqlite.page"]
    assert take_in(other, data) == "/"
    assert "Delete the file now" in other.get("/start").text + other.get("/rate").text
    with other.owner.store() as store:
        assert (store.identity.public, store.n_ratings, store.encrypted) == (identity, 2, True)
    assert not other.path.with_name("me.sqlite.import").exists()

    # And then it is deleted here; the page stays where it is.
    assert "Tick the box" in click(person, "/moved", {"what": "remove"}).text
    assert (
        click(person, "/moved", {"what": "remove", "sure": "yes"}).headers["location"] == "/welcome"
    )
    left = {path.name for path in person.path.parent.iterdir()} - {"other"}
    assert left == {"me.sqlite.page"}


def test_it_is_taken_back_by_the_owners_word(person: Person) -> None:
    moved(person)
    assert click(person, "/moved", {"what": "back", "sure": "yes"}).headers["location"] == "/"
    assert not person.owner.export.exists()
    with person.owner.store() as store:
        assert store.n_ratings == 2
    moved(person)  # and it can leave a second time
    person.owner.export.unlink()
    assert "Save the file" not in person.get("/moved").text
    assert "no longer here" in click(person, "/moved/file", {}).text
    assert click(person, "/moved", {"what": "back", "sure": "yes"}).headers["location"] == "/"
    assert person.owner.is_open


def test_passphrases_are_asked_for(person: Person) -> None:
    person.post("/settings/passphrase", {"new": PASSPHRASE, "again": PASSPHRASE})
    for fields in ({"new": FILE, "again": "other"}, {"new": "", "again": ""}, MOVE | {"old": "no"}):
        assert person.post("/settings/move", fields).headers["location"] == "/settings"
        assert complaints(person.get("/settings").text)
        assert person.owner.is_open
    moved(person, old=PASSPHRASE)
    for what in ("back", "remove"):
        fields = {"what": what, "sure": "yes", "passphrase": "no"}
        assert complaints(click(person, "/moved", fields).text)
    assert person.path.exists()
    person.clock.now += 61  # somebody else is at the screen now
    assert person.get("/moved").headers["location"] == "/unlock"
    answer = click(person, "/unlock", {"passphrase": PASSPHRASE}, "/unlock")
    assert answer.headers["location"] == "/moved"
    fields = {"what": "back", "sure": "yes", "passphrase": PASSPHRASE}
    assert click(person, "/moved", fields).headers["location"] == "/"
    assert person.owner.is_open


def test_passphrases_cannot_be_tried_for_ever(person: Person) -> None:
    person.post("/settings/passphrase", {"new": PASSPHRASE, "again": PASSPHRASE})
    moved(person, old=PASSPHRASE)
    wrong = {"what": "back", "sure": "yes", "passphrase": "no"}
    said = [click(person, "/moved", wrong).text for _ in range(5)]
    assert "too many wrong passphrases" in said[-1]
    right = click(person, "/moved", wrong | {"passphrase": PASSPHRASE}).text
    assert "too many wrong passphrases" in right


def test_a_page_that_was_cut_short_goes_on(
    person: Person, other: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = moved(person)

    def killed(file: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(transfer, "_delete", killed)
    with pytest.raises(KeyboardInterrupt):
        other.owner.bring(data, FILE)
    monkeypatch.undo()
    assert other.path.exists()
    other.owner.open(FILE)
    with other.owner.store() as store:
        assert store.n_ratings == 2
    assert not other.path.with_name("me.sqlite.import").exists()


def test_nobody_brings_a_store_over_another_or_without_the_page(
    person: Person, other: Person
) -> None:
    data = moved(person)
    headers = {"origin": ORIGIN, "x-csrf": "no", "content-type": "application/octet-stream"}
    assert other.client.post("/welcome/bring", content=data, headers=headers).status_code == 403
    assert person.client.post("/welcome/bring", content=data, headers=headers).status_code == 403
    assert (
        person.client.post(
            "/moved/file", data={"csrf": "no"}, headers={"origin": ORIGIN}
        ).status_code
        == 403
    )
    # Nor where there is a store already.
    assert take_in(other, data) == "/"
    headers["x-csrf"] = other.csrf
    assert other.client.post("/welcome/bring", content=data, headers=headers).status_code == 403
    assert not other.path.with_name("me.sqlite.import").exists()
