"""Who is in a cohort: by the beacon and the identities alone, everybody about as often, and both
sides agree.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.protocol import Terms, decode, encode
from hdpmf.common.protocol.federation import MAX_BEACON, cohort_of, is_beacon
from hdpmf.errors import ConfigError, ProtocolError
from hdpmf.untrusted.service.settings import RunSettings

DEVICES = [f"{number:064x}" for number in range(40)]


@given(st.permutations(DEVICES), st.integers(3, 40))
def test_it_does_not_depend_on_the_order_of_the_roster(order: list[str], size: int) -> None:
    chosen = cohort_of("drand 7", order, size)
    assert chosen == cohort_of("drand 7", DEVICES, size)
    assert len(chosen) == size
    assert chosen <= set(DEVICES)
    assert cohort_of("drand 7", DEVICES, size - 1) < chosen


def test_each_beacon_chooses_anew_and_everybody_about_as_often() -> None:
    counts = Counter(
        device for number in range(2000) for device in cohort_of(f"drand {number}", DEVICES, 10)
    )
    # 500 each, deviation sqrt(2000 x 3/16) = 19; beyond five of these is one in 40,000 for any of
    # the forty.
    assert all(400 < counts[device] < 600 for device in DEVICES)


def test_the_choice_is_written_down() -> None:
    """Whoever changes it parts from devices of before."""
    assert sorted(int(device, 16) for device in cohort_of("drand 7", DEVICES, 5)) == [
        1,
        12,
        15,
        21,
        35,
    ]


@pytest.mark.parametrize("text", ["", "two\nlines", "é", "x" * (MAX_BEACON + 1), "\x00"])
def test_a_beacon_is_a_line_that_people_can_compare(text: str) -> None:
    assert not is_beacon(text)
    with pytest.raises(ConfigError):
        settings(cohort=10, beacon=text)


def settings(**changes: object) -> RunSettings:
    fields = {"method": "hdp-sum", "view": "sums", "minimum": 20, "rounds": 1} | changes
    return RunSettings(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"cohort": 2, "beacon": "x"},
        {"beacon": "x"},
        {"cohort": 30, "beacon": "x", "view": "two-servers"},
    ],
)
def test_settings_that_make_no_sense(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        settings(**changes)


def test_the_run_asks_those_whom_the_terms_name() -> None:
    asked = settings(cohort=30, beacon="drand 7")
    chosen = asked.chosen(DEVICES)
    assert set(chosen) == cohort_of("drand 7", DEVICES, 30)
    terms = asked.terms("-", [1] * 40, [1] * 30)
    assert (terms.cohort, terms.beacon, terms.users) == (30, "drand 7", 30)
    assert decode(encode(terms)) == terms
    with pytest.raises(ConfigError, match="40 devices are enrolled"):
        settings(cohort=41, beacon="x").chosen(DEVICES)
    assert settings().chosen(DEVICES) == tuple(DEVICES)


def test_a_schedule_draws_anew() -> None:
    asked = settings(cohort=30, beacon="drand 7")
    assert asked.again().beacon not in (asked.beacon, asked.again().beacon)
    assert asked.again().cohort == 30
    assert settings().again() == settings()


@pytest.mark.parametrize("wrong", [{"cohort": 2, "beacon": "x"}, {"cohort": 5}, {"beacon": "x"}])
def test_terms_that_cannot_be(wrong: dict[str, object]) -> None:
    fields = {
        "method": "hdp-sum",
        "view": "sums",
        "epsilon": 1.0,
        "rounds": 1,
        "catalogue": "-",
        "users": 9,
    }
    with pytest.raises(ProtocolError, match="cohort"):
        Terms(**fields, minimum=9, sharing=9, **wrong)  # type: ignore[arg-type]
