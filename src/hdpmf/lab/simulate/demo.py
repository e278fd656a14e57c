"""A real federation on this machine, from certificates to predictions.

The recommender, both servers and one process of participants talk by HTTPS. The result is measured
beside the library's, from the same ratings in one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.common.protocol.identity import Invitation
from hdpmf.errors import FederationError
from hdpmf.lab.simulate.deploy import RECOMMENDER, Deployment, free_port
from hdpmf.lab.simulate.simulate import deal
from hdpmf.models import make_model
from hdpmf.private.device.joining import in_thousandths, join
from hdpmf.private.device.ledger import UNIT, Limits
from hdpmf.private.device.lists import OwnModel
from hdpmf.private.device.state import Rated, State, changed, new_state
from hdpmf.private.device.state_file import StateFile
from hdpmf.untrusted.aggregator.folder import AggregatorConfig, AggregatorFolder
from hdpmf.untrusted.aggregator.tasks import Rules
from hdpmf.untrusted.service.daemon import ask_for_run
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.keys import pin_servers
from hdpmf.untrusted.service.participants import Admission
from hdpmf.untrusted.service.settings import METHOD, VIEW, Pace, RunSettings

PARTICIPANTS = "participants"

_NAMES = ("localhost", "127.0.0.1")
_POLL_SECONDS = 0.2
_LIMITS = Limits(life=100 * UNIT, month=100 * UNIT)
"""What the result is compared with, the library, leaves nobody out."""
_PACE = Pace(attempts=20, pause=0.5)


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The result of a federation of real processes.

    Attributes:
        mse: Mean squared error of the devices' own predictions of test ratings.
        library_mse: Of the same method in one process, by the library.
        user_mean_mse: Of every user's own mean, which needs no recommender.
        statement: What the recommender could see, and what follows.
    """

    method: str
    view: str
    epsilon: float | None
    status: str
    devices: int
    reports: int
    n: int
    mse: float
    mae: float
    library_mse: float
    library_mae: float
    user_mean_mse: float
    seconds: float
    statement: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def run_demo(
    train: Ratings,
    test: Ratings,
    weights: PrivacyWeights,
    settings: RunSettings,
    folder: Path,
    *,
    seed: int = 0,
    timeout: float = 900.0,
    say: Callable[[str], None] = lambda line: None,
) -> DemoResult:
    """Set everything up in a folder, run it, measure it, and end every process.

    The folder must be empty or not exist. ``seed`` drives the library's own run; the federation
    itself has none.

    Raises:
        FederationError: A process failed, or it took too long.
    """
    begin = time.monotonic()
    say(f"setting up a recommender, two servers and {train.n_users} participants in {folder}")
    leader, helper = _servers(folder, settings.minimum)
    service = ServiceFolder.create(
        folder / "recommender",
        Config(name="demo", port=free_port(), names=_NAMES, pace=_PACE),
        catalogue_table(train.items, train.scale, train.item_table),
        lambda made: _prepare(made, leader, helper),
    )
    stores = _devices(folder / "devices", service, leader, train, weights, settings)
    with Deployment(folder / "logs") as deployment:
        say("starting 4 processes: HTTPS on this machine")
        end = time.monotonic() + timeout
        for role, server in (("helper", helper), ("leader", leader)):
            deployment.start(role, "hdpmf", "aggregator", "serve", str(server.path))
            deployment.wait_for_port(server.config.port, end)
        ask_for_run(service, settings)
        deployment.recommender(service.path)
        deployment.wait_for_port(service.config.port, end)
        deployment.start(
            PARTICIPANTS,
            "hdpmf.lab.simulate.participants",
            str(folder / "devices"),
        )
        _watch(deployment, end, say, service)
        say("the run has ended; the processes are ended")
    (run,) = service.runs()
    summary = service.summary(run) or {}
    errors = _errors(test, stores)
    library = (
        make_model(METHOD, rng=seed, **settings.model_params()).fit(train, weights).score(test)
    )
    privacy = summary["privacy"]
    return DemoResult(
        method=METHOD,
        view=VIEW,
        epsilon=privacy["epsilon"],
        status=privacy["status"],
        devices=train.n_users,
        reports=summary["users"],
        n=len(test),
        mse=float(np.mean(errors**2)),
        mae=float(np.mean(np.abs(errors))),
        library_mse=float(library["mse"]),
        library_mae=float(library["mae"]),
        user_mean_mse=float(make_model("user-mean").fit(train).score(test)["mse"]),
        seconds=time.monotonic() - begin,
        statement=(privacy["sees"], privacy["guarantee"]),
    )


def _servers(folder: Path, minimum: int) -> tuple[AggregatorFolder, AggregatorFolder]:
    """Make both servers, which know each other."""
    leader, helper = (
        AggregatorFolder.create(
            folder / role,
            AggregatorConfig(
                role=role,
                organisation=f"{role} of the demo",
                name="localhost",
                host="127.0.0.1",
                port=free_port(),
                tasks=Rules(minimum=minimum),
            ),
        )
        for role in ("leader", "helper")
    )
    leader.pair(helper.card, same_host=True)
    helper.pair(leader.card, same_host=True)
    return leader, helper


def _prepare(service: ServiceFolder, leader: AggregatorFolder, helper: AggregatorFolder) -> None:
    ensure_certificates(service.tls_folder, service.config.names)
    servers = leader.servers
    if servers is None:
        raise FederationError("the two servers are not paired")
    keys = pin_servers(service.path, service.config.name, servers, same_host=True)
    for server in (leader, helper):
        server.admit(keys.card)


def _devices(
    folder: Path,
    service: ServiceFolder,
    leader: AggregatorFolder,
    train: Ratings,
    weights: PrivacyWeights,
    settings: RunSettings,
) -> dict[str, Path]:
    """Make a store for every user, join it, and enrol it; the stores by users' ids."""
    folder.mkdir(mode=0o700)
    servers = leader.servers
    if servers is None:
        raise FederationError("the two servers are not paired")
    invitation = Invitation(
        address=service.config.address,
        servers=servers,
        authority=service.config.authority(service.path),
    )
    stores: dict[str, Path] = {}
    people: list[Admission] = []
    for number, (user, (own, wishes)) in enumerate(
        zip(train.users.ids.tolist(), deal(train, weights), strict=True)
    ):
        path = stores[str(user)] = folder / f"{number}.sqlite"
        state = state_of(f"device-{number}", own, wishes, invitation)
        with StateFile.create(path, state):
            people.append(Admission(state.signer.public))
    with service.participants() as participants:
        participants.add(people)
    return stores


def state_of(name: str, ratings: Ratings, wishes: PrivacyWeights, invitation: Invitation) -> State:
    """Return the state of somebody's device with these ratings, which has joined."""
    state = new_state(_LIMITS, name=name, wish=in_thousandths(float(wishes.beta[0])))
    rated = {
        str(ratings.items.ids[item]): Rated(float(value), in_thousandths(float(wishes.gamma[item])))
        for item, value in zip(ratings.item_codes.tolist(), ratings.values.tolist(), strict=True)
    }
    state = changed(state, ratings={invitation.address: rated})
    return join(state, invitation, same_host=True)


def _watch(
    deployment: Deployment, end: float, say: Callable[[str], None], service: ServiceFolder
) -> None:
    """Until the participants have their model."""
    said = ""
    while deployment.child(PARTICIPANTS).running:
        deployment.check()
        if time.monotonic() > end:
            raise FederationError(
                f"the run was not done in time; logs are in {service.path.parent}/logs"
            )
        for run in service.runs():
            trouble = service.run_files(run).trouble()
            if trouble is not None and trouble.retry is not None:
                raise FederationError(trouble.cause)
        stage = (service.state() or {}).get("stage", "")
        if stage and stage != said:
            say(stage)
        said = stage
        time.sleep(_POLL_SECONDS)
    deployment.check()
    deployment.stop(RECOMMENDER)


def _errors(test: Ratings, stores: Mapping[str, Path]) -> np.ndarray:
    """Predicted minus true, each by the device that holds the user."""
    users = np.array([str(user) for user in test.users.ids[test.user_codes].tolist()])
    items = np.array([str(item) for item in test.items.ids[test.item_codes].tolist()])
    errors = np.full(len(test), np.nan)
    for user, path in stores.items():
        own = np.flatnonzero(users == user)
        if len(own):
            with StateFile.open(path) as store:
                state = store.load().state
            found = OwnModel(state, state.only()).predict(items[own].tolist())
            errors[own] = found - test.values[own]
    if np.isnan(errors).any():
        raise FederationError("some test ratings are of users whom no device holds")
    return errors
