"""The operator's page as an application. It answers questions; nothing can be changed by it."""

from __future__ import annotations

from hdpmf.errors import HdpmfError
from hdpmf.service.folder import ServiceFolder
from hdpmf.service.page.login import Login, TokenLogin
from hdpmf.service.page.views import OperatorViews
from hdpmf.transport.extras import needs
from hdpmf.web.bodies import json_fields, read_body
from hdpmf.web.guard import App, PageGuard
from hdpmf.web.look import ENTER, ENTRY, PageLook

with needs("starlette", "page"):
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

_START = "/"
"""Shows nothing and leads on, so that a proxy's login page may lead here."""

_LONGEST_TOKEN = 1000


class OperatorPage:
    """The operator's page.

    Args:
        folder: The recommender's.
        login: Who is let in.
        host: The name and port that browsers know us by.
        scheme: ``https`` behind a proxy that has a certificate.
    """

    def __init__(self, folder: ServiceFolder, login: Login, host: str, scheme: str = "http") -> None:
        self._login, self._host, self._scheme = login, host, scheme
        self._pages = OperatorViews(folder).pages
        self._look = PageLook("hdpmf.service.page", {path: name for path, (name, _) in self._pages.items()})

    def app(self) -> App:
        """What a server serves."""
        routes = [
            Route(_START, self._start),
            Route("/static/{name}", self._file),
            *(Route(path, self._page) for path in self._pages),
        ]
        if isinstance(self._login, TokenLogin):
            routes.append(Route(ENTER, self._enter, methods=["GET", "POST"]))
        return PageGuard(Starlette(routes=routes), self._host, ENTRY | {_START}, self._scheme)

    async def _start(self, request: Request) -> Response:
        return self._look.show("start", {}, inside=False)

    async def _enter(self, request: Request) -> Response:
        if request.method == "GET" or not isinstance(self._login, TokenLogin):
            return self._look.show("enter", {}, inside=False)
        answer = JSONResponse({"next": next(iter(self._pages))})
        if not self._login.enter(json_fields(await read_body(request, _LONGEST_TOKEN)).get("token", ""), answer):
            return JSONResponse({"error": self._look.t("enter.used")}, 403)
        return answer

    async def _page(self, request: Request) -> Response:
        seen = self._login.seen(request)
        if seen != "operator":
            return self._look.show("locked" if seen == "locked" else "closed", {}, inside=False, status=403)
        name, view = self._pages[request.url.path]
        try:
            facts = await run_in_threadpool(view, request.query_params.get("words", ""))
        except HdpmfError as problem:
            return self._look.show("problem", {"error": str(problem)}, inside=True, status=500)
        return self._look.show(name, facts, inside=True)

    async def _file(self, request: Request) -> Response:
        return self._look.file(request.path_params["name"])
