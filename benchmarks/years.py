"""A service that runs for years: ML-1M replayed by its timestamps.

    python benchmarks/years.py                                     # five seeds
    python benchmarks/years.py --lists --seeds 2 --epsilon 1 --noises 1 --cuts time

The training ratings (the paper's split: ten test ratings per user, drawn anew for each seed, with
the paper's weights) are cut by time into runs, of equal time or of equal numbers of ratings. Each
rating is released once, in the run after it was made, by the shard's own code, with the noise of
that run: twice as two servers make it, or once. The recommender's own code makes item facts of all
runs: weighed by what they hold, or by plain addition. Devices then fit their vectors to all of
their own ratings, and test ratings are predicted, of those who came late too. "At once" is one run
over everything at the end.

All items are in the catalogue from the first day. Items that were added later would
have less noise than here: runs that do not know an item bring none. Lists correct popularity for
item weights as if there were the noise of one run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hdpmf import HDPSum, PrivacySpec, PrivacyWeights, Ratings, load_dataset, make_model
from hdpmf.common.data.item_features import fingerprint
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import ItemFacts, SumContribution
from hdpmf.models.one_round import wanted_features
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.untrusted.recommender.runs import SurveyAnswer
from hdpmf.untrusted.recommender.sums import facts_from_sums, make_survey
from lists import find_data

Row = dict[str, Any]


class Replay:
    """One seed's people and ratings at one epsilon, ready to be asked in any number of runs."""

    def __init__(self, train: Ratings, weights: PrivacyWeights, epsilon: float, seed: int) -> None:
        if train.timestamps is None:
            raise SystemExit("these ratings have no timestamps; use ml-100k or ml-1m")
        self.train, self.weights, self.epsilon, self.seed = train, weights, epsilon, seed
        self.times = train.timestamps.astype(np.float64)
        self.features = wanted_features("auto", train)
        self.survey = make_survey(
            "A",
            epsilon,
            train.scale,
            n_items=train.n_items,
            catalogue=fingerprint(train.items, self.features),
            contributors=train.n_users,
        )
        self.columns = None if self.features is None else self.features.matrix

    def cut(self, how: str, n_runs: int) -> np.ndarray:
        """The run of each rating."""
        if how == "time":
            begin, end = self.times.min(), self.times.max()
            return np.minimum((self.times - begin) / (end - begin) * n_runs, n_runs - 1).astype(
                np.intp
            )
        place = np.empty(len(self.times), np.intp)
        place[np.argsort(self.times, kind="stable")] = np.arange(len(self.times))
        return place * n_runs // len(place)

    def release(self, rows: np.ndarray, run: int, noises: int) -> SurveyAnswer:
        """These ratings in a run of everybody's: those with nothing new add their share of the
        noise, too.
        """
        parts = []
        for server in range(
            noises
        ):  # each server adds the whole noise; the second here to no ratings
            own = rows if server == 0 else rows[:0]
            shard = OneRoundClient(
                self.train.take(own),
                self.weights.take(own),
                SeededNoise(self.seed, stream=1000 + 10 * run + server),
                epsilon=self.epsilon,
                catalogue=self.survey.catalogue,
                n_users=self.train.n_users,
                simulation=True,
            )
            shard.accept(self.survey)
            parts.append(shard.contribute())
        sums = [part for part in parts if isinstance(part, SumContribution)]
        together = SumContribution(
            scores=np.sum([part.scores for part in sums], axis=0),
            weights=np.sum([part.weights for part in sums], axis=0),
            total=sum(part.total for part in sums),
        )
        return SurveyAnswer(self.survey, together, noises)

    def runs(self, how: str, n_runs: int, noises: int) -> list[SurveyAnswer]:
        """What so many runs release; "same": all ratings in each, which devices do not do."""
        if how == "same":
            everything = np.arange(len(self.times))
            return [self.release(everything, number, noises) for number in range(n_runs)]
        run = self.cut(how, n_runs)
        return [
            self.release(np.flatnonzero(run == number), number, noises) for number in range(n_runs)
        ]

    def weighed(self, runs: Sequence[SurveyAnswer]) -> ItemFacts:
        """By the recommender."""
        *earlier, last = runs
        return facts_from_sums(self.survey, last.answer, self.columns, last.noises, earlier)

    def added(self, runs: Sequence[SurveyAnswer]) -> ItemFacts:
        """By plain addition: as if all of it were one run."""
        answers, noises = [run.answer for run in runs], sum(run.noises for run in runs)
        plain = SumContribution(
            scores=np.sum([answer.scores for answer in answers], axis=0),
            weights=np.sum([answer.weights for answer in answers], axis=0),
            total=sum(answer.total for answer in answers),
        )
        return facts_from_sums(self.survey, plain, self.columns, noises)

    def model(self, facts: ItemFacts) -> HDPSum:
        """What people have on their devices."""
        return HDPSum(epsilon=self.epsilon, rng=self.seed, n_threads=1).with_facts(
            self.train, self.weights, facts
        )


def measure(replay: Replay, test: Ratings, given: argparse.Namespace) -> Iterator[Row]:
    """All rows of one seed and epsilon."""

    def row(cut: str, runs: Sequence[SurveyAnswer], noises: int, way: str) -> Row:
        model = replay.model(replay.added(runs) if way == "added" else replay.weighed(runs))
        found: Row = {
            "cut": cut,
            "runs": len(runs),
            "noises": noises,
            "way": way,
            "epsilon": replay.epsilon,
        }
        found |= {"seed": replay.seed, "mse": float(model.score(test)["mse"])}
        return found | ({"ndcg": float(model.rank(test)["ndcg"])} if given.lists else {})

    for noises in given.noises:
        yield row("-", replay.runs("time", 1, noises), noises, "at once")
        for cut in given.cuts:
            for n_runs in given.runs:
                runs = replay.runs(cut, n_runs, noises)
                yield row(cut, runs, noises, "added")
                yield row(cut, runs, noises, "weighed")


def yardsticks(
    train: Ratings, weights: PrivacyWeights, test: Ratings, seed: int, lists: bool
) -> Iterator[Row]:
    """Without runs: what nobody has to be asked for, and what there would be without noise."""
    models = {
        "user mean, nothing released": make_model("user-mean"),
        "hdp-sum of nothing but noise": HDPSum(epsilon=1e-3, rng=seed, n_threads=1),
        "hdp-sum without noise": HDPSum(epsilon=1e4, rng=seed, n_threads=1),
        "mf, not private": make_model("mf", solver="sequential", rng=seed),
    }
    for way, model in models.items():
        model.fit(train, weights)
        row = {"cut": "-", "runs": 0, "noises": 0, "way": way, "epsilon": None, "seed": seed}
        row["mse"] = float(model.score(test)["mse"])
        yield row | (
            {"ndcg": float(model.rank(test)["ndcg"])}
            if lists and way != "user mean, nothing released"
            else {}
        )


def table(rows: list[Row], epsilons: Sequence[float], measured: str) -> Iterator[str]:
    """Means over seeds, one column for each epsilon."""
    yield (
        f"| {measured} | noises | "
        + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons)
        + " |"
    )
    yield "|---|---|" + "---|" * len(epsilons)
    keys = list(dict.fromkeys((row["cut"], row["way"], row["runs"]) for row in rows))
    for cut, way, n_runs in keys:
        alike = [r for r in rows if (r["cut"], r["way"], r["runs"]) == (cut, way, n_runs)]
        for noises in dict.fromkeys(row["noises"] for row in alike):
            cells = []
            for epsilon in epsilons:
                found = [
                    r
                    for r in alike
                    if r["noises"] == noises and r["epsilon"] in (epsilon, None) and measured in r
                ]
                values = [row[measured] for row in found]
                cell = f"{statistics.mean(values):.4f}" if values else ""
                if len(values) > 1:
                    cell += f" ({statistics.stdev(values):.4f})"
                cells.append(cell)
            words = {
                "-": way,
                "same": f"{n_runs} of the same ratings, {way}",
            }.get(cut, f"{n_runs} of equal {cut}, {way}")
            if any(cells):
                yield f"| {words} | {noises or ''} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 2.0])
    parser.add_argument("--runs", type=int, nargs="+", default=[4, 12, 52])
    parser.add_argument(
        "--cuts", nargs="+", choices=("time", "number", "same"), default=["time", "number"]
    )
    parser.add_argument(
        "--noises",
        type=int,
        nargs="+",
        choices=(1, 2),
        default=[1, 2],
        help="two servers 2",
    )
    parser.add_argument("--lists", action="store_true", help="NDCG@10 of lists, too")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    find_data()
    rows: list[Row] = []
    for seed in range(given.seeds):
        train, test = load_dataset(given.data).hold_out(per_user=10, rng=seed)
        weights = PrivacySpec().draw(train, rng=seed)
        rows += yardsticks(train, weights, test, seed, given.lists)
        for epsilon in given.epsilon:
            for row in measure(Replay(train, weights, epsilon, seed), test, given):
                rows.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
    if given.json:
        print(json.dumps({"data": given.data, "seeds": given.seeds, "rows": rows}))
        return
    for measured in ("mse", "ndcg") if given.lists else ("mse",):
        print(f"{given.data}, {given.seeds} seeds: mean (deviation)\n")
        print("\n".join(table(rows, given.epsilon, measured)) + "\n")


if __name__ == "__main__":
    main()
