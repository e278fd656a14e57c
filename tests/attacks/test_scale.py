"""Attack 1: the recommender names the rating scale, and devices leave out what is off it."""

from __future__ import annotations

import pytest

from hdpmf.common.data import Ratings, RatingScale
from hdpmf.errors import ProtocolError, RatingsError
from hdpmf.private.device.store.device_store import DeviceStore
from tests.world import table

from .hostile import device

NARROW = {
    "four and five": {"scale_low": 4.0, "scale_high": 5.0},
    "one and five": {"scale_step": 4.0},
    "far above": {"scale_low": 90.0, "scale_high": 100.0, "scale_step": None},
    "half a star off": {"scale_low": 0.5, "scale_high": 5.5},
}


@pytest.mark.parametrize("scale", NARROW)
def test_a_scale_that_is_not_the_owners_is_refused(scale: str) -> None:
    """Whether it is refused hangs on the scale alone, not on what was rated on it."""
    answers = []
    for values in ([1.0, 2.0], [4.0, 5.0], [3.0]):
        store = DeviceStore.create(":memory:", scale=RatingScale(1, 5, 1))
        for place, value in enumerate(values):
            store.rate(f"item {place:02d}", value)
        with pytest.raises(ProtocolError, match="scale"):
            store.pin_catalogue(table(**NARROW[scale]))
        store.pin_catalogue(table())
        answers.append(store.fingerprint)
    assert len(set(answers)) == 1


def test_the_first_file_of_ratings_says_what_the_scale_is() -> None:
    agent = device({})
    agent.store.add(
        Ratings.from_arrays(["me"] * 3, ["item 00", "item 01", "item 02"], [1.0, 4.0, 5.0])
    )
    assert agent.store.scale == RatingScale(1, 5)
    for narrow in NARROW.values():
        if narrow.keys() == {"scale_step"}:
            agent.store.pin_catalogue(table(**narrow))
            agent.store.forget(model=True)
        else:
            with pytest.raises(ProtocolError, match="scale"):
                agent.store.pin_catalogue(table(**narrow))
    agent.store.pin_catalogue(table())
    with pytest.raises(RatingsError, match="scale"):
        agent.store.add(Ratings.from_arrays(["me"], ["item 03"], [8.0], scale=(0, 10)))
    with pytest.raises(RatingsError, match="scale"):
        agent.store.rate("item 03", 8.0)


def test_scales_that_no_arithmetic_survives() -> None:
    agent = device()
    for ends in ((-3e38, 3e38), (1e30, 2e30)):
        with pytest.raises(ProtocolError):
            table(scale_low=ends[0], scale_high=ends[1], scale_step=None)
    with pytest.raises(ProtocolError):
        table(scale_step=1e-300)
    assert agent.store.fingerprint is None
