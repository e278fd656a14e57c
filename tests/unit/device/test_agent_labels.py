"""Taste labels on a device: two sums in one run, and one label that is drawn once, whatever is
restarted or asked.
"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from hdpmf.common.aggregation.masks import encode as encode_sum
from hdpmf.common.aggregation.masks import propose
from hdpmf.common.privacy.coding import weight_units
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import Accepted, Grouping, Ready, Refusal, Reply, decode, encode
from hdpmf.common.protocol.layout import (
    contribution_from_sum,
    popularity_from_sum,
    popularity_layout,
    survey_layout,
)
from hdpmf.errors import ProtocolError, StorageError
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.private.device.recommender_state import read_state
from hdpmf.private.device.store.device_store import DeviceStore
from tests.world import OPEN, RUN, NoNoise, ask, envelope, waiting_numbers, waiting_sum

from .federated import (
    TABLE,
    WEIGHTS,
    WORLD,
    Run,
    agent_for,
    enrol,
    facts_for,
    make_store,
    part,
    partition,
    refuses,
    secure_sum,
    survey_for,
    terms_for,
)

N = 6
TERMS = terms_for("hdp-sum", "sums", rounds=2, labels=True)
SURVEY = survey_for(labels=True)
SCORES = np.random.default_rng(3).integers(-64, 65, WORLD.n_items)
GROUPING = Grouping(scores=SCORES, heads=np.array([0, 3, 4, 17, 29]))
FACTS = facts_for(patterns=np.ones((WORLD.n_items, 1), np.float32), labels=True, prior="films")


class Flipped(NoNoise):
    """Noise off, but every device draws the label that its scores speak against."""

    def bits(self, p_plus, epsilon=None):
        return np.ones(len(p_plus), bool)


class Undrawn(NoNoise):
    """Noise off, and nobody may draw a label."""

    def bits(self, p_plus, epsilon=None):
        raise AssertionError("a label is drawn again")


def agents_of(n=N, noise=None):
    agents = [agent_for(make_store(ratings=one), noise or NoNoise()) for one in partition(n)]
    return agents, enrol(agents)


def counted(agents, roster, grouping=None):
    """A run whose weights are in a sum and, with a grouping, whose labels are drawn."""
    run = Run(agents, "hdpmf", terms=TERMS)
    run.tell(TERMS)
    assert run.tell(SURVEY) == [Ready(number=0)] * len(agents)
    total = secure_sum(run, roster, 0, popularity_layout(SURVEY, len(agents)))
    if grouping is not None:
        assert run.tell(grouping, 1) == [Ready(number=1)] * len(agents)
    return run, total


def labels_of(agent):
    return read_state(agent.store.runs.load(RUN)).labels


@pytest.mark.parametrize("noise", [NoNoise(), Flipped()])
def test_two_secure_sums_are_the_librarys(noise):
    agents, roster = agents_of(noise=noise)
    run, total = counted(agents, roster, GROUPING)
    shard = OneRoundClient(
        WORLD, WEIGHTS, noise, epsilon=0.5, catalogue=SURVEY.catalogue, simulation=True
    )
    shard.accept(SURVEY)
    np.testing.assert_array_equal(
        popularity_from_sum(SURVEY, N, total).weights, shard.count().weights
    )
    shard.group(GROUPING)
    whole = shard.contribute()
    heads = len(GROUPING.heads)
    answer = contribution_from_sum(
        SURVEY, N, secure_sum(run, roster, 1, survey_layout(SURVEY, N, heads)), heads
    )
    np.testing.assert_array_equal(answer.scores, whole.scores)
    np.testing.assert_array_equal(answer.weights, whole.weights)
    assert answer.total == whole.total
    assert answer.weights[WORLD.n_items :].any()
    assert answer.weights[GROUPING.heads].any()
    run.publish(FACTS)
    store = agents[0].store
    entries = store.ledger.entries()
    assert [(one.action, one.number) for one in entries] == [
        ("agreed", 0), ("sent", 0), ("agreed", 1), ("sent", 1), ("received", 2),
    ]  # fmt: skip
    # Paid once and in full, before the first numbers left; the label costs nothing more.
    assert [one.ratings > 0 for one in entries] == [True, False, False, False, False]
    own = store.weights().for_ratings(store.ratings())
    paid = store.ledger.paid_in(RUN.hex(), store.ratings())
    assert paid == pytest.approx(0.5 * weight_units(own) / 64)
    assert "label" in entries[0].words
    assert "that is a guarantee" in entries[0].words


def test_a_restarted_device_keeps_its_label(tmp_path):
    """Drawn with the odds against it, and never again: the same numbers come back from the
    store.
    """
    paths = [tmp_path / f"{one}.db" for one in range(N)]
    agents = [
        agent_for(make_store(path, ratings), Flipped())
        for path, ratings in zip(paths, partition(N), strict=True)
    ]
    roster = enrol(agents)
    run, _ = counted(agents, roster, GROUPING)
    before = [waiting_numbers(one) for one in agents]
    plain, _ = agents_of()
    counted(plain, enrol(plain), GROUPING)
    assert any(
        not np.array_equal(waiting_numbers(one), old)
        for one, old in zip(plain, before, strict=True)
    )
    for one in agents:
        one.store.close()
    run.agents = [agent_for(DeviceStore.open(path), Undrawn()) for path in paths]
    assert run.tell(GROUPING, 1) == [Ready(number=1)] * N
    for one, old in zip(run.agents, before, strict=True):
        np.testing.assert_array_equal(waiting_numbers(one), old)
    words = survey_layout(SURVEY, N, len(GROUPING.heads))
    total = secure_sum(run, roster, 1, words)
    np.testing.assert_array_equal(words.decode(total), np.sum(before, axis=0))
    # And from here on they have been in a sum, whatever is restarted.
    again = agent_for(run.agents[0].store, Undrawn())
    refuses(again, GROUPING, "secure-sum", 1)
    data = envelope(encode_sum(propose(roster, words.length, minimum=N, wide=True)), 1, part="sum")
    assert decode(decode(again.answer(data)).body) == Refusal(reason="secure-sum")


def test_a_sum_that_begins_after_a_restart_finds_the_numbers():
    """Without the grouping being sent again: the sum's own envelope comes first."""
    agents, roster = agents_of(noise=Flipped())
    run, _ = counted(agents, roster, GROUPING)
    before = np.sum([waiting_numbers(one) for one in agents], axis=0)
    run.agents = [agent_for(one.store, Undrawn()) for one in agents]
    words = survey_layout(SURVEY, N, len(GROUPING.heads))
    np.testing.assert_array_equal(words.decode(secure_sum(run, roster, 1, words)), before)


def test_restarts_before_every_letter_lose_nothing():
    agents, roster = agents_of(noise=SeededNoise(1))
    run = Run(agents, "hdpmf", terms=TERMS)

    def restart(seed):
        run.agents = [agent_for(one.store, SeededNoise(seed)) for one in run.agents]

    run.tell(TERMS)
    restart(2)
    run.tell(SURVEY)
    restart(3)
    secure_sum(run, roster, 0, popularity_layout(SURVEY, N))
    restart(4)
    run.tell(GROUPING, 1)
    drawn = [labels_of(one) for one in run.agents]
    restart(5)
    secure_sum(run, roster, 1, survey_layout(SURVEY, N, len(GROUPING.heads)))
    assert [labels_of(one) for one in run.agents] == drawn
    restart(6)
    run.publish(FACTS)
    entries = run.agents[0].store.ledger.entries()
    assert [one.ratings > 0 for one in entries].count(True) == 1
    assert [one.number for one in entries if one.action == "sent"] == [0, 1]


def test_a_label_that_could_not_be_kept_is_used_for_nothing(monkeypatch):
    agents, roster = agents_of(noise=Flipped())
    _, _ = counted(agents, roster)
    agent = agents[0]

    def full(*_):
        raise StorageError("the disk is full")

    with monkeypatch.context() as disk:
        disk.setattr(agent.store.runs, "put_reply", full)
        refuses(agent, GROUPING, "storage", 1)
    assert labels_of(agent) is None
    assert waiting_sum(agent) is None  # the numbers made with it are gone, too
    words = survey_layout(SURVEY, N, len(GROUPING.heads))
    data = envelope(encode_sum(propose(roster, words.length, minimum=N, wide=True)), 1, part="sum")
    assert decode(decode(agent.answer(data)).body) == Refusal(reason="secure-sum")
    assert ask(agent, GROUPING, 1) == Ready(number=1)


def test_a_grouping_is_answered_once():
    agents, roster = agents_of()
    counted(agents, roster, GROUPING)
    agent = agents[0]
    drawn, waiting, before = labels_of(agent), waiting_numbers(agent), agent.store.ledger.entries()
    assert ask(agent, GROUPING, 1) == Ready(number=1)
    assert agent.store.ledger.entries() == before
    for other in (replace(GROUPING, scores=-SCORES), replace(GROUPING, heads=GROUPING.heads[1:])):
        refuses(agent, other, "protocol", 1)
    refuses(agent, SURVEY, "protocol")
    assert labels_of(agent) == drawn
    np.testing.assert_array_equal(waiting_numbers(agent), waiting)
    again = agent_for(agent.store, Undrawn())
    refuses(again, replace(GROUPING, scores=-SCORES), "protocol", 1)
    assert labels_of(again) == drawn


def test_a_grouping_out_of_turn():
    agents, roster = agents_of()
    run = Run(agents, "hdpmf", terms=TERMS)
    agent = agents[0]
    refuses(agent, GROUPING, "protocol", 1)
    run.tell(TERMS)
    refuses(agent, GROUPING, "protocol", 1)
    run.tell(SURVEY)
    refuses(agent, GROUPING, "protocol", 1)  # its weights are ready, and in no sum yet
    words = survey_layout(SURVEY, N, len(GROUPING.heads))
    plan = envelope(encode_sum(propose(roster, words.length, minimum=N, wide=True)), 1, part="sum")
    assert decode(decode(agent.answer(plan)).body) == Refusal(reason="secure-sum")
    secure_sum(run, roster, 0, popularity_layout(SURVEY, N))
    assert decode(decode(agent.answer(plan)).body) == Refusal(reason="secure-sum")
    for number in (0, 2, 3):
        refuses(agent, GROUPING, "protocol", number)
    assert labels_of(agent) is None
    assert agent.learn(TABLE, FACTS)
    refuses(agent, GROUPING, "protocol", 1)  # the run is over


def test_a_grouping_without_labels_agreed():
    agents, roster = agents_of()
    run = Run(agents, "hdpmf", terms=terms_for("hdp-sum", "sums"))
    run.tell(run.terms)
    run.tell(survey_for())
    secure_sum(run, roster, 0, survey_layout(survey_for(), N))
    refuses(agents[0], GROUPING, "protocol", 1)


@pytest.mark.parametrize(
    "other",
    [
        {"scores": SCORES[:-1], "heads": GROUPING.heads[:-1]},
        {"scores": np.append(SCORES, 1), "heads": GROUPING.heads},
        {"scores": np.append(SCORES, 1), "heads": np.array([WORLD.n_items])},
    ],
)
def test_a_grouping_of_other_items(other):
    agents, roster = agents_of()
    counted(agents, roster)
    refuses(agents[0], Grouping(**other), "protocol", 1)
    assert labels_of(agents[0]) is None
    refuses(agents[0], GROUPING, "protocol", 1)  # the run is over here
    assert ask(agents[1], GROUPING, 1) == Ready(number=1)


def _forged(old, new):
    body = encode(replace(GROUPING, scores=np.full(WORLD.n_items, 7)))
    assert old in body
    return body.replace(old, new, 1)


@pytest.mark.parametrize(
    "body",
    [
        _forged(np.int64(7).tobytes(), np.int64(65).tobytes()),
        _forged(np.int64(7).tobytes(), np.int64(-(2**63)).tobytes()),
        _forged(
            np.int64(7).tobytes() * WORLD.n_items, np.float64(np.nan).tobytes() * WORLD.n_items
        ),
        _forged(b"i8", b"f8"),
        _forged(np.int64(17).tobytes(), np.int64(2).tobytes()),
        _forged(np.int64(29).tobytes(), np.int64(30).tobytes()),
        _forged(np.int64(3).tobytes(), np.int64(0).tobytes()),
        _forged(GROUPING.heads[2:].tobytes(), np.array([5, -(2**63) + 2, 0]).tobytes()),
    ],
    ids=["65", "least", "nan", "floats", "not ascending", "beyond", "twice", "around"],
)
def test_a_forged_grouping_draws_nothing(body):
    agents, roster = agents_of()
    counted(agents, roster)
    with pytest.raises(ProtocolError):
        decode(body)
    reply = decode(agents[0].answer(envelope(body, 1)))
    assert isinstance(reply, Reply)
    assert decode(reply.body) == Refusal(reason="protocol")
    assert labels_of(agents[0]) is None


def test_a_sum_of_other_heads_than_the_grouping_has():
    agents, roster = agents_of()
    counted(agents, roster, GROUPING)
    for heads in (0, len(GROUPING.heads) - 1, WORLD.n_items):
        words = survey_layout(SURVEY, N, heads)
        plan = propose(roster, words.length, minimum=N, wide=True)
        reply = decode(agents[0].answer(envelope(encode_sum(plan), 1, part="sum")))
        assert decode(reply.body) == Refusal(reason="secure-sum")
    assert waiting_numbers(agents[0]) is not None


@pytest.mark.parametrize(
    ("rounds", "labels"),
    [(1, True), (2, False)],
    ids=["labels that the terms lack", "terms without their labels"],
)
def test_a_survey_with_other_labels_than_the_terms(rounds, labels):
    agents, _ = agents_of()
    ask(agents[0], replace(TERMS, rounds=rounds, labels=rounds == 2))
    refuses(agents[0], survey_for(labels=labels), "protocol")
    assert agents[0].store.ledger.spent_total() == 0


def test_terms_have_one_round_or_two():
    with pytest.raises(ProtocolError, match="hdp-sum has rounds = 2, not 3"):
        replace(TERMS, rounds=3)
    with pytest.raises(ProtocolError, match="hdp-sum has rounds = 1, not 2"):
        replace(TERMS, labels=False)
    with pytest.raises(ProtocolError, match="hdp-bit has rounds = 1"):
        terms_for("hdp-bit", rounds=2)
    strict = agent_for(make_store(ratings=part([1]), policy=replace(OPEN, max_rounds=1)))
    strict.store.pin_roster(
        [strict.store.identity.public, *(bytes([one]) * 32 for one in range(1, 18))],
        [1] * WORLD.n_users,
    )
    refuses(strict, TERMS, "policy")
    assert ask(strict, replace(TERMS, rounds=1, labels=False)) == Accepted()


def test_an_epsilon_that_labels_cannot_be_drawn_with_is_refused_before_anything_is_paid():
    agents, _ = agents_of()
    ask(agents[0], replace(TERMS, epsilon=5e-5))
    refuses(agents[0], replace(SURVEY, epsilon=5e-5), "protocol")


@pytest.mark.parametrize("change", ["weight", "rating", "policy"])
def test_what_changed_between_the_sums_is_held_to_what_was_paid(change):
    agents, roster = agents_of()
    counted(agents, roster)
    store = agents[0].store
    ratings = store.ratings()
    store_weights = store.weights().for_ratings(ratings)
    user = str(ratings.users.ids[ratings.user_codes[0]])
    if change == "weight":
        assert store.weights().for_users(ratings.users)[ratings.user_codes[0]] < 1.0
        store.set_weight(user=user, beta=1.0)
    elif change == "rating":
        store.remove(str(ratings.items.ids[ratings.item_codes[0]]), user=user)
    else:
        store.set_policy(replace(OPEN, methods=("hdp-bit",)))
        refuses(agents[0], GROUPING, "policy", 1)
        assert labels_of(agents[0]) is None
        return
    assert ask(agents[0], GROUPING, 1) == Ready(number=1)
    n, numbers = WORLD.n_items, waiting_numbers(agents[0])
    units = np.bincount(ratings.item_codes, weight_units(store_weights), n)
    sent = numbers[n + len(GROUPING.heads) : 2 * n + len(GROUPING.heads)]
    # What weighs more now enters with the weight that was paid for; what is gone is not in it.
    assert sent.sum() == units.sum() if change == "weight" else sent.sum() < units.sum()
