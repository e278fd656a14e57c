"""The recommender's mailbox, where offers wait until participants fetch them by HTTPS.

========  ======================  ==============================================================
method    path                    answer
========  ======================  ==============================================================
GET       /offers                 200 with the oldest offer and its id, or 204; both pace polling,
                                  and name the version of the public files
PUT       /contributions/{id}     201; 409 for other bytes than before; 410 without such an offer
DELETE    /contributions/{id}     204: there will be no contribution to this offer
========  ======================  ==============================================================

Requests are signed (``signing``). A stranger gets 401 before anything of a body is read, a body
that is too long 413, and one whose digest is not the signed one 400. Participants poll: the
recommender cannot reach them.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import queue
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hdpmf.common.net.carrier import MAX_BYTES, DeviceReply, Patience, check_sizes
from hdpmf.common.net.signing import (
    CLOCK_HEADER,
    CONTRIBUTION,
    DIGEST_HEADER,
    FILES_HEADER,
    OFFER_HEADER,
    OFFERS,
    PAUSE_HEADER,
    RequestVerifier,
)
from hdpmf.errors import needs

with needs("starlette"):
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 300.0
"""Seconds between two polls of a participant that are suggested: not less, and not more."""
IDLE_PAUSE = 5.0
"""Seconds, at least, while there is nothing to offer."""
BUSY_RATE, IDLE_RATE = 100.0, 20.0
"""Polls per second, of all participants together, during a run and otherwise."""
PRESENT_SECONDS, PRESENT_PAUSES = 15.0, 3.0
"""A participant is present if its last poll is no longer ago than this many seconds, or pauses."""
PICK_UP_SECONDS = 10.0
"""Seconds after the time of its next poll in which a participant must have fetched an offer."""
LINGER_SECONDS = 10.0
"""Seconds after an exchange in which participants still poll as often as during a run."""
BODY_SECONDS = 120.0
"""Seconds that a contribution may take to arrive."""
MAX_WAITING_BYTES = 512 << 20
"""Contributions that wait to be processed; at more, participants are asked to come back later."""
LAST_FETCHES = 60.0
"""Seconds, at most, that whoever ends waits for participants to fetch the last files."""

_POLL_SECONDS = 0.25
_QUIET_SECONDS = 3.0  # without a fetch, after which nobody is fetching any more
_PART = 64 << 10  # bytes of an offer that are given to a connection at a time
_JITTER = 1.5  # a participant waits 50 to 150 % of the pause that is suggested
_COUNT_SECONDS = 5.0


class _Event(NamedTuple):
    """An offer was fetched, or answered: with a contribution, or with none."""

    offer: _Offer
    answered: bool = False
    data: bytes | None = None


_Inbox = queue.SimpleQueue[_Event]


@dataclass(eq=False, slots=True)
class _Offer:
    """A message to one participant."""

    id: str
    device: str
    data: bytes
    inbox: _Inbox
    fetched: bool = False
    digest: str = ""  # of the contribution that was taken


class Mailbox:
    """Offers to participants, and what they contribute: a ``RecommenderTransport``.

    A web server answers participants from its own thread (``routes``); runs use others.

    Args:
        servers: The recommender's names in signatures (``signing.server_name``).
        enrolled: Identities (hex) of participants.
        longest: Returns the largest contribution in bytes; called at the start of each exchange.
        max_bytes: Largest offer.

    Attributes:
        files_version: Returns the version of the public files; set by whoever serves them.
    """

    def __init__(
        self,
        servers: Sequence[str],
        enrolled: Collection[str] = (),
        *,
        longest: Callable[[], int] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._enrolled = frozenset(enrolled)
        self._verifier = RequestVerifier(servers, lambda device: device in self._enrolled)
        self._longest = longest
        self.files_version: Callable[[], str] = lambda: ""
        self._max_bytes = max_bytes
        self._max_contribution = max_bytes
        self._guard = threading.Lock()
        self._offers: dict[str, dict[str, _Offer]] = {}
        # When each was here last, and the pause that was suggested.
        self._polls: dict[str, tuple[float, float]] = {}
        self._silent: dict[str, int] = {}
        self._sending: set[str] = set()
        self._waiting_bytes = 0
        self._open = 0  # exchanges under way
        self._busy_until = -math.inf
        self._counted: tuple[float, int] = (-math.inf, 0)  # no mutant: the first poll counts anew
        self._closed = threading.Event()
        self._file_at = -math.inf

    @property
    def routes(self) -> list[Route]:
        """For Starlette."""
        return [
            Route(OFFERS, self._poll, methods=["GET"]),
            Route(CONTRIBUTION, self._contribute, methods=["PUT", "DELETE"]),
        ]

    def admit(self, enrolled: Collection[str]) -> None:
        """Accept these participants from now on, and nobody else."""
        self._enrolled = frozenset(enrolled)

    def present(self) -> frozenset[str]:
        """As in ``RecommenderTransport``: who has polled within the last few pauses."""
        now = time.monotonic()
        with self._guard:
            return frozenset(
                device
                for device, (seen, pause) in self._polls.items()
                if now - seen < max(PRESENT_SECONDS, PRESENT_PAUSES * pause)
                and device in self._enrolled
            )

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        """Send messages as ``RecommenderTransport`` does; a turn begins when the offer is fetched.

        A participant that does not poll when it should is silent.
        """
        check_sizes(messages, self._max_bytes)
        return self._exchange(messages, deadline)

    def file_sent(self) -> None:
        """Record that a public file was fetched."""
        self._file_at = time.monotonic()

    def wait_for_fetches(self, most: float = LAST_FETCHES) -> None:
        """Wait until everybody who is present has polled and no file was fetched for a while.

        A poll tells a participant that there are new files, and it fetches them next.
        """
        begun = time.monotonic()
        waiting = self.present()
        polled = math.inf
        while waiting and time.monotonic() < begun + most and not self._closed.wait(_POLL_SECONDS):
            now = time.monotonic()
            with self._guard:
                if min(self._polls[device][0] for device in waiting) > begun:
                    polled = min(polled, now)
            if now > max(polled, self._file_at) + _QUIET_SECONDS:
                return

    def close(self) -> None:
        """Withdraw all offers. May be called twice."""
        self._closed.set()

    def _exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        inbox: _Inbox = queue.SimpleQueue()
        if self._longest is not None:
            self._max_contribution = min(self._longest(), self._max_bytes)
        patience = Patience(deadline, self._silent)
        offers, due = self._post(messages, deadline, inbox)
        waiting = dict(offers)
        next_look = time.monotonic() + _POLL_SECONDS
        try:
            while waiting and not self._closed.is_set():
                try:
                    offer, answered, data = inbox.get(
                        timeout=max(0.0, next_look - time.monotonic())
                    )
                except queue.Empty:
                    self._withdraw(self._late(waiting, due, patience))
                    next_look = time.monotonic() + _POLL_SECONDS
                    continue
                self._count(-len(data or b""))
                if waiting.get(offer.device) is not offer:
                    continue
                if not answered:
                    due.pop(offer.device, None)
                    patience.sent(offer.device)
                    continue
                del waiting[offer.device]
                patience.on_answer(offer.device)
                if data is not None:
                    yield DeviceReply(offer.device, data)
        finally:
            self._withdraw(offers.values())
            while not inbox.empty():
                self._count(-len(inbox.get().data or b""))
            with self._guard:
                self._open -= 1
                self._busy_until = time.monotonic() + LINGER_SECONDS

    def _count(self, more: int) -> None:
        with self._guard:
            self._waiting_bytes += more

    def _post(
        self, messages: Mapping[str, bytes], deadline: float, inbox: _Inbox
    ) -> tuple[dict[str, _Offer], dict[str, float]]:
        """Put offers into the mailboxes; them, and when each must have been fetched."""
        now = time.monotonic()
        offers: dict[str, _Offer] = {}
        due: dict[str, float] = {}
        with self._guard:
            self._open += 1
            for device, data in messages.items():
                if device not in self._enrolled:
                    continue
                offer = _Offer(secrets.token_hex(16), device, data, inbox)
                offers[device] = offer
                self._offers.setdefault(device, {})[offer.id] = offer
                seen, pause = self._polls.get(device, (now, 0.0))
                grace = PICK_UP_SECONDS * 0.5 ** min(self._silent.get(device, 0), Patience.HALVINGS)
                due[device] = max(now, seen + _JITTER * pause) + min(deadline, grace)
        return offers, due

    def _late(
        self, waiting: dict[str, _Offer], due: dict[str, float], patience: Patience
    ) -> list[_Offer]:
        """Give up on participants that did not fetch or answer in time; their offers."""
        now = time.monotonic()
        late = patience.over()
        for device in [
            device for device, at in due.items() if at <= now and not waiting[device].fetched
        ]:
            del due[device]
            self._silent[device] = self._silent.get(device, 0) + 1
            late.append(device)
        return [waiting.pop(device) for device in late if device in waiting]

    def _withdraw(self, offers: Collection[_Offer]) -> None:
        with self._guard:
            for offer in offers:
                box = self._offers.get(offer.device, {})
                box.pop(offer.id, None)
                if not box:
                    self._offers.pop(offer.device, None)

    # Requests, in the thread of the web server

    async def _poll(self, request: Request) -> Response:
        device = self._verifier.caller(request.headers, "GET", OFFERS, 0)
        if device is None:
            return _refused(401)
        offer, pause = self._fetched(device)
        headers = {
            PAUSE_HEADER: f"{pause:.3f}",
            FILES_HEADER: self.files_version(),
            "cache-control": "no-store",
        }
        if offer is None:
            return Response(status_code=204, headers=headers)
        headers |= {OFFER_HEADER: offer.id, "content-length": str(len(offer.data))}
        return StreamingResponse(
            _parts(offer.data), headers=headers, media_type="application/octet-stream"
        )

    def _fetched(self, device: str) -> tuple[_Offer | None, float]:
        """Return the oldest unanswered offer to a participant, and the suggested pause."""
        with self._guard:
            offer = next(
                (each for each in self._offers.get(device, {}).values() if not each.digest), None
            )
            pause = self._pause()
            self._polls[device] = (time.monotonic(), pause)
            if offer is not None and not offer.fetched:
                offer.fetched = True
                offer.inbox.put(_Event(offer))
        return offer, pause

    def _pause(self) -> float:
        now = time.monotonic()
        at, count = self._counted
        if now - at > _COUNT_SECONDS:  # no mutant: an instant earlier is as good
            recent = (
                seen for seen, pause in self._polls.values() if now - seen < max(60.0, 2 * pause)
            )
            count = sum(1 for _ in recent)
            self._counted = (now, count)
        if self._open or now < self._busy_until:
            return min(max(count / BUSY_RATE, SHORTEST_PAUSE), LONGEST_PAUSE)
        return min(max(count / IDLE_RATE, IDLE_PAUSE), LONGEST_PAUSE)

    async def _contribute(self, request: Request) -> Response:
        name = request.path_params["id"]
        method = request.method
        length = _length(request)
        if length is None:
            return _refused(411)
        device = self._verifier.caller(
            request.headers, method, CONTRIBUTION.format(id=name), length
        )
        if device is None:
            return _refused(401)
        offer = self._offers.get(device, {}).get(name)
        if offer is None:
            return _refused(410)
        if method == "DELETE":
            self._take(offer, "none", None)
            return Response(status_code=204)
        digest = request.headers[DIGEST_HEADER]
        if offer.digest:
            return _refused(201 if offer.digest == digest else 409)
        if length > self._max_contribution:
            return _refused(413)
        if device in self._sending:
            return _refused(429)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            return _refused(503)
        self._sending.add(device)
        try:
            body = await asyncio.wait_for(request.body(), BODY_SECONDS)
        except TimeoutError:
            return _refused(408)
        except ClientDisconnect:
            return _refused(400)
        finally:
            self._sending.discard(device)
        if hashlib.sha256(body).hexdigest() != digest:
            return _refused(400)
        return _refused(self._take(offer, digest, body))

    def _take(self, offer: _Offer, digest: str, body: bytes | None) -> int:
        """Hand a contribution over to the exchange; the status that says so."""
        with self._guard:
            if offer.id not in self._offers.get(offer.device, {}):
                return 410
            if offer.digest:
                return 201 if offer.digest == digest else 409
            offer.digest = digest
            self._polls[offer.device] = (
                time.monotonic(),
                self._polls.get(offer.device, (0.0, 0.0))[1],
            )
            self._waiting_bytes += len(body or b"")
            offer.inbox.put(_Event(offer, True, body))
        return 201


async def _parts(data: bytes) -> AsyncIterator[bytes]:
    """Yield data in parts: thousands of slow readers share it instead of a buffer each."""
    for begin in range(0, len(data), _PART):
        yield data[begin : begin + _PART]


def _length(request: Request) -> int | None:
    text = request.headers.get("content-length", "0" if request.method == "DELETE" else "")
    return int(text) if text.isdigit() and len(text) < 13 else None


def _refused(status: int) -> Response:
    """An answer without a body. What was not read of the request is not read any more."""
    headers = {"content-length": "0"}
    if status >= 400:
        headers["connection"] = "close"
    if status == 401:
        headers[CLOCK_HEADER] = f"{time.time():.3f}"
    if status in (429, 503):
        headers["retry-after"] = "5"
    return Response(status_code=status, headers=headers)
