"""Attack 8: a person who joined for hidden presence is asked for more, and limits that vanish
unsaid.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hdpmf.common.methods import RUN_EPSILON
from hdpmf.errors import ConfigError
from hdpmf.private.device.budget import choose
from hdpmf.private.device.policy import Policy
from tests.unit.device.reporting_world import (
    PERIOD,
    POLICY,
    STARS,
    World,
    actions,
    make_store,
    make_task,
    reporter,
    survey,
)
from tests.world import live, table, terms, whole_life_policy

from .hostile import device


def test_a_line_of_a_policy_changes_that_line() -> None:
    """A file with a stricter epsilon dropped max_total."""
    before = Policy(epsilon=1.0, max_total=5.0, min_participants=40)
    after = Policy.from_toml("epsilon = 0.5", before)
    assert (after.epsilon, after.max_total, after.min_participants) == (0.5, 5.0, 40)
    assert Policy.from_toml('max_total = "no limit"', after).max_total is None
    assert Policy.from_toml(after.to_toml(), Policy(max_epsilon_per_run=0.1)) == after
    with pytest.raises(ConfigError):
        Policy.from_toml("epsilom = 0.5", before)


def test_by_default_one_run_takes_half_of_a_ratings_life() -> None:
    """A single task of epsilon 1 took all of it."""
    store, world = make_store(), World()
    world.publish(task=make_task(survey(epsilon=1.0)))
    live(reporter(store, world), world, PERIOD / 2)
    assert (world.uploads, actions(store)) == ([], [])
    assert any("the policy allows 0.5 (max_epsilon_per_run)" in line for line in world.logged)
    store, world = make_store(), World()
    world.publish(task=make_task(survey(epsilon=RUN_EPSILON)))
    live(reporter(store, world), world, PERIOD)
    left = store.ledger.remaining(store.ratings(), store.weights(), store.policy)
    assert left.tolist() == [0.5] * len(STARS)


def test_by_default_there_is_a_limit_to_what_a_person_spends() -> None:
    """11: the epsilon of a table is a rating's; sixty ratings of one person would have spent
    sixty times as much.
    """
    wide = table(60)
    policy = replace(whole_life_policy(), servers=POLICY.servers)
    agent = device(dict.fromkeys(wide.ids, 3.0), catalogue=wide, policy=policy)
    taken = choose(agent.store, terms(wide, epsilon=1.0), "anybody")
    assert len(taken.positions) == 50
    assert sum(taken.pays) == pytest.approx(50.0)
