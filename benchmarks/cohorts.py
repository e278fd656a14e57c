"""What cohorts cost in accuracy: python benchmarks/cohorts.py [--data ml-1m | --users N].

A secure sum is over a cohort of bounded size. The recommender sees the sum of every cohort, so each
of them carries the whole noise, and what they add up to carries it as many times as there are
cohorts. Here users are dealt to 1, 2, 4, ... cohorts, each cohort's contribution is made by the
shard's own code, and the recommender's own post-processing makes item facts from all of them. No
masks: they change no sum.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from hdpmf import PrivacySpec, PrivacyWeights, Ratings, load_dataset
from hdpmf.common.data.item_features import ItemFeatures, fingerprint
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import SumContribution, Survey
from hdpmf.models.one_round import HDPSum
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.untrusted.recommender import OneRoundRecommender
from hdpmf.untrusted.recommender.one_round import make_survey
from one_round import world


class Cohorts(HDPSum):
    """HDPSum whose users are dealt to cohorts."""

    def learn(self, train: Ratings, weights: PrivacyWeights, n_cohorts: int) -> Cohorts:
        """As ``fit``, with so many cohorts."""
        self._n_cohorts = n_cohorts
        return self.fit(train, weights)

    def _ask(
        self, train: Ratings, weights: PrivacyWeights, features: ItemFeatures | None, prior: object
    ):  # type: ignore[no-untyped-def]
        """Every cohort has a secure sum of its own."""
        survey = make_survey(
            "A",
            self.epsilon,
            train.scale,
            n_items=train.n_items,
            catalogue=fingerprint(train.items, features),
            contributors=train.n_users,
        )
        answers = contributions(train, weights, survey, self._n_cohorts, int(self.rng))  # type: ignore[call-overload]
        return OneRoundRecommender(survey, features).facts(answers, n_sums=len(answers)), 0


def contributions(
    train: Ratings, weights: PrivacyWeights, survey: Survey, n_cohorts: int, seed: int
) -> list[SumContribution]:
    dealt = np.random.default_rng([seed, n_cohorts]).integers(0, n_cohorts, train.n_users)
    cohort = dealt[train.user_codes]
    order = np.argsort(cohort, kind="stable")
    bounds = np.searchsorted(cohort[order], np.arange(n_cohorts + 1))
    answers = []
    for number in range(n_cohorts):
        part = train.take(order[bounds[number] : bounds[number + 1]])
        size = int(np.count_nonzero(dealt == number))
        shard = OneRoundClient(
            part, weights, SeededNoise(seed, stream=100 + number),
            epsilon=survey.epsilon, catalogue=survey.catalogue, n_users=size, simulation=True,
        )  # fmt: skip
        shard.accept(_with_contributors(survey, size))
        answers.append(shard.contribute())
    return answers


def _with_contributors(survey: Survey, n: int) -> Survey:
    fields = {name: getattr(survey, name) for name in survey.__struct_fields__}
    return Survey(**{**fields, "contributors": n})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="ml-1m", help="a data set, 10 test ratings per user")
    parser.add_argument(
        "--users",
        type=int,
        help="a synthetic world of so many users instead (about 100 ratings each)",
    )
    parser.add_argument("--items", type=int, default=20_000, help="items of the synthetic world")
    parser.add_argument("--cohorts", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=1.0)
    given = parser.parse_args()
    for n_cohorts in given.cohorts:
        errors = []
        for seed in range(given.seeds):
            if given.users:
                train, test = world(given.users, given.items, 100, seed)
            else:
                train, test = load_dataset(given.data).hold_out(per_user=10, rng=seed)
            weights = PrivacySpec().draw(train, rng=seed)
            model = Cohorts(epsilon=given.epsilon, rng=seed, n_threads=2).learn(
                train, weights, n_cohorts
            )
            errors.append(float(model.score(test)["mse"]))
        found = {
            "world": given.data
            if not given.users
            else f"{given.users} users x {given.items} items",
            "cohorts": n_cohorts,
            "users_per_cohort": round(train.n_users / n_cohorts),
            "mse": round(float(np.mean(errors)), 4),
            "sd": round(float(np.std(errors, ddof=1)), 4) if len(errors) > 1 else None,
            "seeds": given.seeds,
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
