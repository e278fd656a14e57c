"""Ratings that are added between two runs get in at the next one, and every rating is in exactly
one answer.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from hdpmf.common.privacy.coding import WEIGHT_UNITS
from hdpmf.common.protocol import BitContribution, SumContribution
from hdpmf.errors import ConfigError
from hdpmf.untrusted.recommender.release import Release
from hdpmf.untrusted.service.settings import RunSettings
from tests.world import BITS, GROWING, SUMS, Federation

pytestmark = pytest.mark.slow


def rated(answer: Any) -> np.ndarray:
    """How many ratings of each item are in what a run released."""
    if isinstance(answer, BitContribution):
        return np.bincount(answer.items, minlength=GROWING.n_items)
    assert isinstance(answer, SumContribution)
    return np.rint(answer.weights[: GROWING.n_items] / WEIGHT_UNITS).astype(np.int64)


@pytest.mark.parametrize("settings", [SUMS, BITS], ids=["sums", "bits"])
def test_new_ratings_are_in_the_second_answer_only(town: Federation, settings: RunSettings) -> None:
    first, before = town.run(settings), town.held()
    town.add_later_ones()
    second = town.run(settings)
    np.testing.assert_array_equal(rated(first.answer), before)
    np.testing.assert_array_equal(rated(second.answer), town.held() - before)
    # Nobody has anything new: everybody takes part all the same, and pays nothing.
    paid = town.spent()
    third = town.run(settings)
    assert not rated(third.answer).any()
    assert town.spent() == paid
    assert [outcome.summary["devices"] for outcome in (first, second, third)] == [8, 8, 8]
    assert [outcome.summary["cohorts"] for outcome in (first, second, third)] == [1, 2, 3]


def test_bits_of_all_runs_stay_in_the_data_set(town: Federation) -> None:
    town.run(BITS)
    town.add_later_ones()
    outcome = town.run(BITS)
    release = Release.load(town.folder.path / "runs" / outcome.run.hex() / "ratings.release")
    np.testing.assert_array_equal(rated(release.bits), town.held())


def test_a_rating_that_changes_or_returns_is_not_released_again(town: Federation) -> None:
    town.run(SUMS)
    store = town.stores[0]
    user, item = str(store.ratings().user_ids[0]), str(store.ratings().item_ids[0])
    store.rate(item, 1.0, user=user)
    assert not rated(town.run(SUMS).answer).any()


def test_sums_of_another_epsilon_are_put_together_and_bits_are_not(town: Federation) -> None:
    town.run(SUMS)
    assert town.run(msgspec.structs.replace(SUMS, epsilon=4_000.0)).summary["cohorts"] == 2
    with pytest.raises(ConfigError, match="ask as it did"):
        town.service.begin(msgspec.structs.replace(SUMS, design="S"))
    town.run(BITS)
    with pytest.raises(ConfigError, match="ask as it did"):
        town.service.begin(msgspec.structs.replace(BITS, epsilon=4_000.0))
    assert town.folder.unfinished() is None
