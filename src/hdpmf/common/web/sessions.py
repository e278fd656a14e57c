"""Browser sessions: one-time tokens that become cookies, idle locks, limits on passphrase
attempts.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest

TOKEN_SECONDS = 600.0
"""How long a link of the command can be used."""

IDLE_SECONDS = 900.0
"""After so long without a request a session is locked."""

_FREE_TRIES = 3
_LONGEST_WAIT = 300.0
_MOST_SESSIONS = 4


@dataclass(slots=True, repr=False, eq=False)
class BrowserSession:
    """A browser that came with a token.

    Attributes:
        csrf: What its own pages put into every request that changes something.
        used_at: When it last asked for something.
        locked: Nothing is shown until it is unlocked.
        notes: What to tell on the next page: a kind and a sentence each.
        held: What a view keeps between two requests, as the preview of a file.
    """

    csrf: str
    used_at: float
    locked: bool = False
    notes: list[tuple[str, str]] = field(default_factory=list)
    held: dict[str, object] = field(default_factory=dict)

    def note(self, words: str, kind: str = "done") -> None:
        """Say something on the next page."""
        self.notes.append((kind, words))

    def take_notes(self) -> list[tuple[str, str]]:
        """What there is to say, once."""
        told, self.notes = self.notes, []
        return told


class BrowserSessions:
    """Lets one's own browser in, and locks it out again.

    Args:
        idle: Seconds until a session that is not used is locked.
        clock: Seconds that pass.
    """

    def __init__(
        self, idle: float = IDLE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle, self._clock = idle, clock
        self._tokens: dict[bytes, float] = {}
        self._sessions: dict[bytes, BrowserSession] = {}

    def __repr__(self) -> str:
        return f"PageDoor({len(self._sessions)} sessions)"

    def token(self) -> str:
        """A new token, good once and for a while."""
        now = self._clock()
        self._tokens = {known: until for known, until in self._tokens.items() if until > now}
        token = secrets.token_urlsafe(32)
        self._tokens[_known_by(token)] = now + TOKEN_SECONDS
        return token

    def enter(self, token: str) -> str | None:
        """A new session's cookie for a token, which is used up by that; None if it is none."""
        until = self._tokens.pop(_known_by(token), None)
        now = self._clock()
        if until is None or until <= now:
            return None
        cookie = secrets.token_urlsafe(32)
        while len(self._sessions) >= _MOST_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        self._sessions[_known_by(cookie)] = BrowserSession(
            csrf=secrets.token_urlsafe(32), used_at=now
        )
        return cookie

    def session(self, cookie: str, *, used: bool = True) -> BrowserSession | None:
        """The session of a cookie, locked by now if nobody used it for a while.

        Args:
            cookie: What the browser sent.
            used: Somebody does something; otherwise it is only looked at.
        """
        session = self._sessions.get(_known_by(cookie))
        if session is None:
            return None
        if self.seconds_left(session) <= 0:
            self.lock(session)
        elif used:
            session.used_at = self._clock()
        return session

    def seconds_left(self, session: BrowserSession) -> float:
        """Until it is locked."""
        return 0.0 if session.locked else session.used_at + self._idle - self._clock()

    def lock(self, session: BrowserSession) -> None:
        """Show nothing more to this browser, and forget what it was about to do."""
        session.locked = True
        session.held.clear()
        session.notes.clear()

    def unlock(self, session: BrowserSession) -> None:
        """Go on; what its pages knew before does not count any more."""
        session.locked, session.used_at, session.csrf = (
            False,
            self._clock(),
            secrets.token_urlsafe(32),
        )

    def leave(self, session: BrowserSession) -> None:
        """This browser has to come with a new token."""
        self._sessions = {
            known: other for known, other in self._sessions.items() if other is not session
        }

    @property
    def anybody(self) -> bool:
        """Whether somebody uses the page at the moment, or has a link to come in with."""
        now = self._clock()
        waiting = any(until > now for until in self._tokens.values())
        return waiting or any(self.seconds_left(session) > 0 for session in self._sessions.values())


def equal_secrets(given: str, expected: str) -> bool:
    """Whether two secrets are the same, without telling by the time it takes how much of them
    is.
    """
    return compare_digest(given.encode(), expected.encode())


class AttemptLimit:
    """How often a passphrase may be tried: after a few wrong ones each takes twice as long as
    the one before.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong = 0
        self._next_at = 0.0

    @property
    def wait(self) -> float:
        """Seconds until the next try is looked at."""
        return max(0.0, self._next_at - self._clock())

    def wrong(self) -> None:
        """It was wrong."""
        self._wrong += 1
        if self._wrong >= _FREE_TRIES:
            self._next_at = self._clock() + min(
                2.0 ** (self._wrong - _FREE_TRIES + 1), _LONGEST_WAIT
            )

    def right(self) -> None:
        """It was right."""
        self._wrong, self._next_at = 0, 0.0


def _known_by(secret: str) -> bytes:
    """What we keep of a secret: nothing that could be used, nor compared byte by byte."""
    return sha256(secret.encode()).digest()
