"""The key that a server's noise is made of: it repeats, moves forward by days, and is erased."""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.errors import PrivacyError
from hdpmf.untrusted.aggregator.collection import NoiseKey
from hdpmf.untrusted.aggregator.sealing import KeyFile

DAY = 86_400
TASK = bytes(32)


def drawn(key: NoiseKey, day: int, task: bytes = TASK, total: bytes = b"total") -> list[int]:
    return key.noise(task, day * DAY + 5, total).discrete_laplace(50, 20).tolist()


@pytest.fixture
def key(tmp_path: Path) -> NoiseKey:
    return NoiseKey(KeyFile(tmp_path / "noise-key"))


def test_a_sum_has_the_same_noise_and_another_sum_another(key: NoiseKey, tmp_path: Path) -> None:
    assert drawn(key, 3) == drawn(key, 3)
    others = [drawn(key, 4), drawn(key, 3, task=b"\1" * 32), drawn(key, 3, total=b"totals")]
    assert drawn(key, 3) not in others
    assert drawn(NoiseKey(KeyFile(tmp_path / "other")), 3) != drawn(key, 3)


def test_days_before_are_erased_and_later_ones_stay(key: NoiseKey) -> None:
    later = drawn(key, 7), drawn(key, 8)
    key.erase_before(7 * DAY)
    with pytest.raises(PrivacyError, match="erased"):
        drawn(key, 6)
    assert (drawn(key, 7), drawn(key, 8)) == later


@pytest.mark.parametrize("times", [(7, 7), (7, 7.9), (7, 5), (7, 0), (3, 5, 7)])
def test_a_key_is_never_erased_for_a_day_that_was_not_asked_for(
    key: NoiseKey, times: tuple[float, ...]
) -> None:
    """A clock may stand still or go back; the noise of the same sum must not change by that."""
    later = drawn(key, 7)
    for time in times:
        key.erase_before(time * DAY)
    assert drawn(key, 7) == later


def left_by_a_crash(path: Path) -> tuple[NoiseKey, list[int]]:
    """A key whose old day a server that was killed has not erased any more."""
    key = NoiseKey(KeyFile(path))
    first = KeyFile(path).keys()
    later = drawn(key, 7)
    key.erase_before(7 * DAY)
    ((name, secret),) = first.items()
    KeyFile(path).put(name, secret)
    return key, later


@pytest.mark.parametrize("again", [7, 5])
def test_what_a_crash_has_left_is_erased_the_next_time(tmp_path: Path, again: int) -> None:
    path = tmp_path / "noise-key"
    key, later = left_by_a_crash(path)
    assert len(KeyFile(path).names()) == 2
    key.erase_before(again * DAY)
    assert len(KeyFile(path).names()) == 1
    assert drawn(key, 7) == later
