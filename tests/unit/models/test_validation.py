"""Comparisons, cross-validation and search: what they measure, test and choose."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ttest_rel, wilcoxon

import hdpmf
from hdpmf.common.privacy import PrivacySpec, PrivacyWeights
from hdpmf.errors import ConfigError, DivergedError
from hdpmf.models.result_tables import all_pairs, holm
from hdpmf.models.validation import group_names, measure

RATINGS = hdpmf.synthetic_world(n_users=80, n_items=50, n_ratings=1600, rng=3)
TRAIN, TEST = RATINGS.hold_out(6, rng=0)


def test_cross_validation_is_fit_and_score_on_each_fold() -> None:
    found = hdpmf.cross_validate(hdpmf.BiasedMF(epochs=4, rng=0), RATINGS, folds=3, rng=5)
    errors = [
        hdpmf.BiasedMF(epochs=4, rng=0).fit(train).score(test)["mse"]
        for train, test in RATINGS.k_fold(3, rng=5)
    ]
    assert [row["mse"] for row in found.rows()] == pytest.approx(errors)
    assert found.mean["mse"] == pytest.approx(np.mean(errors))
    assert found.std["mse"] == pytest.approx(np.std(errors, ddof=1))
    assert "mean" in str(found)
    assert len(found.to_frame()) == 3


def test_weights_go_along_whether_drawn_or_given() -> None:
    model = hdpmf.HDPSum(rng=0)
    per_rating = PrivacyWeights.per_rating(RATINGS, np.linspace(0.1, 1.0, len(RATINGS)))
    expected = []
    own = per_rating.for_ratings(RATINGS)
    pairs = zip(RATINGS.user_codes.tolist(), RATINGS.item_codes.tolist(), strict=True)
    table = dict(zip(pairs, own.tolist(), strict=True))
    for train, test in RATINGS.k_fold(2, rng=0):
        pairs = zip(train.user_codes.tolist(), train.item_codes.tolist(), strict=True)
        weights = PrivacyWeights.per_rating(train, [table[pair] for pair in pairs])
        # A user's share in the list of weights is the whole table's, as it is known before.
        weights.beta = per_rating.beta
        expected.append(hdpmf.HDPSum(rng=0).fit(train, weights).score(test)["mse"])
    found = hdpmf.cross_validate(model, RATINGS, weights=per_rating, folds=2)
    assert [row["mse"] for row in found.rows()] == pytest.approx(expected)
    drawn = hdpmf.cross_validate(model, RATINGS, weights=PrivacySpec(), folds=2)
    uniform = hdpmf.cross_validate(model, RATINGS, folds=2)
    assert len({drawn.mean["mse"], uniform.mean["mse"], found.mean["mse"]}) == 3


def test_all_pairs_are_scipys_tests_with_holms_correction() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=30)
    samples = {"a": base, "b": base + 0.5 + 0.3 * rng.normal(size=30), "c": rng.normal(size=30)}
    tests = {(test.first, test.second): test for test in all_pairs(samples)}
    assert set(tests) == {("a", "b"), ("a", "c"), ("b", "c")}
    for (first, second), test in tests.items():
        assert test.t_p == pytest.approx(ttest_rel(samples[first], samples[second]).pvalue)
        assert test.wilcoxon_p == pytest.approx(wilcoxon(samples[first] - samples[second]).pvalue)
        assert test.difference == pytest.approx((samples[first] - samples[second]).mean())
    ordered = sorted(tests.values(), key=lambda test: test.t_p)
    assert ordered[0].t_holm == pytest.approx(min(1, 3 * ordered[0].t_p))
    assert [test.t_holm for test in ordered] == sorted(test.t_holm for test in ordered)


def test_holm_and_what_cannot_be_tested() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    first, second = holm([math.nan, 0.02])
    assert math.isnan(first)
    assert second == 0.02
    (same,) = all_pairs({"a": [1.0, 2.0], "b": [1.0, 2.0]})
    assert math.isnan(same.t_p)
    assert math.isnan(same.wilcoxon_holm)
    (holed,) = all_pairs({"a": [1.0, math.nan, 3.0, 4.0], "b": [0.0, 1.0, 2.5, math.nan]})
    assert holed.n == 2
    with pytest.raises(ConfigError, match="not measured on the same"):
        all_pairs({"a": [1.0], "b": [1.0, 2.0]})


def test_compare_tests_users_and_measures_lists() -> None:
    table = hdpmf.compare(["biased-mf", "most-popular"], (TRAIN, TEST), lists=True)
    assert table["Most popular"]["mse"] is None
    tests = table.tests()
    names = {row["first"] for row in tests.rows()} | {row["second"] for row in tests.rows()}
    assert names == {row["model"] for row in table} - {"Most popular"}
    model = hdpmf.UserMean().fit(TRAIN)
    errors = (model.predict(TEST.user_ids, TEST.item_ids) - TEST.values) ** 2
    means = np.array(
        [errors[TEST.user_codes == user].mean() for user in np.unique(TEST.user_codes)]
    )
    own = table._samples["User mean"]["mse"]
    assert own[np.isfinite(own)] == pytest.approx(means)
    assert {"ndcg_at_10", "recall_at_10", "coverage_at_10"} <= set(table["Most popular"])
    lists = table.tests("ndcg_at_10")
    assert [test.n for test in lists.tests] == [lists.tests[0].n]
    assert "wilcoxon_holm" in str(lists)
    with pytest.raises(ConfigError, match="lists=True measures"):
        hdpmf.compare([], (TRAIN, TEST)).tests("ndcg_at_10")


def test_comparing_over_folds() -> None:
    table = hdpmf.compare([], RATINGS, folds=2)
    row = table["User mean"]
    expected = hdpmf.cross_validate("user-mean", RATINGS, folds=2)
    assert row["mse"] == pytest.approx(expected.mean["mse"])
    assert row["mse_std"] == pytest.approx(expected.std["mse"])
    with pytest.raises(ConfigError, match="folds are made of one table"):
        hdpmf.compare([], (TRAIN, TEST), folds=2)


def test_groups_of_users() -> None:
    model = hdpmf.UserMean().fit(TRAIN)
    errors = (model.predict(TEST.user_ids, TEST.item_ids) - TEST.values) ** 2
    names = group_names("activity", TRAIN, TEST)
    found = measure(model, TRAIN, TEST, groups="activity").metrics
    for name in ("few", "some", "many"):
        assert found[f"mse_{name}"] == pytest.approx(errors[names[TEST.user_codes] == name].mean())
    counts = TRAIN.user_counts()
    assert counts[names == "few"].max() <= counts[names == "many"].min()
    values = [found[f"mse_{name}"] for name in ("few", "some", "many")]
    assert found["mse_gap"] == pytest.approx(max(values) - min(values))
    users = TEST.users.ids.tolist()
    own = measure(model, TRAIN, TEST, groups={users[0]: "one", users[1]: "two"}).metrics
    assert {name for name in own if name.startswith("mse_")} == {"mse_one", "mse_two", "mse_gap"}
    with pytest.raises(ConfigError, match="no user of the test"):
        group_names({"nobody": "x"}, TRAIN, TEST)
    with pytest.raises(ConfigError, match="'activity', or a mapping"):
        group_names("gender", TRAIN, TEST)  # type: ignore[arg-type]


def test_a_grid_search_tries_all_and_chooses_the_best() -> None:
    model = hdpmf.BiasedMF(epochs=3, rng=0)
    grid = {"reg": [0.01, 1.0], "n_factors": [2, 3]}
    found = hdpmf.grid_search(model, RATINGS, grid, folds=2)
    rows = list(found.rows())
    assert len(rows) == 4
    assert found.best_value == min(row["mse"] for row in rows)
    assert (found.model.reg, found.model.n_factors) == tuple(found.best.values())
    assert found.model.epochs == 3
    assert not hasattr(model, "catalogue_")
    by_lists = hdpmf.grid_search(model, RATINGS, {"reg": [0.01, 1.0]}, folds=2, by="ndcg_at_10")
    assert by_lists.best_value == max(row["ndcg_at_10"] for row in by_lists.rows())
    assert "best by ndcg_at_10" in str(by_lists)


@pytest.mark.parametrize(
    ("grid", "options", "says"),
    [
        ({}, {}, "nothing to try"),
        ({"reg": []}, {}, "nothing to try for reg"),
        ({"regg": [1]}, {}, "no parameter 'regg'"),
        ({"reg": [0.1]}, {"by": "mes"}, "a search is by mse, mae"),
    ],
)
def test_a_search_that_cannot_be(grid, options, says) -> None:
    with pytest.raises(ConfigError, match=says):
        hdpmf.grid_search(hdpmf.BiasedMF(epochs=2), RATINGS, grid, folds=2, **options)


def test_a_search_of_a_private_method_warns_and_survives_divergence() -> None:
    with pytest.warns(UserWarning, match="epsilon does not cover that choice"):
        hdpmf.grid_search("hdp-sum", RATINGS, {"epsilon": [0.5, 1.0]}, folds=2)
    model = hdpmf.MF(n_factors=2, epochs=5, rng=0)
    found = hdpmf.grid_search(model, RATINGS, {"learning_rate": [0.01, 1e6]}, folds=2)
    assert found.best == {"learning_rate": 0.01}
    assert "message" in list(found.rows())[1]
    with pytest.raises(DivergedError, match="every combination"):
        hdpmf.grid_search(model, RATINGS, {"learning_rate": [1e6]}, folds=2)
