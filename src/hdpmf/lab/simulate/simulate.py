"""A whole federation on one machine: every user a device, through the messages of a real one."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hdpmf.common.aggregation.masks.roster import MIN_DEVICES
from hdpmf.common.data import Ratings
from hdpmf.common.model.list_model import ListModel
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import ItemFacts, Round
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.common.protocol.enrolment import Enrolled
from hdpmf.errors import ConfigError, FederationError
from hdpmf.lab.simulate.devices import Engine, make_devices
from hdpmf.lab.simulate.virtual_device import deal
from hdpmf.models import Estimator, make_model
from hdpmf.models.hdp_bit import HDPBit
from hdpmf.models.one_round import OneRound
from hdpmf.private.client import Devices
from hdpmf.untrusted.recommender import Catalogue
from hdpmf.untrusted.service.aggregation.direct import Direct
from hdpmf.untrusted.service.aggregation.masks import Masks
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.publish import public_files
from hdpmf.untrusted.service.run import Run, no_log
from hdpmf.untrusted.service.settings import Pace, RunSettings

if TYPE_CHECKING:
    from hdpmf.lab.simulate.virtual_device import Vectors

_RECOMMENDER_STREAM = 1
"""As in the library's training, so that the first factors of a seed are the same."""

_PACE = Pace(gather=0.0, deadline=1e9, attempts=1, pause=0.0)
"""Simulated devices are always there, and the slowest machine may take its time."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The numbers of a simulated federation.

    Attributes:
        rounds: How often devices were asked for numbers.
        seconds_per_round: On average, recommender and all devices together.
        bytes_per_device: To and from a device, in the whole run.
        mse: Mean squared error on the test ratings; None without any.
        view: What the recommender saw: ``messages`` or ``sums``.
        epsilon: The largest budget of a rating; None where nothing is claimed.
        user_mean_mse: Of every user's own mean, which needs no recommender.
        bytes_up: From a device, per round.
        bytes_down: To a device, per round.
        seconds: All of it, setting up the devices included.
        sees: What the recommender could see, in words.
        honest: What a nominal epsilon really costs.
    """

    devices: int
    rounds: int
    seconds_per_round: float
    bytes_per_device: float
    mse: float | None
    mae: float | None
    view: str
    epsilon: float | None
    status: str
    method: str
    users: int
    n: int
    user_mean_mse: float | None
    user_mean_mae: float | None
    bytes_up: float
    bytes_down: float
    seconds: float
    sees: str
    guarantee: str
    honest: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, repr=False)
class Simulation:
    """A simulation that has ended.

    ``model`` has all devices' models as one, to look into.
    """

    result: SimulationResult
    model: Estimator
    outcome: RunOutcome


def simulate(
    train: Ratings,
    settings: RunSettings,
    weights: PrivacyWeights | None = None,
    *,
    test: Ratings | None = None,
    devices: int | None = None,
    max_ratings: int | None = None,
    seed: int = 0,
    processes: int = 1,
    engine: Engine | None = None,
    metrics: Metrics | None = None,
    log: Callable[[str], None] = no_log,
) -> Simulation:
    """Run a federation of simulated devices.

    Args:
        weights: Privacy weights; without them every rating has weight 1.
        test: Ratings to measure the error on.
        devices: Number of them; None gives every user its own.
        max_ratings: Most ratings of a person that take part: a line of every device's policy.
        seed: Drives dealing and all noise; h and the first factors, too. Keys have no seed.
        processes: Spread the devices over so many processes.
        engine: Makes the devices somewhere else instead.
        metrics: Counts messages and bytes.
        log: Called with lines for people.

    Raises:
        ConfigError: More devices than users, or too few for a secure sum.
        FederationError: Too few devices took part.
    """
    begin = time.perf_counter()
    weights = PrivacyWeights.uniform(train) if weights is None else weights
    metrics = Metrics() if metrics is None else metrics
    before = metrics.bytes_in, metrics.bytes_out
    n_devices = train.n_users if devices is None else devices
    if settings.view == "sums" and n_devices < MIN_DEVICES:
        raise ConfigError(
            f"a secure sum by masks is over at least {MIN_DEVICES} devices, not {n_devices}: give "
            "more devices, or let the recommender see messages"
        )
    log(f"setting up {n_devices:,} devices")
    parts = deal(train, weights, n_devices, seed)
    policy = _lenient_policy(settings, max_ratings)
    if engine is None:
        engine = partial(make_devices, processes=processes)
    with closing(engine(parts, policy, seed)) as simulated:
        table = catalogue_table(train.items, train.scale, train.item_table)
        enrolled = Enrolled(simulated.cards)

        def learn(*published: Any) -> None:
            files = public_files(*published)
            metrics.bytes_out += n_devices * sum(map(len, files.values()))
            simulated.learn(files)

        if settings.view == "two-servers":
            from hdpmf.lab.simulate.two_servers import run_with_two_servers

            outcome = run_with_two_servers(
                settings, table, enrolled, simulated.reports, seed=seed, metrics=metrics, log=log
            )
        else:
            if settings.view == "sums":
                simulated.pin_roster(simulated.cards)
            learn(table)
            kind = Masks if settings.view == "sums" else Direct
            run = Run(
                settings=settings,
                table=table,
                enrolled=enrolled,
                aggregation=kind(simulated.network),
                pace=_PACE,
                metrics=metrics,
                log=log,
            )
            outcome = run.conduct(random_source=SeededNoise(seed, _RECOMMENDER_STREAM))
            learn(table, outcome.model)
        vectors = simulated.vectors()
    model = _everyones_model(settings, train, weights, outcome, vectors)
    score = {} if test is None else model.score(test)
    baseline = {} if test is None else make_model("user-mean").fit(train).score(test)
    summary = outcome.summary
    statement = outcome.statement
    per_round = n_devices * max(summary["rounds"], 1)
    bytes_in, bytes_out = metrics.bytes_in - before[0], metrics.bytes_out - before[1]
    result = SimulationResult(
        devices=n_devices,
        rounds=summary["rounds"],
        seconds_per_round=summary["seconds"] / max(summary["rounds"], 1),
        bytes_per_device=(bytes_in + bytes_out) / n_devices,
        mse=score.get("mse"),
        mae=score.get("mae"),
        view=statement.view,
        epsilon=statement.epsilon,
        status=statement.status,
        method=settings.method,
        users=summary["users"],
        n=0 if test is None else len(test),
        user_mean_mse=baseline.get("mse"),
        user_mean_mae=baseline.get("mae"),
        bytes_up=bytes_in / per_round,
        bytes_down=bytes_out / per_round,
        seconds=time.perf_counter() - begin,
        sees=statement.sees,
        guarantee=statement.guarantee,
        honest=statement.honest,
    )
    return Simulation(result, model, outcome)


def _lenient_policy(settings: RunSettings, max_ratings: int | None) -> str:
    """Return a policy that takes part in whatever is simulated; nobody's ratings are at stake."""
    from hdpmf.private.device.policy import Policy

    return Policy(
        methods=(settings.method,),
        require_sums=settings.view != "messages",
        allow_nominal=True,
        allow_unprotected=True,
        epsilon=settings.epsilon,
        max_epsilon_per_run=None,
        max_rounds=settings.rounds,
        min_participants=2,
        min_devices=2,
        min_neighbours=1,
        threshold_fraction="1/2",
        max_total=None,
        max_ratings=max_ratings,
        min_fraction="0",
        max_colluding=str(settings.max_colluding),
        max_credit=settings.credit,
        min_epsilon_per_run=min(settings.epsilon, 0.001),
    ).to_toml()


def _everyones_model(
    settings: RunSettings,
    train: Ratings,
    weights: PrivacyWeights,
    outcome: RunOutcome,
    found: list[Vectors],
) -> Estimator:
    """Return one model of all devices' predictions, to measure it like the library's."""
    model = make_model(settings.method, **settings.model_params())
    numbers = outcome.model.numbers
    if isinstance(numbers, ItemFacts):
        if not isinstance(model, OneRound):
            raise FederationError(f"{settings.method} has no use for item facts")
        model.with_facts(train, weights, numbers)
        if isinstance(model, HDPBit) and outcome.model.lists is not None:
            model.lists_ = ListModel.of(outcome.model.lists)
        return model
    beta = weights.for_users(train.users)
    gamma = weights.for_items(train.items)
    model.devices_ = Devices.after_training(train, _table_of(train, numbers, found), beta, gamma)
    model.catalogue_ = Catalogue(
        train.items, numbers.item_factors, numbers.raters, train.scale, train.item_table
    )
    return model


def _table_of(train: Ratings, final: Round, found: list[Vectors]) -> np.ndarray:
    """User vectors in the order of the training table; devices know their users by text."""
    positions = {str(user): position for position, user in enumerate(train.users.ids.tolist())}
    table = np.zeros((train.n_users, final.item_factors.shape[1]), np.float32)
    for part in found:
        table[[positions[user] for user in part.users]] = part.vectors
    return table
