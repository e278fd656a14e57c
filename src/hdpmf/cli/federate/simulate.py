"""``hdpmf federate simulate``: a federation of simulated devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.shared.federation import FederatedOptions, Method, Minimum, RunOptions
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.options import Json, Seed, completing, data_option, privacy_option, run_option
from hdpmf.cli.shared.output import print_json, print_lines, print_table
from hdpmf.cli.shared.ratings import SplitOptions, SteppedRatingsOptions
from hdpmf.cli.shared.weights import WeightOptions
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.federation.simulate import Simulation, SimulationResult
    from hdpmf.ratings import Ratings


_ENGINES = ("memory", "flower")


@dataclass(frozen=True)
class CrowdOptions:
    """Who takes part."""

    devices: Annotated[
        int | None,
        data_option(
            "--devices",
            metavar="N",
            help="Devices. With fewer than there are users, users are dealt to N silos of several users.",
            show_default="one per user",
        ),
    ] = None
    sample: Annotated[
        int | None,
        data_option("--sample", metavar="N", help="Take only N users of the data, chosen by the seed."),
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
    processes: Annotated[int, run_option("--processes", metavar="N", min=1, help="Processes with devices in them.")] = 2
    engine: Annotated[
        str,
        run_option(
            "--engine",
            metavar="ENGINE",
            help="Where devices are: in memory, or on flower, whose engine (Ray) can spread them over a cluster.",
            autocompletion=completing(_ENGINES),
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
            from hdpmf.federation.simulate import simulate
        else:
            from hdpmf.transport.extras import needs

            with needs("flwr", extra="flower"):
                from hdpmf.flower.server_app import simulate
        return simulate


@grouped
def simulate(
    crowd: CrowdOptions,
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
    """Run a federation of simulated devices in one go, through the same messages, and measure it."""
    from hdpmf.service.live import watch
    from hdpmf.service.metrics import Metrics

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
    _report(done.result, said, {"data": training.name, **wishes.record(seed, source)}, json)


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


def _report(result: SimulationResult, statement: tuple[str, ...], about: dict[str, Any], json: bool) -> None:
    if json:
        print_json({**result.as_dict(), **about})
        return
    from hdpmf.progress import size

    print_table(
        ("method", "MSE", "MAE"),
        [
            (result.method, _number(result.mse), _number(result.mae)),
            ("user mean (nothing is sent)", _number(result.user_mean_mse), _number(result.user_mean_mae)),
        ],
        numeric=("MSE", "MAE"),
        title=f"{about['data']}: {result.users:,} users on {result.devices:,} devices, {result.rounds} rounds, "
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
