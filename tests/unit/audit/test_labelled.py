"""Taste labels: the attacker's law is the device's, and controls that have to be caught."""

import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.errors import ConfigError
from hdpmf.lab.audit.figure import row_of
from hdpmf.lab.audit.game import Audit, cells, run_audit
from hdpmf.lab.audit.one_round import labelled_scores, labelled_world
from hdpmf.lab.audit.scores import BROKEN, STANDS, ceiling, lower_bound, verdict
from hdpmf.lab.audit.world import Design, choose_target

pytestmark = pytest.mark.slow

CLAIMS = {"value": 1.0, "presence": 0.125 + 0.2 + 0.49 + 1 / 6 + 0.01}


@pytest.fixture(scope="module")
def target():
    return choose_target(synthetic_world(), 1.0)


def _bound(scores):
    return lower_bound(*scores.split(len(scores.low) // 2)).epsilon


@pytest.mark.parametrize("adjacency", ["value", "presence"])
@pytest.mark.parametrize("head", [True, False])
def test_the_attacker_knows_the_law_of_what_devices_send(target, adjacency, head):
    """A likelihood ratio has mean 1 in the world that it speaks against, and never leaves the
    claim's bounds.
    """
    for design in (
        Design("A", 1.0, labels=True),
        Design("A", 1.0, labels=True, noise_factor=0.5, label_factor=0.5),
    ):
        scored = labelled_scores(target, design, 800, 0, adjacency=adjacency, head=head)
        for scores in scored.values():
            for ratio in (np.exp(scores.low), np.exp(-scores.high)):
                assert ratio.mean() == pytest.approx(
                    1.0, abs=5 * ratio.std() / np.sqrt(len(ratio)) + 0.03
                )
            most = max(np.abs(scores.low).max(), np.abs(scores.high).max())
            assert most <= CLAIMS[adjacency] / design.noise_factor + 0.03


@pytest.mark.parametrize("adjacency", ["value", "presence"])
def test_half_of_the_noise_is_caught(target, adjacency):
    """From released sums alone; true epsilon 2 and 1.98."""
    design = Design("A", 1.0, labels=True, noise_factor=0.5, label_factor=0.5)
    bound = _bound(
        labelled_scores(target, design, 6_000, 0, adjacency=adjacency, head=False)["sums"]
    )
    assert verdict(CLAIMS[adjacency], bound) == BROKEN
    assert bound <= 2 * CLAIMS[adjacency]


@pytest.mark.parametrize("adjacency", ["value", "presence"])
def test_labels_as_designed_pass(target, adjacency):
    bound = _bound(
        labelled_scores(target, Design("A", 1.0, labels=True), 3_000, 0, adjacency=adjacency)[
            "label"
        ]
    )
    assert verdict(CLAIMS[adjacency], bound) == STANDS
    assert bound > 0.3  # not by being blind


def test_a_label_that_is_no_lot_is_caught(target):
    """All noise is there but the label's: whoever has the label has the rating's presence."""
    design = Design("A", 1.0, labels=True, label_factor=0.02)
    scored = labelled_scores(target, design, 2_000, 0, adjacency="presence")
    assert _bound(scored["label"]) > 0.7 * ceiling(1_000)
    value = labelled_scores(target, design, 2_000, 0, adjacency="value")
    assert verdict(1.0, _bound(value["label"])) == STANDS  # labels know nothing of values


def test_the_world_of_the_published_facts_has_heads_among_them_the_audited_item():
    """With fewer than 30 the recommender would publish nothing about labels, and the audit would
    look at nothing.
    """
    audited = choose_target(labelled_world(synthetic_world()), 1.0)
    ratings, design = audited.ratings, Design("A", 1.0, labels=True)
    noise, recommender = (
        SeededNoise(0),
        design.recommender(design.survey(ratings, ratings.n_users), np.ones(ratings.n_items)),
    )
    asked = []
    for _ in range(5):
        shard = design.client(ratings, audited.privacy_weights(), noise, ratings.n_users)
        shard.accept(recommender.survey)
        asked.append(recommender.group([shard.count()]).heads)
    assert all(len(heads) >= 30 and audited.item in heads for heads in asked)


@pytest.mark.parametrize("view", ["sums", "final"])
@pytest.mark.parametrize("adjacency", ["value", "presence"])
def test_an_audit_of_labels_has_their_claim(world, view, adjacency):
    told = []
    audit = Audit("hdp-sum", view, 60, epsilon=2.0, weight=0.5, adjacency=adjacency, labels=True)
    result = run_audit(audit, world, lambda done, total: told.append((done, total)))
    assert result.epsilon_claimed == pytest.approx(CLAIMS[adjacency])
    assert result.settings["labels"]
    assert result.claim_covers_view
    assert result.verdict == STANDS
    assert set(result.parts) == ({"head", "label"} if view == "sums" else set())
    assert told[-1][0] == told[-1][1] > told[0][0]


def test_the_same_seed_gives_the_same_bound(world):
    first, second = (run_audit(Audit("hdp-sum", "sums", 60, labels=True), world) for _ in range(2))
    assert first.epsilon_lower_bound == second.epsilon_lower_bound
    assert first.parts == second.parts


def test_labels_have_rows_of_their_own_in_a_report(world):
    audits = [one for one in cells(20, 1.0, 1.0, 0) if one.labels]
    assert {(one.method, one.view, one.adjacency) for one in audits} == {
        ("hdp-sum", view, adjacency)
        for view in ("sums", "final")
        for adjacency in ("value", "presence")
    }
    sums = [run_audit(one, world) for one in audits if one.view == "sums"]
    assert [row_of(one) for one in sums] == ["HDP-Sum, labels", "HDP-Sum, labels, presence"]


def test_labels_are_refused_where_there_are_none():
    for method, view in (("hdp-bit", "sums"), ("hdpmf", "sums"), ("hdp-sum", "messages")):
        with pytest.raises(ConfigError, match="labels"):
            Audit(method, view, labels=True)
