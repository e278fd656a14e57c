import numpy as np
import pytest

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.privacy import Group, PrivacySpec, PrivacyWeights
from hdpmf.errors import PrivacyError


@pytest.fixture(scope="module")
def world():
    return synthetic_world(n_users=1000, n_items=600, n_ratings=20_000, rng=0)


def test_the_defaults_are_table_two():
    users, items = PrivacySpec().user_groups, PrivacySpec().item_groups
    assert [(g.name, round(g.ratio, 9), g.low, g.high) for g in users] == [
        ("conservative", 0.54, 0.1, 0.5), ("moderate", 0.37, 0.5, 1.0), ("liberal", 0.09, 1.0, 1.0),
    ]  # fmt: skip
    assert [round(g.ratio, 9) for g in items] == [0.33, 0.33, 0.34]
    assert PrivacySpec.paper() == PrivacySpec()


def test_draws_follow_the_groups(world):
    weights = PrivacySpec().draw(world, rng=3)
    beta = weights.beta
    assert ((beta >= 0.1) & (beta < 0.5)).sum() == 540
    assert ((beta >= 0.5) & (beta < 1)).sum() == 370
    assert (beta == 1).sum() == 90
    assert weights.for_ratings(world) == pytest.approx(
        beta[world.user_codes] * weights.gamma[world.item_codes]
    )
    again = PrivacySpec().draw(world, rng=3)
    assert np.array_equal(beta, again.beta)
    assert not np.array_equal(beta, PrivacySpec().draw(world, rng=4).beta)


def test_varied_by_the_papers_names(world):
    beta = PrivacySpec.paper(f_uc=0.1, epsilon_uc=0.3).draw(world, rng=0).beta
    assert beta.min() >= 0.3
    assert ((beta >= 0.3) & (beta < 0.5)).sum() == 100
    assert (beta == 1).sum() == 530


def test_any_groups(world):
    spec = PrivacySpec(
        user_groups=(Group("everyone", 1.0, 0.7, 0.7),), item_groups=(Group("all", 1.0, 1.0, 1.0),)
    )
    assert set(spec.draw(world, rng=0).for_ratings(world)) == {0.7}


@pytest.mark.parametrize(
    "make",
    [
        lambda: PrivacySpec(user_groups=(Group("a", 0.5, 0.1, 0.2),)),
        lambda: PrivacySpec.paper(f_uc=0.9, f_um=0.3),
        lambda: Group("a", 1.5, 0.1, 0.2),
        lambda: Group("a", float("nan"), 0.1, 0.2),
        lambda: Group("a", 1.0, 0.0, 0.2),
        lambda: Group("a", 1.0, 0.3, 0.2),
        lambda: Group("a", 1.0, 0.3, 1.2),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(PrivacyError):
        make()


TABLE = Ratings.from_arrays(["a", "a", "b"], [1, 2, 1], [5, 3, 1])


def test_explicit_weights():
    by_user = PrivacyWeights.from_parts(TABLE, users={"b": 0.5, "a": 0.25}, items=[1.0, 0.5])
    assert by_user.for_ratings(TABLE).tolist() == [0.25, 0.125, 0.5]
    assert PrivacyWeights.uniform(TABLE, 0.5).for_ratings(TABLE).tolist() == [0.5, 0.5, 0.5]
    rated = PrivacyWeights.per_rating(TABLE, [0.1, 0.3, 0.9])
    assert rated.for_ratings(TABLE).tolist() == [0.1, 0.3, 0.9]
    assert rated.beta.tolist() == pytest.approx([0.2, 0.9])


@pytest.mark.parametrize("bad", [0.0, -0.1, 1.1, float("nan"), float("inf")])
def test_weights_outside_zero_to_one_are_refused(bad):
    with pytest.raises(PrivacyError, match=r"\(0, 1\]"):
        PrivacyWeights.from_parts(TABLE, users=bad)
    with pytest.raises(PrivacyError, match=r"\(0, 1\]"):
        PrivacyWeights.per_rating(TABLE, [0.5, bad, 0.5])


def test_missing_weights_are_refused():
    with pytest.raises(PrivacyError, match="have none"):
        PrivacyWeights.from_parts(TABLE, users={"a": 0.5})
    with pytest.raises(PrivacyError, match="not in the ratings"):
        PrivacyWeights.from_parts(TABLE, users={"a": 0.5, "z": 0.5})
    with pytest.raises(PrivacyError, match="shape"):
        PrivacyWeights.from_parts(TABLE, items=[0.5])
    other = Ratings.from_arrays(["c"], [1], [4])
    with pytest.raises(PrivacyError, match="no privacy weight"):
        PrivacyWeights.uniform(TABLE).for_ratings(other)
    with pytest.raises(PrivacyError, match="belong to a table"):
        PrivacyWeights.per_rating(TABLE, [0.5, 0.5, 0.5]).for_ratings(other)


def test_repr_shows_no_weight():
    assert "0.123" not in repr(PrivacyWeights.uniform(TABLE, 0.123))
