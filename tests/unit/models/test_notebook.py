"""What notebooks show of ratings, models, claims and lists: counts and claims, nothing private."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from hdpmf import HDPMF, HDPBit, HDPSum, PrivacyWeights, Ratings, UserMean
from hdpmf.common.data import synthetic_world
from hdpmf.models.result_tables import RecommendedList

# Values that nothing else could print by chance.
ODD = Ratings.from_arrays(
    ["u-4711", "u-4711", "u-0815", "u-0815"],
    ["x<b>", "y", "x<b>", "z"],
    [1.234375, 4.765625, 3.515625, 2.640625],
    timestamps=[86_400 * day for day in range(4)],
)
WEIGHT = 0.484375
SECRETS = ("1.234", "4.765", "3.515", "2.640", "0.484", "u-4711", "u-0815")


def test_ratings_show_counts_only() -> None:
    shown = ODD._repr_html_()
    assert "<td style='text-align:left'>4</td>" in shown
    assert "1..5" in shown
    assert not any(secret in shown for secret in (*SECRETS, "x&lt;b&gt;"))
    assert "implicit feedback" in Ratings.of([(1, 2)], implicit=True)._repr_html_()
    named = ODD.describe(name="<script>alert(1)</script>")._repr_html_()
    assert "<script>" not in named


@pytest.mark.parametrize(
    "make", [lambda: HDPSum(rng=0), lambda: HDPBit(rng=0), lambda: HDPMF(epochs=2), UserMean]
)
@pytest.mark.filterwarnings("ignore:.*far from converged")
def test_models_show_options_size_and_claim_and_nothing_private(make: Any) -> None:
    assert "not yet" in make()._repr_html_()
    model = make().fit(ODD, PrivacyWeights.uniform(ODD, WEIGHT))
    shown = model._repr_html_()
    assert "2 users, 3 items" in shown
    assert not any(secret in shown for secret in SECRETS)
    for vector in model.devices_.vectors.ravel():
        assert vector in (0.0, 1.0) or f"{vector:.4f}" not in shown
    status = model.privacy.status.upper()
    assert status in shown, "never an epsilon without what it is worth"
    assert re.search(r"epsilon</th>.*" + status, shown, re.DOTALL)


def test_a_claim_says_what_it_stands_on() -> None:
    shown = HDPMF(epsilon=0.5).privacy._repr_html_()
    assert "0.5" in shown
    assert "NOMINAL" in shown
    assert "what it really costs" in shown
    assert "SIMULATED" in shown
    fitted = HDPSum(rng=0).fit(ODD).privacy._repr_html_()
    assert "PROVED" in fitted
    assert "that is not covered" in fitted
    assert ">none<" in UserMean.__mro__[1]().fit(ODD).privacy._repr_html_()


def test_one_users_list_is_a_table() -> None:
    world = synthetic_world(n_users=40, n_items=30, n_ratings=500, rng=0)
    model = HDPSum(rng=0).fit(world)
    found = model.recommend(int(world.users.ids[0]), 3)
    assert isinstance(found, RecommendedList)
    assert isinstance(found, list)
    shown = found._repr_html_()
    assert shown.count("<tr>") == 4
    assert found[0].title is not None
    assert found[0].title in shown
    frame = found.to_frame()
    assert frame["rank"].to_list() == [1, 2, 3]
    several = model.recommend(world.users.ids[:2], 3)
    assert several.to_frame().columns == ["user", *frame.columns]
    assert np.array_equal(several.to_frame()["item"].to_numpy()[:3], frame["item"].to_numpy())
    empty = model.recommend(int(world.users.ids[0]), 3)[:0]
    assert empty == []
