"""Taste labels end to end: HDPSum(labels=True), and priors that know a score."""

import json

import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.model.priors import POPULARITY, SHIPPED, Labels, load_prior
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.privacy.accounting import cost
from hdpmf.common.privacy.accounting.setting import Setting
from hdpmf.errors import ConfigError, ModelFileError
from hdpmf.models import HDPSum, Prior, load_model
from hdpmf.models.prior_learning import learn_prior, learn_score

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prior():
    public = synthetic_world(n_users=200, n_items=90, n_ratings=8000, rng=5)
    return learn_prior(
        public, name="p", origin={"dataset": "w", "title": "public", "declared": "public"}
    )


@pytest.fixture(scope="module")
def many():
    """Enough users that there are heads."""
    return synthetic_world(n_users=1500, n_items=90, n_ratings=50_000, rng=7).hold_out(
        per_user=5, rng=0
    )


def test_a_run_by_labels(prior, many, tmp_path):
    train, test = many
    weights = PrivacySpec().draw(train, rng=0)
    scores = []
    for n_threads in (1, 3):
        model = HDPSum(2.0, labels=True, prior=prior, n_threads=n_threads, rng=0).fit(
            train, weights
        )
        scores.append(model.score(test))
    assert scores[0] == scores[1]
    assert model.facts_.patterns.shape == (train.n_items, 1)
    assert model.facts_.patterns.any()
    assert "pattern 1" in model.feature_names_
    assert model.privacy.epsilon == 2.0
    assert "label" in model.privacy.reason
    plain = HDPSum(2.0, prior=prior, rng=0).fit(train, weights)
    assert plain.score(test) != scores[0]
    assert plain.facts_.patterns.shape == (train.n_items, 0)
    assert (
        scores[0]["mse"] < plain.score(test)["mse"] * 1.02
    )  # labels cost little where they tell nothing
    model.save(tmp_path / "m")
    back = load_model(tmp_path / "m")
    assert back.labels is True
    assert back.score(test) == scores[0]
    assert "label" not in json.dumps(
        json.loads((tmp_path / "m" / "devices" / "devices.json").read_text())
    )


def test_labels_need_features_and_a_score(prior, many):
    train, _ = many
    for options in ({}, {"prior": prior, "features": False}, {"prior": Prior(
        "old", {}, prior.columns, prior.means, prior.covariance, prior.noise
    )}):  # fmt: skip
        with pytest.raises(ConfigError, match="taste labels are drawn by a public score"):
            HDPSum(labels=True, rng=0, **options).fit(train)
    with pytest.raises(ConfigError, match="design A"):
        HDPSum(labels=True, design="S", prior=prior).fit(train)
    with pytest.raises(ConfigError, match="True or False"):
        HDPSum(labels=2, prior=prior).fit(train)


def test_a_score_without_a_prior_for_its_column_will_do(prior, many):
    train, test = many
    bare = Prior(
        "p",
        {},
        prior.columns,
        prior.means,
        prior.covariance,
        prior.noise,
        Labels(prior.labels.score, None),
    )
    model = HDPSum(2.0, labels=True, prior=bare, rng=0).fit(train)
    assert np.isfinite(model.score(test)["mse"])


def test_priors_keep_their_labels_in_the_file(prior, tmp_path):
    assert set(prior.labels.score) == {
        *(
            n
            for n in prior.columns
            if n.startswith(("genre:", "year")) and "&" not in n and "*" not in n
        ),
        POPULARITY,
    }
    assert prior.labels.prior.columns == (*prior.columns[:6], "pattern 1", *prior.columns[6:])
    prior.save(tmp_path / "p.json")
    back = Prior.read(tmp_path / "p.json")
    assert back.labels.score.keys() == prior.labels.score.keys()
    np.testing.assert_allclose(
        back.labels.prior.covariance, prior.labels.prior.covariance, rtol=2e-3, atol=1e-6
    )
    plain = json.loads((tmp_path / "p.json").read_text())
    for damage in (
        {"score": {"a": "x"}, "prior": None},
        {"prior": None},
        {"score": [], "prior": None},
        {"score": {}},
    ):
        (tmp_path / "q.json").write_text(json.dumps(plain | {"labels": damage}))
        with pytest.raises(ModelFileError, match="not a prior"):
            Prior.read(tmp_path / "q.json")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_priors_know_labels(name):
    labels = load_prior(name).labels
    assert "pattern 1" in labels.prior.columns
    assert labels.score[POPULARITY] != 0
    assert "genre:Drama" in labels.score


def test_the_score_finds_the_side_that_tells_how_people_rate():
    """Users who choose one kind of items rate single items differently; what is chosen by lot
    tells nothing.
    """
    rng = np.random.default_rng(0)
    n_users, n_items = 600, 60
    kind, telling, idle = (
        rng.random(n_users) < 0.5,
        rng.choice([0.0, 1.0], n_items),
        rng.choice([0.0, 1.0], n_items),
    )
    odds = np.where(telling[None] == kind[:, None], 0.5, 0.2) * np.where(idle[None] == 1, 1.0, 0.9)
    users, items = np.nonzero(rng.random((n_users, n_items)) < odds)
    taste = rng.normal(0, 0.5, n_items)
    values = np.clip(
        np.rint(3 + np.where(kind[users], 1, -1) * taste[items] + rng.normal(0, 0.7, len(users))),
        1,
        5,
    )
    from hdpmf.common.data import Ratings

    table = Ratings.from_arrays(users, items, values, scale=(1, 5, 1))
    features = ItemFeatures(
        ("telling", "idle"), np.column_stack([telling, idle]), np.full(2, 12.0), "made up"
    )
    score = learn_score(table, features)
    assert abs(score["telling"]) > 4 * abs(score["idle"])
    assert score == learn_score(table, features)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
def test_what_labels_cost(epsilon):
    model = HDPSum(epsilon, labels=True)
    setting = Setting.from_params("hdp-sum", model.get_params())
    for view in ("sums", "final"):
        assert cost(setting, view, weight=0.5).pure == pytest.approx(0.5 * epsilon)
        there = cost(setting, view, weight=0.5, neighbours="presence")
        assert there.pure == pytest.approx((0.75 - 0.25 + 1 / 6 + 1 / 8 + 0.2) * 0.5 * epsilon)
        assert there.pure <= 0.992 * 0.5 * epsilon
        assert there.status == "proved"
    for unit in ("user", "item"):
        assert cost(
            setting, "sums", unit=unit, weight=[0.25, 1.0], neighbours="presence"
        ).pure == pytest.approx(1.25 * epsilon * 0.99166667)
    # An item's raters draw labels of their own, a user's ratings move one: squares add up to less.
    user, item = (
        cost(setting, "sums", unit=unit, weight=[0.5, 0.5], neighbours="presence").event.events
        for unit in ("user", "item")
    )
    assert [type(part).__name__ for part in user].count("RandomizedBit") == 1
    assert [type(part).__name__ for part in item].count("RandomizedBit") == 2
    assert cost(setting, "messages").status == "no guarantee"
    with pytest.raises(ConfigError, match="taste labels"):
        Setting("hdp-bit", labels=True)
