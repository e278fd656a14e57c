"""Attack 12: a device's answers take as long as its noise and its ratings take."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from hdpmf.cli.device.join import answer_messages
from hdpmf.common.net import polling
from hdpmf.private.device.messages import SLOT, quantize_response_time
from hdpmf.private.device.store.device_store import DeviceStore
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


def test_a_device_that_joins_answers_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Carrier:
        def serve(self, answer: object, stop: threading.Event) -> None:
            for message in (envelope(table()), b"rubbish"):
                begun = time.monotonic()
                answer(message)  # type: ignore[operator]
                took.append(time.monotonic() - begun)

    took: list[float] = []
    monkeypatch.setattr(polling, "PollingDevice", lambda *_, **__: Carrier())
    with DeviceStore.create(tmp_path / "me.hdpmf") as store:
        answer_messages(store, "https://films.example", threading.Event(), False)
    assert len(took) == 2
    assert all(one >= SLOT for one in took)
