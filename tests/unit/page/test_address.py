"""The page's address stays the same; only its owner gets links and is asked for the passphrase."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hdpmf.common.web.local_server import BrowserSessions, Loopback, local_server
from hdpmf.private.page.address import PageAddress
from hdpmf.private.page.http import OwnerPage
from hdpmf.private.page.owner import Owner

from .conftest import ORIGIN, Person, address_of


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
