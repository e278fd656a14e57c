"""Routes and sessions of the owner's page.

Paths and titles say nothing about the owner. Every request that changes something, or asks about
something private, is a POST with the session's CSRF token.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdpmf.common.web.local_server import (
    ENTER,
    IDLE_SECONDS,
    App,
    BrowserSession,
    BrowserSessions,
    OneTimeLink,
    PageGuard,
    entry_token,
    equal_secrets,
    form_fields,
    json_fields,
    local_server,
    read_body,
)
from hdpmf.common.web.templates import ENTRY, PageTemplates
from hdpmf.errors import HdpmfError, needs
from hdpmf.private.page import consent, disclosures, items, settings
from hdpmf.private.page.address import PageAddress, only_server
from hdpmf.private.page.owner import Owner
from hdpmf.private.page.request import START, PageRequest

with needs("starlette", "page"):
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse, RedirectResponse, Response
    from starlette.routing import Route

MOST_BYTES = 64 << 20
"""Of a request: a catalogue of a million items has less."""

_WATCH_SECONDS = 5.0
_BROWSER_SECONDS = 400 * 86_400  # as long as browsers keep a cookie

_PAGES: dict[str, tuple[str, Callable[[PageRequest], dict[str, Any]]]] = {
    START: ("start", items.start_page),
    "/rate": ("rate", items.rate_page),
    "/recommendations": ("recommendations", items.recommendations_page),
    "/privacy": ("privacy", settings.privacy_page),
    "/disclosures": ("disclosures", disclosures.disclosures_page),
    "/recommenders": ("recommenders", disclosures.recommenders_page),
    "/settings": ("settings", settings.settings_page),
}
_ACTIONS: dict[str, Callable[[PageRequest], str]] = {
    "/rate/catalogue": items.load_items,
    "/rate/file": items.preview_upload,
    "/rate/take": items.answer_upload,
    "/privacy/level": settings.change_privacy_level,
    "/privacy/ask": settings.ask_me,
    "/disclosures/answer": consent.answer,
    "/disclosures/look": consent.look_now,
    "/disclosures/withdraw": consent.withdraw,
    "/recommenders/preview": disclosures.preview_invitation,
    "/recommenders/answer": disclosures.answer_invitation,
    "/recommenders/change": disclosures.change,
    "/recommenders/choose": disclosures.choose,
    "/settings/passphrase": settings.new_passphrase,
    "/settings/forget": settings.forget,
}
_QUESTIONS: dict[str, Callable[[PageRequest], dict[str, Any]]] = {
    "/start/state": items.start_state,
    "/rate/popular": items.popular,
    "/rate/find": items.find,
    "/rate/set": items.set_rating,
    "/rate/private": items.set_private,
    "/recommendations/find": items.find_recommendations,
    "/recommendations/hide": items.set_hidden,
    "/privacy/preview": settings.preview_privacy_level,
}
_FILES: dict[str, tuple[str, Callable[[PageRequest], bytes]]] = {
    "/disclosures/export": ("disclosures.json", disclosures.export),
    "/recommenders/card": ("card.json", disclosures.card),
}


# Pages without a menu: there is no open store that it could lead to.
_OUTSIDE = ("welcome", "unlock")


def _download(name: str, content: bytes) -> Response:
    head = {"content-disposition": f'attachment; filename="{name}"'}
    kind = "application/json" if name.endswith(".json") else "application/octet-stream"
    return Response(content, 200, head, kind)


class OwnerPage:
    """The owner's page.

    ``relink`` is called when a browser was locked out, which needs a new link; ``end`` when the
    owner stops the program.
    """

    def __init__(
        self,
        owner: Owner,
        address: PageAddress,
        sessions: BrowserSessions,
        relink: Callable[[], None],
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self._owner = owner
        self._address = address
        self._sessions = sessions
        self._relink = relink
        self._end = end
        self._templates = PageTemplates(
            "hdpmf.private.page",
            {path: name for path, (name, _) in _PAGES.items() if path != START},
        )
        self._t = self._templates.t
        self._cookie = f"hdpmf-{address.name}"
        self._browser_cookie = f"hdpmf-browser-{address.name}"

    def app(self) -> App:
        """Return the ASGI application."""
        routes = [
            Route("/", self._home),
            Route(ENTER, self._enter, methods=["GET", "POST"]),
            Route("/state", self._state, methods=["POST"]),
            Route("/lock", self._lock, methods=["POST"]),
            Route("/stop", self._stop, methods=["POST"]),
            Route("/unlock", self._unlock, methods=["GET", "POST"]),
            Route("/welcome", self._welcome, methods=["GET", "POST"]),
            Route("/static/{name}", self._file),
            *(Route(path, self._page) for path in _PAGES),
            *(
                Route(path, self._act, methods=["POST"])
                for path in (*_ACTIONS, *_QUESTIONS, *_FILES)
            ),
        ]
        return PageGuard(Starlette(routes=routes), self._address.host, ENTRY)

    def watch(self, stop: threading.Event) -> None:
        """Close the store when no session is in use, until ``stop``."""
        while not stop.wait(_WATCH_SECONDS):
            with self._owner.lock:
                if self._owner.is_open and not self._sessions.anybody:
                    self._owner.close()

    # Sessions

    async def _enter(self, request: Request) -> Response:
        """Exchange a one-time token for a session, and remember the browser."""
        if request.method == "GET":
            return self._show("enter", None, {})
        token, by_script = await entry_token(request)
        cookie = self._sessions.enter(token)
        if cookie is None:
            error = {"error": self._t("enter.used")}
            return JSONResponse(error, 403) if by_script else self._closed(request)
        answer = (
            JSONResponse({"next": "/"}) if by_script else self._show("entered", None, {"next": "/"})
        )
        self._set_cookie(answer, self._cookie, cookie)
        if not self._address.knows(request.cookies.get(self._browser_cookie, "")):
            browser = secrets.token_urlsafe(32)
            self._address = await run_in_threadpool(self._address.with_browser, browser)
            self._set_cookie(answer, self._browser_cookie, browser, _BROWSER_SECONDS)
        return answer

    async def _home(self, request: Request) -> Response:
        session = self._session(request)
        away = self._redirect(request, session)
        if away is not None or session is None:
            return away or self._closed()
        return RedirectResponse(
            await run_in_threadpool(items.first_path, self._page_request(session, {})), 303
        )

    async def _state(self, request: Request) -> Response:
        """Return the seconds until the page locks, and the number of open questions.

        It does not count as use.
        """
        session = self._session(request, used=False)
        left = 0 if session is None else self._seconds(session)
        fields: dict[str, Any] = {}
        if session is not None and left > 0 and self._owner.is_open:
            fields = await run_in_threadpool(consent.state_fields, self._page_request(session, {}))
        return JSONResponse({"seconds": left, "asked": 0, "looked": ""} | fields)

    async def _lock(self, request: Request) -> Response:
        session = self._session(request)
        if session is None or not await self._has_csrf(request, session):
            return self._closed()
        self._sessions.lock(session)
        return RedirectResponse("/unlock", 303)

    async def _stop(self, request: Request) -> Response:
        session = self._session(request)
        if session is None or session.locked or not await self._has_csrf(request, session):
            return self._closed()
        self._end()  # after this answer, and those that are under way
        return self._show("stopped", None, {})

    async def _unlock(self, request: Request) -> Response:
        session = self._session(request)
        if session is None:
            return self._closed(request)
        if not self._owner.exists:
            return RedirectResponse("/welcome", 303)
        if not session.locked and self._owner.is_open:
            return RedirectResponse("/", 303)
        # Without a passphrase only a new link from the command shows who the owner is.
        if not self._owner.encrypted:
            self._sessions.leave(session)
            self._relink()
            return self._show("locked", None, {}, 403)
        error = ""
        if request.method == "POST":
            fields = await self._fields(request, session)
            if fields is None:
                return self._closed()
            try:
                await run_in_threadpool(self._open, session, fields.get("passphrase", "")[:1000])
                return RedirectResponse("/", 303)
            except HdpmfError as problem:
                error = str(problem)
        return self._show(
            "unlock",
            session,
            {"error": error, "wait": round(self._owner.attempts.wait)},
            403 if error else 200,
        )

    def _open(self, session: BrowserSession, passphrase: str) -> None:
        # Otherwise ``watch`` could find it open without a session, and close it again.
        with self._owner.lock:
            self._owner.open(passphrase)
            self._sessions.unlock(session)

    async def _welcome(self, request: Request) -> Response:
        session = self._session(request)
        if session is None or session.locked:
            return self._closed()
        if self._owner.exists:
            return RedirectResponse("/", 303)
        error = ""
        if request.method == "POST":
            fields = await self._fields(request, session)
            if fields is None:
                return self._closed()
            try:
                return RedirectResponse(
                    await run_in_threadpool(
                        settings.make_store, self._page_request(session, fields)
                    ),
                    303,
                )
            except HdpmfError as problem:
                error = str(problem)
        return self._show("welcome", session, {"error": error, "scales": list(settings.SCALES)})

    # Pages and actions

    async def _page(self, request: Request) -> Response:
        session = self._session(request)
        away = self._redirect(request, session)
        if away is not None or session is None:
            return away or self._closed()
        name, view = _PAGES[request.url.path]
        try:
            given = self._page_request(session, {})
            facts = await run_in_threadpool(lambda: view(given) | disclosures.header_fields(given))
        except HdpmfError as problem:
            session.note(str(problem), "error")
            return self._show("problem", session, {}, 500)
        return self._show(name, session, facts)

    async def _act(self, request: Request) -> Response:
        session = self._session(request)
        if session is None or session.locked or not self._owner.is_open:
            return self._closed()
        fields = await self._fields(request, session)
        if fields is None:
            return self._closed()
        path = request.url.path
        page_request = self._page_request(session, fields, getattr(request.state, "file", b""))
        try:
            if path in _QUESTIONS:
                return JSONResponse(await run_in_threadpool(_QUESTIONS[path], page_request))
            if path in _FILES:
                name, make = _FILES[path]
                return _download(name, await run_in_threadpool(make, page_request))
            target = await run_in_threadpool(_ACTIONS[path], page_request)
            if not self._owner.exists:  # and with the store went the file that leads here
                await run_in_threadpool(self._address.save)
        except HdpmfError as problem:
            if path in _QUESTIONS:
                return JSONResponse({"error": str(problem)}, 400)
            session.note(str(problem), "error")
            target = page_request.back_to("/" + path.split("/")[1], START)
        # A script sent it and navigates by itself.
        if getattr(request.state, "script", False):
            return JSONResponse({"next": target})
        return RedirectResponse(target, 303)

    async def _file(self, request: Request) -> Response:
        return self._templates.file(request.path_params["name"])

    # Authentication

    def _session(self, request: Request, *, used: bool = True) -> BrowserSession | None:
        return self._sessions.session(request.cookies.get(self._cookie, ""), used=used)

    def _redirect(self, request: Request, session: BrowserSession | None) -> Response | None:
        """Return the redirect for a browser that may not see the page now; None if it may."""
        if session is None:
            return self._closed(request)
        if session.locked:
            return RedirectResponse("/unlock", 303)
        if not self._owner.exists:
            return RedirectResponse("/welcome", 303)
        if not self._owner.is_open:
            if self._owner.encrypted:
                return RedirectResponse("/unlock", 303)
            self._owner.open(None)
        return None

    async def _has_csrf(self, request: Request, session: BrowserSession) -> bool:
        return await self._fields(request, session) is not None

    async def _fields(self, request: Request, session: BrowserSession) -> Mapping[str, str] | None:
        """Return the fields of a request; None unless it has the session's CSRF token."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        body = await read_body(request, MOST_BYTES)
        fields: dict[str, str] = {}
        if kind == "application/x-www-form-urlencoded":
            fields = form_fields(body)
        elif kind == "application/json":
            fields = json_fields(body)
            request.state.script = True
        elif kind == "application/octet-stream":
            fields = json_fields(request.headers.get("x-fields", "{}").encode())
            request.state.script = True
            request.state.file = body
        given = request.headers.get("x-csrf", fields.get("csrf", ""))
        return fields if equal_secrets(given, session.csrf) else None

    # Responses

    def _page_request(
        self, session: BrowserSession, fields: Mapping[str, str], body: bytes = b""
    ) -> PageRequest:
        return PageRequest(self._owner, session, self._t, fields, body)

    def _closed(self, request: Request | None = None) -> Response:
        """Return the page for strangers; a browser that was here may give the passphrase."""
        known = request is not None and self._address.knows(
            request.cookies.get(self._browser_cookie, "")
        )
        if not known or not self._owner.encrypted:
            return self._show("closed", None, {}, 403)
        answer = RedirectResponse("/unlock", 303)
        self._set_cookie(answer, self._cookie, self._sessions.begin(locked=True))
        return answer

    def _seconds(self, session: BrowserSession) -> int:
        return max(0, round(self._sessions.seconds_left(session)))

    @staticmethod
    def _set_cookie(answer: Response, name: str, value: str, seconds: int | None = None) -> None:
        answer.set_cookie(name, value, seconds, httponly=True, samesite="strict", path="/")

    def _show(
        self, name: str, session: BrowserSession | None, facts: Mapping[str, Any], status: int = 200
    ) -> Response:
        inside = session is not None and not session.locked and name not in _OUTSIDE
        about = {
            "csrf": "" if session is None else session.csrf,
            "notes": [] if session is None else session.take_notes(),
            "seconds": 0 if session is None else self._seconds(session),
        }
        return self._templates.show(name, about | dict(facts), inside=inside, status=status)


@dataclass(frozen=True, kw_only=True)
class PageServing:
    """The way a page is served.

    Attributes:
        port: On this machine; 0: the same as before, or any.
        idle: Seconds without use after which the page locks.
        every: Seconds between two looks at what recommenders publish; the usual ones by default.
        passphrase: Opens the store at once.
        log: Told what happens, in lines for the owner. They hold no rating.
        relink: Told a new link when the page was locked and has no passphrase.
    """

    port: int = 0
    idle: float = IDLE_SECONDS
    every: float | None = None
    passphrase: str | None = None
    log: Callable[[str], None] = lambda line: None
    relink: Callable[[str], None] = lambda link: None

    def serve(self, store: Path, ready: Callable[[OneTimeLink, PageAddress], None]) -> None:
        """Serve the page of a store until it is stopped; call ``ready`` when it listens."""
        with only_server(store):
            self._serve(store, ready)

    def _serve(self, store: Path, ready: Callable[[OneTimeLink, PageAddress], None]) -> None:
        owner = Owner(store, self.log, self.every)
        address = PageAddress.of(store)
        before = address.port
        address, loopback = address.listen(self.port)
        if before not in (0, address.port):
            self.log(f"This page is at http://{address.host}/ now; port {before} was taken.")
        link = OneTimeLink(BrowserSessions(self.idle), address.host)
        stop = threading.Event()
        try:
            if owner.exists and (self.passphrase is not None or not owner.encrypted):
                owner.open(self.passphrase)
            page = OwnerPage(
                owner,
                address,
                link.sessions,
                lambda: self.relink(link.make()),
                lambda: setattr(server, "should_exit", True),
            )
            server = local_server(page.app(), lambda: ready(link, address))
            watch = threading.Thread(target=page.watch, args=(stop,), daemon=True)
            watch.start()
            server.run(sockets=list(loopback.sockets))
        finally:
            stop.set()
            loopback.close()
            owner.end()
