"""A device refuses what goes beyond its policy, whatever the recommender says."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hdpmf.common.methods import METHODS, RUN_EPSILON, federated
from hdpmf.common.privacy.accounting import cost
from hdpmf.common.protocol.federation import Terms
from hdpmf.errors import ConfigError, PrivacyError
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from tests.world import whole_life_policy

EVERYTHING = federated()
STATUS = {"proved": "proved", "nominal": "nominal", "no guarantee": "none"}


def _terms(**fields: Any) -> Terms:
    given = {
        "method": "hdp-sum",
        "view": "sums",
        "epsilon": RUN_EPSILON,
        "rounds": 1,
        "catalogue": "f",
        "users": 100,
        "minimum": 50,
    } | fields
    return Terms(**({"sharing": given["minimum"]} | given))


@pytest.mark.parametrize(
    ("method", "view"), [(name, view) for name in EVERYTHING for view in METHODS[name].offered]
)
def test_standing_is_what_the_accountant_says(method: str, view: str) -> None:
    assert METHODS[method].claim(view).status == STATUS[cost(method, view).status]


PROVED = Policy(methods=("hdp-sum", "hdp-bit", "hdpmf-paid"), require_sums=False)


def test_what_is_proved_is_allowed_by_name() -> None:
    Policy().check(_terms())
    policy = PROVED
    policy.check(_terms())
    policy.check(_terms(method="hdp-bit", view="messages"))
    policy.check(_terms(method="hdpmf-paid", rounds=10))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"epsilon": 0.5001}, r"epsilon 0\.5001; the policy allows 0\.5 \(max_epsilon_per_run\)"),
        ({"minimum": 15}, "15 users"),
        ({"method": "hdpmf-paid", "rounds": 201}, "201 rounds"),
        ({"method": "hdpmf-paid", "rounds": 10, "view": "messages"}, "nothing is hidden"),
        ({"method": "hdpmf", "rounds": 10}, "does not allow hdpmf"),
        ({"method": "mf", "rounds": 10}, "does not allow mf"),
    ],
)
def test_more_than_the_policy_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(PrivacyError, match=said):
        PROVED.check(_terms(**fields))


def test_nominal_and_unprotected_are_asked_for_by_name_and_by_word() -> None:
    named = Policy(methods=EVERYTHING)
    with pytest.raises(PrivacyError, match="nominal"):
        named.check(_terms(method="hdpmf", rounds=10))
    with pytest.raises(PrivacyError, match="nothing is hidden"):
        named.check(_terms(method="mf", rounds=10))
    Policy(methods=EVERYTHING, allow_nominal=True).check(_terms(method="hdpmf", rounds=10))
    Policy(methods=EVERYTHING, allow_unprotected=True).check(
        _terms(method="mf", rounds=10, epsilon=50.0)
    )


def test_sums_only_and_a_limit_per_run() -> None:
    with pytest.raises(PrivacyError, match="secure sums"):
        msgspec.structs.replace(PROVED, require_sums=True).check(
            _terms(method="hdp-bit", view="messages")
        )
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


def test_in_secure_sums() -> None:
    made = Policy(min_devices=20, min_neighbours=30, threshold_fraction="3/4").sum_policy()
    assert (made.min_survivors, made.min_neighbours, made.threshold_fraction) == (
        20,
        30,
        Fraction(3, 4),
    )


@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(
            methods=EVERYTHING,
            allow_nominal=True,
            allow_unprotected=True,
            require_sums=True,
            epsilon=0.1,
            max_total=12.5,
            max_epsilon_per_run=0.05,
            max_rounds=7,
            min_participants=33,
            min_devices=4,
            min_raters=5,
            threshold_fraction="3/4",
            min_neighbours=12,
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
        ("max_rounds = 0", "max_rounds"),
        ("min_devices = 1", "min_devices"),
        ('methods = ["magic"]', "magic|Invalid"),
        ("allow_everything = true", "allow_everything"),
        ('epsilon = "1"', "float"),
        ('threshold_fraction = "1/3"', "1/2"),
        ('threshold_fraction = "1/0"', "fraction"),
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
