"""Whole runs between agents and a recommender: the library's result, whoever holds whom, and a
model to go on with.
"""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.base.threads import Workers
from hdpmf.common.methods import method_named
from hdpmf.common.privacy.mechanisms import mechanism_of
from hdpmf.common.privacy.sampling import ReleasedNoise, SeededNoise
from hdpmf.common.protocol import (
    BitContribution,
    Ready,
    Refusal,
    Round,
    encode,
)
from hdpmf.common.protocol.layout import contribution_from_sum, survey_layout
from hdpmf.errors import PrivacyError
from hdpmf.models import make_model
from hdpmf.private.client import GradientClient
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.private.device.recommendations import predict_ratings, recommend
from hdpmf.private.device.recommender_state import open_runs
from hdpmf.untrusted.recommender import Recommender
from hdpmf.untrusted.recommender.bits import facts_from_bits
from hdpmf.untrusted.recommender.sums import facts_from_sums
from tests.world import NoNoise, ask, rows_in

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
    plan_for,
    refuses,
    secure_sum,
    survey_for,
    terms_for,
)


def library(method):
    """The library's own training with the same seed, its noise off."""

    class Quiet(SeededNoise):
        def normals(self, shape):
            return np.zeros(shape, np.float32)

        def laplace_share(self, scale, n_shares, size, *, count=1):
            return np.zeros(size, np.int64)

        def uniforms(self, n):
            return np.zeros(n)

    plan, mechanism = plan_for(method), mechanism_of(method_named(method))
    shard = GradientClient(WORLD, WEIGHTS, mechanism, Quiet(1, 2), 7, Workers(1))
    recommender = Recommender(plan, mechanism, SeededNoise(3, 1), h_per_item=True)
    recommender.start([shard.open(recommender.open([shard.accept(plan)]))])
    for _ in range(plan.epochs):
        shard.receive(recommender.next_round())
        recommender.aggregate([shard.contribute()])
    last = recommender.next_round()
    shard.receive(last)
    return last.item_factors, shard.vectors


def agents_of(n, **options):
    return [agent_for(make_store(ratings=ratings), **options) for ratings in partition(n)]


@pytest.mark.parametrize(
    "method", ["mf", "dpmf", "pdpmf", "hdpmf", "hdpmf-w", "hdpmf-r", "hdpmf-paid"]
)
@pytest.mark.parametrize("n", [1, 5, 18])
def test_without_noise_any_partition_gives_the_librarys_factors(method, n):
    agents = agents_of(n)
    run = Run(agents, method)
    run.open()
    factors, vectors = library(method)
    assert np.abs(run.finish() - factors).max() < 1e-5
    for agent in agents:
        model = agent.model
        users = WORLD.users.find(list(model.users))
        found = np.frombuffer(model.vectors, np.float32).reshape(len(users), -1)
        assert np.abs(found - vectors[users]).max() < 1e-4


@pytest.mark.parametrize("method", ["mf", "hdpmf", "hdpmf-paid"])
@pytest.mark.parametrize("n", [3, 9])
def test_without_noise_secure_sums_give_the_librarys_factors(method, n):
    run = Run(agents_of(n), method, "sums")
    run.open()
    assert np.abs(run.finish() - library(method)[0]).max() < 1e-5


@pytest.mark.parametrize("noise", [lambda seed: SeededNoise(seed), lambda seed: ReleasedNoise()])
def test_with_noise_the_whole_conversation_goes_through(noise):
    agents = [
        agent_for(make_store(ratings=ratings), noise(seed))
        for seed, ratings in enumerate(partition(6))
    ]
    for method, view, run in (("hdpmf", "messages", b"a" * 16), ("hdpmf-paid", "sums", b"b" * 16)):
        played = Run(agents, method, view, run=run)
        played.open()
        assert np.isfinite(played.finish()).all()


def test_a_real_device_keeps_its_model_and_recommends_by_itself():
    store = make_store(ratings=part([3]))
    agent = agent_for(store, ReleasedNoise(), simulation=False, seed=None)
    run = Run([agent, agent_for(make_store(ratings=part([0, 1, 2])))])
    run.open()
    run.finish()
    user = str(WORLD.users.ids[3])
    assert len(recommend(store, 5, user=user)) == 5
    rated = [str(one) for one in part([3]).item_ids.tolist()]
    predictions = predict_ratings(store, [user] * len(rated), rated)
    assert ((predictions >= 1) & (predictions <= 5)).all()
    assert predict_ratings(store, [user, "nobody"], ["no such item", rated[0]]) == pytest.approx(
        [part([3]).values.mean(), WORLD.scale.middle]
    )
    words = [one.words for one in store.ledger.entries()]
    assert words[0].startswith(
        "hdpmf with epsilon 0.5. The recommender sees in every round every device's gradients"
    )
    assert "nominal" in words[0]
    assert "no finite pure epsilon" in words[0]
    assert [one.action for one in store.ledger.entries()] == [*["sent"] * 5, "received"]


def test_a_run_is_under_way_from_its_terms_to_its_model():
    stores = [make_store(ratings=part([0, 1])), make_store(ratings=part([2, 3]))]
    run = Run([agent_for(store) for store in stores])
    run.open()
    assert [open_runs(store) for store in stores] == [[run.run], [run.run]]
    run.finish()
    assert [open_runs(store) for store in stores] == [[], []]


def test_predictions_are_those_of_the_library():
    model = make_model("hdpmf", n_factors=4, epochs=4, learning_rate=0.05, epsilon=0.5, rng=1).fit(
        WORLD, WEIGHTS
    )
    agent = agent_for(make_store())
    run = Run([agent])
    run.open()
    run.finish()
    kept = agent.model
    final = Round(
        number=5,
        item_factors=model.catalogue_.factors,
        raters=model.catalogue_.raters.astype(np.int64),
        h=None,
    )
    own = type(kept)(
        recommender="r",
        run=kept.run,
        method="hdpmf",
        view="messages",
        plan=kept.plan,
        numbers=encode(final),
        users=tuple(map(str, WORLD.users.ids.tolist())),
        vectors=model.devices_.vectors.tobytes(),
    )
    found = predict_ratings(
        agent.store, [str(u) for u in WORLD.user_ids], [str(i) for i in WORLD.item_ids], model=own
    )
    np.testing.assert_allclose(found, model.predict(WORLD.user_ids, WORLD.item_ids), atol=1e-4)


def test_one_round_of_secure_sums_gives_the_librarys_facts():
    agents = agents_of(9)
    roster = enrol(agents)
    run = Run(agents, "hdpmf", terms=terms_for("hdp-sum", "sums"))
    survey = survey_for()
    run.tell(run.terms)
    assert run.tell(survey) == [Ready(number=0)] * 9
    total = secure_sum(run, roster, 0, survey_layout(survey, 9))
    answer = contribution_from_sum(survey, 9, total)
    facts = facts_from_sums(survey, [answer], None)
    shard = OneRoundClient(
        WORLD, WEIGHTS, NoNoise(), epsilon=0.5, catalogue=survey.catalogue, simulation=True
    )
    shard.accept(survey)
    whole = shard.contribute()
    assert np.array_equal(answer.scores, whole.scores)
    assert np.array_equal(answer.weights, whole.weights)
    assert answer.total == whole.total
    run.publish(facts)
    user = str(part([4]).user_ids[0])
    holder = next(agent for agent in agents if user in agent.store.ratings().users.ids.tolist())
    assert np.isfinite(
        predict_ratings(holder.store, [user], ["no such item"], model=holder.model)
    ).all()
    assert [one.action for one in holder.store.ledger.entries()] == ["agreed", "sent", "received"]
    assert "that is a guarantee" in holder.store.ledger.entries()[0].words


def test_one_bit_per_rating():
    agents = agents_of(3, noise=SeededNoise(1))
    run = Run(agents, "hdpmf", terms=terms_for("hdp-bit"))
    run.tell(run.terms)
    survey = survey_for("L")
    answers = run.tell(survey)
    assert all(isinstance(one, BitContribution) for one in answers)
    facts = facts_from_bits(survey, answers, None, n_patterns=4)
    assert facts.similarity is not None
    run.publish(facts)
    # Every device predicts from its own ratings what the library predicts from all.
    library = make_model("hdp-bit").with_facts(WORLD, WEIGHTS, facts)
    items = [str(item) for item in WORLD.items.ids]
    for agent in agents:
        for user in agent.store.ratings().users.ids.tolist():
            here = predict_ratings(agent.store, [user] * len(items), items, model=agent.model)
            np.testing.assert_allclose(
                here, library.predict([user] * len(items), WORLD.items.ids), atol=1e-5
            )
    # Bits leave with the answer, so the ledger says that they were sent.
    assert [one.action for one in agents[0].store.ledger.entries()] == ["sent", "received"]


def test_a_new_device_gets_the_model_without_giving_anything():
    store = make_store(ratings=part([2]), pin=False)
    agent = agent_for(store, ReleasedNoise(), simulation=False, seed=None)
    user = str(WORLD.users.ids[2])
    final = Round(
        number=5, item_factors=np.ones((30, 4), np.float32), raters=np.ones(30, np.int64), h=None
    )
    early = Round(number=1, item_factors=final.item_factors, raters=final.raters, h=None)
    assert not agent.learn(TABLE, early, plan_for())
    bare = Round(number=2, item_factors=final.item_factors, raters=final.raters, h=None)
    assert not agent.learn(TABLE, bare)  # without a plan nobody knows what it means
    refuses(agent, final, "protocol", 5)  # nor is it an offer
    assert agent.learn(TABLE, final, plan_for())
    assert len(recommend(store, 3, user=user)) == 3
    assert agent.learn(TABLE, facts_for(), run=b"another run....!")
    assert recommend(store, 1, user=user)[0].item not in {
        str(one) for one in part([2]).item_ids.tolist()
    }
    assert store.ledger.entries() == []  # which is about what was sent
    for number in range(5):
        assert agent.learn(TABLE, facts_for(), run=number.to_bytes(16, "big"))
    assert rows_in(store, "runs") == 0


def test_a_device_without_ratings_adds_its_noise_to_sums_and_nothing_else():
    empty = WORLD.take(np.zeros(0, np.int64))
    agents = [
        agent_for(make_store(ratings=one), SeededNoise(1))
        for one in (part([0]), part([1]), part([2]), empty)
    ]
    terms = terms_for("hdpmf-paid", "sums", users=4, minimum=4)
    run = Run(agents, "hdpmf-paid", "sums", terms=terms)
    run.open()
    assert int(run.recommender.raters.sum()) == len(part([0, 1, 2]))
    run.round()
    alone = agent_for(make_store(ratings=empty))
    ask(alone, terms_for())
    ask(alone, plan_for())
    assert not ask(alone, run.recommender.open([])).counts.any()


def test_ratings_given_during_a_run_stay_out_of_it_and_after_a_removal_none_is_in_it(tmp_path):
    store = make_store(tmp_path / "a.db", part([5]))
    agent = agent_for(store)
    run, unchanged = Run([agent]), Run([agent_for(make_store(ratings=part([5])))])
    for each in (run, unchanged):
        each.open()
        each.round()
    user = str(WORLD.users.ids[5])
    rated = {str(one) for one in part([5]).item_ids.tolist()}
    other = next(str(one) for one in WORLD.items.ids.tolist() if str(one) not in rated)
    store.rate(other, 5.0, user=user)
    run.round()
    unchanged.round()
    np.testing.assert_array_equal(run.recommender.factors, unchanged.recommender.factors)
    store.remove(next(iter(rated)), user=user)
    message = run.recommender.next_round()
    assert not ask(agent, message, message.number).sums.any()


def test_real_devices_have_no_seed():
    with pytest.raises(PrivacyError, match="ReleasedNoise"):
        agent_for(make_store(), SeededNoise(1), simulation=False, seed=None)
    with pytest.raises(PrivacyError, match="seed"):
        agent_for(make_store(), ReleasedNoise(), simulation=False)
    assert "user" not in repr(agent_for(make_store()))


def test_a_recommender_hears_nothing_of_another_ones_run():
    store = make_store(ratings=part([1]))
    one, other = agent_for(store, recommender="one"), agent_for(store, recommender="other")
    ask(one, terms_for("hdp-bit"))
    assert isinstance(ask(other, survey_for("L")), Refusal)
    assert not other.learn(TABLE, facts_for())
    assert "with another recommender" in other.said[-1]
    assert one.learn(TABLE, facts_for())
