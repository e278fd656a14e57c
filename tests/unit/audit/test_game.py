"""Audits: what they answer, that they repeat, and what they refuse."""

import dataclasses
import json

import numpy as np
import pytest

from hdpmf.common.data import Ratings
from hdpmf.errors import ConfigError, PrivacyError, RatingsError
from hdpmf.lab.audit.game import VIEWS, Audit, audited, pairs, run_audit
from hdpmf.lab.audit.scores import BROKEN, NO_CLAIM, STANDS
from hdpmf.lab.audit.world import SMALL_ITEMS, SMALL_USERS, choose_target, small_world

pytestmark = pytest.mark.slow


RUNS = {"hdp-pairs": 40}  # each is a whole run of its sums


def _audit(method, view, runs=150, **others):
    return Audit(method, view, runs, factors=4, epochs=12, **others)


@pytest.fixture(scope="module")
def results(world):
    return {
        (method, view): run_audit(_audit(method, view, RUNS.get(method, 150)), world)
        for method, view in pairs()
    }


def test_every_method_and_view_has_an_answer(results):
    assert {method for method, _ in results} == set(audited())
    assert {view for _, view in results} == set(VIEWS)
    for (method, view), result in results.items():
        assert (result.method, result.view, result.runs) == (method, view, RUNS.get(method, 150))
        assert 0 <= result.epsilon_lower_bound <= result.ceiling + 1e-12
        assert result.confidence == 0.95
        json.dumps(dataclasses.asdict(result), allow_nan=False)


def test_methods_that_prove_their_claim_keep_it_where_they_make_it(results):
    for pair in (
        ("hdp-sum", "sums"),
        ("hdp-sum", "final"),
        ("hdp-pairs", "sums"),
        ("hdp-pairs", "final"),
        ("hdp-bit", "messages"),
        ("hdp-bit", "sums"),
        ("hdp-bit", "final"),
        ("hdpmf-paid", "sums"),
        ("hdpmf-paid", "final"),
        ("user-mean", "messages"),
    ):
        assert results[pair].verdict == STANDS, pair


def test_claims_are_broken_where_nobody_proved_them(results):
    for pair in (
        ("hdpmf", "messages"),
        ("hdpmf-w", "messages"),
        ("hdp-sum", "messages"),
        ("hdp-pairs", "messages"),
        ("hdpmf-paid", "messages"),
    ):
        assert results[pair].verdict == BROKEN, pair
    assert results["mf", "final"].verdict == NO_CLAIM
    assert results["mf", "final"].epsilon_claimed is None
    assert results["mf", "final"].epsilon_lower_bound == pytest.approx(
        results["mf", "final"].ceiling
    )


def test_direct_and_indirect_parts_are_reported(results):
    assert set(results["hdpmf", "messages"].parts) == {"direct", "indirect"}
    assert results["hdp-bit", "messages"].parts == {}


def test_the_same_seed_gives_the_same_bound(world):
    for method, view in (("hdpmf", "sums"), ("pdpmf", "final"), ("hdp-sum", "sums")):
        first, second = (run_audit(_audit(method, view, 60), world) for _ in range(2))
        assert first.epsilon_lower_bound == second.epsilon_lower_bound
        assert (first.power, first.false_alarms) == (second.power, second.false_alarms)


def test_whether_the_claim_was_made_for_the_view_is_said(results):
    for (method, view), covered in {
        ("hdp-sum", "messages"): False,
        ("hdp-sum", "final"): True,
        ("hdp-bit", "messages"): True,
        ("hdpmf-paid", "messages"): False,
        ("hdpmf", "messages"): True,
    }.items():
        assert results[method, view].claim_covers_view == covered


@pytest.mark.parametrize("view", ["messages", "sums", "final"])
def test_presence_has_a_claim_of_its_own(world, view):
    result = run_audit(
        _audit("hdp-sum", view, epsilon=2.0, weight=0.5, adjacency="presence"), world
    )
    assert result.epsilon_claimed == pytest.approx(0.75)
    assert result.settings["adjacency"] == "presence"
    assert (result.verdict == STANDS) == (view != "messages")


def test_the_claim_is_the_rating_s_own(world):
    result = run_audit(_audit("hdp-bit", "messages", epsilon=2.0, weight=0.25), world)
    assert result.epsilon_claimed == 0.5


def test_a_weight_below_the_grid_sends_nothing(world):
    for method in ("hdp-sum", "hdp-bit"):
        view = "messages" if method == "hdp-bit" else "sums"
        assert (
            run_audit(_audit(method, view, epsilon=50.0, weight=0.01), world).epsilon_lower_bound
            == 0.0
        )


def test_what_makes_no_sense_is_refused(world):
    for wrong in (
        {"method": "nonsense"},
        {"view": "nonsense"},
        {"runs": 5},
        {"seed": -1},
        {"adjacency": "nonsense"},
        {"adjacency": "presence"},
        {"method": "hdp-bit", "adjacency": "presence"},
        {"method": "hdp-sum", "view": "sums-h-hidden"},
    ):
        with pytest.raises(ConfigError):
            Audit(**{"method": "hdpmf", "view": "sums", **wrong})
    with pytest.raises(PrivacyError, match="weight"):
        choose_target(world, 1.5)
    with pytest.raises(RatingsError, match="second rating"):
        choose_target(Ratings.from_arrays([1, 2], [1, 1], [3, 4]))


def test_the_small_world_is_small(world):
    small = small_world(world)
    assert small.n_users <= SMALL_USERS
    assert small.n_items <= SMALL_ITEMS
    assert np.bincount(small.user_codes).min() >= 2
