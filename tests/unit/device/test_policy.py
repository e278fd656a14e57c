"""A device refuses what goes beyond its policy, whatever the recommender says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hdpmf.common.methods import RUN_EPSILON
from hdpmf.errors import ConfigError, PrivacyError
from hdpmf.private.device.policy import Policy, Terms
from hdpmf.private.device.store.device_store import DeviceStore
from tests.world import whole_life_policy


def _terms(**fields: Any) -> Terms:
    return Terms(**({"epsilon": RUN_EPSILON, "catalogue": "f", "minimum": 50} | fields))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"epsilon": 0.5001}, r"epsilon 0\.5001; the policy allows 0\.5 \(max_epsilon_per_run\)"),
        ({"epsilon": 1e-6}, "nothing is learnt"),
        ({"minimum": 15}, "15 reports"),
    ],
)
def test_more_than_the_policy_is_refused(fields: dict[str, Any], said: str) -> None:
    Policy().check(_terms())
    with pytest.raises(PrivacyError, match=said):
        Policy().check(_terms(**fields))


def test_a_limit_per_run() -> None:
    half = Policy()
    assert (half.epsilon, half.max_epsilon_per_run) == (1.0, RUN_EPSILON)  # two runs, not one
    with pytest.raises(PrivacyError, match=r"allows 0\.5 \(max_epsilon_per_run\)"):
        half.check(_terms(epsilon=1.0))
    whole_life_policy().check(_terms(epsilon=1.0))
    with pytest.raises(PrivacyError, match=r"allows 1 \(epsilon\)"):
        whole_life_policy().check(_terms(epsilon=1.5))
    with pytest.raises(PrivacyError, match=r"allows 0\.25 \(epsilon / 4 devices\)"):
        Policy(devices=4).check(_terms(epsilon=0.3))
    careful = Policy(max_epsilon_per_run=0.25)
    careful.check(_terms(epsilon=0.25))
    with pytest.raises(PrivacyError, match=r"0\.25"):
        careful.check(_terms(epsilon=0.5))
    assert Policy(epsilon=0.1, max_epsilon_per_run=5.0).epsilon_per_run == 0.1


@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(
            epsilon=0.1,
            max_total=12.5,
            max_epsilon_per_run=0.05,
            min_participants=33,
        ),
    ],
)
def test_a_file_for_people(policy: Policy) -> None:
    text = policy.to_toml()
    assert Policy.from_toml(text) == policy
    assert all(f"{field} = " in text for field in policy.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epsilon = ", "TOML"),
        ("epsilon = -1", "positive"),
        ("epsilon = inf", "positive"),
        ("max_total = 0.0", "positive"),
        ("allow_everything = true", "allow_everything"),
        ('epsilon = "1"', "float"),
    ],
)
def test_a_file_that_makes_no_sense(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Policy.from_toml(text)


def test_it_cannot_be_changed_in_place() -> None:
    with pytest.raises(AttributeError):
        Policy().epsilon = 5.0  # type: ignore[misc]
    assert msgspec.structs.replace(Policy(), epsilon=2.0).epsilon == 2.0


def test_a_saved_policy_stays_as_it_is(tmp_path: Path) -> None:
    """A store of 1.0.0 has "no limit" for one run written in it, where nobody said otherwise."""
    path = tmp_path / "me.sqlite"
    DeviceStore.create(path, policy=whole_life_policy()).close()
    with DeviceStore.open(path) as store:
        assert store.policy.max_epsilon_per_run is None
        store.set_policy(Policy.from_toml("epsilon = 0.9", store.policy))
    with DeviceStore.open(path) as store:
        assert (store.policy.epsilon, store.policy.max_epsilon_per_run) == (0.9, None)
