"""Half a year of ML-100K in twelve runs: weighing them pays, by predictions of ratings held out."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf import HDPSum, PrivacySpec, load_dataset
from hdpmf.common.data.item_features import fingerprint
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import SumContribution
from hdpmf.models.one_round import wanted_features
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.untrusted.recommender.runs import SurveyAnswer
from hdpmf.untrusted.recommender.sums import facts_from_sums, make_survey

RUNS = 12


@pytest.mark.slow
def test_twelve_runs_of_equal_time_are_better_weighed_than_added_and_worse_than_one(data_folder):
    """At epsilon 1, one seed. ``python benchmarks/years.py --data ml-100k`` gives .934, .984 and
    .994.
    """
    train, test = load_dataset("ml-100k").hold_out(per_user=10, rng=0)
    weights, features = PrivacySpec().draw(train, rng=0), wanted_features("auto", train)
    survey = make_survey(
        "A", 1.0, train.scale, n_items=train.n_items, catalogue=fingerprint(train.items, features),
        contributors=train.n_users,
    )  # fmt: skip

    def released(rows, run):
        shard = OneRoundClient(
            train.take(rows),
            weights.take(rows),
            SeededNoise(0, stream=1000 + 10 * run),
            epsilon=1.0,
            catalogue=survey.catalogue,
            simulation=True,
        )
        shard.accept(survey)
        return shard.contribute()

    times = train.timestamps
    run_of = np.minimum((times - times.min()) * RUNS // (times.max() - times.min()), RUNS - 1)
    *before, last = (released(np.flatnonzero(run_of == run), run) for run in range(RUNS))
    columns = features.matrix
    once = facts_from_sums(survey, released(np.arange(len(train)), 0), columns)
    earlier = [SurveyAnswer(survey, answer) for answer in before]
    weighed = facts_from_sums(survey, last, columns, earlier=earlier)
    plain = SumContribution(
        scores=sum(part.scores for part in (*before, last)),
        weights=sum(part.weights for part in (*before, last)),
        total=sum(part.total for part in (*before, last)),
    )
    added = facts_from_sums(survey, plain, columns, RUNS)
    errors = [
        HDPSum(epsilon=1.0, n_threads=1).with_facts(train, weights, facts).score(test)["mse"]
        for facts in (once, weighed, added)
    ]
    assert errors[0] + 0.02 < errors[1] < errors[2] - 0.005
