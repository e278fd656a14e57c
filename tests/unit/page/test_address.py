"""The page's address stays the same; only its owner gets links and is asked for the passphrase."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hdpmf.common.data import RatingScale
from hdpmf.common.web.local_server import BrowserSessions, Loopback, local_server
from hdpmf.errors import ConfigError
from hdpmf.private.device.device_identity import new_device
from hdpmf.private.page.address import PageAddress
from hdpmf.private.page.http import OwnerPage
from hdpmf.private.page.owner import Owner

from .conftest import ORIGIN, PASSPHRASE, Client, Person, address_of, fill

STRANGERS = {"sec-fetch-site": "none"}


def listen(store: Path, port: int = 0) -> tuple[PageAddress, Loopback]:
    return PageAddress.of(store).listen(port)


@contextmanager
def running(store: Path) -> Iterator[tuple[PageAddress, BrowserSessions]]:
    """The page of a store, as a server in this process."""
    address, loopback = listen(store)
    sessions = BrowserSessions()
    owner = Owner(store, lambda line: None)
    ready = threading.Event()
    server = local_server(OwnerPage(owner, address, sessions, lambda: None).app(), ready.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": list(loopback.sockets)})
    thread.start()
    try:
        assert ready.wait(30)
        yield address, sessions
    finally:
        server.should_exit = True
        thread.join(30)
        loopback.close()
        owner.end()


def test_the_address_is_the_same_at_every_start(tmp_path: Path):
    first, loopback = listen(tmp_path / "me.sqlite")
    loopback.close()
    second, loopback = listen(tmp_path / "me.sqlite")
    loopback.close()
    other, loopback = listen(tmp_path / "you.sqlite")
    loopback.close()
    assert first.host == second.host != other.host
    assert first.key != second.key  # what one start gave out is worth nothing at the next
    assert (tmp_path / "me.sqlite.page").stat().st_mode & 0o077 == 0
    assert first.key not in repr(first)


def test_a_port_that_is_taken_moves_the_page_unless_it_was_asked_for(tmp_path: Path):
    first, loopback = listen(tmp_path / "me.sqlite")
    try:
        moved, elsewhere = listen(tmp_path / "me.sqlite")
        elsewhere.close()
        assert (moved.name, moved.port != first.port) == (first.name, True)
        with pytest.raises(ConfigError, match="is taken"):
            listen(tmp_path / "me.sqlite", first.port)
    finally:
        loopback.close()


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"name": "p", "port": "x"}',
             '{"name": "a b", "port": 5, "key": "aa", "browsers": []}',
             '{"name": "p1", "port": 0, "key": "aa", "browsers": []}'],
)  # fmt: skip
def test_a_damaged_file_says_what_to_do(tmp_path: Path, text: str):
    (tmp_path / "me.sqlite.page").write_text(text)
    with pytest.raises(ConfigError, match="delete it"):
        PageAddress.of(tmp_path / "me.sqlite")


def test_a_second_command_gets_a_link_from_the_page_that_runs(tmp_path: Path):
    store = tmp_path / "me.sqlite"
    assert PageAddress.of(store).running_link() is None
    with running(store) as (address, sessions):
        link = PageAddress.of(store).running_link()
        assert link is not None
        entrance, _, token = link.partition("#")
        assert entrance == f"http://{address.host}/enter"
        assert sessions.enter(token) is not None
        assert sessions.enter(token) is None
    assert PageAddress.of(store).running_link() is None


def test_links_are_for_those_who_have_the_key(outside: Person):
    address = address_of(outside.path)
    good = {"nonce": "11", "proof": address._proof("ask", "11")}
    wrong = [{}, {"nonce": "11"}, good | {"nonce": "12"}, good | {"proof": ""}, {"proof": "x"}]
    for fields in wrong:
        told = outside.client.post("/link", json=fields, headers={"origin": ORIGIN})
        assert (told.status_code, told.text) == (403, "{}")
    assert not outside.sessions.anybody
    told = outside.client.post("/link", json=good, headers={"origin": ORIGIN})
    assert outside.sessions.enter(told.json()["token"]) is not None
    assert (
        outside.client.post("/link", json=good, headers={"origin": "http://evil.example"})
    ).status_code == 403


def test_a_stranger_on_our_port_gets_no_key_and_is_not_believed(tmp_path: Path):
    """Another user of the machine may listen there while our page is off."""
    store = tmp_path / "me.sqlite"
    address, loopback = listen(store)
    loopback.close()
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", address.port)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                heard.append(connection.recv(65_536))
                body = json.dumps({"token": "ours", "proof": "0" * 64}).encode()
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
                )

        thread = threading.Thread(target=answer)
        thread.start()
        assert PageAddress.of(store).running_link() is None
        thread.join(10)
    assert heard
    assert address.key.encode() not in heard[0]


def test_a_browser_that_was_here_is_asked_for_the_passphrase_after_a_restart(outside: Person):
    with new_device(outside.path, scale=RatingScale(1.0, 5.0, 0.5), passphrase=PASSPHRASE) as store:
        fill(store)
    outside.owner.open(PASSPHRASE)
    assert outside.enter().status_code == 200
    kept = PageAddress.of(outside.path)
    assert len(kept.browsers) == 1
    outside.owner.close()

    again = Client(
        OwnerPage(outside.owner, kept, BrowserSessions(clock=outside.clock), lambda: None).app()
    )
    stranger = Client(
        OwnerPage(outside.owner, kept, BrowserSessions(clock=outside.clock), lambda: None).app()
    )
    try:
        again.cookies.update(outside.client.cookies)
        for path in ("/", "/rate", "/unlock"):
            assert stranger.get(path, headers=STRANGERS).status_code == 403
        told = again.get("/", headers=STRANGERS, follow_redirects=True)
        assert (told.status_code, told.url.path) == (200, "/unlock")
        assert "Zombie" not in told.text
        token = told.text.partition('data-csrf="')[2].partition('"')[0]
        for given, path in (("wrong passphrase", "/unlock"), (PASSPHRASE, "/rate")):
            told = again.post(
                "/unlock",
                data={"csrf": token, "passphrase": given},
                headers={"origin": ORIGIN},
                follow_redirects=True,
            )
            assert told.url.path == path
        assert "Zombie" in told.text
    finally:
        again.close()
        stranger.close()


def test_without_a_passphrase_only_a_link_opens_the_page(person: Person):
    """Whoever has the cookie, as another user may who listened on our port, gets nothing."""
    kept = PageAddress.of(person.path)
    again = Client(OwnerPage(person.owner, kept, BrowserSessions(), lambda: None).app())
    try:
        again.cookies.update(person.client.cookies)
        assert again.get("/rate", headers=STRANGERS).status_code == 403
    finally:
        again.close()


def test_a_form_of_the_commands_own_file_comes_in_and_no_other_form_does(outside: Person):
    with new_device(outside.path, scale=RatingScale(1.0, 5.0, 0.5)) as store:
        fill(store)
    outside.owner.open(None)
    nowhere = {"origin": "null", "sec-fetch-site": "cross-site"}
    assert outside.client.post("/enter", data={"token": "x"}, headers=nowhere).status_code == 403
    assert outside.get("/rate").status_code == 403
    token = {"token": outside.sessions.token()}
    evil = {"origin": "http://evil.example"}
    assert outside.client.post("/enter", data=token, headers=evil).status_code == 403
    told = outside.client.post("/enter", data=token, headers=nowhere)
    assert told.status_code == 200
    assert token["token"] not in told.text
    assert outside.get("/rate").status_code == 200
    form = outside.client.post("/rate/set", data={"item": "1", "value": "5"}, headers=nowhere)
    assert form.status_code == 403


def test_deleting_the_store_deletes_the_address(person: Person):
    beside = person.path.with_name("me.sqlite.page")
    assert beside.exists()
    person.owner.destroy()
    assert not beside.exists()
