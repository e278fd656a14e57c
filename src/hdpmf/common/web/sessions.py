"""Browser sessions: one-time tokens, cookies, idle locks, limits on passphrase attempts."""

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
    """The session of one browser.

    Attributes:
        csrf: Token in every request that changes something.
        notes: Notes for the next page: a kind and a sentence each.
        state: Values that a view keeps between two requests, as the preview of a file.
    """

    csrf: str
    used_at: float
    locked: bool = False
    notes: list[tuple[str, str]] = field(default_factory=list)
    state: dict[str, object] = field(default_factory=dict)

    def note(self, words: str, kind: str = "done") -> None:
        """Add a note for the next page."""
        self.notes.append((kind, words))

    def take_notes(self) -> list[tuple[str, str]]:
        """Return the notes and clear them."""
        notes = self.notes
        self.notes = []
        return notes


class BrowserSessions:
    """Browser sessions, started by one-time tokens and locked after ``idle`` seconds."""

    def __init__(
        self, idle: float = IDLE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle = idle
        self._clock = clock
        self._tokens: dict[bytes, float] = {}
        self._sessions: dict[bytes, BrowserSession] = {}

    def __repr__(self) -> str:
        return f"PageDoor({len(self._sessions)} sessions)"

    def token(self) -> str:
        """Return a new token, valid once and for ``TOKEN_SECONDS``."""
        now = self._clock()
        self._tokens = {known: until for known, until in self._tokens.items() if until > now}
        token = secrets.token_urlsafe(32)
        self._tokens[_known_by(token)] = now + TOKEN_SECONDS
        return token

    def enter(self, token: str) -> str | None:
        """Exchange a token for a new session's cookie; None if it is invalid."""
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
        """Return the session of a cookie, locked if it has been idle; ``used`` counts as use."""
        session = self._sessions.get(_known_by(cookie))
        if session is None:
            return None
        if self.seconds_left(session) <= 0:
            self.lock(session)
        elif used:
            session.used_at = self._clock()
        return session

    def seconds_left(self, session: BrowserSession) -> float:
        """Return the seconds until a session locks."""
        return 0.0 if session.locked else session.used_at + self._idle - self._clock()

    def lock(self, session: BrowserSession) -> None:
        """Lock a session and drop its pending state."""
        session.locked = True
        session.state.clear()
        session.notes.clear()

    def unlock(self, session: BrowserSession) -> None:
        """Unlock a session, with a new CSRF token."""
        session.locked = False
        session.used_at = self._clock()
        session.csrf = secrets.token_urlsafe(32)

    def leave(self, session: BrowserSession) -> None:
        """End a session."""
        self._sessions = {
            known: other for known, other in self._sessions.items() if other is not session
        }

    @property
    def anybody(self) -> bool:
        """True if a session is in use, or an unused token could still start one."""
        now = self._clock()
        waiting = any(until > now for until in self._tokens.values())
        return waiting or any(self.seconds_left(session) > 0 for session in self._sessions.values())


def equal_secrets(given: str, expected: str) -> bool:
    """Compare two secrets in constant time."""
    return compare_digest(given.encode(), expected.encode())


class AttemptLimit:
    """Back-off on wrong passphrases: after a few, the wait doubles with each attempt."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong = 0
        self._next_at = 0.0

    @property
    def wait(self) -> float:
        """Seconds until the next attempt is allowed."""
        return max(0.0, self._next_at - self._clock())

    def wrong(self) -> None:
        """Count a wrong attempt."""
        self._wrong += 1
        if self._wrong >= _FREE_TRIES:
            self._next_at = self._clock() + min(
                2.0 ** (self._wrong - _FREE_TRIES + 1), _LONGEST_WAIT
            )

    def right(self) -> None:
        """Reset the count."""
        self._wrong = 0
        self._next_at = 0.0


def _known_by(secret: str) -> bytes:
    """Return the hash under which a secret is kept."""
    return sha256(secret.encode()).digest()
