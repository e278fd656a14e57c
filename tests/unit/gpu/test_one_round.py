"""The one-round designs with ``on="gpu"``, on whatever device the tests have."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("msgspec")
pytest.importorskip("numba")

from hdpmf import PrivacySpec, synthetic_world
from hdpmf.models import make_model


@pytest.mark.parametrize(
    ("name", "given"), [("hdp-sum", {}), ("hdp-sum", {"prior": "films"}), ("hdp-bit", {})]
)
def test_devices_are_fitted_as_on_a_cpu(name, given, device, monkeypatch):
    monkeypatch.setattr("hdpmf.models.one_round.use_gpu", lambda wanted: wanted == "gpu")
    monkeypatch.setattr("hdpmf.models.training.gpu", lambda: device)
    monkeypatch.setattr(
        "hdpmf.private.kernels.gpu.solvers._NUMBERS_AT_A_TIME", 1 << 12
    )  # several parts
    world = synthetic_world(60, 40, 900, rng=2)
    train = world.take(world.user_codes != 5)  # a user without ratings
    weights = PrivacySpec.paper().draw(train, rng=1)
    cpu, gpu = (
        make_model(name, **given, on=one, rng=3).fit(train, weights) for one in ("cpu", "gpu")
    )
    assert np.allclose(gpu.devices_.vectors, cpu.devices_.vectors, rtol=1e-5, atol=1e-6)
    assert np.array_equal(gpu.devices_.rated_start, cpu.devices_.rated_start)
    assert np.array_equal(gpu.devices_.rated, cpu.devices_.rated)
    assert np.array_equal(gpu.devices_.means, cpu.devices_.means, equal_nan=True)
    assert gpu.score(world) == pytest.approx(cpu.score(world), rel=1e-5)
    assert gpu.recommend(train.users.ids[0]) == cpu.recommend(train.users.ids[0])
