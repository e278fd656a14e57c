"""A participant's end of the wire: it polls a recommender for offers, and contributes.

The pause between two polls is drawn around what the recommender suggests, within bounds. Neither
the times nor anything sent besides contributions depends on private data.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from hdpmf.common.net.authority_rotation import primary_authority
from hdpmf.common.net.carrier import MAX_BYTES, Answer, backoff
from hdpmf.common.net.certificates import check_authority
from hdpmf.common.net.https import HEALTH_PATH, MAX_PROBLEM, HttpsAnswer, HttpsClient
from hdpmf.common.net.signing import (
    CLOCK_HEADER,
    CONTRIBUTION,
    FILES_HEADER,
    OFFER_HEADER,
    OFFERS,
    PAUSE_HEADER,
    TOLERANCE,
    Signer,
    server_name,
    signed_headers,
)
from hdpmf.common.protocol.servers import Server, check_address
from hdpmf.errors import TransportError

_log = logging.getLogger(__name__)

SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 600.0
"""Seconds between two polls, whatever the recommender suggests."""

USUAL_PAUSE = 30.0
"""Seconds where it suggests nothing."""

REFUSED_PAUSE = 30.0
"""Seconds between two polls, at most, of a participant that is not enrolled yet."""

_KEEP = 20.0  # seconds that an idle connection is kept

_FIRST_RETRY, _LONGEST_RETRY = 0.2, 5.0

_LEAVING = 1.0  # seconds from ``stop`` on for what is under way

_LAST_REPLY = 5.0  # the same where ``stop`` came with an answer, which still has to go out

_LOOK = 0.1

_OS = secrets.SystemRandom()


class PollingDevice:
    """Answers the offers of one recommender, one at a time.

    Args:
        address: ``https://host:port`` of the recommender.
        authority: Issuer of its certificate (PEM); the public authorities if empty.
        identity: The participant's key, which is on the recommender's roster.
        max_bytes: Of an offer or a contribution.
        look: Called before each poll, and with the version of the recommender's public files
            before an offer is answered.
        leave: Called when it is stopped and a look still holds it up.
        log: Takes lines about the connection for the owner; this module's log by default.
        shortest: Fewest seconds between two polls.

    Raises:
        ConfigError: The address is malformed, or the authority has ended.
    """

    def __init__(
        self,
        address: str,
        authority: bytes,
        identity: Signer,
        *,
        max_bytes: int = MAX_BYTES,
        look: Callable[[str], object] = lambda version: None,
        leave: Callable[[], object] = lambda: None,
        log: Callable[[str], None] | None = None,
        shortest: float = SHORTEST_PAUSE,
    ) -> None:
        self._address = check_address(address)
        if authority:
            check_authority(authority)
        self._authority = authority
        self._identity = identity
        self._max_bytes = max_bytes
        self._look = look
        self._leave = leave
        self._log = log
        self._shortest = shortest
        self._client = HttpsClient("the recommender", authority, keep=_KEEP)
        self._said = ""
        self._answered: tuple[str, bytes | None] = (
            "",
            None,
        )  # the last offer's id, and the contribution to it
        self._answering = False
        self._patience = _LEAVING

    def serve(self, answer: Answer, stop: threading.Event) -> None:
        """Answer until ``stop``, whatever the network or the recommender do."""
        tries = 0
        with self._client, self._interrupted_by(stop):
            while not stop.is_set():
                try:
                    pause = self._turn(answer, stop)
                    tries = 0
                except _RefusedError as error:
                    self._say(f"{error}; trying again")
                    pause = backoff(tries, _FIRST_RETRY, REFUSED_PAUSE)
                    tries += 1
                except TransportError as error:
                    if not stop.is_set():
                        self._say(f"{error}; trying again")
                    pause = backoff(tries, _FIRST_RETRY, _LONGEST_RETRY)
                    tries += 1
                stop.wait(pause)

    def _turn(self, answer: Answer, stop: threading.Event) -> float:
        """Poll once and answer the offer, if there is one; the seconds until the next poll."""
        self._look("")
        polled = self._request("GET", OFFERS)
        if polled.status not in (200, 204):
            raise self._refusal(polled)
        self._say(f"connected to {self._address}")
        self._look(polled.headers.get(FILES_HEADER, "")[:200])
        if polled.status == 200:
            self._contribute(polled, answer, stop)
        return drawn_pause(polled.headers.get(PAUSE_HEADER, ""), self._shortest)

    def _contribute(self, polled: HttpsAnswer, answer: Answer, stop: threading.Event) -> None:
        offer = polled.headers.get(OFFER_HEADER, "")
        if not (offer.isalnum() and offer.isascii() and len(offer) <= 64):
            raise TransportError("the recommender sent an offer without an id")
        # One that was answered before is not answered again, only sent.
        if offer != self._answered[0]:
            self._answered = (offer, self._answer_to(polled.body, answer, stop))
        body = self._answered[1]
        path = CONTRIBUTION.format(id=offer)
        put = self._request("DELETE" if body is None else "PUT", path, body or b"")
        if put.status == 413:
            self._say("refused: the reply is longer than the recommender's limit")
        elif put.status not in (
            201,
            204,
            409,
            410,
        ):  # 410: its time is over, and nobody waits for it
            raise self._refusal(put)

    def _answer_to(self, message: bytes, answer: Answer, stop: threading.Event) -> bytes | None:
        stopped = stop.is_set()
        self._answering = True
        try:
            reply = answer(message)
        except Exception as error:  # a fault of ours must not end the loop, and its text stays here
            _log.error(
                "a message of %d bytes could not be answered (%s)",
                len(message),
                type(error).__name__,
            )
            return None
        finally:
            if stop.is_set() and not stopped:
                self._patience = _LAST_REPLY
            self._answering = False
        if len(reply) > self._max_bytes:
            _log.error(
                "a reply of %d bytes is longer than the limit of %d and stays here",
                len(reply),
                self._max_bytes,
            )
            return None
        return reply

    def trust(self, authority: bytes) -> None:
        """From now on the recommender's certificate must come from one of these (PEM)."""
        if authority != self._authority:
            self._authority = authority
            self._client.trust(authority)

    def _request(self, method: str, path: str, body: bytes = b"") -> HttpsAnswer:
        name = primary_authority(self._authority) if self._authority else b""
        server = server_name(name, urlsplit(self._address).hostname or "")
        headers = signed_headers(self._identity, server, method, path, body)
        return self._client.request(
            method, self._address + path, most=self._max_bytes, headers=headers, body=body
        )

    def _refusal(self, answer: HttpsAnswer) -> TransportError:
        if answer.status in (429, 502, 503, 504):
            return TransportError("the recommender is busy, starting or stopping")
        if answer.status >= 500:
            return TransportError(
                f"the recommender cannot answer at the moment (status {answer.status})"
            )
        if answer.status != 401:
            return _RefusedError(f"the recommender refused with status {answer.status}")
        ahead = _ahead(answer)
        if ahead is not None and abs(ahead) >= TOLERANCE:
            how = "ahead of" if ahead > 0 else "behind"
            return _RefusedError(
                f"refused: this machine's clock is {abs(ahead):.0f} s {how} the recommender's; "
                "set it right"
            )
        return _RefusedError("refused: this device is not enrolled with the recommender")

    def _say(self, text: str) -> None:
        """Once, not at every attempt."""
        if text == self._said:
            return
        self._said = text
        if self._log is None:
            _log.info("%s", text)
        else:
            self._log(text)

    @contextlib.contextmanager
    def _interrupted_by(self, stop: threading.Event) -> Iterator[None]:
        """Interrupt requests when ``stop`` is set: a server may answer byte by byte, or never."""
        over = threading.Event()

        def watch() -> None:
            while not stop.wait(_LEAVING):
                if over.is_set():
                    return
            waited = 0.0
            while not over.wait(_LOOK):
                waited = 0.0 if self._answering else waited + _LOOK
                if waited >= self._patience:
                    self._client.close()
                    self._leave()
                    return

        watcher = threading.Thread(target=watch, name="departure", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join(2 * _LEAVING)


class _RefusedError(TransportError):
    """The recommender does not want to hear from this participant now."""


def drawn_pause(
    suggested: str, shortest: float = SHORTEST_PAUSE, uniform: Callable[[], float] = _OS.random
) -> float:
    """Return the seconds until the next poll: 50 to 150 % of the suggestion, within bounds."""
    try:
        seconds = float(suggested)
    except ValueError:
        seconds = USUAL_PAUSE
    if not math.isfinite(seconds):
        seconds = USUAL_PAUSE
    return min(max(seconds, shortest), LONGEST_PAUSE) * (0.5 + uniform())


def _ahead(answer: HttpsAnswer) -> float | None:
    """Return the seconds that this clock is ahead of the time in a refusal."""
    try:
        ahead = time.time() - float(answer.headers[CLOCK_HEADER])
    except (KeyError, ValueError):
        return None
    return ahead if math.isfinite(ahead) else None


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


class WebClient:
    """A device's way out: a recommender's files, what is shown to it, and uploads to a leader.

    Args:
        address: The recommender's folder, ``https://host:port``.
        authority: Issuer of its certificate (PEM); the public authorities if empty.
    """

    def __init__(
        self, address: str, authority: bytes = b"", clock: Callable[[], float] = time.time
    ) -> None:
        self._address = check_address(address)
        self._client = HttpsClient("the recommender", authority)
        self._clock = clock

    def __repr__(self) -> str:
        return f"WebClient({self._address})"

    def trust(self, authority: bytes) -> None:
        """From now on the recommender's certificate must come from one of these (PEM)."""
        self._client.trust(authority)

    def close(self) -> None:
        """Interrupt the request to the recommender that is under way."""
        self._client.close()

    def fetch(self, name: str, most: int) -> bytes:
        """Return a file of the folder.

        The request is the same for every device and every time. A validator (``If-None-Match``) is
        not sent: an ETag of one device's own would tell the server that it is back.

        Raises:
            TransportError: It is absent, unreachable, or took too long.
            TooLongError: It is longer than ``most``.
        """
        if _NAME.fullmatch(name) is None:
            raise TransportError("a file of a recommender has a plain name")
        try:
            answer = self._client.request("GET", f"{self._address}/{name}", most=most)
        except TransportError as error:
            failed = type(error)(f"{name} could not be fetched: {error}")
            failed.received = error.received
            raise failed from error
        if answer.status != 200:
            failed = TransportError(f"{name} is not there: the answer was {answer.status}")
            failed.received = len(answer.body)
            raise failed
        return answer.body

    def upload(
        self,
        leader: Server,
        path: str,
        headers: dict[str, str],
        body: bytes,
        leaving: Callable[[], None],
    ) -> int:
        """Put a report to the leader, and return the status of its answer.

        Clocks are compared first, over the same connection, by a request that is the same for
        everybody: a report that comes too early or too late is paid for nothing. ``leaving`` is
        called after that, before anything of the report's request is sent.

        Raises:
            TransportError: It cannot be reached, did not answer, or the clocks differ.
        """
        with HttpsClient("the leader", leader.authority, keep=_KEEP) as client:
            health = client.request("GET", leader.endpoint(HEALTH_PATH), most=MAX_PROBLEM)
            self._compare_clocks(health)
            return client.request(
                "PUT",
                leader.endpoint(path),
                most=MAX_PROBLEM,
                headers=headers,
                body=body,
                leaving=leaving,
            ).status

    def _compare_clocks(self, answer: HttpsAnswer) -> None:
        theirs = answer.date
        ahead = 0.0 if theirs is None else self._clock() - theirs
        if abs(ahead) >= TOLERANCE:
            how = "ahead of" if ahead > 0 else "behind"
            raise TransportError(
                f"this machine's clock is {abs(ahead):.0f} s {how} the leader's; set it right. "
                "Nothing has left"
            )

    def request_token(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Post a request for a token to the recommender; return status and body of its answer.

        Raises:
            TransportError: It cannot be reached, or did not answer.
        """
        url = f"{self._address}{path}"
        answer = self._client.request("POST", url, most=MAX_PROBLEM, headers=headers, body=body)
        return answer.status, answer.body

    def share(
        self, path: str, headers: dict[str, str], body: bytes, leaving: Callable[[], None]
    ) -> int:
        """Put what an owner shows to the recommender, and return the status of its answer.

        ``leaving`` and errors are as in `upload`.
        """
        url = f"{self._address}{path}"
        return self._client.request(
            "PUT", url, most=MAX_PROBLEM, headers=headers, body=body, leaving=leaving
        ).status
