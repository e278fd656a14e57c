"""One-time links, sessions that lock, and a passphrase that cannot be tried at will."""

from __future__ import annotations

from hdpmf.common.web.local_server import (
    TOKEN_SECONDS,
    AttemptLimit,
    BrowserSessions,
    equal_secrets,
)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_token_is_good_once():
    sessions = BrowserSessions()
    token = sessions.token()
    cookie = sessions.enter(token)
    assert cookie is not None
    assert sessions.session(cookie) is not None
    assert sessions.enter(token) is None
    assert sessions.enter("") is None
    assert sessions.session("") is None
    assert sessions.session(token) is None  # what was in the link opens nothing afterwards


def test_a_token_is_good_for_a_while():
    clock = Clock()
    sessions = BrowserSessions(clock=clock)
    token = sessions.token()
    clock.now += TOKEN_SECONDS
    assert sessions.enter(token) is None


def test_a_session_locks_when_nobody_uses_it():
    clock = Clock()
    sessions = BrowserSessions(idle=60, clock=clock)
    cookie = sessions.enter(sessions.token()) or ""
    clock.now += 59
    session = sessions.session(cookie)
    assert session is not None
    assert not session.locked
    clock.now += 40
    assert sessions.session(cookie, used=False) is session
    assert not session.locked
    clock.now += 20  # looking at how long it lasts was no use
    session.note("private")
    session.state["file"] = "private"
    assert sessions.session(cookie) is session
    assert session.locked
    assert not session.notes
    assert not session.state
    assert not sessions.anybody


def test_unlocking_makes_what_pages_knew_before_worthless():
    sessions = BrowserSessions()
    session = sessions.session(sessions.enter(sessions.token()) or "")
    assert session is not None
    before = session.csrf
    sessions.lock(session)
    assert sessions.seconds_left(session) == 0
    sessions.unlock(session)
    assert session.csrf != before
    sessions.leave(session)
    assert not sessions.anybody


def test_wrong_passphrases_take_longer_and_longer():
    clock = Clock()
    tries = AttemptLimit(clock)
    waits = []
    for _ in range(12):
        tries.wrong()
        waits.append(tries.wait)
    assert waits == [0, 0, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    clock.now += 299
    assert tries.wait == 1
    tries.right()
    assert tries.wait == 0


def test_secrets_are_compared():
    assert equal_secrets("a", "a")
    assert not equal_secrets("a", "b")
    assert not equal_secrets("", "b")


def test_the_fifth_browser_ends_the_session_of_the_first():
    sessions = BrowserSessions()
    cookies = [sessions.begin() for _ in range(5)]
    assert [sessions.session(cookie) is None for cookie in cookies] == [True] + [False] * 4
