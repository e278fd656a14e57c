"""``hdpmf evaluate``: train a method and measure it on ratings it has not seen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from hdpmf.cli.model import one_round
from hdpmf.cli.shared import options
from hdpmf.cli.shared.inputs import Settings, Source
from hdpmf.cli.shared.output import (
    claim_fields,
    claim_sentence,
    epochs_progress,
    hdpmf_version,
    print_json,
    print_lines,
    print_table,
    short_claim,
)

if TYPE_CHECKING:
    from hdpmf.models import Model
    from hdpmf.ratings import Ratings

_BASELINES = ("user-mean", "global-mean")
_LISTED = 10

Ranking = Annotated[
    bool,
    typer.Option(
        "--ranking",
        help=f"Measure lists of {_LISTED} too: NDCG, recall and coverage, where a test rating in the top quarter of "
        "the scale is relevant and everything that a user has not rated is a candidate.",
        rich_help_panel=options.RUN_PANEL,
    ),
]


def evaluate(
    method: options.Method,
    train: options.TrainFile = None,
    test: options.TestFile = None,
    data: options.DatasetName = None,
    hold_out: options.HoldOut = None,
    ready_split: options.ReadySplit = False,
    scale: options.Scale = None,
    step: options.Step = None,
    column: options.Columns = None,
    factors: options.Factors = 10,
    lr: options.LearningRate = None,
    reg: options.Reg = 0.01,
    epochs: options.Epochs = 100,
    solver: options.Solver = "batch",
    epsilon: options.Epsilon = 1.0,
    h: options.NoiseShare = "auto",
    noise: options.Noise = "epoch",
    threshold: options.Threshold = "mean",
    spec: options.Spec = None,
    uniform_weights: options.UniformWeights = False,
    weights_seed: options.WeightsSeed = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    on: options.On = "cpu",
    items: one_round.Items = None,
    features: one_round.Features = None,
    prior: one_round.Prior = None,
    coding: one_round.Coding = None,
    design: one_round.Design = None,
    labels: one_round.Labels = False,
    patterns: one_round.Patterns = None,
    ranking: Ranking = False,
    json: options.Json = False,
) -> None:
    """Train METHOD and measure its error on test ratings, beside both trivial baselines."""
    settings = Settings(
        method, factors, lr, reg, epochs, epsilon, solver, h, noise, threshold, seed, threads,
        spec, uniform_weights, weights_seed, on,
    )  # fmt: skip
    extra = one_round.model_params(method, items, features, prior, coding, design, labels, patterns)
    source = Source(train, data, scale, column, step)

    from hdpmf.methods import METHODS
    from hdpmf.models import make_model

    training, held_out = source.split(test, hold_out, ready_split, seed)
    model = make_model(method, **settings.model_params(), **extra)
    weights = settings.draw_weights(training)
    with epochs_progress(f"training {METHODS[method].label}", epochs) as after_epoch:
        begin = time.perf_counter()
        model.fit(training, weights, callbacks=[after_epoch])
        seconds = time.perf_counter() - begin
    score = model.score(held_out)
    lists = _lists(model, held_out) if ranking else {}
    baselines = {name: make_model(name).fit(training) for name in _BASELINES}
    baseline_scores = {name: baseline.score(held_out) for name, baseline in baselines.items()}

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
                **claim_fields(model.privacy),
                **settings.record(),
                **one_round.record(model),
                "data": training.name,
                "user_mean_mse": baseline_scores["user-mean"]["mse"],
                "user_mean_mae": baseline_scores["user-mean"]["mae"],
                "global_mean_mse": baseline_scores["global-mean"]["mse"],
                "global_mean_mae": baseline_scores["global-mean"]["mae"],
                "hdpmf_version": hdpmf_version(),
            }
        )
        return
    models = {method: (model, score, f"{seconds:.2f} s")}
    models |= {name: (baselines[name], baseline_scores[name], "") for name in _BASELINES if name not in models}
    print_table(
        ("method", "MSE", "MAE", "epsilon", "fit"),
        [
            (METHODS[name].label, f"{one['mse']:.4f}", f"{one['mae']:.4f}", short_claim(fitted.privacy), fit)
            for name, (fitted, one, fit) in models.items()
        ],
        numeric=("MSE", "MAE", "fit"),
        title=f"{training.name}: {len(training):,} ratings to learn from, {score['n']:,} to test on",
        strong=(0,),
    )
    if score["n_cold"]:
        print_lines(f"{score['n_cold']:,} test ratings have a user or item that training never saw.")
    for remark in one_round.remarks(model):
        print_lines(remark)
    if ranking:
        print_lines(_in_words(lists))
    print_lines(claim_sentence(model.privacy))


def _lists(model: Model, held_out: Ratings) -> dict[str, float | int | None]:
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
