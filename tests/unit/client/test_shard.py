import ast
from pathlib import Path

import numpy as np
import pytest

import hdpmf.private
from hdpmf.common.base.threads import Workers
from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy import (
    NoPrivacy,
    PrivacySpec,
    PrivacyWeights,
    Sample,
    SeededNoise,
    Stretch,
    Uniform,
    Weight,
)
from hdpmf.common.protocol import (
    BudgetReport,
    Gradients,
    ItemCounts,
    Opening,
    Plan,
    Round,
    decode,
    encode,
    messages,
)
from hdpmf.errors import PrivacyError, ProtocolError
from hdpmf.private.client import GradientClient
from hdpmf.untrusted.recommender import Recommender

WORLD = synthetic_world(n_users=60, n_items=40, n_ratings=1500, rng=0)
WEIGHTS = PrivacySpec().draw(WORLD, rng=0)
WORKERS = Workers(1)


def plan_for(mechanism="stretch", **changes):
    fields = {
        "n_items": WORLD.n_items,
        "n_factors": 4,
        "epochs": 6,
        "learning_rate": 0.02,
        "reg": 0.01,
        "mechanism": mechanism,
        "epsilon": 1.0,
        "scale_low": 1.0,
        "scale_high": 5.0,
        "scale_steps": True,
        "fresh_noise": True,
    }
    return Plan(**(fields | changes))


def make_shard(ratings=WORLD, mechanism=None, seed=7):
    return GradientClient(
        ratings, WEIGHTS, mechanism or Stretch(), SeededNoise(seed, 2), 7, WORKERS
    )


def parts(n):
    """The world's users dealt out to ``n`` shards."""
    return [WORLD.take(np.flatnonzero(WORLD.user_codes % n == part)) for part in range(n)]


def train(shards, mechanism, plan, wire=False):
    """The whole conversation; with ``wire`` every message goes through bytes."""
    send = (lambda message: decode(encode(message))) if wire else (lambda message: message)
    recommender = Recommender(plan, mechanism, SeededNoise(3, 1), h_per_item=True)
    reports = [shard.accept(send(plan)) for shard in shards]
    opening = send(
        recommender.open([None if report is None else send(report) for report in reports])
    )
    recommender.start([send(shard.open(opening)) for shard in shards])
    for _ in range(plan.epochs):
        message = send(recommender.next_round())
        for shard in shards:
            shard.receive(message)
        recommender.aggregate([send(shard.contribute()) for shard in shards])
    last = send(recommender.next_round())
    for shard in shards:
        shard.receive(last)
    return recommender


class Silent(SeededNoise):
    """Noise off: what is left must not depend on how users are dealt out."""

    def normals(self, shape):
        return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("mechanism", "name"),
    [(NoPrivacy(), "none"), (Uniform(), "uniform"), (Stretch(), "stretch"), (Weight(), "weight")],
)
def test_any_partition_into_shards_gives_the_same_factors(mechanism, name):
    results = []
    for n in (1, 2, 7, 60):
        shards = [
            GradientClient(part, WEIGHTS, mechanism, Silent(1, 2), 7, WORKERS) for part in parts(n)
        ]
        results.append(train(shards, mechanism, plan_for(name), wire=n == 7).factors)
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_noise_of_many_shards_is_noise_of_one():
    """Per item and coordinate the shards' shares have together the variance that one shard's
    would have.
    """
    plan = plan_for(epochs=1)
    totals = []
    for seed in range(300):
        shards = [make_shard(part, seed=1000 * seed + k) for k, part in enumerate(parts(3))]
        quiet = [
            GradientClient(part, WEIGHTS, Stretch(), Silent(1, 2), 7, WORKERS) for part in parts(3)
        ]
        message = None
        for group in (shards, quiet):
            recommender = Recommender(plan, Stretch(), SeededNoise(3, 1), h_per_item=False)
            opening = recommender.open([shard.accept(plan) for shard in group])
            recommender.start([shard.open(opening) for shard in group])
            message = recommender.next_round()
            for shard in group:
                shard.receive(message)
        noise = sum(shard.contribute().sums for shard in shards) - sum(
            shard.contribute().sums for shard in quiet
        )
        totals.append(noise / np.sqrt(2 * message.h) / (2 * np.sqrt(4) * 4.0))
    rated = WORLD.item_counts() > 0
    standard = np.array(totals)[:, rated]
    # Mean square of 300 x items x 4 standard normals: within 5 standard deviations of 1.
    assert abs((standard**2).mean() - 1) < 5 * np.sqrt(2 / standard.size)


def test_noise_once_is_the_same_in_every_round_and_fresh_noise_is_not():
    for fresh in (True, False):
        plan = plan_for(fresh_noise=fresh, epochs=2, learning_rate=1e-12)
        shard, recommender = (
            make_shard(),
            Recommender(
                plan_for(fresh_noise=fresh, epochs=2, learning_rate=1e-12),
                Stretch(),
                SeededNoise(3, 1),
                True,
            ),
        )
        recommender.start([shard.open(recommender.open([shard.accept(plan)]))])
        sums = []
        for _ in range(2):
            shard.receive(recommender.next_round())
            reply = shard.contribute()
            sums.append(reply.sums)
            recommender.aggregate([reply])
        assert np.allclose(sums[0], sums[1], rtol=1e-4, atol=1e-4) != fresh


def opened(mechanism=None, name="stretch"):
    mechanism = mechanism or Stretch()
    plan = plan_for(name)
    shard = make_shard(mechanism=mechanism)
    recommender = Recommender(plan, mechanism, SeededNoise(3, 1), h_per_item=True)
    recommender.start([shard.open(recommender.open([shard.accept(plan)]))])
    return shard, recommender


def changed(message, **fields):
    return Round(
        **(
            {
                "number": message.number,
                "item_factors": message.item_factors,
                "raters": message.raters,
                "h": message.h,
            }
            | fields
        )
    )


@pytest.mark.parametrize(
    "attack",
    [
        lambda m: changed(m, number=99),
        lambda m: changed(m, h=None),
        lambda m: changed(m, h=np.zeros_like(m.h)),
        lambda m: changed(m, h=np.full_like(m.h, 1e-30)),
        lambda m: changed(m, h=np.where(np.arange(len(m.h))[:, None] == 3, np.float32(1e-5), m.h)),
        lambda m: changed(m, raters=np.maximum(m.raters - 1, 0)),
        lambda m: changed(m, item_factors=m.item_factors[:, :2], h=m.h[:, :2]),
        lambda m: changed(m, item_factors=m.item_factors[:-1], raters=m.raters[:-1], h=m.h[:-1]),
        lambda m: Opening(noise_budget=1.0),
    ],
)
def test_a_shard_refuses_what_would_weaken_it_and_goes_on(attack):
    shard, recommender = opened()
    message = recommender.next_round()
    before = shard.vectors.copy()
    with pytest.raises((PrivacyError, ProtocolError)):
        shard.receive(attack(message))
    with pytest.raises(ProtocolError, match="no round"):
        shard.contribute()
    assert np.array_equal(shard.vectors, before)
    shard.receive(message)
    shard.contribute()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", ["item_factors", "h"])
def test_numbers_that_are_none_make_no_message(field, wrong):
    _, recommender = opened()
    message = recommender.next_round()
    spoiled = getattr(message, field).copy()
    spoiled[1, 2] = wrong
    with pytest.raises(ProtocolError, match=f"{field} must be finite"):
        changed(message, **{field: spoiled})


def test_a_round_is_answered_once():
    """Two answers with noise of their own would have half the variance together."""
    shard, recommender = opened()
    shard.receive(recommender.next_round())
    shard.contribute()
    with pytest.raises(ProtocolError, match="has been answered"):
        shard.contribute()


def test_an_opening_comes_once():
    """A second one would draw PDPMF's sample again, and so tell which ratings are likely to be
    in it.
    """
    shard, _ = opened(Sample(), "sample")
    with pytest.raises(ProtocolError, match="once"):
        shard.open(Opening(noise_budget=0.5))


def test_a_plan_must_not_change():
    shard = make_shard()
    shard.accept(plan_for())
    shard.accept(plan_for())
    for other in (plan_for(epsilon=2.0), plan_for(epochs=600), plan_for(fresh_noise=False)):
        with pytest.raises(ProtocolError, match="must not change"):
            shard.accept(other)
    shard.open(Opening(noise_budget=1.0))


@pytest.mark.parametrize(
    ("mechanism", "name", "wrong"),
    [
        (Uniform(), "uniform", 0.5),
        (Uniform(), "uniform", None),
        (Sample("min"), "sample", 0.5),
        (Sample("mean"), "sample", 1.01),
        (Sample("max"), "sample", 50.0),
        (Sample(0.3), "sample", 0.4),
        (Sample("mean"), "sample", None),
    ],
)
def test_a_noise_budget_that_nobody_s_budgets_give_is_refused(mechanism, name, wrong):
    shard = make_shard(mechanism=mechanism)
    report = shard.accept(plan_for(name))
    with pytest.raises(ProtocolError, match="noise budget"):
        shard.open(Opening(noise_budget=wrong))
    shard.open(Recommender(plan_for(name), mechanism, SeededNoise(3, 1), True).open([report]))


def test_a_repeated_round_is_refused():
    shard, recommender = opened()
    message = recommender.next_round()
    shard.receive(message)
    shard.contribute()
    with pytest.raises(ProtocolError, match="expected round 2"):
        shard.receive(message)


def test_a_device_that_was_away_takes_the_next_round():
    shard, recommender = opened()
    first = recommender.next_round()
    shard.receive(changed(first, number=3))
    assert shard.contribute().number == 3
    for earlier in (1, 2, 3):
        with pytest.raises(ProtocolError, match="expected round 4"):
            shard.receive(changed(first, number=earlier))
    shard.receive(changed(first, number=7))  # the final factors


def test_rounds_come_after_an_opening():
    _, recommender = opened()
    shard = make_shard()
    with pytest.raises(ProtocolError, match="plan must come first"):
        shard.receive(recommender.next_round())
    shard.accept(plan_for())
    for early in (shard.counts, lambda: shard.receive(recommender.next_round())):
        with pytest.raises(ProtocolError, match="Opening must come first"):
            early()


def test_a_shard_of_few_items_sends_what_it_would_send_of_all():
    """One user's rows alone are computed with; what leaves is a whole table, with zeros
    elsewhere.
    """
    few = WORLD.take(np.flatnonzero((WORLD.user_codes == 3) & (WORLD.item_codes < 9)))
    shard = GradientClient(few, WEIGHTS, Stretch(), Silent(1, 2), 7, WORKERS)
    recommender = Recommender(plan_for(), Stretch(), SeededNoise(3, 1), h_per_item=True)
    counts = shard.open(recommender.open([shard.accept(plan_for())]))
    assert shard._own is not None
    assert np.array_equal(counts.counts, few.item_counts())
    recommender.start([counts])
    shard.receive(recommender.next_round())
    sums = shard.contribute().sums
    assert sums.shape == (WORLD.n_items, 4)
    assert np.array_equal(np.flatnonzero(np.abs(sums).sum(axis=1)), np.unique(few.item_codes))


def test_a_plan_for_something_else_is_refused():
    for bad in (plan_for("none"), plan_for(n_items=3), plan_for(scale_high=10.0)):
        with pytest.raises(ProtocolError):
            make_shard().accept(bad)
    with pytest.raises(ProtocolError, match="plan must come first"):
        make_shard().open(Opening(noise_budget=1.0))


def test_a_larger_noise_budget_than_planned_is_refused():
    shard = make_shard()
    shard.accept(plan_for())
    with pytest.raises(ProtocolError, match="noise budget"):
        shard.open(Opening(noise_budget=50.0))
    with pytest.raises(ProtocolError, match="noise budget"):
        shard.open(Opening(noise_budget=None))


def test_nothing_is_sent_before_or_after_the_rounds():
    shard, recommender = opened()
    with pytest.raises(ProtocolError, match="no round"):
        shard.contribute()
    for _ in range(6):
        shard.receive(recommender.next_round())
        recommender.aggregate([shard.contribute()])
    shard.receive(recommender.next_round())
    with pytest.raises(ProtocolError, match="no round"):
        shard.contribute()


def test_hdpmf_reports_no_budgets_and_the_rivals_do():
    assert make_shard().accept(plan_for()) is None
    report = make_shard(mechanism=Sample()).accept(plan_for("sample"))
    assert isinstance(report, BudgetReport)
    assert report.count == len(WORLD)


def test_a_recommender_refuses_gradients_that_do_not_fit():
    shard, recommender = opened()
    shard.receive(recommender.next_round())
    good = shard.contribute()
    with pytest.raises(ProtocolError, match="round"):
        recommender.aggregate([Gradients(number=2, sums=good.sums)])
    with pytest.raises(ProtocolError, match="shape"):
        recommender.aggregate([Gradients(number=1, sums=good.sums[:-1])])
    with pytest.raises(ProtocolError, match="counted"):
        recommender.start([ItemCounts(counts=np.ones(3, np.int64))])


@pytest.mark.slow
def test_messages_are_made_in_one_place():
    """From the syntax tree: on the private side only the gradient client makes messages, of three
    kinds.
    """
    names = {kind.__name__ for kind in vars(messages).values() if _is_message(kind)}
    made = {
        (path.name, node.func.id)
        for path in Path(hdpmf.private.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    }
    sent = ("BudgetReport", "Gradients", "ItemCounts", "BitContribution")
    assert made == {("gradients.py", name) for name in sent[:3]} | {("contributions.py", sent[3])}


def _is_message(kind):
    return isinstance(kind, type) and issubclass(kind, messages._Message)


def test_reprs_show_nothing_private():
    shard, _ = opened()
    text = repr(shard) + repr(WEIGHTS) + repr(WORLD)
    assert "array" not in text
    assert "." not in repr(shard)
    assert repr(PrivacyWeights.uniform(WORLD, 0.37)).count("0.37") == 0
