"""The operator's page of a real, small recommender: eight devices, a run by sums and one that
was given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.web.local_server import BrowserSessions
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.page.http import Login, OperatorPage, TokenLogin
from tests.unit.page.conftest import HOST, ORIGIN, Client
from tests.world import SUMS, Clock, Federation, growing_federation

PAGES = ("/overview", "/runs", "/devices", "/model", "/knowledge")
OWN = {"sec-fetch-site": "same-origin"}


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """A recommender with two runs. Tests only read it."""
    made = growing_federation(tmp_path_factory.mktemp("operator"))
    ensure_certificates(made.folder.tls_folder, ("localhost",))
    made.run(SUMS)
    made.service.metrics.refusals["policy"] += 3
    made.service.give_up(made.service.begin(SUMS))
    made.service.write_state()
    return made


class Operator:
    """Somebody with a browser before the operator's page."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.links = Clock(), list[bool]()
        self.sessions = BrowserSessions(idle=60, clock=self.clock)
        self._folder = ServiceFolder(folder, only_read=True)
        self._open: list[Client] = []
        self.client = self.browser(TokenLogin(self.sessions, HOST, lambda: self.links.append(True)))

    def browser(self, login: Login, address: str = "127.0.0.1", origin: str = ORIGIN) -> Client:
        """A browser, or a proxy, at an address."""
        scheme, _, host = origin.partition("://")
        self._open.append(
            Client(OperatorPage(self._folder, login, host, scheme).app(), address, origin)
        )
        return self._open[-1]

    def enter(self, token: str | None = None) -> httpx.Response:
        """Come in with a link."""
        return self.client.post(
            "/enter", json={"token": token or self.sessions.token()}, headers={"origin": ORIGIN}
        )

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Look at a page."""
        return self.client.get(path, headers=OWN | headers, follow_redirects=False)

    def close(self) -> None:
        """Close all browsers."""
        for client in self._open:
            client.close()


@pytest.fixture
def visitor() -> Iterator[Callable[[Path], Operator]]:
    """Somebody who has not come in yet, before the page of a folder."""
    made: list[Operator] = []

    def visit(folder: Path) -> Operator:
        made.append(Operator(folder))
        return made[-1]

    yield visit
    for each in made:
        each.close()


@pytest.fixture
def outside(town: Federation, visitor: Callable[[Path], Operator]) -> Operator:
    """Somebody before the page of the town's recommender."""
    return visitor(town.folder.path)


@pytest.fixture
def operator(outside: Operator) -> Operator:
    """The operator, who has come in."""
    assert outside.enter().status_code == 200
    return outside
