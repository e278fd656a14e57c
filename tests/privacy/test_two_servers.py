"""One of two servers and the recommender, on what they hold: servers as they are pass, planted
faults are caught.

Confidence is 99.9999 %: a good server fails a test here less than once in a million times. With
half of the noise the bound is as far above the claim as on devices (``test_real_devices``), with
the same numbers of canaries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hdpmf.common.aggregation.two_servers.prio import prio3_one_rating
from hdpmf.common.aggregation.two_servers.prio.prio3 import MASKS
from hdpmf.errors import ConfigError
from hdpmf.lab.audit.canaries import TOO_LITTLE, audit_canaries
from hdpmf.lab.audit.game import Audit
from hdpmf.lab.audit.scores import BROKEN, STANDS
from hdpmf.lab.audit.server_pair import FaultyPrio
from hdpmf.lab.audit.two_servers import (
    SHARES_TELL,
    ServerAudit,
    audit_server_shares,
    faults_seen_by,
    server_cells,
)

pytestmark = pytest.mark.slow

SURE = 1 - 1e-6
QUICK = {("leader", "value", False), ("helper", "presence", False)}


ALL = [(cell.corrupt, cell.adjacency, cell.labels) for cell in server_cells()]
SHARES = [*sorted(QUICK), ("leader", "presence", True), ("helper", "value", True)]


def _cells(keys: list[Any]) -> list[Any]:
    return [
        pytest.param(
            *key, marks=() if key in QUICK else (pytest.mark.slow,), id="-".join(map(str, key))
        )
        for key in keys
    ]


def _audit(
    corrupt: Any, adjacency: str = "value", labels: bool = False, **chosen: Any
) -> ServerAudit:
    canaries = 2_000 if adjacency == "value" else 8_000 if labels else 4_000
    given = {"canaries": canaries, "reports": 80, "confidence": SURE} | chosen
    return ServerAudit(corrupt, adjacency=adjacency, labels=labels, **given)


@pytest.mark.parametrize(("corrupt", "adjacency", "labels"), _cells(ALL))
def test_the_whole_noise_of_the_honest_server_passes_and_half_of_it_is_caught(
    corrupt: str, adjacency: str, labels: bool
) -> None:
    result = audit_canaries(_audit(corrupt, adjacency, labels))
    assert result.verdict == STANDS
    assert result.epsilon_lower_bound > 0.35 * result.epsilon_claimed  # not by being blind
    assert result.noise == pytest.approx(
        1.0, abs=6 * result.noise_deviation
    )  # one noise, not two: its own it knows
    half = audit_canaries(_audit(corrupt, adjacency, labels, noise_factor=0.5))
    assert half.verdict == BROKEN
    assert half.epsilon_lower_bound <= 2 * half.epsilon_claimed


@pytest.mark.parametrize(("corrupt", "adjacency", "labels"), _cells(SHARES))
def test_shares_tell_nothing_unless_they_are_not_random(
    corrupt: Any, adjacency: str, labels: bool
) -> None:
    result = audit_server_shares(_audit(corrupt, adjacency, labels))
    assert result.verdict == STANDS
    assert all(abs(look.right - 0.5) < 6 * result.deviation for look in result.looks.values())
    for fault in faults_seen_by(corrupt):
        planted = audit_server_shares(_audit(corrupt, adjacency, labels, fault=fault, reports=40))
        assert planted.verdict == SHARES_TELL
        assert planted.best.right == 1.0


@pytest.mark.slow
def test_a_server_that_leaves_its_noise_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault is in the server's code, not in what it is given."""
    from hdpmf.untrusted.aggregator.collection import Batches

    monkeypatch.setattr(
        Batches,
        "_noises",
        lambda self, task, total: np.zeros(
            sum(part.entries for part in task.document.noise), np.int64
        ),
    )
    result = audit_canaries(_audit("leader", canaries=500))
    assert (result.verdict, result.right, result.noise) == (BROKEN, result.guesses, 0.0)


@pytest.mark.slow
def test_a_little_too_little_noise_is_measured_where_guesses_do_not_find_it() -> None:
    """Guesses reach 0.85 of the claim here, with a deviation of 0.04: in one run of 10,000 they
    find the fault themselves. The measured noise is nine deviations from what it should be.
    """
    result = audit_canaries(_audit("helper", canaries=6_000, noise_factor=0.92))
    assert result.verdict == TOO_LITTLE
    assert result.noise == pytest.approx(0.92, abs=6 * result.noise_deviation)


def test_what_cannot_be_audited_is_said() -> None:
    with pytest.raises(ConfigError, match="hdpmf audit servers"):
        Audit("hdp-sum", "two-servers")
    with pytest.raises(ConfigError, match="corrupt must be one of leader, helper"):
        ServerAudit("collector")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="16 or more"):
        ServerAudit("leader", reports=15)


def test_a_fault_of_masks_is_in_the_proof_alone() -> None:
    prio = prio3_one_rating(3, (-1, 1), (0, 1), b"task")
    faulty = FaultyPrio(prio, "masks")
    assert not faulty._expand(MASKS, bytes(32), b"", 5).any()
    np.testing.assert_array_equal(
        faulty._expand(1, bytes(32), b"", 5), prio._expand(1, bytes(32), b"", 5)
    )
