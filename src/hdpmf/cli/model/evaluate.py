"""``hdpmf evaluate``: train a method and measure it on ratings it has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.model.fitting import facts, fit, make, persons, remarks
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.method_options import ModelOptions
from hdpmf.cli.shared.options import Json, Method, Seed, run_option
from hdpmf.cli.shared.output import claim_sentence, print_json, print_lines, print_table, short_claim
from hdpmf.cli.shared.ratings import ChoicesOrRatings, SplitOptions
from hdpmf.cli.shared.weights import WeightOptions
from hdpmf.methods import METHODS

if TYPE_CHECKING:
    from hdpmf.models import Estimator
    from hdpmf.ratings import Ratings

_BASELINES = ("user-mean", "global-mean")
_LISTED = 10

Ranking = Annotated[
    bool,
    run_option(
        "--ranking",
        help=f"Measure lists of {_LISTED} too: NDCG, recall and coverage, where a test rating in the top quarter of "
        "the scale is relevant and everything that a user has not rated is a candidate.",
    ),
]


class EvaluatedOptions(ModelOptions):
    """All but stopping early: there are no ratings to validate on."""

    without = ("early_stopping",)


@grouped
def evaluate(
    method: Method,
    source: ChoicesOrRatings,
    cut: SplitOptions,
    options: EvaluatedOptions,
    wishes: WeightOptions,
    seed: Seed = 0,
    ranking: Ranking = False,
    json: Json = False,
) -> None:
    """Train METHOD and measure its error on test ratings, beside both trivial baselines."""
    from hdpmf.models import make_model

    model = make(method, options, seed)
    training, held_out = cut.split(source, seed)
    weights = wishes.draw(training, seed, source)
    seconds = fit(method, model, training, weights)
    whole = persons(method, model, training, weights)
    said = [wishes.sentence(seed, source)] if "epsilon" in METHODS[method].options else []
    if training.implicit:
        record = {**wishes.record(seed, source), **facts(method, model, seed, training.name)}
        _evaluate_choices(model, training, held_out, record, [*said, *remarks(model, whole)], json)
        return
    score = model.score(held_out)
    lists = _lists(model, held_out) if ranking else {}
    baselines = {name: make_model(name).fit(training) for name in _BASELINES}
    scores = {name: baseline.score(held_out) for name, baseline in baselines.items()}
    if json:
        print_json(
            {
                "method": method,
                "mse": score["mse"],
                "mae": score["mae"],
                "n_test": score["n"],
                "n_cold": score["n_cold"],
                **lists,
                "n_train": len(training),
                "fit_seconds": seconds,
                **wishes.record(seed, source),
                **{
                    f"{name.replace('-', '_')}_{error}": scores[name][error]
                    for name in scores
                    for error in ("mse", "mae")
                },
                **facts(method, model, seed, training.name),
                "epsilon_per_person": None if whole is None else whole.fields(),
            }
        )
        return
    rows = {method: (model, score, f"{seconds:.2f} s")}
    rows |= {name: (baselines[name], scores[name], "") for name in _BASELINES if name not in rows}
    print_table(
        ("method", "MSE", "MAE", "epsilon", "fit"),
        [
            (METHODS[name].label, f"{errors['mse']:.4f}", f"{errors['mae']:.4f}", short_claim(fitted.privacy), took)
            for name, (fitted, errors, took) in rows.items()
        ],
        numeric=("MSE", "MAE", "fit"),
        title=f"{training.name}: {len(training):,} ratings to learn from, {score['n']:,} to test on",
        strong=(0,),
    )
    if score["n_cold"]:
        print_lines(f"{score['n_cold']:,} test ratings have a user or item that training never saw.")
    print_lines(*said, *remarks(model, whole), *([_in_words(lists)] if ranking else []), claim_sentence(model.privacy))


def _evaluate_choices(
    model: Estimator, training: Ratings, held_out: Ratings, record: dict[str, Any], said: list[str], json: bool
) -> None:
    """Implicit feedback has no ratings to be wrong about: only lists are measured, beside what most people chose."""
    from hdpmf.models import MostPopular

    found = {"this method": _lists(model, held_out), "most popular": _lists(MostPopular().fit(training), held_out)}
    if json:
        popular = {f"popular_{name}": value for name, value in found["most popular"].items() if "_at_" in name}
        sizes = {"n_train": len(training), "n_test": len(held_out), "implicit": True}
        print_json({**record, **sizes, **found["this method"], **popular})
        return
    names = {f"ndcg_at_{_LISTED}": "NDCG", f"recall_at_{_LISTED}": "recall", f"coverage_at_{_LISTED}": "coverage"}
    print_table(
        ("lists", *names.values()),
        [(label, *(f"{row[name]:.4f}" for name in names)) for label, row in found.items()],
        numeric=tuple(names.values()),
        title=f"{training.name}: {len(training):,} choices to learn from, {len(held_out):,} to test on",
        strong=(0,),
    )
    print_lines(*said, claim_sentence(model.privacy))


def _lists(model: Estimator, held_out: Ratings) -> dict[str, float | int | None]:
    """Ranking metrics under their names in the JSON; None for a method that predicts the same for every item."""
    measured = model.rank(held_out, _LISTED) if model.can_rank else {}
    named: dict[str, float | int | None] = {
        f"{name}_at_{_LISTED}": measured.get(name) for name in ("ndcg", "recall", "coverage")
    }
    return named | {"n_ranked_users": measured.get("n_users")}


def _in_words(lists: dict[str, float | int | None]) -> str:
    ndcg, recall, coverage, users = lists.values()
    if ndcg is None or recall is None or coverage is None:
        return "Lists: none, because this method predicts the same for every item."
    return (
        f"Lists of {_LISTED} for {users:,} users: NDCG {ndcg:.4f}, recall {recall:.4f}, "
        f"coverage of the catalogue {coverage:.1%}."
    )
