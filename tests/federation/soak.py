"""Kill something at a random moment of a real federation, again and again: python
tests/federation/soak.py --runs 100.

Every run has a recommender and five devices as processes of their own. At a random moment one of
them is killed with ``kill -9`` and started again. The run has to end with a valid model; no rating
may be lost, none may have paid more than its budget, and no device may have contributed twice.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hdpmf.common.data import load_dataset
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.protocol import ItemFacts
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.lab.simulate.deploy import RECOMMENDER, Deployment, free_port
from hdpmf.lab.simulate.virtual_device import DeviceRatings, deal
from hdpmf.private.device.device_identity import card_of, new_device
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.session import Plans
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.settings import Pace

DEVICES = 5
EPSILON = 1.0
SHAPES = {
    "hdp-sum": ("--method", "hdp-sum"),
    "hdpmf, sums": ("--method", "hdpmf", "--rounds", "5", "--secure-sum"),
    "hdpmf, messages": ("--method", "hdpmf", "--rounds", "12", "--messages"),
    "hdp-bit": ("--method", "hdp-bit"),
}
PACE = Pace(gather=60.0, deadline=15.0, attempts=8, pause=0.3)


@dataclass(frozen=True)
class Ended:
    """How a run with a kill in it ended."""

    seed: int
    shape: str
    victim: str
    after: float
    stage: str
    killed: bool
    seconds: float
    resumed: int
    plans: int
    faults: tuple[str, ...]


def one_run(seed: int, folder: Path, timeout: float = 240.0) -> Ended:
    """A run with one kill; the faults that were found, none if all is well."""
    rng = random.Random(seed)
    shape = list(SHAPES)[seed % len(SHAPES)]
    train = load_dataset("synthetic", n_users=60, n_items=40, n_ratings=1_500, rng=seed)
    weights = PrivacySpec().draw(train, rng=seed)
    homes = deal(train, weights, DEVICES, seed)
    service = ServiceFolder.create(
        folder / "recommender",
        Config(name="soak", port=free_port(), pace=PACE),
        catalogue_table(train.items, train.scale, train.item_table),
        lambda made: ensure_certificates(made.tls_folder, made.config.names),
    )
    (folder / "devices").mkdir()
    stores = {f"device-{place}": folder / "devices" / f"{place}.sqlite" for place in range(DEVICES)}
    policy = Policy(
        methods=("hdp-sum", "hdp-bit", "hdpmf"),
        allow_nominal=True,
        require_sums=False,
        epsilon=EPSILON,
        min_participants=2,
        min_devices=3,
    )
    service.enroll(
        [_make(name, stores[name], home, policy) for name, home in zip(stores, homes, strict=True)]
    )
    # Four of the five devices are enough.
    run = (*SHAPES[shape], "--minimum", "4")
    join = (
        service.config.address, "--ca", str(service.tls_folder / "authority.pem"),
        "--roster", str(service.path / "roster.json"), "--roster-digest", service.enrolled.digest,
    )  # fmt: skip
    victim = rng.choice([RECOMMENDER, *stores])
    begin = time.monotonic()
    resumed = 0
    with Deployment(folder / "logs") as deployment:
        deployment.run(service.path, *run)
        for name, store in stores.items():
            deployment.device(name, store, *join)
        # Counted from the begin of the run, so that the moment is one of it: devices connect,
        # agree, answer, get the model; some kills come after the end, which must do no harm either.
        _wait(lambda: bool(service.runs()), 90.0)
        after = rng.uniform(0.0, 12.0)
        time.sleep(after)
        stage = (service.state() or {}).get("stage", "?")
        killed = deployment.child(victim).running  # a recommender that is done has ended
        if killed:
            deployment.kill(victim)
            time.sleep(rng.uniform(0.0, 1.5))
            if victim != RECOMMENDER:
                deployment.device(victim, stores[victim], *join)
        while not _over(service) and time.monotonic() - begin < timeout:
            if not deployment.child(RECOMMENDER).running:
                resumed += 1
                if resumed > 5:
                    break
                deployment.run(service.path, *run)
            time.sleep(0.2)
        for name in stores:
            deployment.stop(name)
    faults = [
        *_faults_of_the_model(service),
        *(
            fault
            for name, home in zip(stores, homes, strict=True)
            for fault in _faults_of_a_device(name, stores[name], home)
        ),
    ]
    plans = max(_plans(store, join[0]) for store in stores.values())
    if plans > Policy().max_plans_per_day // 4:
        faults.append(
            f"{plans} plans of sums came to nothing on a device: too near to what its policy allows"
        )
    took = round(time.monotonic() - begin, 1)
    return Ended(
        seed, shape, victim, round(after, 2), stage, killed, took, resumed, plans, tuple(faults)
    )


def _plans(path: Path, recommender: str) -> int:
    with DeviceStore.open(path) as store:
        return Plans(store, recommender).open


def _make(name: str, path: Path, home: DeviceRatings, policy: Policy):
    with new_device(path, name=name, users=home.ratings.n_users, policy=policy) as store:
        store.add(home.ratings)
        store.set_weights(home.weights, home.ratings)
        return card_of(store)


def _wait(reached, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not reached() and time.monotonic() < end:
        time.sleep(0.05)


def _over(service: ServiceFolder) -> bool:
    return bool(service.runs()) and service.unfinished() is None


def _faults_of_the_model(service: ServiceFolder) -> list[str]:
    if not _over(service):
        return ["the run did not end"]
    if len(service.runs()) != 1:
        return [f"{len(service.runs())} runs instead of one"]
    model = service.model()
    if model is None:
        return ["there is no model"]
    numbers = model.numbers
    values = numbers.bias if isinstance(numbers, ItemFacts) else numbers.item_factors
    return (
        [] if np.isfinite(values).all() and np.abs(values).max() > 0 else ["the model is not valid"]
    )


def _faults_of_a_device(name: str, path: Path, home: DeviceRatings) -> list[str]:
    faults = []
    with DeviceStore.open(path) as store:
        if (
            store.fingerprint is None
        ):  # killed before it had the items, and the run ended without it
            return (
                [f"{name}: it has sent something about items that it does not know"]
                if store.ledger.entries()
                else []
            )
        held, weights = store.ratings(), store.weights()
        if _triples(held) != _triples(home.ratings):
            faults.append(f"{name}: ratings were lost or changed")
        left = store.ledger.remaining(held, weights, store.policy)
        if (left < -1e-6).any():
            faults.append(f"{name}: a rating has paid more than its budget")
        entries = store.ledger.entries()
        sent = Counter((entry.run, entry.number) for entry in entries if entry.action == "sent")
        if any(count > 1 for count in sent.values()):
            faults.append(f"{name}: contributed twice to a round")
        if sum(entry.ratings > 0 for entry in entries) > 1:
            faults.append(f"{name}: paid twice")
    return faults


def _triples(ratings) -> set[tuple[str, str, float]]:
    users, items = ratings.users.ids[ratings.user_codes], ratings.items.ids[ratings.item_codes]
    return {
        (str(user), str(item), float(value))
        for user, item, value in zip(
            users.tolist(), items.tolist(), ratings.values.tolist(), strict=True
        )
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="seed of the first run")
    given = parser.parse_args()
    bad = kills = 0
    for seed in range(given.first, given.first + given.runs):
        with tempfile.TemporaryDirectory(prefix="hdpmf-soak-") as folder:
            ended = one_run(seed, Path(folder))
            bad += bool(ended.faults)
            kills += ended.killed
            print(json.dumps(ended.__dict__), flush=True)
            if ended.faults:
                for log in sorted((Path(folder) / "logs").glob("*.log")):
                    print(
                        f"--- {log.name}",
                        *log.read_text(errors="replace").splitlines()[-8:],
                        sep="\n",
                        flush=True,
                    )
    print(json.dumps({"runs": given.runs, "kills": kills, "bad": bad}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
