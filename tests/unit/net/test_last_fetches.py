"""Whoever ends a run in its own process lets participants fetch the model first."""

from __future__ import annotations

import threading
import time

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
