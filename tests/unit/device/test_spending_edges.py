"""What a person has spent, what a refusal is called, and when answers leave."""

from __future__ import annotations

import math

import pytest

from hdpmf import errors
from hdpmf.common.privacy.accounting import cost
from hdpmf.private.device.disclosures.bounds import TotalSpending, total_spending
from hdpmf.private.device.errors import DeclinedError, OutOfTurnError, reason_of
from hdpmf.private.device.messages import quantize_response_time, request_tag
from hdpmf.private.device.store.device_store import DeviceStore

from .conftest import charge_all


def test_all_ratings_in_all_runs(store: DeviceStore) -> None:
    assert total_spending(store.ledger) == TotalSpending(0.0, 0.0, 1e-5, True)
    budgets = store.weights().for_ratings(store.ratings())
    charge_all(store, 0.5, epsilon=0.5, run="11" * 16)
    once = total_spending(store.ledger)
    expected = cost("hdp-sum", "sums", unit="user", weight=budgets.tolist(), epsilon=0.5, rounds=1)
    assert once.pure == pytest.approx(expected.pure)
    assert once.at_delta == pytest.approx(expected.epsilon_at_delta)
    assert (once.delta, once.proved) == (1e-5, True)
    charge_all(store, 0.5, epsilon=0.5, run="22" * 16)
    assert total_spending(store.ledger).pure == pytest.approx(2 * expected.pure)
    assert total_spending(store.ledger, 1e-3).delta == 1e-3


def test_in_words() -> None:
    assert str(TotalSpending(math.inf, math.inf, 1e-5, False)).startswith("infinitely much")
    assert str(TotalSpending(math.inf, 2.0, 1e-5, False)) == "no finite pure epsilon; (2, 1e-05)"
    assert str(TotalSpending(10.0, 9.6, 1e-5, True)) == "epsilon 10"
    assert str(TotalSpending(10.0, 9.4, 1e-5, True)) == "epsilon 10, or (9.4, 1e-05)"


def test_every_refusal_has_a_word() -> None:
    words = {
        "StorageError": "storage",
        "SecureSumError": "secure-sum",
        "MissingExtraError": "unavailable",
        "RatingsError": "unavailable",
        "PrivacyError": "protocol",
        "DivergedError": "protocol",
        "ProtocolError": "protocol",
        "ConfigError": "protocol",
    }
    assert {name: reason_of(getattr(errors, name)("why")) for name in words} == words
    assert reason_of(DeclinedError("budget", "spent")) == "budget"
    assert reason_of(OutOfTurnError("late")) == "protocol"


def test_requests_that_differ_have_other_tags() -> None:
    data = bytes(range(256)) * 8 + b"end"
    tag = request_tag(data)
    assert len(tag) == 32
    changed = [
        data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        for at in (0, 7, 8, 1000, 2047, 2048, len(data) - 1)
    ]
    assert tag not in [request_tag(other) for other in (data + b"\0", data[:-1], *changed)]
    assert request_tag(data) == tag
    assert request_tag(b"") != request_tag(b"\0")


def test_answers_leave_at_the_end_of_a_slot() -> None:
    times, slept = iter([10.0, 10.03, 20.0, 20.25]), []
    answer = quantize_response_time(
        lambda data: data + b"!", clock=lambda: next(times), sleep=slept.append
    )
    assert answer(b"a") == b"a!"
    assert answer(b"b") == b"b!"
    assert slept == pytest.approx([0.07, 0.05])
