"""Every limit of a policy, at the limit and one step beyond."""

from __future__ import annotations

from typing import Any

import pytest

from hdpmf.common.protocol import Terms
from hdpmf.errors import ConfigError, PrivacyError
from hdpmf.private.device.policy import Policy


def terms(**changes: Any) -> Terms:
    fields = {
        "method": "hdp-sum",
        "view": "sums",
        "epsilon": 0.5,
        "rounds": 1,
        "catalogue": "00" * 32,
        "users": 300,
        "minimum": 30,
        "sharing": 15,
        "credit": 1,
    }
    return Terms(**(fields | changes))


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("max_ratings", 1, 0),
        ("max_rounds", 1, 0),
        ("min_participants", 2, 1),
        ("min_devices", 2, 1),
        ("min_raters", 1, 0),
        ("min_neighbours", 1, 0),
        ("max_credit", 1, 0),
        ("epsilon", 1e-9, 0.0),
        ("epsilon", 100.0, float("inf")),
        ("max_total", float("inf"), -1.0),
        ("max_epsilon_per_run", 1e-9, 0.0),
        ("max_epsilon_per_run", 9.0, float("inf")),
        ("min_epsilon_per_run", 1e-9, 0.0),
        ("max_total", None, float("nan")),
        ("threshold_fraction", "1/2", "49/100"),
        ("threshold_fraction", "99/100", "1"),
        ("min_fraction", "0", "1"),
        ("min_fraction", "99/100", "-1/100"),
        ("max_colluding", "0", "1"),
        ("max_colluding", "0.5", "1/0"),
        ("max_colluding", "0.5", "few"),
        ("methods", ("hdp-bit",), ("popular",)),
    ],
)
def test_what_a_policy_may_say(name: str, good: object, bad: object) -> None:
    Policy(**{name: good})
    with pytest.raises(ConfigError, match=f"policy: .*{'method' if name == 'methods' else name}"):
        Policy(**{name: bad})


@pytest.mark.parametrize(
    ("policy", "good", "bad"),
    [
        (
            {"methods": ("hdpmf-paid",), "max_rounds": 4},
            {"method": "hdpmf-paid", "rounds": 4},
            {"method": "hdpmf-paid", "rounds": 5},
        ),
        ({"epsilon": 0.5}, {"epsilon": 0.5}, {"epsilon": 0.501}),
        ({"max_epsilon_per_run": 0.25}, {"epsilon": 0.25}, {"epsilon": 0.251}),
        ({"epsilon": 0.3, "max_epsilon_per_run": 0.9}, {"epsilon": 0.3}, {"epsilon": 0.31}),
        ({"min_epsilon_per_run": 0.01}, {"epsilon": 0.01}, {"epsilon": 0.0099}),
        ({"min_participants": 30}, {"minimum": 30}, {"minimum": 29}),
        ({"methods": ("hdp-sum", "hdp-bit")}, {}, {"method": "hdp-bit", "view": "messages"}),
        (
            {"methods": ("hdp-bit",), "require_sums": False},
            {"method": "hdp-bit", "view": "messages"},
            {},
        ),
        (
            {"methods": ("hdpmf",), "allow_nominal": True},
            {"method": "hdpmf"},
            {"method": "hdpmf", "view": "messages"},
        ),
        ({"methods": ("hdp-sum", "hdpmf")}, {}, {"method": "hdpmf"}),
    ],
)
def test_what_a_run_may_ask_for(
    policy: dict[str, Any], good: dict[str, Any], bad: dict[str, Any]
) -> None:
    made = Policy(**policy)
    made.check(terms(**good))
    with pytest.raises(PrivacyError):
        made.check(terms(**bad))


def test_what_hides_nothing_has_no_epsilon_to_keep_to() -> None:
    open_to_all = Policy(
        methods=("hdpmf", "mf"), allow_unprotected=True, allow_nominal=True, require_sums=False
    )
    open_to_all.check(terms(method="mf", view="messages", epsilon=50.0))
    open_to_all.check(
        terms(method="hdpmf", view="messages", epsilon=1e-6)
    )  # a nominal one may be small
    with pytest.raises(PrivacyError, match="nothing is hidden"):
        Policy(methods=("mf",), require_sums=False).check(terms(method="mf", view="messages"))


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"minimum": 30}, {"minimum": 29, "sharing": 1}),  # a tenth of 300
        ({"sharing": 15}, {"sharing": 16}),  # a twentieth of 300 may collude
        ({"credit": 1}, {"credit": 2}),
        ({"method": "hdpmf", "view": "messages", "credit": 9}, {"method": "hdpmf", "credit": 9}),
    ],
)
def test_what_is_measured_by_the_roster(good: dict[str, Any], bad: dict[str, Any]) -> None:
    Policy().check_roster(terms(**good), [1] * 300)
    with pytest.raises(PrivacyError):
        Policy().check_roster(terms(**bad), [1] * 300)


def test_the_largest_devices_are_taken_to_collude() -> None:
    """Of 21 devices two may: with a credit of 3 they count for 6, and 30 less 6 make the noise."""
    policy, users = Policy(max_credit=3), [1] * 19 + [5, 2]
    policy.check_roster(terms(credit=3, sharing=25), users)
    with pytest.raises(PrivacyError, match=r"30 in a sum 5 may tell"):
        policy.check_roster(terms(credit=3, sharing=26), users)


def test_what_it_insists_on_in_a_sum() -> None:
    found = Policy(
        min_devices=7,
        min_neighbours=9,
        threshold_fraction="3/4",
        max_colluding="1/4",
        min_fraction="1/3",
    )
    sums = found.sum_policy()
    assert (sums.min_survivors, sums.min_neighbours) == (7, 9)
    assert [
        str(part) for part in (sums.threshold_fraction, sums.max_colluding, sums.min_fraction)
    ] == [
        "3/4",
        "1/4",
        "1/3",
    ]
    assert found.fraction == sums.threshold_fraction


@pytest.mark.parametrize("digest", ["0123456789abcdef" * 2, "0" * 32, "0123 4567 89ab cdef " * 2])
def test_a_digest_of_servers_has_any_of_the_digits(digest: str) -> None:
    assert Policy(servers=(digest,)).servers == (digest,)


@pytest.mark.parametrize("digest", ["0123456789abcdef", "0123456789abcdeg" * 2, "A" * 32, "0" * 33])
def test_what_is_no_digest_of_servers_is_refused(digest: str) -> None:
    with pytest.raises(ConfigError, match="digests of pairs of servers"):
        Policy(servers=(digest,))
