"""Whoever ends a run in its own process lets participants fetch the model first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from hdpmf.common.net import mailbox as module
from hdpmf.common.net.mailbox import Mailbox

DEVICE = "ab" * 32


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Mailbox:
    monkeypatch.setattr(module, "_QUIET_SECONDS", 0.3)
    return Mailbox(["films"], [DEVICE])


def seconds(mailbox: Mailbox, most: float) -> float:
    begun = time.monotonic()
    mailbox.wait_for_fetches(most)
    return time.monotonic() - begun


def test_where_nobody_is_here_nobody_is_waited_for(mailbox: Mailbox) -> None:
    assert seconds(mailbox, 60.0) < 10.0


class Story:
    """Time that passes when the mailbox looks around; what happens when is written down."""

    def __init__(self, mailbox: Mailbox, events: dict[float, Callable[[], object]]) -> None:
        self.now, self._events, self._closed = 0.0, events, mailbox._closed

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        for at in [at for at in self._events if at <= self.now]:
            self._events.pop(at)()
        return self._closed.is_set()


@pytest.mark.parametrize(
    ("polls", "fetches", "ends"),
    [
        ([], [], 20.0),  # it was here, and has not heard of the new files
        ([5.0], [], 8.25),  # it has heard of them, and has them already
        ([5.0], [6.0, 8.0], 11.25),
        ([5.0], [6.0, 10.0], 9.25),  # what is fetched later is not waited for
        ([5.0, 7.0], [6.0], 9.25),
        ([5.0], [7.0, 9.0, 11.0, 13.0, 15.0, 17.0], 20.0),
    ],
)
def test_files_are_waited_for_until_nobody_fetches_any_more(
    monkeypatch: pytest.MonkeyPatch, polls: list[float], fetches: list[float], ends: float
) -> None:
    mailbox = Mailbox(["films"], [DEVICE])
    events: dict[float, Callable[[], object]] = dict.fromkeys(fetches, mailbox.file_sent)
    story = Story(mailbox, events | {at: lambda: mailbox._fetched(DEVICE) for at in polls})
    monkeypatch.setattr(module, "time", story)
    monkeypatch.setattr(mailbox, "_closed", story)
    mailbox._fetched(DEVICE)
    mailbox.wait_for_fetches(20.0)
    assert story.now == ends


@pytest.mark.slow
def test_who_is_here_has_polled_and_fetched_before_it_ends(mailbox: Mailbox) -> None:
    mailbox._fetched(DEVICE)
    assert seconds(mailbox, 1.0) >= 1.0  # it was here, and has not heard of the new files
    begun = time.monotonic()

    def poll_and_fetch() -> None:
        time.sleep(0.5)
        mailbox._fetched(DEVICE)
        time.sleep(0.2)
        mailbox.file_sent()

    thread = threading.Thread(target=poll_and_fetch)
    thread.start()
    mailbox.wait_for_fetches(60.0)
    assert 1.0 <= time.monotonic() - begun < 30.0
    thread.join()


def test_a_mailbox_that_is_closed_waits_for_nobody(mailbox: Mailbox) -> None:
    mailbox._fetched(DEVICE)
    mailbox.close()
    assert seconds(mailbox, 60.0) < 10.0
