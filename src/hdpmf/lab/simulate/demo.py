"""A real federation on this machine, from certificates to predictions.

The recommender, both servers and one process of participants talk by HTTPS. The result is measured
beside the library's, from the same ratings in one process.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.common.protocol.identity import Invitation
from hdpmf.common.protocol.servers import Servers
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
PROGRAM = "hdpmf.lab.simulate.participants"

_HOSTS: dict[Literal["leader", "helper"], str] = {"leader": "localhost", "helper": "127.0.0.1"}
"""Two names, as participants who know nothing of a trial ask for."""
_NAMES = tuple(_HOSTS.values())
_POLL_SECONDS = 0.2
_LIMITS = Limits(life=100 * UNIT, month=100 * UNIT)
"""What the result is compared with, the library, leaves nobody out."""
_PACE = Pace(pause=0.5, retry=1.0)


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
    parties = Parties.set_up(folder, train, settings.minimum)
    service = parties.service
    stores = parties.enrol(folder / "devices", train, weights)
    with Deployment(folder / "logs") as deployment:
        say("starting 4 processes: HTTPS on this machine")
        end = time.monotonic() + timeout
        ask_for_run(service, settings)
        parties.start(deployment, end)
        deployment.start(PARTICIPANTS, PROGRAM, str(folder / "devices"))
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


@dataclass(frozen=True)
class Parties:
    """A recommender and both servers, each in a folder of its own, which know each other."""

    service: ServiceFolder
    leader: AggregatorFolder
    helper: AggregatorFolder
    servers: Servers

    @classmethod
    def set_up(cls, folder: Path, items: Ratings, minimum: int, **settings: Any) -> Self:
        """Make the folders: for the items of these ratings, and sums of so many reports.

        ``settings`` are further ones of the recommender (``Config``).
        """
        leader, helper = (
            AggregatorFolder.create(
                folder / role,
                AggregatorConfig(
                    role=role,
                    organisation=f"{role} of the demo",
                    name=name,
                    host="127.0.0.1",
                    port=free_port(),
                    tasks=Rules(minimum=minimum),
                ),
            )
            for role, name in _HOSTS.items()
        )
        servers = leader.pair(helper.card, same_host=True)
        helper.pair(leader.card, same_host=True)

        def prepare(made: ServiceFolder) -> None:
            ensure_certificates(made.tls_folder, made.config.names)
            keys = pin_servers(made.path, made.config.name, servers, same_host=True)
            for server in (leader, helper):
                server.admit(keys.card)

        service = ServiceFolder.create(
            folder / "recommender",
            Config(name="demo", port=free_port(), names=_NAMES, pace=_PACE, **settings),
            catalogue_table(items.items, items.scale, items.item_table),
            prepare,
        )
        return cls(service, leader, helper, servers)

    def enrol(self, folder: Path, people: Ratings, weights: PrivacyWeights) -> dict[str, Path]:
        """Make a store for every user, join it, and enrol it; return the stores by users' ids."""
        folder.mkdir(mode=0o700)
        config = self.service.config
        authority = config.authority(self.service.path)
        invitation = Invitation(address=config.address, servers=self.servers, authority=authority)
        stores: dict[str, Path] = {}
        admitted: list[Admission] = []
        for number, (user, (own, wishes)) in enumerate(
            zip(people.users.ids.tolist(), deal(people, weights), strict=True)
        ):
            path = stores[str(user)] = folder / f"{number}.sqlite"
            state = state_of(f"device-{number}", own, wishes, invitation)
            with StateFile.create(path, state):
                admitted.append(Admission(state.signer.public))
        with self.service.participants() as participants:
            participants.add(admitted)
        return stores

    def start(self, deployment: Deployment, end: float) -> None:
        """Start all three; FederationError if they do not listen by then (``time.monotonic``)."""
        for role, server in (("helper", self.helper), ("leader", self.leader)):
            deployment.start(role, "hdpmf", "aggregator", "serve", str(server.path))
            deployment.wait_for_port(server.config.port, end)
        deployment.recommender(self.service.path)
        deployment.wait_for_port(self.service.config.port, end)


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
