"""Both halves of the Flower app against each other, on a Grid in this process."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from flwr.app import Context, RecordDict

import hdpmf.flower
from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy import PrivacySpec, PrivacyWeights
from hdpmf.common.protocol import Gradients, ItemCounts, Opening, decode, encode
from hdpmf.common.protocol.messages import GRADIENT_STEP
from hdpmf.errors import ConfigError, FederationError
from hdpmf.flower import client_app, server_app
from hdpmf.flower.client_app import Asked, Setup, pack, unpack
from hdpmf.models import make_model

WORLD = synthetic_world(60, 20, 700, rng=3)
DEFAULTS = tomllib.loads((hdpmf.flower.APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
TRAINING = {"epochs": 4, "n-factors": 3, "seed": 5, "hold-out": 2}


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (client_app, server_app):
        monkeypatch.setattr(module, "load_dataset", {"a world": WORLD}.__getitem__)
    client_app._data_set.cache_clear()


def run(folder: Path, grid: Any, **config: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    output = folder / "run.json"
    told = DEFAULTS["config"] | TRAINING | {"output": str(output), "nodes": len(grid.contexts)}
    told |= {name.replace("_", "-"): value for name, value in config.items()}
    server_app.main(grid, Context(1, 0, {}, RecordDict(), told))
    return json.loads(output.read_text()), dict(np.load(output.with_suffix(".npz")))


def by_fit(method: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """What the library makes of the same ratings, held out and weighed in the same way."""
    train, test = WORLD.hold_out(2, rng=5)
    more = {} if method == "mf" else {"epsilon": 1.0}
    model = make_model(method, n_factors=3, epochs=4, rng=5, on="cpu", **(more | options))
    model.fit(train, PrivacySpec().draw(train, 5))
    return model, model.score(test)


@pytest.mark.parametrize("method", ["hdpmf", "hdpmf-w", "hdpmf-r", "pdpmf", "dpmf", "mf"])
def test_a_simulation_with_one_client_is_fit_to_the_last_bit(
    make_grid: Any, tmp_path: Path, method: str
) -> None:
    result, table = run(tmp_path, make_grid([{}]), data="a world", method=method)
    model, score = by_fit(method)
    assert np.array_equal(table["factors"], model.catalogue_.factors)
    assert np.array_equal(table["raters"], model.catalogue_.raters)
    assert np.array_equal(table["items"], WORLD.items.ids)
    assert (result["mse"], result["mae"], result["n"]) == (score["mse"], score["mae"], score["n"])


@pytest.mark.parametrize(
    ("method", "options"), [("mf", {}), ("hdpmf", {"epsilon": 1e9}), ("dpmf", {"epsilon": 1e9})]
)
def test_users_dealt_to_several_clients_make_the_same_model_where_noise_is_none(
    make_grid: Any, tmp_path: Path, method: str, options: dict[str, Any]
) -> None:
    result, table = run(tmp_path, make_grid([{}] * 7), data="a world", method=method, **options)
    model, score = by_fit(method, **options)
    assert table["factors"] == pytest.approx(model.catalogue_.factors, abs=1e-5)
    assert result["mse"] == pytest.approx(score["mse"], rel=1e-5)
    means = make_model("user-mean").fit(WORLD.hold_out(2, rng=5)[0]).score(WORLD)
    assert result["user_mean_mse"] != means["mse"]  # of ratings that were held out
    assert result["n"] == score["n"]


@pytest.mark.parametrize(("method", "threshold"), [("dpmf", np.min), ("pdpmf", np.mean)])
def test_budgets_of_all_clients_together_set_the_noise(
    make_grid: Any, tmp_path: Path, method: str, threshold: Any
) -> None:
    grid = make_grid([{}] * 5)
    run(tmp_path, grid, data="a world", method=method, epsilon=0.5)
    train, _ = WORLD.hold_out(2, rng=5)
    budgets = 0.5 * PrivacySpec().draw(train, 5).for_ratings(train)
    for context in grid.contexts.values():
        opening = decode(unpack(context.state, client_app._Kept).opening)
        assert isinstance(opening, Opening)
        assert opening.noise_budget == pytest.approx(threshold(budgets))


def partitions(folder: Path, count: int) -> list[dict[str, str]]:
    configs = []
    for number in range(count):
        part = WORLD.take(WORLD.user_codes % count == number).compact()
        path = folder / f"part-{number}.csv"
        part.write(path)
        configs.append({"partition": str(path)})
    return configs


def items_of(folder: Path) -> str:
    items = folder / "items.csv"
    rows = "".join(f"{item},film {item}\n" for item in WORLD.items.ids.tolist())
    items.write_text("item,title\n" + rows)
    return str(items)


def test_partition_files_train_the_model_of_all_their_ratings(
    make_grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (client_app, server_app):  # first factors are nobody's to know otherwise
        monkeypatch.setattr(module, "seed_of", lambda rng: 5)
    told = {"data": "", "items": items_of(tmp_path), "hold_out": 0, "scale_step": 1.0}
    result, table = run(tmp_path, make_grid(partitions(tmp_path, 3)), method="mf", **told)
    assert (result["n"], result["mse"], result["nodes"]) == (0, None, 3)
    model = make_model("mf", n_factors=3, epochs=4, rng=5, on="cpu").fit(WORLD)
    assert table["factors"] == pytest.approx(model.catalogue_.factors, abs=1e-5)


def test_what_a_partition_sends_is_on_the_grid_and_never_twice_the_same(
    make_grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []
    unpacked = server_app.unpack
    monkeypatch.setattr(server_app, "unpack", lambda *a: sent.append(unpacked(*a)) or sent[-1])
    told = {"data": "", "items": items_of(tmp_path), "hold_out": 1, "epsilon": 0.1}
    configs = partitions(tmp_path, 2)
    weights = tmp_path / "weights.csv"
    weights.write_text(
        "user,weight\n" + "".join(f"{user},0.5\n" for user in WORLD.users.ids.tolist())
    )
    configs[0]["weights"] = str(weights)
    for _ in range(2):
        run(tmp_path, make_grid(configs), **told)
    messages = [decode(each) for each in sent if isinstance(each, bytes) and each]
    sums = [message.sums for message in messages if isinstance(message, Gradients)]
    assert len(sums) == 2 * 2 * TRAINING["epochs"]
    assert all(not np.any(table / np.float32(GRADIENT_STEP) % 1) for table in sums)
    assert len({table.tobytes() for table in sums}) == len(sums)


def test_a_node_that_fails_or_is_silent_ends_the_run_and_says_why(
    make_grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FederationError, match="which take part in no simulation"):
        run(tmp_path, make_grid([{}, {"partition": "mine.csv"}]), data="a world")
    with pytest.raises(FederationError, match="this node has no ratings"):
        run(tmp_path, make_grid([{}]), data="", items=items_of(tmp_path))
    with pytest.raises(FederationError, match="1 of 2 nodes answered"):
        run(tmp_path, make_grid([{}, {}], lost=[100]), data="a world")
    monkeypatch.setattr(server_app, "_START_SECONDS", 0.1)
    with pytest.raises(FederationError, match="2 of 3 nodes are connected"):
        run(tmp_path, make_grid([{}, {}]), data="a world", nodes=3)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"nodes": 0}, "nodes of at least 1"),
        ({"items": "items.csv"}, "either"),
        ({"rounds": 3}, "rounds"),
        ({"epsilon": "much"}, "epsilon"),
        ({"method": "hdp-sum"}, "does not train over machines"),
        ({"method": "hdpmf-paid"}, "does not train over machines"),
    ],
)
def test_a_run_config_that_cannot_be_is_refused(
    make_grid: Any, tmp_path: Path, wrong: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        run(tmp_path, make_grid([{}]), **({"data": "a world"} | wrong))
    assert not (tmp_path / "run.json").exists()


def test_a_node_refuses_what_is_no_message_of_the_recommender(make_grid: Any) -> None:
    grid = make_grid([{}])
    setup = Setup(method="mf", options={}, hold_out=0, data="a world")

    def ask(content: RecordDict, kind: str = "train") -> Any:
        message = client_app.Message(content, 100, kind)
        return next(grid.send_and_receive([message], 1.0)).reason

    assert "no Asked" in ask(pack(7))
    assert "no _Kept" in ask(pack(Asked(b"x")))
    told = msgspec.msgpack.encode(setup)
    assert "message of this protocol" in ask(pack(Asked(b"x", told)))
    assert "never sends a ItemCounts" in ask(
        pack(Asked(encode(ItemCounts(counts=np.zeros(1, np.int64))), told))
    )
    plan = encode(setup.model.setup(20, WORLD.scale)[0])
    assert "no setup" in ask(pack(Asked(plan, b"y")))


def test_weights_of_a_simulation_are_the_papers_or_all_alike(
    make_grid: Any, tmp_path: Path
) -> None:
    _, table = run(tmp_path, make_grid([{}]), data="a world", weights="uniform")
    train, _ = WORLD.hold_out(2, rng=5)
    model = make_model("hdpmf", n_factors=3, epochs=4, epsilon=1.0, rng=5, on="cpu")
    model.fit(train, PrivacyWeights.uniform(train))
    assert np.array_equal(table["factors"], model.catalogue_.factors)


def test_flower_is_told_not_to_call_home() -> None:
    assert os.environ["FLWR_TELEMETRY_ENABLED"] == "0"
