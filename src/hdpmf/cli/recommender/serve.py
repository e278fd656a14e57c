"""``hdpmf recommender serve``: run it, or go on with a run that was killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.shared import options
from hdpmf.cli.shared.output import note, print_json, print_lines
from hdpmf.errors import ConfigError
from hdpmf.methods import federated, method_named

if TYPE_CHECKING:
    from hdpmf.service.enrolment import Enrolled
    from hdpmf.service.folder import ServiceFolder
    from hdpmf.service.settings import RunSettings
    from hdpmf.transport.flower.recommender import FlowerRecommender

_SHARE = 0.75  # of the users must be in every round, unless said otherwise

Method = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="METHOD",
        help=f"One of: {', '.join(federated())}.",
        autocompletion=lambda incomplete: [name for name in federated() if name.startswith(incomplete)],
        rich_help_panel=options.MODEL_PANEL,
    ),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        "--rounds",
        metavar="T",
        help="Rounds of training.",
        show_default="100; 10 for hdpmf-paid; the one-round designs have 1, or 2 with --labels",
        rich_help_panel=options.MODEL_PANEL,
    ),
]
Minimum = Annotated[
    int | None,
    typer.Option(
        "--minimum",
        metavar="N",
        help="Users, at least, in every round. The noise of hdp-sum is divided among so many.",
        show_default="three quarters",
        rich_help_panel=options.PRIVACY_PANEL,
    ),
]
Labels = Annotated[
    bool,
    typer.Option(
        "--labels",
        help="hdp-sum: sum much-rated items per taste label, which each device draws once; needs --prior.",
        rich_help_panel=options.MODEL_PANEL,
    ),
]
Prior = Annotated[
    str | None,
    typer.Option(
        "--prior",
        metavar="NAME",
        help="hdp-sum, hdp-bit: the shipped population prior that devices fit with: films (learned from ML-1M) or "
        "films-100k (from ML-100K).",
        rich_help_panel=options.MODEL_PANEL,
    ),
]
SecureSum = Annotated[
    bool | None,
    typer.Option(
        "--secure-sum/--messages",
        help="Whether the recommender sees only sums over devices, or every message.",
        show_default="sums, but for hdp-bit",
        rich_help_panel=options.PRIVACY_PANEL,
    ),
]


def serve(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The recommender's folder.")],
    method: Method = "hdp-sum",
    secure_sum: SecureSum = None,
    rounds: Rounds = None,
    labels: Labels = False,
    prior: Prior = None,
    minimum: Minimum = None,
    epsilon: options.Epsilon = 1.0,
    factors: options.Factors = 10,
    lr: options.LearningRate = None,
    reg: options.Reg = 0.01,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            metavar="PORT",
            help="Serve counts for Prometheus there, on this machine only.",
            rich_help_panel=options.RUN_PANEL,
        ),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option("--metrics-host", help="Or on this address.", rich_help_panel=options.RUN_PANEL)
    ] = "127.0.0.1",
    stay: Annotated[
        bool,
        typer.Option(
            "--stay",
            help="When it is done, stay and hand the model to devices that come for it, until interrupted.",
            rich_help_panel=options.RUN_PANEL,
        ),
    ] = False,
    give_up: Annotated[
        bool,
        typer.Option("--give-up", help="Give the run up that was not finished.", rich_help_panel=options.RUN_PANEL),
    ] = False,
    json: options.Json = False,
) -> None:
    """Run the recommender once: a new run, or the one that was not finished, from where it was."""
    from hdpmf.service.folder import ServiceFolder
    from hdpmf.service.live import watch
    from hdpmf.service.metrics import Metrics
    from hdpmf.service.prometheus import endpoint
    from hdpmf.service.service import Service

    place = ServiceFolder(folder)
    metrics = Metrics()
    unfinished = place.unfinished()
    if give_up:
        if unfinished is None:
            raise ConfigError("there is no unfinished run to give up")
        Service(place, _Nobody()).give_up(unfinished)
        _say_given_up(unfinished, json)
        return
    settings = None
    if unfinished is None:
        settings = run_settings(
            method, secure_sum, rounds, minimum, epsilon, factors, lr, reg, _askable_users(place.enrolled),
            labels=labels, prior=prior,
        )  # fmt: skip
    else:
        note(f"going on with run {unfinished.hex()[:12]} as it was begun; other options are for a new run")
    counting = nullcontext() if metrics_port is None else endpoint(metrics, metrics_port, metrics_host)
    with place.serving(), counting as port, watch(metrics) as log, _transport(place) as transport:
        if port is not None:
            log(f"counts for Prometheus: http://{metrics_host}:{port}/metrics")
        service = Service(place, transport, metrics=metrics, log=log)
        run = service.begin(settings) if settings is not None else unfinished
        if run is None:
            raise ConfigError("there is nothing to run")
        outcome = service.conduct(run)
        _report(place, outcome.summary, outcome.statement.lines(), json)
        if stay:
            service.stay(lambda card: transport.admit(card.identity, card.node))


def run_settings(
    method: str,
    secure_sum: bool | None,
    rounds: int | None,
    minimum: int | None,
    epsilon: float,
    factors: int,
    lr: float | None,
    reg: float,
    users: int,
    *,
    labels: bool = False,
    prior: str | None = None,
) -> RunSettings:
    """The settings that options describe; what is not given suits the method."""
    from hdpmf.service.settings import RunSettings

    if method not in federated():
        raise ConfigError(f"a federation cannot run {method!r}; choose from {', '.join(federated())}")
    known = method_named(method)
    view = known.views[0] if secure_sum is None else "sums" if secure_sum else "messages"
    if rounds is None:
        rounds = known.default("epochs") if known.trains else known.form(labels).rounds or 1
    return RunSettings(
        method=method,
        view=view,
        minimum=max(1, int(_SHARE * users)) if minimum is None else minimum,
        epsilon=epsilon,
        rounds=rounds,
        factors=factors,
        learning_rate=(known.default("learning_rate") if known.trains else 0.01) if lr is None else lr,
        reg=reg,
        labels=_score(prior) if labels else None,
        prior=_shipped(prior),
    )


def _shipped(prior: str | None) -> str | None:
    """Devices know priors by name, and have only those that come with this software."""
    from hdpmf.public.priors import SHIPPED

    if prior is not None and prior not in SHIPPED:
        raise ConfigError(f"devices have no prior {prior!r}; choose from {', '.join(SHIPPED)}")
    return prior


def _score(prior: str | None) -> dict[str, float]:
    """What counts in the public score that devices draw labels by."""
    from hdpmf.public.priors import load_prior

    found = load_prior(_shipped(prior))
    if found is None or found.labels is None:
        raise ConfigError("taste labels are drawn by a public score that comes with a prior: give --prior")
    return dict(found.labels.score)


class _Nobody:
    """No devices: for what needs none."""

    def present(self) -> frozenset[str]:
        return frozenset()

    def exchange(self, messages: object, deadline: float) -> Iterator[Any]:
        return iter(())

    def close(self) -> None:
        pass


@contextmanager
def _transport(place: ServiceFolder) -> Iterator[FlowerRecommender]:
    from hdpmf.transport.flower.recommender import FlowerRecommender

    config = place.config
    with FlowerRecommender(
        place.transport_folder,
        host=config.host,
        port=config.port,
        names=config.names,
        roster={one.identity: one.node for one in place.enrolled.cards},
    ) as transport:
        note(f"listening on {transport.address}")
        yield transport


def _askable_users(enrolled: Enrolled) -> int:
    if len(enrolled) == 0:
        raise ConfigError("no device is enrolled yet: hdpmf recommender enroll FOLDER CARD.json ...")
    return enrolled.count_users(enrolled.users)


def _say_given_up(run: bytes, json: bool) -> None:
    if json:
        print_json({"run": run.hex(), "given_up": True})
    else:
        print_lines(f"run {run.hex()[:12]} is given up; what devices have paid for it stays paid")


def _report(place: ServiceFolder, summary: dict[str, Any], statement: tuple[str, ...], json: bool) -> None:
    if json:
        print_json({**summary, "model": str(place.path / "model")})
        return
    print_lines(
        f"{summary['method']}: {summary['rounds']} rounds with {summary['devices']} devices ({summary['users']} users) "
        f"in {summary['seconds']:.1f} s; {sum(summary['refusals'].values())} refusals",
        f"model (nothing private is in it): {place.path / 'model'}",
        *statement,
    )
