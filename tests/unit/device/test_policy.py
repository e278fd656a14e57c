"""A device refuses what goes beyond its policy, whatever the recommender says."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from hdpmf.common.methods import METHODS, federated
from hdpmf.common.privacy.accounting import cost
from hdpmf.common.protocol.federation import Terms
from hdpmf.errors import ConfigError, PrivacyError
from hdpmf.private.device.policy import Policy

EVERYTHING = federated()
STATUS = {"proved": "proved", "nominal": "nominal", "no guarantee": "none"}


def _terms(**fields: Any) -> Terms:
    given = {
        "method": "hdp-sum",
        "view": "sums",
        "epsilon": 1.0,
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
        ({"epsilon": 1.0001}, "epsilon"),
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
