"""Attack 8: a person who joined for hidden presence is asked for plain items, and limits that
vanish unsaid.
"""

from __future__ import annotations

import pytest

from hdpmf.common.methods import RUN_EPSILON
from hdpmf.common.protocol import Ready, Refusal
from hdpmf.errors import ConfigError
from hdpmf.private.device.policy import Policy
from tests.world import ask, enrol, survey, table, terms, whole_life_policy

from .hostile import STARS, device

TABLE = table()


@pytest.mark.parametrize(
    ("method", "view"),
    [
        ("hdp-bit", "messages"),
        ("hdpmf-paid", "sums"),
        ("hdpmf-paid", "messages"),
        ("hdpmf", "sums"),
        ("mf", "sums"),
    ],
)
def test_by_default_only_hidden_presence_is_agreed_to(method: str, view: str) -> None:
    """hdp-bit and hdpmf-paid, which show which items were rated, were allowed where nobody had
    said so.
    """
    agent = device(catalogue=TABLE)
    enrol([agent], others=199)
    assert ask(agent, terms(method, view, TABLE)) == Refusal(reason="policy")
    assert type(ask(agent, terms("hdp-sum", "sums", TABLE))).__name__ == "Accepted"


@pytest.mark.parametrize(
    "policy", [Policy(), Policy(require_sums=False, allow_nominal=True, allow_unprotected=True)]
)
def test_terms_of_two_servers_get_no_numbers(policy: Policy) -> None:
    """The claim of two servers, asked of a device by the recommender itself: its numbers would
    leave as they are.
    """
    agent = device(catalogue=TABLE, policy=policy)
    enrol([agent], others=199)
    assert ask(agent, terms("hdp-sum", "two-servers", TABLE)) == Refusal(reason="protocol")


def test_a_line_of_a_policy_changes_that_line() -> None:
    """A file with a stricter epsilon dropped require_sums and max_total."""
    before = Policy(epsilon=1.0, max_total=5.0, max_colluding="1/4", min_participants=40)
    after = Policy.from_toml("epsilon = 0.5", before)
    assert (after.epsilon, after.max_total, after.max_colluding, after.min_participants) == (
        0.5,
        5.0,
        "1/4",
        40,
    )
    assert after.require_sums
    assert Policy.from_toml('max_total = "no limit"', after).max_total is None
    assert Policy.from_toml(after.to_toml(), Policy(max_epsilon_per_run=0.1)) == after
    with pytest.raises(ConfigError):
        Policy.from_toml("epsilom = 0.5", before)


def test_by_default_one_run_takes_half_of_a_ratings_life() -> None:
    """A single task of epsilon 1 took all of it."""
    agent = device(catalogue=TABLE)
    enrol([agent], others=199)
    asked = terms("hdp-sum", "sums", TABLE, epsilon=1.0)
    assert ask(agent, asked) == Refusal(reason="policy")
    assert "the policy allows 0.5 (max_epsilon_per_run)" in agent.said[-1]
    ask(agent, terms("hdp-sum", "sums", TABLE, epsilon=RUN_EPSILON), run=b"the second run..")
    offer = survey("A", TABLE, epsilon=RUN_EPSILON)
    assert ask(agent, offer, run=b"the second run..") == Ready(number=0)
    store = agent.store
    left = store.ledger.remaining(store.ratings(), store.weights(), store.policy)
    assert left.tolist() == [0.5] * len(STARS)


def test_by_default_there_is_a_limit_to_what_a_person_spends() -> None:
    """11: the epsilon of a table is a rating's; sixty ratings of one person would have spent
    sixty times as much.
    """
    wide = table(60)
    agent = device(dict.fromkeys(wide.ids, 3.0), catalogue=wide, policy=whole_life_policy())
    enrol([agent], others=199)
    ask(agent, terms("hdp-sum", "sums", wide, epsilon=1.0))
    assert ask(agent, survey("A", wide, epsilon=1.0)) == Ready(number=0)
    agreed = agent.store.ledger.entries()[-1]
    assert (agreed.action, agreed.ratings) == ("agreed", 50)
    assert agreed.paid == pytest.approx(50.0)
