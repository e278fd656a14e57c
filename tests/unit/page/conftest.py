"""An owner's page without a server: requests as a browser would send them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from hdpmf.common.data import RatingScale
from hdpmf.common.protocol import CatalogueTable
from hdpmf.common.web.local_server import App, BrowserSessions
from hdpmf.private.device.device_identity import new_device
from hdpmf.private.device.store import encryption
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.page.address import PageAddress
from hdpmf.private.page.http import OwnerPage
from hdpmf.private.page.owner import Owner
from tests.world import Clock

HOST = "pabc.localhost:4711"
ORIGIN = f"http://{HOST}"
PASSPHRASE = "correct horse battery staple"
SECRET = "Zombie Opera <script>alert(1)</script>"


@pytest.fixture(autouse=True)
def _cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption, "SCRYPT_COST", 16)


def small_table() -> CatalogueTable:
    """Four films, one with a title that is no friend of HTML."""
    return CatalogueTable(
        ids=("1", "2", "3", "4"),
        integer_ids=True,
        scale_low=1.0,
        scale_high=5.0,
        scale_step=0.5,
        titles=(SECRET, "Quiet Days (1999)", "Amélie", "Quiet Nights"),
        genres=(("Horror",), ("Drama",), ("Comedy", "Drama"), ()),
        years=(1988, 1999, 2001, None),
    )


class Client:
    """A browser's cookies and requests, one after the other."""

    def __init__(self, app: App, address: str = "127.0.0.1", origin: str = ORIGIN) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app, client=(address, 4712)), base_url=origin
        )
        self.cookies = self._client.cookies

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self._loop.run_until_complete(self._client.get(path, **options))

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self._loop.run_until_complete(self._client.post(path, **options))

    def close(self) -> None:
        self._loop.run_until_complete(self._client.aclose())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


@dataclass
class Person:
    """Somebody with a browser.

    Attributes:
        links: How often a new link was written for the owner.
        ends: How often the program was told to end.
    """

    path: Path
    clock: Clock
    sessions: BrowserSessions
    owner: Owner
    client: Client = field(init=False)
    page: OwnerPage = field(init=False)
    log: list[str] = field(default_factory=list)
    links: list[bool] = field(default_factory=list)
    ends: list[bool] = field(default_factory=list)

    def enter(self, token: str | None = None) -> httpx.Response:
        """Come in with a link."""
        answer = self.client.post(
            "/enter", json={"token": token or self.sessions.token()}, headers={"origin": ORIGIN}
        )
        return answer

    def get(self, path: str) -> httpx.Response:
        """Look at a page."""
        return self.client.get(
            path, headers={"sec-fetch-site": "same-origin"}, follow_redirects=False
        )

    @property
    def csrf(self) -> str:
        """What the last page has for requests that change something."""
        found = re.search(r'data-csrf="([^"]*)"', self.get("/settings").text)
        return "" if found is None else found[1]

    def post(self, path: str, fields: dict[str, Any], **headers: str) -> httpx.Response:
        """Send a form."""
        data = {"csrf": self.csrf} | fields
        return self.client.post(
            path, data=data, headers={"origin": ORIGIN} | headers, follow_redirects=False
        )

    def ask(self, path: str, fields: dict[str, Any]) -> httpx.Response:
        """Ask by a script."""
        return self.client.post(path, json=fields, headers={"origin": ORIGIN, "x-csrf": self.csrf})

    def upload(self, path: str, data: bytes, fields: str = '{"kind": "csv"}') -> httpx.Response:
        """Send a file by a script."""
        kind = {"content-type": "application/octet-stream", "x-fields": fields}
        return self.client.post(
            path, content=data, headers={"origin": ORIGIN, "x-csrf": self.csrf} | kind
        )


def address_of(store: Path) -> PageAddress:
    """The address that tests use."""
    return PageAddress(store.with_name(f"{store.name}.page"), "pabc", 4711)


@pytest.fixture(params=[None, PASSPHRASE], ids=["plain", "encrypted"])
def passphrase(request: pytest.FixtureRequest) -> str | None:
    """Both kinds of store."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Person]:
    """Somebody before the first link, without a store."""
    clock, log, links = Clock(), [], []
    sessions = BrowserSessions(idle=60, clock=clock)
    owner = Owner(tmp_path / "me.sqlite", log.append)
    person = Person(tmp_path / "me.sqlite", clock, sessions, owner, log=log, links=links)
    page = OwnerPage(
        owner,
        address_of(owner.path),
        sessions,
        lambda: links.append(True),
        lambda: person.ends.append(True),
    )
    person.client = client = Client(page.app())
    person.page = page
    yield person
    client.close()
    owner.end()


@pytest.fixture
def person(outside: Person) -> Person:
    """Somebody who has come in, with four films and two ratings."""
    with new_device(outside.path, scale=RatingScale(1.0, 5.0, 0.5)) as store:
        fill(store)
    outside.owner.open(None)
    assert outside.enter().status_code == 200
    return outside


def complaints(page: str) -> list[str]:
    """What a page says went wrong; not what every page says to browsers without scripts."""
    return re.findall(r'<p class="note error">(.*?)</p>', page.split("</noscript>")[-1], re.DOTALL)


def fill(store: DeviceStore) -> None:
    """Films and ratings."""
    store.pin_catalogue(small_table())
    store.rate("1", 4.5)
    store.rate("2", 2.0)
