"""``hdpmf federate``: a whole federation on this machine, simulated or of real processes."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options.common import (
    DatasetName,
    Seed,
    command,
    data_option,
    privacy_option,
    run_option,
)
from hdpmf.cli.options.methods import (
    DEFAULT_SHARE,
    FederatedMethod,
    FederatedOptions,
    Minimum,
    RunOptions,
    explain_arguments,
)
from hdpmf.cli.options.ratings import ExplicitRatingsOptions, SplitOptions, WeightOptions
from hdpmf.cli.output import Block, Result, Table, note, privacy_line, run_claim, wants_json
from hdpmf.common.base.progress import progress_bar
from hdpmf.errors import ConfigError, RatingsError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings

_WORLD: dict[str, Any] = {"n_users": 600, "n_items": 200, "n_ratings": 40_000}
_HELD_OUT = 5
_ROUNDS = 20


@command
def demo(
    run_options: RunOptions,
    options: FederatedOptions,
    method: FederatedMethod = "hdp-sum",
    devices: Annotated[
        int, data_option("Device processes; users are dealt to them.", "N", min=3)
    ] = 8,
    data: DatasetName = None,
    keep: Annotated[
        Path | None,
        run_option("Leave certificates, stores, ledgers, logs and the model there.", "FOLDER"),
    ] = None,
    seed: Seed = 0,
) -> Result:
    """Start a recommender and devices as separate processes with TLS, train, measure, clean up.

    Without --data the users are synthetic.
    """
    from hdpmf.common.base.progress import size
    from hdpmf.common.data import load_dataset
    from hdpmf.common.privacy import PrivacySpec
    from hdpmf.lab.simulate.demo import run_demo

    if run_options.view(method) == "two-servers":
        raise ConfigError(
            "the demo starts no pair of servers; run hdpmf federate simulate --sums two-servers, "
            "or set up real ones (docs/two-servers.md)"
        )
    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ConfigError(f"{keep} is not empty; give --keep a new folder")
    ratings = load_dataset(data) if data is not None else load_dataset("synthetic", **_WORLD)
    train, test = ratings.hold_out(per_user=_HELD_OUT, rng=seed)
    users = train.n_users
    if run_options.view(method) == "sums":
        users = min(users, devices * run_options.credit)
    minimum = math.ceil(DEFAULT_SHARE * users)
    settings = run_options.settings(method, options, users, minimum, usual_rounds=_ROUNDS)
    weights = PrivacySpec().draw(train, rng=seed)
    with _folder(keep) as folder, progress_bar("training", settings.rounds) as advance:

        def progress(state: Mapping[str, Any]) -> None:
            advance(min(int(state["number"]), settings.rounds), settings.rounds)

        result = run_demo(
            train,
            test,
            weights,
            settings,
            folder,
            devices=devices,
            seed=seed,
            say=note,
            progress=progress,
        )
    table = Table(
        ("method", "MSE", "MAE"),
        [
            (f"{result.method}, {result.devices} devices", *_errors(result.mse, result.mae)),
            (
                f"{result.method}, library, one process",
                *_errors(result.library_mse, result.library_mae),
            ),
            ("user mean (nothing is sent)", f"{result.user_mean_mse:.4f}", ""),
        ],
        numeric=("MSE", "MAE"),
        title=f"{ratings.name}: {result.users:,} users on {result.devices} devices, "
        f"{result.rounds} rounds, {result.n:,} ratings to test on",
        strong=(0,),
    )
    text: list[Block] = [
        table,
        f"{result.seconds_per_round:.2f} s per round (median), {result.seconds:.1f} s in all; "
        f"{size(result.bytes_per_device)} per device in the whole run; "
        f"{sum(result.refusals.values())} refusals",
    ]
    long_version: list[object] = ["explain", *explain_arguments(method, settings.model_params())]
    if keep is not None:
        text.append(
            f"everything is in {keep}: try hdpmf device ledger {keep / 'devices' / '0.sqlite'}, "
            f"and hdpmf recommender status {keep / 'recommender'}"
        )
        long_version = ["statement", keep / "recommender"]
    claim = run_claim(
        result.method, result.view, result.epsilon, result.status, labels=bool(settings.labels)
    )
    text.append(privacy_line(claim, *long_version))
    folder_field = None if keep is None else str(keep)
    return Result({**result.as_dict(), "data": ratings.name, "folder": folder_field}, text)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="hdpmf-federation-") as folder:
        yield Path(folder)


@dataclass(frozen=True)
class PopulationOptions:
    """The devices that take part."""

    devices: Annotated[
        int | None,
        data_option(
            "Devices. With fewer than there are users, users are dealt to N silos of "
            "several users.",
            "N",
            default="one per user",
        ),
    ] = None
    sample: Annotated[
        int | None, data_option("Take only N users of the data, chosen by the seed.", "N")
    ] = None
    max_ratings: Annotated[
        int | None,
        privacy_option(
            "Most ratings of a person that take part, by the devices' policy.",
            "M",
            default="all",
            min=1,
        ),
    ] = None
    processes: Annotated[int, run_option("Processes with devices in them.", "N", min=1)] = 2


@command
def simulate(
    population: PopulationOptions,
    source: ExplicitRatingsOptions,
    cut: SplitOptions,
    run_options: RunOptions,
    options: FederatedOptions,
    wishes: WeightOptions,
    method: FederatedMethod = "hdpmf",
    minimum: Minimum = None,
    seed: Seed = 0,
) -> Result:
    """Run a federation of simulated devices, with the messages of a real one, and measure it."""
    from hdpmf.common.base.progress import size
    from hdpmf.lab.simulate.simulate import simulate as run
    from hdpmf.untrusted.service.metrics import Metrics
    from hdpmf.untrusted.service.progress import watch

    training, held_out = cut.split(source, seed)
    if population.sample is not None:
        training, held_out = _sample_users(training, held_out, population.sample, seed)
    weights = wishes.draw(training, seed, source)
    users = training.n_users
    if population.devices is not None and run_options.view(method) == "sums":
        users = min(users, population.devices * run_options.credit)
    settings = run_options.settings(method, options, users, users if minimum is None else minimum)
    metrics = Metrics()
    with watch(metrics, lines=not wants_json()) as log:
        done = run(
            training,
            settings,
            weights,
            test=held_out,
            devices=population.devices,
            max_ratings=population.max_ratings,
            seed=seed,
            processes=population.processes,
            metrics=metrics,
            log=log,
        )
    result, stated = done.result, done.outcome.statement
    table = Table(
        ("method", "MSE", "MAE"),
        [
            (result.method, *_errors(result.mse, result.mae)),
            ("user mean (nothing is sent)", *_errors(result.user_mean_mse, result.user_mean_mae)),
        ],
        numeric=("MSE", "MAE"),
        title=f"{training.name}: {result.users:,} users on {result.devices:,} devices, "
        f"{result.rounds} rounds, {result.n:,} ratings to test on",
        strong=(0,),
    )
    text: list[Block] = [
        table,
        f"{result.seconds_per_round:.3f} s per round, {result.seconds:.1f} s in all; per device "
        f"and round {size(result.bytes_up)} up, {size(result.bytes_down)} down",
        f"The recommender could see: {stated.sees}.",
        wishes.sentence(seed, source),
        privacy_line(
            run_claim(
                method, stated.view, stated.epsilon, stated.status, labels=bool(settings.labels)
            ),
            "explain",
            *explain_arguments(method, settings.model_params()),
        ),
    ]
    fields = {**result.as_dict(), "data": training.name, **wishes.fields(seed, source)}
    return Result(fields, text)


def _sample_users(
    training: Ratings, held_out: Ratings, n: int, seed: int
) -> tuple[Ratings, Ratings]:
    """Take n users, in both tables."""
    import numpy as np

    from hdpmf.lab.simulate.virtual_device import only_users

    if not 1 <= n <= training.n_users:
        raise ConfigError(f"--sample must be from 1 to the {training.n_users:,} users, not {n}")
    chosen = np.zeros(training.n_users, bool)
    chosen[np.random.default_rng([seed, 6]).permutation(training.n_users)[:n]] = True
    codes = training.users.find(held_out.users.ids)[held_out.user_codes]
    sampled = chosen[codes] & (codes >= 0)
    if not sampled.any():
        raise RatingsError("none of the sampled users has a test rating; sample more users")
    return only_users(training, chosen), held_out.take(sampled)


def _errors(*values: float | None) -> list[str]:
    return ["" if value is None else f"{value:.4f}" for value in values]
