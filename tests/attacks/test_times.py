"""Attack 12: a device's answers take as long as its noise and its ratings take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hdpmf.common.net.carrier import FilesHere
from hdpmf.private.device.connection import serve_recommender
from hdpmf.private.device.messages import SLOT, quantize_response_time
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.publish import public_files
from tests.world import envelope, table


@pytest.mark.parametrize(
    ("takes", "slots"), [(0.0, 1), (0.001, 1), (0.015, 1), (0.099, 1), (0.13, 2), (0.31, 4)]
)
def test_answers_leave_at_fixed_times(takes: float, slots: int) -> None:
    now = 100.0

    def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    def answer(data: bytes) -> bytes:
        pass_time(takes)
        return data[::-1]

    assert quantize_response_time(answer, clock=lambda: now, sleep=pass_time)(b"ab") == b"ba"
    assert now - 100.0 == pytest.approx(slots * SLOT)


def test_an_error_leaves_at_a_fixed_time_too() -> None:
    now = 100.0

    def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    def fail(data: bytes) -> bytes:
        pass_time(0.03)
        raise MemoryError

    with pytest.raises(MemoryError):
        quantize_response_time(fail, clock=lambda: now, sleep=pass_time)(b"")
    assert now - 100.0 == pytest.approx(SLOT)


def test_a_device_that_joins_looks_and_answers_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Carrier(FilesHere):
        def __call__(self, *_: object, look: Callable[[str], None], **__: object) -> Carrier:
            self._look = look
            return self

        def serve(self, answer: Callable[[bytes], bytes], stop: threading.Event) -> None:
            actions: list[Callable[[], object]] = [
                lambda: self._look("a version"),
                lambda: answer(envelope(table())),
                lambda: answer(b"rubbish"),
            ]
            for act in actions:
                begun = time.monotonic()
                act()
                took.append(time.monotonic() - begun)

    took: list[float] = []
    carrier = Carrier(public_files(table()))
    monkeypatch.setattr("hdpmf.common.net.polling.PollingDevice", carrier)
    monkeypatch.setattr("hdpmf.common.net.polling.WebClient", lambda *_: carrier)
    with DeviceStore.create(tmp_path / "ana.sqlite") as store:
        serve_recommender(store, "https://films.example", threading.Event(), print)
    assert len(took) == 3
    assert all(one >= SLOT for one in took)
