import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy import PrivacySpec


@pytest.fixture(scope="session")
def world():
    return synthetic_world(n_users=150, n_items=90, n_ratings=5000, rng=1)


@pytest.fixture(scope="session")
def split(world):
    return world.hold_out(per_user=5, rng=0)


@pytest.fixture(scope="session")
def weights(split):
    return PrivacySpec().draw(split[0], rng=0)
