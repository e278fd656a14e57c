"""Login and routes of the operator's page. It is read-only."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Literal, Protocol

from hdpmf.common.web.local_server import ENTER, App, BrowserSessions, PageGuard, entry_token
from hdpmf.common.web.templates import ENTRY, PageTemplates
from hdpmf.errors import ConfigError, HdpmfError, needs
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.page.views import OperatorViews

with needs("starlette", "page"):
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route


Seen = Literal["operator", "locked", "nobody"]

REFRESH = "x-hdpmf-refresh"
"""Header of a request that the page's script made, and no person."""

_LONGEST_NAME = 200

_TOKEN_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


class Login(Protocol):
    """Authenticates the operator."""

    def seen(self, request: Request) -> Seen:
        """Return the role of the caller."""
        ...


class TokenLogin:
    """Login by the command's one-time link, which becomes a strict cookie.

    ``relink`` is called when a browser was locked out, which needs a new link.
    """

    def __init__(self, sessions: BrowserSessions, host: str, relink: Callable[[], None]) -> None:
        self._sessions = sessions
        self._relink = relink
        self._cookie = f"hdpmf-{host.partition('.')[0]}"

    def seen(self, request: Request) -> Seen:
        """As in ``Login``."""
        # A page that refreshes itself is nobody's use of it, and locks as it would otherwise.
        used = REFRESH not in request.headers
        session = self._sessions.session(request.cookies.get(self._cookie, ""), used=used)
        if session is None:
            return "nobody"
        if session.locked:
            self._sessions.leave(session)
            self._relink()
            return "locked"
        return "operator"

    def enter(self, token: str, answer: Response) -> bool:
        """Exchange a token for a session cookie on the response; False if it is invalid."""
        cookie = self._sessions.enter(token)
        if cookie is None:
            return False
        answer.set_cookie(self._cookie, cookie, httponly=True, samesite="strict", path="/")
        return True


class ProxyLogin:
    """Login by a header that the reverse proxy at one address sets, and removes from requests."""

    def __init__(self, header: str, proxy: str) -> None:
        self._header = header.lower()
        if (
            not self._header
            or not set(self._header) <= _TOKEN_LETTERS
            or self._header in _EVERYBODYS
        ):
            raise ConfigError(
                f"--trusted-header takes a header that only the proxy sets, not {header!r}"
            )
        self._proxy = _address(proxy)
        if self._proxy is None:
            raise ConfigError(f"--behind-proxy takes the proxy's IP address, not {proxy!r}")

    def seen(self, request: Request) -> Seen:
        """As in ``Login``."""
        client = None if request.client is None else _address(request.client.host)
        if client is None or client != self._proxy:
            return "nobody"
        names = request.headers.getlist(self._header)
        # Two of them: a proxy that adds its own to the browser's. Nobody can say which one is
        # which.
        if len(names) != 1 or not 0 < len(names[0].strip()) <= _LONGEST_NAME:
            return "nobody"
        return "operator"


_EVERYBODYS = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "origin",
        "priority",
        "referer",
        "upgrade-insecure-requests",
        "user-agent",
    }
)


def _address(text: str) -> object:
    """Parse an IP address, IPv4-mapped ones as IPv4; None if it is malformed."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


_START = "/"
"""Shows nothing and leads on, so that a proxy's login page may lead here."""


class OperatorPage:
    """The operator's page, for browsers that know us by this host."""

    def __init__(
        self, folder: ServiceFolder, login: Login, host: str, scheme: str = "http"
    ) -> None:
        self._login = login
        self._host = host
        self._scheme = scheme
        self._name = folder.config.name
        self._pages = OperatorViews(folder).pages
        self._templates = PageTemplates(
            "hdpmf.untrusted.service.page", {path: name for path, (name, _) in self._pages.items()}
        )

    def app(self) -> App:
        """Return the ASGI application."""
        routes = [
            Route(_START, self._start),
            Route("/static/{name}", self._file),
            *(Route(path, self._page) for path in self._pages),
        ]
        if isinstance(self._login, TokenLogin):
            routes.append(Route(ENTER, self._enter, methods=["GET", "POST"]))
        return PageGuard(Starlette(routes=routes), self._host, ENTRY | {_START}, self._scheme)

    async def _start(self, request: Request) -> Response:
        return self._templates.show("start", {}, inside=False)

    async def _enter(self, request: Request) -> Response:
        if request.method == "GET" or not isinstance(self._login, TokenLogin):
            return self._templates.show("enter", {}, inside=False)
        token, by_script = await entry_token(request)
        first = next(iter(self._pages))
        answer = (
            JSONResponse({"next": first})
            if by_script
            else self._templates.show("entered", {"next": first}, inside=False)
        )
        if self._login.enter(token, answer):
            return answer
        if by_script:
            return JSONResponse({"error": self._templates.t("enter.used")}, 403)
        return self._templates.show("closed", {}, inside=False, status=403)

    async def _page(self, request: Request) -> Response:
        seen = self._login.seen(request)
        if seen != "operator":
            return self._templates.show(
                "locked" if seen == "locked" else "closed", {}, inside=False, status=403
            )
        name, view = self._pages[request.url.path]
        try:
            facts = await run_in_threadpool(view, request.query_params.get("words", ""))
        except HdpmfError as problem:
            facts = {"error": str(problem), "recommender": self._name}
            return self._templates.show("problem", facts, inside=True, status=500)
        return self._templates.show(name, facts | {"recommender": self._name}, inside=True)

    async def _file(self, request: Request) -> Response:
        return self._templates.file(request.path_params["name"])
