"""``hdpmf federate``: a whole federation on this machine, of simulated devices or of real
processes.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.options.common import (
    DatasetName,
    Json,
    Seed,
    completion,
    data_option,
    privacy_option,
    run_option,
    with_option_groups,
)
from hdpmf.cli.options.ratings import SplitOptions, SteppedRatingsOptions
from hdpmf.cli.options.runs import DEFAULT_SHARE, FederatedOptions, Method, Minimum, RunOptions
from hdpmf.cli.options.weights import WeightOptions
from hdpmf.cli.output import note, print_json, print_lines, print_table, progress_bar
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings
    from hdpmf.lab.simulate.demo import DemoResult
    from hdpmf.lab.simulate.simulate import Simulation, SimulationResult


_WORLD: dict[str, Any] = {"n_users": 600, "n_items": 200, "n_ratings": 40_000}

_HELD_OUT = 5

_ROUNDS = 20


@with_option_groups
def demo(
    run_options: RunOptions,
    options: FederatedOptions,
    method: Method = "hdp-sum",
    devices: Annotated[
        int,
        data_option(
            "--devices", metavar="N", min=3, help="Device processes; users are dealt to them."
        ),
    ] = 8,
    data: DatasetName = None,
    keep: Annotated[
        Path | None,
        run_option(
            "--keep",
            metavar="FOLDER",
            help="Leave certificates, stores, ledgers, logs and the model there.",
        ),
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Start a recommender and devices as separate processes with TLS, train, measure, and clean up.

    Without --data the users are those of a made-up world.
    """
    from hdpmf.common.data import load_dataset
    from hdpmf.common.privacy import PrivacySpec
    from hdpmf.lab.simulate.demo import run_demo

    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ConfigError(f"{keep} is not empty; give --keep a new folder")
    ratings = load_dataset(data) if data is not None else load_dataset("synthetic", **_WORLD)
    train, test = ratings.hold_out(per_user=_HELD_OUT, rng=seed)
    users = (
        min(train.n_users, devices * run_options.credit)
        if run_options.view(method) == "sums"
        else train.n_users
    )
    settings = run_options.settings(
        method, options, users, math.ceil(DEFAULT_SHARE * users), usual_rounds=_ROUNDS
    )
    weights = PrivacySpec().draw(train, rng=seed)
    with _place(keep) as folder, progress_bar("training", settings.rounds) as advance:

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
    _print_demo(result, ratings, keep, json)


@contextmanager
def _place(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="hdpmf-federation-") as folder:
        yield Path(folder)


def _print_demo(result: DemoResult, ratings: Ratings, keep: Path | None, json: bool) -> None:
    if json:
        kept = None if keep is None else str(keep)
        print_json({**result.as_dict(), "data": ratings.name, "folder": kept})
        return
    from hdpmf.common.base.progress import size

    print_table(
        ("method", "MSE", "MAE"),
        [
            (
                f"{result.method}, {result.devices} devices",
                f"{result.mse:.4f}",
                f"{result.mae:.4f}",
            ),
            (
                f"{result.method}, library, one process",
                f"{result.library_mse:.4f}",
                f"{result.library_mae:.4f}",
            ),
            ("user mean (nothing is sent)", f"{result.user_mean_mse:.4f}", ""),
        ],
        numeric=("MSE", "MAE"),
        title=f"{ratings.name}: {result.users:,} users on {result.devices} devices, "
        f"{result.rounds} rounds, "
        f"{result.n:,} ratings to test on",
        strong=(0,),
    )
    print_lines(
        f"{result.seconds_per_round:.2f} s per round (median), {result.seconds:.1f} s in all; "
        f"{size(result.bytes_per_device)} per device in the whole run; "
        f"{sum(result.refusals.values())} refusals",
        *result.statement,
    )
    if keep is not None:
        print_lines(
            f"everything is in {keep}: try hdpmf device ledger "
            f"{keep / 'devices' / '0.sqlite'}, and "
            f"hdpmf recommender status {keep / 'recommender'}"
        )


_ENGINES = ("memory", "flower")


@dataclass(frozen=True)
class PopulationOptions:
    """Who takes part."""

    devices: Annotated[
        int | None,
        data_option(
            "--devices",
            metavar="N",
            help="Devices. With fewer than there are users, users are dealt to N silos of "
            "several users.",
            show_default="one per user",
        ),
    ] = None
    sample: Annotated[
        int | None,
        data_option(
            "--sample", metavar="N", help="Take only N users of the data, chosen by the seed."
        ),
    ] = None
    max_ratings: Annotated[
        int | None,
        privacy_option(
            "--max-ratings",
            metavar="M",
            min=1,
            help="Most ratings of a person that take part, by the devices' policy.",
            show_default="all",
        ),
    ] = None
    processes: Annotated[
        int, run_option("--processes", metavar="N", min=1, help="Processes with devices in them.")
    ] = 2
    engine: Annotated[
        str,
        run_option(
            "--engine",
            metavar="ENGINE",
            help="Where devices are: in memory, or on flower, whose engine (Ray) can spread "
            "them over a cluster.",
            autocompletion=completion(_ENGINES),
        ),
    ] = "memory"

    def simulation(self) -> Callable[..., Simulation]:
        """Return the function that runs a simulation on the chosen engine.

        Raises:
            ConfigError: There is no such engine.
            MissingExtraError: Flower is not installed.
        """
        if self.engine not in _ENGINES:
            raise ConfigError(f"--engine must be {' or '.join(_ENGINES)}, not {self.engine!r}")
        if self.engine == "memory":
            from hdpmf.lab.simulate.simulate import simulate
        else:
            from hdpmf.common.net.extras import needs

            with needs("flwr", extra="flower"):
                from hdpmf.flower.server_app import simulate
        return simulate


@with_option_groups
def simulate(
    crowd: PopulationOptions,
    source: SteppedRatingsOptions,
    cut: SplitOptions,
    run_options: RunOptions,
    options: FederatedOptions,
    wishes: WeightOptions,
    method: Method = "hdpmf",
    minimum: Minimum = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Run a federation of simulated devices in one go, through the same messages, and measure
    it.
    """
    from hdpmf.untrusted.service.live import watch
    from hdpmf.untrusted.service.metrics import Metrics

    training, held_out = cut.split(source, seed)
    if crowd.sample is not None:
        training, held_out = _sampled(training, held_out, crowd.sample, seed)
    weights = wishes.draw(training, seed, source)
    users = training.n_users
    if crowd.devices is not None and run_options.view(method) == "sums":
        users = min(users, crowd.devices * run_options.credit)
    settings = run_options.settings(method, options, users, users if minimum is None else minimum)
    metrics = Metrics()
    with watch(metrics, lines=not json) as log:
        done = crowd.simulation()(
            training,
            settings,
            weights,
            test=held_out,
            devices=crowd.devices,
            max_ratings=crowd.max_ratings,
            seed=seed,
            processes=crowd.processes,
            metrics=metrics,
            log=log,
        )
    said = (*done.outcome.statement.lines(), wishes.sentence(seed, source))
    _print_simulation(
        done.result, said, {"data": training.name, **wishes.record(seed, source)}, json
    )


def _sampled(training: Ratings, held_out: Ratings, n: int, seed: int) -> tuple[Ratings, Ratings]:
    """Only some users, in both tables."""
    import numpy as np

    from hdpmf.errors import RatingsError
    from hdpmf.lab.simulate.population import only_users

    if not 1 <= n <= training.n_users:
        raise ConfigError(f"--sample must be from 1 to the {training.n_users:,} users, not {n}")
    chosen = np.zeros(training.n_users, bool)
    chosen[np.random.default_rng([seed, 6]).permutation(training.n_users)[:n]] = True
    same = training.users.find(held_out.users.ids)
    kept = chosen[same[held_out.user_codes]] & (same[held_out.user_codes] >= 0)
    if not kept.any():
        raise RatingsError("none of the sampled users has a test rating; sample more users")
    return only_users(training, chosen), held_out.take(kept)


def _print_simulation(
    result: SimulationResult, statement: tuple[str, ...], about: dict[str, Any], json: bool
) -> None:
    if json:
        print_json({**result.as_dict(), **about})
        return
    from hdpmf.common.base.progress import size

    print_table(
        ("method", "MSE", "MAE"),
        [
            (result.method, _number(result.mse), _number(result.mae)),
            (
                "user mean (nothing is sent)",
                _number(result.user_mean_mse),
                _number(result.user_mean_mae),
            ),
        ],
        numeric=("MSE", "MAE"),
        title=f"{about['data']}: {result.users:,} users on {result.devices:,} devices, "
        f"{result.rounds} rounds, "
        f"{result.n:,} ratings to test on",
        strong=(0,),
    )
    print_lines(
        f"{result.seconds_per_round:.3f} s per round, {result.seconds:.1f} s in all; "
        "per device and round "
        f"{size(result.bytes_up)} up, {size(result.bytes_down)} down",
        *statement,
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


app = typer.Typer(help="A whole federation on this machine: simulated devices, or real processes.")

app.command()(demo)

app.command()(simulate)
