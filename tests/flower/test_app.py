"""Both halves of the Flower app against each other, on a Grid in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.privacy import PrivacySpec
from hdpmf.errors import ConfigError, FederationError, ProtocolError
from hdpmf.flower import client_app, server_app
from hdpmf.flower.client_app import Card, Question, pack, unpack
from hdpmf.lab.simulate.simulate import simulate
from hdpmf.lab.simulate.virtual_device import PublicFacts, only_users
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.settings import RunSettings

WORLD = synthetic_world(12, 20, 150, rng=3)
NOTHING = Question(PublicFacts(b""))
CONFIG = {
    "data": "",
    "seed": 0,
    "method": "hdp-bit",
    "view": "messages",
    "epsilon": 0.5,
    "rounds": 1,
    "scale-low": 1.0,
    "scale-high": 5.0,
    "scale-step": 1.0,
}


def users_of(begin: int, end: int) -> Ratings:
    chosen = np.zeros(WORLD.n_users, bool)
    chosen[begin:end] = True
    return only_users(WORLD, chosen)


def make_silos(folder: Path, method: str, count: int) -> list[Path]:
    policy = Policy(
        methods=(method,),
        require_sums=method != "hdp-bit",
        min_participants=2,
        min_devices=2,
        min_neighbours=1,
        threshold_fraction="1/2",
        min_fraction="0",
        max_colluding="0",
        max_credit=12,
    )
    paths = []
    for number in range(count):
        ratings = users_of(12 * number // count, 12 * (number + 1) // count)
        paths.append(folder / f"silo-{number}.store")
        with DeviceStore.create(paths[-1], users=ratings.n_users, policy=policy) as store:
            store.add(ratings)
    return paths


def run_silos(folder: Path, grid: Any, **config: Any) -> dict[str, Any]:
    items = folder / "items.csv"
    items.write_text(
        "item,title\n" + "".join(f"{item},film {item}\n" for item in WORLD.items.ids.tolist())
    )
    output = folder / "run.json"
    told = (
        CONFIG | config | {"items": str(items), "output": str(output), "silos": len(grid.contexts)}
    )
    context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=told)
    server_app.main(grid, context)
    return dict(json.loads(output.read_text()))


@pytest.mark.parametrize(
    ("method", "view", "more"),
    [
        ("hdpmf", "messages", {"rounds": 2, "factors": 3}),
        ("hdp-sum", "sums", {"rounds": 1, "max_colluding": 0.0}),
        ("hdp-sum", "two-servers", {"rounds": 1}),
    ],
)
def test_a_simulation_gives_what_it_gives_in_memory(
    make_grid: Any, method: str, view: Any, more: dict[str, Any]
) -> None:
    settings = RunSettings(method=method, view=view, minimum=12, **more)
    weights = PrivacySpec().draw(WORLD, rng=5)
    grid = make_grid({"partition-id": number} for number in range(12))
    there = server_app.simulate_on(grid, WORLD, settings, weights, test=WORLD, seed=4)
    here = simulate(WORLD, settings, weights, test=WORLD, seed=4)
    assert there.result.mse == pytest.approx(here.result.mse, rel=1e-5)
    assert there.outcome.summary["refusals"] == {}


def test_a_device_that_fails_ends_a_simulation_and_says_why(
    make_grid: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = RunSettings(method="hdp-bit", view="messages", minimum=12, rounds=1)
    grid = make_grid({"partition-id": number, "store": "mine"} for number in range(12))
    with pytest.raises(FederationError, match="a simulated device failed"):
        server_app.simulate_on(grid, WORLD, settings)
    monkeypatch.setattr(server_app, "_START_SECONDS", 0.1)
    few = make_grid({} for _ in range(11))
    with pytest.raises(FederationError, match="11 of 12 nodes"):
        server_app.simulate_on(few, WORLD, settings)


def test_flwr_run_simulates_a_data_set(
    make_grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        server_app, "load_dataset", {"a world": synthetic_world(12, 20, 200, rng=3)}.__getitem__
    )
    output = tmp_path / "run.json"
    told = CONFIG | {"data": "a world", "devices": 6, "output": str(output)}
    server_app.main(make_grid({} for _ in range(8)), Context(1, 0, {}, RecordDict(), told))
    result = json.loads(output.read_text())
    assert (result["devices"], result["users"], result["n"] > 0) == (6, 12, True)


def test_silos_answer_directly_and_keep_their_ledgers(make_grid: Any, tmp_path: Path) -> None:
    stores = make_silos(tmp_path, "hdp-bit", 2)
    grid = make_grid({"store": str(path)} for path in stores)
    summary = run_silos(tmp_path, grid)
    assert (summary["devices"], summary["users"]) == (2, 12)
    assert PublicModel.load(tmp_path / "run.model").about["method"] == "hdp-bit"
    for path in stores:
        with DeviceStore.open(path) as store:
            actions = [entry.action for entry in store.ledger.entries()]
            assert actions == ["sent", "received"]


@pytest.mark.slow
def test_silos_sum_by_masks_that_live_in_their_nodes(make_grid: Any, tmp_path: Path) -> None:
    grid = make_grid({"store": str(path)} for path in make_silos(tmp_path, "hdp-sum", 4))
    config = {"method": "hdp-sum", "view": "sums", "credit": 12, "max-colluding": 0.0}
    summary = run_silos(tmp_path, grid, **config)
    assert (summary["devices"], summary["users"], summary["refusals"]) == (4, 12, {})


def test_silos_sum_by_two_servers_elsewhere(make_grid: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"two-servers\.md"):
        run_silos(tmp_path, make_grid([{}, {}]), method="hdp-sum", view="two-servers")


def test_a_silo_takes_part_in_no_simulation_and_a_virtual_device_is_no_silo(
    plain_message: Any, tmp_path: Path
) -> None:
    silo = Context(1, 1, {"store": str(make_silos(tmp_path, "hdp-bit", 1)[0])}, RecordDict(), {})
    simulated = Context(1, 1, {"partition-id": 0}, RecordDict(), {})

    def ask(action: str, context: Context, value: object) -> RecordDict:
        message = plain_message(pack(value), 1, f"query.{action}")
        message.metadata.message_id = "1"
        return client_app.app(message, context).content

    assert unpack(ask("card", silo, None), Card).users == 12
    with pytest.raises(ConfigError, match="no store"):
        ask("card", simulated, None)
    for action in ("vectors", "report"):
        with pytest.raises(ConfigError):
            ask(action, silo, NOTHING)
    with pytest.raises(ProtocolError, match="no Question"):
        ask("answer", silo, 7)
    with pytest.raises(ProtocolError, match="no bytes"):
        ask("answer", simulated, NOTHING)


def test_a_node_that_is_late_or_gone_is_silent(make_grid: Any) -> None:
    grid = make_grid([{"partition-id": 0}, {"partition-id": 1}], lost=[100])
    transport = server_app.GridTransport(
        grid,
        {"aa": 100, "bb": 7},
        lambda _, message: Question(PublicFacts(b""), message),
        strict=False,
    )
    assert transport.present() == {"aa"}
    assert list(transport.exchange({"aa": b"x", "cc": b"x"}, deadline=0.1)) == []
