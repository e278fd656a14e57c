"""Our estimators where scikit-learn's are: cloned, cross-validated, searched over a grid."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf import MF, BiasedMF, HDPSum, UserMean
from hdpmf.common.methods import METHODS
from hdpmf.errors import RatingsError

base = pytest.importorskip("sklearn.base")
checks = pytest.importorskip("sklearn.utils.estimator_checks")
selection = pytest.importorskip("sklearn.model_selection")


@pytest.fixture(scope="module")
def pairs(world):
    return np.column_stack([world.user_ids, world.item_ids]), world.values


def test_a_grid_is_searched(pairs):
    search = selection.GridSearchCV(
        BiasedMF(n_factors=4, epochs=10, rng=0), {"reg": [0.05, 50.0]}, cv=3
    )
    search.fit(*pairs)
    assert search.best_params_ == {"reg": 0.05}
    assert search.predict(pairs[0][:5]).shape == (5,)
    search.scoring = "neg_mean_squared_error"
    found = search.best_score_
    assert search.fit(*pairs).best_score_ == pytest.approx(found, abs=1e-6)


def test_cross_validation(pairs):
    found = selection.cross_validate(
        HDPSum(rng=0), *pairs, cv=3, scoring=("neg_mean_squared_error", "r2")
    )
    assert len(found["test_neg_mean_squared_error"]) == 3
    mean = selection.cross_validate(UserMean(), *pairs, cv=3)["test_score"].mean()
    assert found["test_neg_mean_squared_error"].mean() > mean


def test_frames_of_pairs(world):
    import pandas as pd

    frame = pd.DataFrame(
        {"item": world.item_ids, "user": world.user_ids.astype(str)}
    )  # by name, not by place
    model = UserMean().fit(frame, world.values)
    expected = UserMean().fit(world).predict(world.user_ids[:9], world.item_ids[:9])
    assert model.predict(frame[:9]).tolist() == expected.tolist()
    scores = selection.cross_val_score(
        UserMean(), frame, world.values * 2 - 1, cv=2, params={"scale": (1, 9)}
    )
    assert (scores < 0).all()
    with pytest.raises(RatingsError, match="two columns"):
        model.predict(np.zeros((3, 4)))


@pytest.mark.parametrize("name", METHODS)
def test_the_checks_of_scikit_learn_that_apply(name):
    model = METHODS[name].configure()
    for check in (
        checks.check_no_attributes_set_in_init,
        checks.check_get_params_invariance,
        checks.check_estimator_cloneable,
        checks.check_estimator_repr,
        checks.check_valid_tag_types,
    ):
        check(type(model).__name__, model)
    assert base.clone(model).get_params() == model.get_params()
    assert base.is_regressor(MF())
