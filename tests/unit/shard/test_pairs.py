"""A shard's sums of pairs: what it refuses, and the law of its noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.privacy.coding import weight_units
from hdpmf.common.privacy.pairs import pair_sigma, pair_sums
from hdpmf.common.privacy.sampling import ReleasedNoise, SeededNoise
from hdpmf.common.protocol.pairs import PairSurvey
from hdpmf.errors import PrivacyError, ProtocolError
from hdpmf.private.client.contributions import OneRoundShard
from hdpmf.private.client.pairs import PairShard

WORLD = synthetic_world(60, 90, 1500, rng=1)
WEIGHTS = PrivacySpec().draw(WORLD, rng=0)
HEADS = np.arange(5, 85)


def _survey(**changed: object) -> PairSurvey:
    return PairSurvey(
        **{"epsilon": 1.0, "n_items": 90, "catalogue": "c", "heads": HEADS, "bound": 2} | changed
    )


def _shard(noise: object, **chosen: object) -> PairShard:
    return PairShard(WORLD, WEIGHTS, noise, **{"epsilon": 1.0, "catalogue": "c"} | chosen)


def _exact() -> np.ndarray:
    rows = np.zeros((WORLD.n_users, WORLD.n_items), np.int64)
    rows[WORLD.user_codes, WORLD.item_codes] = weight_units(WEIGHTS.for_ratings(WORLD))
    return pair_sums(rows[:, HEADS], 2)


@pytest.mark.parametrize("released", [True, False])
def test_noise_is_gaussian_with_the_stated_deviation_on_every_pair(released):
    # Level 1e-6 of each test; the seeded draws are the same every time.
    shard = _shard(ReleasedNoise()) if released else _shard(SeededNoise(0), simulation=True)
    noise = (shard.answer(_survey()).sums - _exact()) / pair_sigma(1.0, 2, len(HEADS))
    assert len(noise) == 80 * 79 // 2
    assert kstest(noise, "norm").pvalue > 1e-6
    assert kstest(noise / 0.5, "norm").pvalue < 1e-6  # half of it would be noticed
    assert len(np.unique(noise)) > len(noise) - 5


def test_there_is_one_answer():
    shard = _shard(ReleasedNoise())
    shard.answer(_survey())
    with pytest.raises(ProtocolError, match="once"):
        shard.answer(_survey())
    assert "spent" in repr(shard)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"epsilon": 1.1}, "agreed"),
        ({"catalogue": "d"}, "another item table"),
        ({"n_items": 89}, "another item"),
    ],
)
def test_what_was_not_agreed_is_refused_and_nothing_is_spent(changed, match):
    shard = _shard(ReleasedNoise())
    with pytest.raises(ProtocolError, match=match):
        shard.answer(_survey(**changed))
    shard.answer(_survey())


@pytest.mark.parametrize(
    "changed",
    [
        {"heads": np.array([3])},
        {"heads": np.array([4, 3])},
        {"heads": np.array([-1, 3])},
        {"heads": np.array([3, 90])},
        {"bound": 0},
        {"bound": 9},
        {"epsilon": 0.0},
    ],
)
def test_surveys_that_cannot_be_are_refused(changed):
    with pytest.raises(ProtocolError):
        _survey(**changed)


def test_pairs_come_after_the_survey():
    shard = OneRoundShard(WORLD, WEIGHTS, ReleasedNoise(), epsilon=1.0, catalogue="c")
    with pytest.raises(ProtocolError, match="not answered"):
        PairShard.after(shard, ReleasedNoise())


def test_seeded_noise_is_for_simulations():
    with pytest.raises(PrivacyError):
        _shard(SeededNoise(0))
