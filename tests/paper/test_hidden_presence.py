"""Lists where presence is hidden, on the real data: NDCG@10, the mean of five seeds at epsilon 1
(docs/lists.md).
"""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf import HDPPairs, HDPSum, PrivacySpec, load_dataset
from hdpmf.models import MostPopular

pytestmark = pytest.mark.paper


@pytest.mark.usefixtures("data_folder")
@pytest.mark.parametrize(("data", "bound"), [("ml-100k", 0.175), ("ml-1m", 0.180)])
def test_lists_reach_what_the_page_says(data: str, bound: float) -> None:
    found, popular = [], []
    for seed in range(5):
        train, test = load_dataset(data).hold_out(per_user=10, rng=seed)
        weights = PrivacySpec().draw(train, rng=seed)
        found.append(HDPSum(rng=seed).fit(train, weights).rank(test)["ndcg"])
        if seed == 0:
            popular.append(MostPopular().fit(train).rank(test)["ndcg"])
    assert np.mean(found) > bound
    assert min(found) > 1.2 * popular[0]  # exact counts, not private


@pytest.mark.usefixtures("data_folder")
def test_a_persons_budget_buys_lists_and_stars() -> None:
    """As ``python benchmarks/pairs.py --data ml-100k`` prints, less its spread over seeds."""
    lists, stars, errors = [], [], []
    for seed in range(3):
        train, test = load_dataset("ml-100k").hold_out(per_user=10, rng=seed)
        lists.append(HDPPairs(8.0, stars=False, rng=seed).fit(train).rank(test)["ndcg"])
        both = HDPPairs(8.0, rng=seed).fit(train)
        stars.append(both.rank(test)["ndcg"])
        errors.append(both.score(test)["mse"])
    assert np.mean(lists) > 0.25
    assert np.mean(stars) > 0.24
    assert np.mean(errors) < 0.935
