"""A real federation on this machine, from certificates to predictions.

The recommender and every device are processes of their own, which talk by HTTPS with signed
requests. The result is measured beside the library's, from the same ratings in one process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.errors import FederationError
from hdpmf.lab.simulate.deploy import RECOMMENDER, Deployment, free_port
from hdpmf.lab.simulate.virtual_device import DeviceRatings, deal
from hdpmf.models import make_model
from hdpmf.private.device.device_identity import card_of, new_device
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.recommendations import predict_ratings
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.settings import Pace, RunSettings

_NAMES = ("localhost", "127.0.0.1")
_POLL_SECONDS = 0.2
_PACE = Pace(gather=30.0, deadline=20.0, attempts=5, pause=0.5)


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The result of a federation of real processes.

    Attributes:
        rounds: How often they were asked for numbers.
        seconds_per_round: Median.
        mse: Mean squared error of the devices' own predictions of test ratings.
        library_mse: Of the same method in one process, by the library.
        user_mean_mse: Of every user's own mean, which needs no recommender.
        bytes_per_device: To and from a device, in the whole run.
        statement: What the recommender could see, and what follows.
    """

    devices: int
    users: int
    rounds: int
    seconds_per_round: float
    mse: float
    mae: float
    library_mse: float
    library_mae: float
    user_mean_mse: float
    n: int
    view: str
    epsilon: float | None
    status: str
    method: str
    refusals: dict[str, int]
    bytes_per_device: float
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
    devices: int,
    seed: int = 0,
    timeout: float = 900.0,
    say: Callable[[str], None] = lambda line: None,
    progress: Callable[[Mapping[str, Any]], None] = lambda state: None,
) -> DemoResult:
    """Set everything up in a folder, run it, measure it, and end every process.

    The folder must be empty or not exist. ``seed`` deals users and drives the library's own run;
    the federation itself has none. ``progress`` is called with the recommender's state, again and
    again.

    Raises:
        FederationError: A process failed, or it took too long.
    """
    begin = time.monotonic()
    parts = deal(train, weights, devices, seed)
    say(
        f"setting up the recommender and {devices} devices in {folder}: certificates, "
        "keys, cards, roster"
    )
    service = ServiceFolder.create(
        folder / "recommender",
        Config(name="demo", port=free_port(), names=_NAMES, pace=_PACE),
        catalogue_table(train.items, train.scale, train.item_table),
        _certificates,
    )
    stores = {
        f"device-{position}": folder / "devices" / f"{position}.sqlite"
        for position in range(devices)
    }
    (folder / "devices").mkdir(mode=0o700)
    service.enroll(
        [
            _make_device(name, stores[name], part, _policy(settings, devices))
            for name, part in zip(stores, parts, strict=True)
        ]
    )
    join = (
        service.config.address, "--ca", str(service.tls_folder / "authority.pem"),
        "--roster", str(service.path / "roster.json"),
        "--roster-digest", service.enrolled.digest, "--once",
    )  # fmt: skip
    with Deployment(folder / "logs") as deployment:
        say(
            f"starting {devices + 1} processes: HTTPS on localhost:{service.config.port}, "
            "every device with its own key"
        )
        deployment.run(service.path, *run_arguments(settings))
        for name, store in stores.items():
            deployment.device(name, store, *join)
        _watch(deployment, service, timeout, progress)
        say("the run has ended; the processes are ended")
    found, rounds = _summary(service)
    errors = _errors(test, stores)
    library = (
        make_model(settings.method, rng=seed, **settings.model_params())
        .fit(train, weights)
        .score(test)
    )
    return DemoResult(
        devices=devices,
        users=found["users"],
        rounds=found["rounds"],
        seconds_per_round=statistics.median(rounds),
        mse=float(np.mean(errors**2)),
        mae=float(np.mean(np.abs(errors))),
        library_mse=float(library["mse"]),
        library_mae=float(library["mae"]),
        user_mean_mse=float(make_model("user-mean").fit(train).score(test)["mse"]),
        n=len(test),
        view=settings.view,
        epsilon=found["privacy"]["epsilon"],
        status=found["privacy"]["status"],
        method=settings.method,
        refusals=found["refusals"],
        bytes_per_device=(found["bytes_in"] + found["bytes_out"]) / devices,
        seconds=time.monotonic() - begin,
        statement=(found["privacy"]["sees"], found["privacy"]["guarantee"]),
    )


def _certificates(service: ServiceFolder) -> None:
    ensure_certificates(service.tls_folder, service.config.names)


def _policy(settings: RunSettings, devices: int) -> Policy:
    """Return the strictest policy that one of so many devices can have."""
    return Policy(
        methods=(settings.method,),
        require_sums=settings.view == "sums",
        allow_nominal=True,
        allow_unprotected=settings.kind.claim(settings.view).status == "none",
        epsilon=settings.epsilon,
        max_epsilon_per_run=None,
        max_total=None,  # what it is compared with, the library, leaves no rating out
        max_rounds=settings.rounds,
        min_participants=2,
        min_devices=max(2, min(16, devices // 2)),
        max_colluding=str(settings.max_colluding),
        max_credit=settings.credit,
    )


def _make_device(name: str, path: Path, part: DeviceRatings, policy: Policy) -> Any:
    with new_device(path, name=name, users=part.ratings.n_users, policy=policy) as store:
        store.add(part.ratings)
        store.set_weights(part.weights, part.ratings)
        return card_of(store)


def run_arguments(settings: RunSettings) -> list[str]:
    """Return the settings as arguments of ``hdpmf recommender run``."""
    arguments = [
        "--method",
        settings.method,
        "--rounds",
        str(settings.rounds),
        "--minimum",
        str(settings.minimum),
        "--colluding",
        str(settings.max_colluding),
        "--credit",
        str(settings.credit),
        "--secure-sum" if settings.view == "sums" else "--messages",
    ]
    for name, value in settings.model_params().items():
        if name not in ("epochs", "labels", "design") and value is not None:
            arguments += settings.kind.options[name].arguments(value)
    return arguments


def _watch(
    deployment: Deployment,
    service: ServiceFolder,
    timeout: float,
    progress: Callable[[Mapping[str, Any]], None],
) -> None:
    """Until the recommender has ended."""
    end = time.monotonic() + timeout
    while deployment.child(RECOMMENDER).running:
        deployment.check()
        if time.monotonic() > end:
            raise FederationError(
                f"the run was not done after {timeout:g} s; logs are in {service.path.parent}/logs"
            )
        state = service.state()
        if state is not None:
            progress(state)
        time.sleep(_POLL_SECONDS)
    deployment.check()


def _summary(service: ServiceFolder) -> tuple[dict[str, Any], list[float]]:
    run = service.runs()[-1]
    summary: dict[str, Any] = msgspec.json.decode(service.summary_path(run).read_bytes())
    return summary, service.run_files(run).load().seconds


def _errors(test: Ratings, stores: Mapping[str, Path]) -> np.ndarray:
    """Predicted minus true, each by the device that holds the user."""
    users = [str(user) for user in test.users.ids[test.user_codes].tolist()]
    items = [str(item) for item in test.items.ids[test.item_codes].tolist()]
    errors = np.full(len(test), np.nan)
    for path in stores.values():
        with DeviceStore.open(path) as store:
            here = set(store.ratings().users.ids.tolist())
            own = np.array(
                [position for position, user in enumerate(users) if user in here], np.int64
            )
            if len(own):
                found = predict_ratings(
                    store,
                    [users[position] for position in own],
                    [items[position] for position in own],
                )
                errors[own] = found - test.values[own]
    if np.isnan(errors).any():
        raise FederationError("some test ratings are of users whom no device holds")
    return errors
