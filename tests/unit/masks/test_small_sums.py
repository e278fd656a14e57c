"""Sums of six devices: exact for who stays, broken off with too few, resumed after a restart."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.aggregation.masks.plan import propose
from hdpmf.common.aggregation.masks.primitives import WIDE_WORD, WORD
from hdpmf.common.aggregation.masks.roster import Roster
from hdpmf.common.aggregation.masks.server import SecureSumServer
from hdpmf.errors import SecureSumError
from tests.unit.masks.in_process import STEPS, Step, run_in_process

IDENTITIES = [DeviceIdentity.generate() for _ in range(6)]


@pytest.mark.parametrize("word", [WORD, WIDE_WORD])
@pytest.mark.parametrize(
    ("drops", "survivors"),
    [({}, range(6)), ({2: "vector"}, range(6)), ({2: "shares"}, (0, 1, 3, 4, 5))],
)
def test_devices_that_are_restarted_after_every_step_get_the_same_sum(
    word: np.dtype, drops: dict[int, Step], survivors: list[int]
) -> None:
    vectors = np.random.default_rng(1).integers(0, 2**32, (6, 5)).astype(word)
    done = run_in_process(vectors, drop_after=drops, identities=IDENTITIES, resuming=True)
    assert list(done.survivors) == list(survivors)
    assert done.total.tolist() == vectors[list(survivors)].sum(axis=0, dtype=word).tolist()


def summed(drops: dict[int, Step], **options: int) -> tuple[list[int], list[int], list[int]]:
    """Who is in the sum, the sum, and what it should be."""
    vectors = np.random.default_rng(2).integers(0, 2**32, (6, 5)).astype(WORD)
    done = run_in_process(vectors, drop_after=drops, identities=IDENTITIES, **options)
    survivors = list(done.survivors)
    return survivors, done.total.tolist(), vectors[survivors].sum(axis=0, dtype=WORD).tolist()


@pytest.mark.parametrize("step", STEPS)
def test_one_who_drops_out_is_in_the_sum_if_its_vector_came(step: Step) -> None:
    survivors, total, expected = summed({2: step})
    assert survivors == [n for n in range(6) if n != 2 or step in ("vector", "confirmation")]
    assert total == expected


@pytest.mark.parametrize("step", STEPS)
def test_three_who_drop_out_break_it_off(step: Step) -> None:
    """Five holders each and a threshold of four: two of them may go, not three."""
    with pytest.raises(SecureSumError, match="broken off"):
        summed(dict.fromkeys((0, 2, 4), step))


@pytest.mark.parametrize(("minimum", "enough"), [(5, True), (6, False)])
def test_a_sum_is_over_as_many_as_were_agreed_on(minimum: int, enough: bool) -> None:
    if enough:
        survivors, total, expected = summed({2: "shares"}, minimum=minimum)
        assert (len(survivors), total) == (5, expected)
    else:
        with pytest.raises(SecureSumError, match="needs 6 and is broken off"):
            summed({2: "shares"}, minimum=minimum)


def test_there_is_no_sum_before_the_end() -> None:
    roster = Roster(identity.public for identity in IDENTITIES)
    server = SecureSumServer(propose(roster, 5), roster)
    with pytest.raises(SecureSumError, match="there is no sum"):
        _ = server.result
    server.advance()
    with pytest.raises(SecureSumError, match="there is no sum"):
        _ = server.result
