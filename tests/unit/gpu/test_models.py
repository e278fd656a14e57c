"""Estimators with ``on="gpu"``, on whatever the tests have."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.unit.gpu.gpu_worlds import relative

pytest.importorskip("msgspec")
pytest.importorskip("narwhals")

from hdpmf import HDPMF, MF, PrivacySpec, synthetic_world
from hdpmf.common.methods import METHODS
from hdpmf.errors import ConfigError, DivergedError, HdpmfError
from hdpmf.models import make_model
from hdpmf.private.kernels.gpu import availability

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _pretend(monkeypatch, device, models_engine):
    """The device of the tests stands for the GPU."""
    monkeypatch.setattr("hdpmf.models.factorization.use_gpu", lambda name: name == "gpu")
    monkeypatch.setattr("hdpmf.models.training.gpu", lambda: device)
    monkeypatch.setattr("hdpmf.models.training.fits", lambda n: True)


@pytest.fixture(scope="module")
def world():
    train, test = synthetic_world(50, 30, 700, rng=3).hold_out(3, rng=0)
    return train, test, PrivacySpec.paper().draw(train, rng=1)


def budget(name, epsilon):
    """What makes noise small, where there is any."""
    return {} if name == "mf" else {"epsilon": epsilon}


FACTORIZATIONS = [
    name
    for name, method in METHODS.items()
    if "solver" in method.model.parameter_names() and name != "hdpmf-paid"
]


@pytest.mark.parametrize("name", FACTORIZATIONS)
def test_batch_without_noise_is_what_a_cpu_computes(world, name):
    """With a budget that makes the noise vanish; who is sampled and where training starts is the
    same too.
    """
    train, _, weights = world
    given = {"epochs": 20, "rng": 5, "learning_rate": 0.02, **budget(name, 1e12)}
    cpu, gpu = (make_model(name, **given, on=place).fit(train, weights) for place in ("cpu", "gpu"))
    assert relative(gpu.catalogue_.factors, cpu.catalogue_.factors) < 1e-4
    assert relative(gpu.devices_.vectors, cpu.devices_.vectors) < 1e-4
    assert np.array_equal(gpu.catalogue_.raters, cpu.catalogue_.raters)


@pytest.mark.parametrize(
    ("name", "solver", "rate"),
    [
        ("hdpmf", "batch", 0.1),
        ("hdpmf-w", "sequential", 0.02),
    ],
)
def test_errors_are_those_of_a_cpu(world, name, solver, rate):
    """Not the same numbers, the same distribution: mean errors over seeds agree within their
    spread.
    """
    train, test, weights = world
    given = {"epochs": 15, "learning_rate": rate, "solver": solver, **budget(name, 50.0)}
    models = {
        place: [
            make_model(name, **given, on=place, rng=seed).fit(train, weights) for seed in range(4)
        ]
        for place in ("cpu", "gpu")
    }
    cpu, gpu = (
        np.array([model.score(test)["mse"] for model in models[place]]) for place in ("cpu", "gpu")
    )
    spread = np.sqrt((cpu.var(ddof=1) + gpu.var(ddof=1)) / len(cpu))
    assert abs(cpu.mean() - gpu.mean()) < 5 * spread
    assert spread < 0.25  # or the line above would say nothing
    assert not np.allclose(models["cpu"][0].catalogue_.factors, models["gpu"][0].catalogue_.factors)


def test_history_validation_and_early_stopping(world):
    train, test, weights = world
    seen = []
    model = HDPMF(epochs=6, learning_rate=0.1, on="gpu", rng=1)
    model.fit(
        train,
        weights,
        validation=test,
        callbacks=[lambda record: seen.append(record.validation_mse)],
    )
    assert [record.epoch for record in model.history_] == [1, 2, 3, 4, 5, 6]
    assert len(set(seen)) == len(seen) == 6
    stopped = HDPMF(epochs=30, on="gpu", rng=1, early_stopping=2, learning_rate=0.05)
    stopped.fit(train, weights, validation=test)
    best = min(record.validation_mse for record in stopped.history_)
    assert stopped.score(test)["mse"] == pytest.approx(best, rel=1e-6)


def test_ratings_that_do_not_fit_are_refused(world, monkeypatch):
    monkeypatch.setattr("hdpmf.models.training.fits", lambda n: False)
    with pytest.raises(ConfigError, match="do not fit into the GPU's free memory"):
        HDPMF(epochs=1, on="gpu").fit(world[0])


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("hdpmf-paid", {}, "'paid' runs on the CPU"),
        ("mf", {"solver": "sequential"}, "sequential MF runs on the CPU"),
    ],
)
def test_what_a_gpu_cannot_do_is_trained_on_the_cpu(world, name, given, why):
    train, _, weights = world
    with pytest.raises(ConfigError, match=why):
        make_model(name, **given, epochs=1, on="gpu").fit(train, weights)
    automatic, cpu = (
        make_model(name, **given, epochs=2, on=on, rng=0).fit(train, weights).catalogue_.factors
        for on in ("auto", "cpu")
    )
    assert np.array_equal(automatic, cpu)


def test_running_away_is_noticed(world):
    with pytest.raises(DivergedError, match="learning rate 50"):
        MF(epochs=20, learning_rate=50.0, on="gpu", scale_steps=False, rng=0).fit(world[0])


def test_without_a_gpu_asking_for_one_is_one_clear_line(world, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(availability, "no_gpu", lambda: "there is no NVIDIA driver")
    with pytest.raises(
        HdpmfError, match=r"^on=.gpu. cannot be used here: there is no NVIDIA driver[^\n]*$"
    ):
        HDPMF(on="gpu").fit(world[0])
    HDPMF(on="auto", epochs=1).fit(world[0])


def test_estimators_train_on_a_gpu_without_numba():
    program = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"numba", "llvmlite"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import torch
import hdpmf.models.training as training
import hdpmf.models.factorization as factorization
factorization.use_gpu = lambda name: True
training.gpu = lambda: torch.device("cpu")
training.fits = lambda n: True
from hdpmf import HDPMF, MF, synthetic_world  # noqa: E402
world = synthetic_world(20, 10, 100, rng=0)
for model in (HDPMF(epochs=2), MF(epochs=2)):
    model.fit(world).score(world)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_nothing_imports_torch_until_a_gpu_is_wanted():
    program = """
import sys
from hdpmf import HDPMF, synthetic_world  # noqa: E402
HDPMF(epochs=1).fit(synthetic_world(20, 10, 100, rng=0))
sys.exit("torch" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
