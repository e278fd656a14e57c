"""A bound is measured on runs that had no say in the choice of the attacker's test."""

import numpy as np
import pytest

from hdpmf.lab.audit import game
from hdpmf.lab.audit.game import Audit, run_audit
from hdpmf.lab.audit.scores import Scores, lower_bound

pytestmark = pytest.mark.slow


def test_the_threshold_is_the_pilots():
    pilot = Scores(np.zeros(300), np.ones(300))
    measured = Scores(
        np.full(300, 10.0), np.full(300, 20.0)
    )  # perfect at 20, useless at the pilot's 1
    bound = lower_bound(pilot, measured)
    assert bound.epsilon == 0
    assert (bound.power, bound.false_alarms) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("method", "view"),
    [
        ("hdpmf", "messages"),
        ("hdpmf", "sums-h-hidden"),
        ("hdpmf-paid", "sums"),
        ("pdpmf", "final"),
        ("hdp-bit", "messages"),
        ("hdp-sum", "sums"),
        ("hdp-sum", "final"),
    ],
)
def test_every_game_measures_on_other_runs_than_its_pilot(world, monkeypatch, method, view):
    judged = []

    def watched(pilot, measured, *others, **more):
        judged.append((pilot, measured))
        return lower_bound(pilot, measured, *others, **more)

    monkeypatch.setattr(game, "lower_bound", watched)
    run_audit(Audit(method, view, 60, factors=3, epochs=5), world)
    pairs = [
        pair for pair in judged if pair[0] is not pair[1]
    ]  # choosing between attacks looks at the pilot alone
    assert pairs
    for pilot, measured in pairs:
        for world_name in ("low", "high"):
            chosen, scored = getattr(pilot, world_name), getattr(measured, world_name)
            assert len(scored) == 60
            assert not np.shares_memory(chosen, scored)
            if np.ptp(chosen) > 0:  # an attack on what nothing is sent about scores every run alike
                assert not np.array_equal(chosen, scored[: len(chosen)])
