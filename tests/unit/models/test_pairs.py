"""hdp-sum-pairs: whether it pays, what it makes of pairs, and what it falls back to."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.methods import method_of
from hdpmf.common.privacy import PrivacySpec
from hdpmf.errors import ConfigError
from hdpmf.models import HDPSum, load_model, make_model
from hdpmf.untrusted.recommender.pairs import PAYS_FROM, plan_pairs

WORLD = synthetic_world(120, 60, 3000, rng=4)


def _camps(n_users: int = 3000) -> tuple[Ratings, Ratings]:
    """Two camps: each rates 12 of its own 20 items and 2 of the other's; features know nothing
    of it.
    """
    rng = np.random.default_rng(0)
    users, items = [], []
    for user in range(n_users):
        own = 20 * (user % 2)
        chosen = [*(own + rng.permutation(20)[:12]), *((20 - own) + rng.permutation(20)[:2])]
        users += [user] * 14
        items += chosen
    ratings = Ratings.from_arrays(users, items, np.full(len(users), 5.0), scale=(1, 5, 1))
    return ratings.hold_out(per_user=4, rng=0)


def test_where_noise_would_cover_pairs_nothing_is_asked_and_lists_are_those_of_hdp_sum():
    weights = PrivacySpec().draw(WORLD, rng=0)
    plain, paired = (HDPSum(rng=0, pairs=pairs).fit(WORLD, weights) for pairs in (False, True))
    assert plain.pair_plan_ is None
    assert not paired.pair_plan_.pays
    assert "not asked for" in str(paired.pair_plan_)
    assert paired.lists_ is None
    users = np.arange(5)
    assert (plain._order().scores(users) == paired._order().scores(users)).all()


@pytest.fixture(scope="module")
def camps() -> tuple[HDPSum, Ratings]:
    train, test = _camps()
    return HDPSum(epsilon=2.0, pairs=True, features=False, rng=0).fit(train), test


def test_where_pairs_pay_lists_are_better(camps):
    model, test = camps
    assert model.pair_plan_.pays
    assert model.pair_plan_.height >= PAYS_FROM
    assert "asked for" in str(model.pair_plan_)
    with_pairs = model.rank(test, n=5)["ndcg"]
    lists, model.lists_ = model.lists_, None
    without = model.rank(test, n=5)["ndcg"]
    model.lists_ = lists
    assert with_pairs > without + 0.15


def test_parts_add_up_to_scores_and_reasons_name_what_was_rated(camps):
    model, _ = camps
    users, items = np.array([0, 1]), np.arange(40)
    order = model._order()
    for row, parts in zip(order.scores(users), order.parts(users, [items, items]), strict=True):
        assert parts.scores == pytest.approx(row, abs=1e-6)
    assert any("because you rated" in (told.reason or "") for told in model.recommend(0, 5))


def test_a_model_comes_back_from_its_files(camps, tmp_path):
    model, _ = camps
    model.save(tmp_path / "model")
    back = load_model(tmp_path / "model")
    assert method_of(back).name == "hdp-sum-pairs"
    users = np.arange(4)
    assert back._order().scores(users) == pytest.approx(model._order().scores(users), abs=1e-6)


def test_the_plan_is_made_of_what_was_released_and_the_number_of_users(camps):
    model, _ = camps
    plan = plan_pairs(model.facts_, 2.0, 3000)
    assert plan.height == model.pair_plan_.height
    assert plan.bound == 3  # ten ratings of weight 1 are about as long
    assert plan_pairs(model.facts_, 0.2, 3000).height < plan.height / 5
    assert (
        plan_pairs(model.facts_, 2.0, 30_000).height < plan.height / 3
    )  # as many ratings of ten times the users


def test_it_is_a_method_with_a_claim_of_its_own():
    assert method_of(make_model("hdp-sum-pairs")).claim().delta == 1e-6
    assert method_of(make_model("hdp-sum")).claim().delta == 0.0
    assert "1.75" in make_model("hdp-sum-pairs").privacy.reason
    with pytest.raises(ConfigError, match="two designs"):
        HDPSum(pairs=True, labels=True, prior="films").fit(WORLD)
