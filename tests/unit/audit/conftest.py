"""A small world to attack."""

import pytest

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.lab.audit.world import Target, choose_target


@pytest.fixture(scope="session")
def world() -> Ratings:
    return synthetic_world(80, 50, 1_600, rng=1)


@pytest.fixture(scope="session")
def target(world: Ratings) -> Target:
    return choose_target(world, 0.5)
