"""``hdpmf federate simulate``: a federation of simulated devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hdpmf.cli.recommender.serve import Labels, Method, Minimum, Prior, Rounds, run_settings
from hdpmf.cli.shared import options
from hdpmf.cli.shared.inputs import Settings, Source
from hdpmf.cli.shared.output import hdpmf_version, print_json, print_lines, print_table
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.federation.simulate import SimulationResult
    from hdpmf.ratings import Ratings


def simulate(
    method: Method = "hdpmf",
    devices: Annotated[
        int | None,
        typer.Option(
            "--devices",
            metavar="N",
            help="Devices. With fewer than there are users, users are dealt to N silos of several users.",
            show_default="one per user",
            rich_help_panel=options.DATA_PANEL,
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample",
            metavar="N",
            help="Take only N users of the data, chosen by the seed.",
            rich_help_panel=options.DATA_PANEL,
        ),
    ] = None,
    data: options.DatasetName = None,
    train: options.TrainFile = None,
    test: options.TestFile = None,
    hold_out: options.HoldOut = None,
    ready_split: options.ReadySplit = False,
    scale: options.Scale = None,
    column: options.Columns = None,
    rounds: Rounds = None,
    factors: options.Factors = 10,
    lr: options.LearningRate = None,
    reg: options.Reg = 0.01,
    secure_sum: Annotated[
        bool | None,
        typer.Option(
            "--secure-sum/--messages",
            help="Whether the recommender sees only secure sums (with real masking), or every message.",
            show_default="sums, but for hdp-bit",
            rich_help_panel=options.PRIVACY_PANEL,
        ),
    ] = None,
    labels: Labels = False,
    prior: Prior = None,
    epsilon: options.Epsilon = 1.0,
    minimum: Minimum = None,
    spec: options.Spec = None,
    uniform_weights: options.UniformWeights = False,
    weights_seed: options.WeightsSeed = None,
    seed: options.Seed = 0,
    processes: Annotated[
        int,
        typer.Option(
            "--processes", metavar="N", help="Processes with devices in them.", rich_help_panel=options.RUN_PANEL
        ),
    ] = 2,
    json: options.Json = False,
) -> None:
    """Run a federation of simulated devices in one go, through the same messages, and measure it."""
    from hdpmf.federation.simulate import simulate as run
    from hdpmf.service.live import watch
    from hdpmf.service.metrics import Metrics

    if processes < 1:
        raise ConfigError(f"--processes must be at least 1, not {processes}")
    training, held_out = Source(train, data, scale, column).split(test, hold_out, ready_split, seed)
    if sample is not None:
        training, held_out = _sampled(training, held_out, sample, seed)
    drawing = Settings(
        method, factors, lr, reg, 1, epsilon, "batch", "auto", "epoch", "mean", seed, None, spec, uniform_weights,
        weights_seed,
    )  # fmt: skip
    weights = drawing.draw_weights(training)
    users = training.n_users
    settings = run_settings(
        method, secure_sum, rounds, users if minimum is None else minimum, epsilon, factors, lr, reg, users,
        labels=labels, prior=prior,
    )  # fmt: skip
    metrics = Metrics()
    with watch(metrics, lines=not json) as log:
        done = run(
            training,
            settings,
            weights,
            test=held_out,
            devices=devices,
            seed=seed,
            processes=processes,
            metrics=metrics,
            log=log,
        )
    _report(done.result, done.outcome.statement.lines(), training, json)


def _sampled(training: Ratings, held_out: Ratings, n: int, seed: int) -> tuple[Ratings, Ratings]:
    """Only some users, in both tables."""
    import numpy as np

    from hdpmf.errors import RatingsError
    from hdpmf.federation.population import only_users

    if not 1 <= n <= training.n_users:
        raise ConfigError(f"--sample must be from 1 to the {training.n_users:,} users, not {n}")
    chosen = np.zeros(training.n_users, bool)
    chosen[np.random.default_rng([seed, 6]).permutation(training.n_users)[:n]] = True
    same = training.users.find(held_out.users.ids)
    kept = chosen[same[held_out.user_codes]] & (same[held_out.user_codes] >= 0)
    if not kept.any():
        raise RatingsError("none of the sampled users has a test rating; sample more users")
    return only_users(training, chosen), held_out.take(kept)


def _report(result: SimulationResult, statement: tuple[str, ...], training: Ratings, json: bool) -> None:
    if json:
        print_json({**result.as_dict(), "data": training.name, "hdpmf_version": hdpmf_version()})
        return
    from hdpmf.progress import size

    print_table(
        ("method", "MSE", "MAE"),
        [
            (result.method, _number(result.mse), _number(result.mae)),
            ("user mean (nothing is sent)", _number(result.user_mean_mse), _number(result.user_mean_mae)),
        ],
        numeric=("MSE", "MAE"),
        title=f"{training.name}: {result.users:,} users on {result.devices:,} devices, {result.rounds} rounds, "
        f"{result.n:,} ratings to test on",
        strong=(0,),
    )
    print_lines(
        f"{result.seconds_per_round:.3f} s per round, {result.seconds:.1f} s in all; per device and round "
        f"{size(result.bytes_up)} up, {size(result.bytes_down)} down",
        *statement,
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
