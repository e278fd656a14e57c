"""A recommender that wants more than was agreed on: every attack is refused with its word, and
the ledger stays.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import (
    Accepted,
    CatalogueTable,
    Envelope,
    Gradients,
    ItemCounts,
    Opening,
    Refusal,
    Reply,
    Round,
    decode,
    encode,
)
from hdpmf.common.protocol.codec import MAX_BYTES
from hdpmf.common.protocol.messages import MAX_FACTORS
from hdpmf.errors import StorageError
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.recommender_state import MAX_OPEN
from tests.world import OPEN, RUN, Device, ask, envelope, rows_in, waiting_sum

from .federated import (
    ROUNDS,
    TABLE,
    WORLD,
    Run,
    agent_for,
    facts_for,
    make_store,
    part,
    plan_for,
    refuses,
    survey_for,
    terms_for,
)

OTHER_RUN = b"some other run.."


@pytest.fixture
def agent():
    """A person's device with noise."""
    return agent_for(make_store(ratings=part([4])), SeededNoise(5))


@pytest.fixture
def run(agent):
    """A run with it that has been opened."""
    made = Run([agent])
    made.open()
    return made


def after_one_round(run):
    """The next round's message, when one has been answered."""
    run.round()
    return run.recommender.next_round()


@pytest.mark.parametrize(
    ("policy", "terms"),
    [
        (Policy(), terms_for()),  # nominal
        (Policy(), terms_for("mf")),
        (replace(OPEN, allow_unprotected=False), terms_for("mf")),
        (replace(OPEN, methods=("hdp-bit",)), terms_for()),
        (replace(OPEN, require_sums=True), terms_for()),
        (replace(OPEN, max_rounds=3), terms_for()),
        (replace(OPEN, epsilon=0.4), terms_for()),
        (replace(OPEN, max_epsilon_per_run=0.4), terms_for()),
        (replace(OPEN, min_participants=19), terms_for("hdpmf-paid", "sums")),
    ],
)
def test_terms_beyond_the_policy(policy, terms):
    agent = agent_for(make_store(ratings=part([4]), policy=policy))
    refuses(agent, terms, "policy")
    assert agent.store.runs.load(RUN) is None


def test_the_policy_counts_when_numbers_are_about_to_leave(agent):
    ask(agent, terms_for())
    ask(agent, plan_for())
    agent.store.set_policy(Policy())
    refuses(agent, Opening(noise_budget=0.5), "policy")


def test_another_item_table_is_never_taken(agent):
    moved = replace(
        TABLE, ids=tuple(sorted(str(one + 1000) for one in range(30))), integer_ids=False
    )
    retitled = replace(TABLE, titles=("x",) * 30)
    wider = replace(TABLE, scale_high=10.0)
    for other in (moved, retitled, wider):
        refuses(agent, other, "protocol")  # it is no offer
        assert not agent.learn(other)
    assert agent.learn(TABLE)
    refuses(agent, terms_for(catalogue="another"), "catalogue")


def test_terms_come_first_and_once(agent):
    for message, number in ((Opening(noise_budget=0.5), 0), (survey_for(), 0), (_round(1), 1)):
        refuses(agent, message, "protocol", number)
    assert ask(agent, terms_for()) == Accepted()
    assert ask(agent, terms_for()) == Accepted()  # an exact repeat
    for changed in (
        terms_for(epsilon=0.6),
        terms_for(rounds=5),
        terms_for("hdp-bit"),
        terms_for(users=99),
    ):
        refuses(agent, changed, "protocol")
    refuses(agent, Opening(noise_budget=0.5), "protocol")
    refuses(agent, survey_for(), "protocol")


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 5.0},
        {"epsilon": 0.1},
        {"epochs": ROUNDS + 1},
        {"mechanism": "none"},
        {"mechanism": "weight"},
        {"n_items": 29},
        {"scale_high": 4.0},
        {"scale_low": 0.0},
    ],
)
def test_a_plan_that_is_not_what_the_terms_say(agent, changes):
    ask(agent, terms_for())
    refuses(agent, plan_for(**changes), "protocol")
    refuses(agent, plan_for(), "protocol")  # the run is over here


def test_a_plan_must_not_change(agent):
    ask(agent, terms_for())
    assert ask(agent, plan_for()) == Accepted()
    refuses(agent, plan_for(learning_rate=0.1), "protocol")


def test_an_opening_comes_once(agent):
    """A second one with another budget would get the same counts with other noise."""
    ask(agent, terms_for())
    ask(agent, plan_for())
    first = ask(agent, Opening(noise_budget=0.5))
    assert not isinstance(first, Refusal)
    refuses(agent, Opening(noise_budget=0.9), "protocol")
    assert agent.answer(envelope(Opening(noise_budget=0.5))) is not None


@pytest.mark.parametrize(
    ("terms", "other"),
    [(terms_for(), survey_for("C")), (terms_for("hdp-bit"), plan_for())],
)
def test_messages_of_another_kind_of_run_have_no_place(agent, terms, other):
    ask(agent, terms)
    refuses(agent, other, "protocol")


def test_a_plan_that_asks_for_more_memory_than_any(agent):
    ask(agent, terms_for())
    largest = encode(plan_for(n_factors=MAX_FACTORS))
    written, more = msgspec.msgpack.encode(MAX_FACTORS), msgspec.msgpack.encode(10_000_000)
    assert largest.count(written) == 1
    _refused(agent, envelope(largest.replace(written, more)), "protocol")
    assert ask(agent, plan_for()) == Accepted()


def test_noise_that_stays_the_same_hides_nothing():
    agent = agent_for(make_store(ratings=part([4]), policy=replace(OPEN, allow_unprotected=False)))
    ask(agent, terms_for())
    refuses(agent, plan_for(fresh_noise=False), "policy")


@pytest.mark.parametrize(("rounds", "hides"), [(1, True), (2, False)])
def test_noise_that_is_used_once_hides_as_if_it_were_fresh(rounds, hides):
    agent = agent_for(make_store(ratings=part([4])))
    ask(agent, terms_for(rounds=rounds))
    ask(agent, plan_for(fresh_noise=False, epochs=rounds))
    ask(agent, Opening(noise_budget=0.5))
    assert np.isfinite(agent.store.ledger.entries()[0].paid) == hides


def test_who_allows_it_all_the_same_pays_infinitely_much():
    agent = agent_for(make_store(ratings=part([4])))
    run = Run([agent], plan=plan_for(fresh_noise=False))
    run.open()
    run.finish()
    first = agent.store.ledger.entries()[0]
    assert (first.status, first.epsilon, first.paid) == ("none", np.inf, np.inf)
    assert "NOTHING IS HIDDEN" in first.words
    assert "no guarantee" in first.words
    ask(agent, terms_for(), run=OTHER_RUN)
    ask(agent, plan_for(), run=OTHER_RUN)
    assert not ask(
        agent, Opening(noise_budget=0.5), run=OTHER_RUN
    ).counts.any()  # nothing is left to send


@pytest.mark.parametrize("budget", [None, 0.6, 50.0, 0.4])
def test_another_noise_budget(agent, budget):
    ask(agent, terms_for())
    ask(agent, plan_for())
    refuses(agent, Opening(noise_budget=budget), "protocol")
    refuses(agent, Opening(noise_budget=0.5), "protocol")  # the run is over


def _round(number, **changes):
    rng = np.random.default_rng(0)
    fields = {
        "number": number, "item_factors": np.zeros((30, 4), np.float32), "raters": np.full(30, 9),
        "h": rng.exponential(size=(30, 4)).astype(np.float32) + np.float32(0.1),
    }  # fmt: skip
    return Round(**(fields | changes))


H = _round(1).h
ATTACKS = {
    "no h": {"h": None},
    "h is zero": {"h": np.zeros((30, 4), np.float32)},
    "h is tiny": {"h": np.full((30, 4), 1e-20, np.float32)},
    "h is small too often": {"h": np.full((30, 4), 1e-6, np.float32)},
    "one h is zero": {"h": np.where(np.arange(30)[:, None] == 7, np.float32(0), H)},
    "more raters than users": {"raters": np.full(30, WORLD.n_users + 1)},
    "a million raters": {"raters": np.full(30, 10**6)},
    "fewer items": {
        "item_factors": np.zeros((29, 4), np.float32),
        "raters": np.full(29, 9),
        "h": H[:29],
    },
    "more factors": {
        "item_factors": np.zeros((30, 5), np.float32),
        "h": np.ones((30, 5), np.float32),
    },
    "beyond the end": {"number": ROUNDS + 2},
    "huge factors": {
        "item_factors": np.tile(np.array([1e36, -1e36, 1e36, -1e36], np.float32), (30, 1))
    },
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_round_that_would_weaken_the_noise(agent, run, name):
    bad = _round(**({"number": 1} | ATTACKS[name]))
    refuses(agent, bad, "protocol", bad.number)
    refuses(agent, _round(1), "protocol", 1)  # the run is over


def test_numbers_that_are_none_do_not_even_make_a_message(agent, run):
    for field in ("item_factors", "h"):
        good = encode(_round(1))
        spoiled = np.array(getattr(_round(1), field))
        spoiled[3, 2] = 12345.678
        marked = encode(_round(1, **{field: spoiled}))
        bad = marked.replace(np.float32(12345.678).tobytes(), np.float32(np.nan).tobytes())
        assert bad != marked != good
        _refused(agent, envelope(bad, 1), "protocol")


def _refused(agent, data, reason):
    before = agent.store.ledger.entries()
    reply = decode(agent.answer(data))
    assert isinstance(reply, Reply)
    assert decode(reply.body) == Refusal(reason=reason)
    assert agent.store.ledger.entries() == before


def test_an_old_round_from_a_restored_backup(agent, run):
    second = after_one_round(run)
    first = _round(1)
    refuses(agent, first, "protocol", 1)  # other factors, other h, the same number
    assert isinstance(ask(agent, second, 2), Gradients)
    for changed in (
        replace(second, h=second.h * np.float32(1.01)),
        replace(second, item_factors=second.item_factors + np.float32(0.01)),
        first,
    ):
        refuses(agent, changed, "protocol", changed.number)


def test_an_exact_repeat_gets_the_same_bytes_and_no_new_noise(agent, run):
    message = run.recommender.next_round()
    data = envelope(message, message.number)
    replies = {agent.answer(data) for _ in range(4)}
    assert len(replies) == 1
    assert [one.number for one in agent.store.ledger.entries() if one.action == "sent"] == [0, 1]
    later = run.recommender
    later.aggregate([decode(decode(replies.pop()).body)])
    following = later.next_round()
    assert isinstance(ask(agent, following, 2), Gradients)
    _refused(agent, data, "protocol")  # the outbox holds the last round only


def test_changed_numbers_of_raters(agent, run):
    message = run.recommender.next_round()
    assert isinstance(ask(agent, message, 1), Gradients)
    refuses(agent, _round(2, raters=message.raters + 1), "protocol", 2)


def test_a_letter_of_another_job(agent, run):
    message = run.recommender.next_round()
    for wrong in (0, 2, 99):
        refuses(agent, message, "protocol", wrong)
    refuses(agent, plan_for(), "protocol", 1)
    refuses(agent, message, "protocol", 1, run=OTHER_RUN)
    assert isinstance(ask(agent, message, 1), Gradients)


def test_a_secure_sum_in_a_run_of_messages(agent, run):
    _refused(agent, envelope(b"x", part="sum"), "secure-sum")
    assert waiting_sum(agent) is None


def test_a_run_that_is_over_does_not_begin_again(agent, run):
    run.finish()
    refuses(agent, terms_for(epsilon=0.1), "protocol")
    refuses(agent, plan_for(learning_rate=1.0), "protocol")
    refuses(agent, _round(2), "protocol", 2)
    refuses(agent, Opening(noise_budget=0.1), "protocol")


def test_budgets_run_out_over_runs_and_recommenders():
    store = make_store(ratings=part([4]))
    one, other = agent_for(store, recommender="one"), agent_for(store, recommender="other")
    for place, (agent, name) in enumerate(
        ((one, b"run 1..........."), (other, b"run 2...........")), start=1
    ):
        ask(agent, terms_for(), run=name)
        ask(agent, plan_for(), run=name)
        assert isinstance(ask(agent, Opening(noise_budget=0.5), run=name), ItemCounts)
        paid = sum(entry.paid for entry in store.ledger.entries())
        assert paid == pytest.approx(
            place * 0.5 * store.weights().for_ratings(store.ratings()).sum()
        )
    for agent in (one, other):
        name = bytes([65 + (agent is one)]) * 16
        ask(agent, terms_for(), run=name)
        ask(agent, plan_for(), run=name)
        assert not ask(agent, Opening(noise_budget=0.5), run=name).counts.any()
    assert store.ledger.remaining(
        store.ratings(), store.weights(), store.policy
    ).max() == pytest.approx(0, abs=1e-9)


def test_only_ratings_that_can_pay_take_part():
    store = make_store(ratings=part([4]))
    agent = agent_for(store)
    first = store.ratings().take(np.arange(3))
    items = [str(one) for one in first.item_ids.tolist()]
    ask(agent, terms_for(epsilon=1.0), run=OTHER_RUN)
    ask(agent, plan_for(epsilon=1.0), run=OTHER_RUN)
    spare = {str(one) for one in store.ratings().item_ids.tolist()} - set(items)
    user = str(first.users.ids[0])
    records = {(one.user, one.item): one.value for one in store.records()}
    for item in spare:
        store.remove(item, user=user)
    ask(agent, Opening(noise_budget=1.0), run=OTHER_RUN)
    for item in spare:
        store.rate(item, records[user, item], user=user)
    ask(agent, terms_for())
    ask(agent, plan_for())
    counts = ask(agent, Opening(noise_budget=0.5)).counts
    assert counts.sum() == len(spare)


def test_max_total_is_a_budget_too():
    agent = agent_for(make_store(ratings=part([4]), policy=replace(OPEN, max_total=0.01)))
    ask(agent, terms_for())
    ask(agent, plan_for())
    assert ask(agent, Opening(noise_budget=0.5)).counts.sum() < len(part([4]))
    assert agent.store.ledger.spent_total() <= 0.01


def test_two_recommenders_with_one_run_number():
    """The second one must not go on with what the first has agreed on."""
    store = make_store(ratings=part([4]))
    one, other = agent_for(store, recommender="one"), agent_for(store, recommender="other")
    for message in (terms_for(), plan_for(), Opening(noise_budget=0.5)):
        ask(one, message)
    for message, number in ((terms_for(), 0), (_round(1), 1), (plan_for(), 0)):
        refuses(other, message, "protocol", number)
    assert isinstance(ask(one, _round(1), 1), Gradients)


def test_two_processes_that_answer_for_one_device():
    """Should two agents of one name get at a store, only one of them answers a round."""
    store = make_store(ratings=part([4]))
    one, twin = agent_for(store), agent_for(store)
    for message in (terms_for(), plan_for(), Opening(noise_budget=0.5)):
        ask(one, message)
    assert isinstance(ask(twin, _round(1), 1), Gradients)
    refuses(one, _round(1, item_factors=np.ones((30, 4), np.float32)), "busy", 1)
    assert isinstance(ask(one, _round(2), 2), Gradients)
    refuses(twin, _round(2, item_factors=np.ones((30, 4), np.float32)), "busy", 2)


def test_terms_without_end_do_not_fill_the_store_and_do_not_push_a_paid_run_out(agent, run):
    for one in range(3 * MAX_OPEN):
        assert ask(agent, terms_for(), run=one.to_bytes(16, "big")) == Accepted()
    assert rows_in(agent.store, "runs") <= MAX_OPEN
    message = run.recommender.next_round()
    assert isinstance(ask(agent, message, 1), Gradients)


def test_the_oldest_of_many_paid_runs_makes_place():
    agent = agent_for(make_store(ratings=part([4])))
    for one in range(MAX_OPEN):
        name = one.to_bytes(16, "big")
        ask(agent, terms_for(epsilon=0.01), run=name)
        ask(agent, plan_for(epsilon=0.01), run=name)
        assert isinstance(ask(agent, Opening(noise_budget=0.01), run=name), ItemCounts)
    assert ask(agent, terms_for()) == Accepted()
    first = (0).to_bytes(16, "big")
    refuses(agent, _round(1), "protocol", 1, run=first)
    refuses(
        agent, terms_for(epsilon=0.02), "protocol", run=first
    )  # what was paid for does not begin again


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 2.0},
        {"epsilon": 0.1},
        {"contributors": 19},
        {"contributors": 10**6},
        {"n_items": 29},
        {"catalogue": "other"},
        {"scale_high": 6.0},
        {"design": "L"},
    ],
)
def test_a_survey_that_is_not_what_the_terms_say(changes):
    agents = [agent_for(make_store(ratings=part([one]))) for one in range(3)]
    run = Run(agents, "hdpmf-paid", "sums", terms=terms_for("hdp-sum", "sums", users=3, minimum=3))
    run.tell(run.terms)
    good = survey_for(contributors=3)
    refuses(agents[0], replace(good, **changes), "protocol")
    assert agents[0].store.ledger.spent_total() == 0
    refuses(agents[0], replace(good, labels=True), "protocol")
    ask(agents[0], good)
    refuses(agents[0], replace(good, coding="linear"), "protocol")


def test_a_second_survey_gets_nothing_that_the_first_one_had():
    store = make_store(ratings=part([4]))
    agent = agent_for(store, SeededNoise(1))
    elsewhere = Device(store, recommender="other", noise=SeededNoise(1), simulation=True)
    # Each rating has epsilon 1, of which a survey costs a half: one recommender gets it once, two
    # get it once each.
    bits = []
    for number, asked in enumerate((agent, agent, elsewhere, elsewhere)):
        run = bytes([number + 1]) * 16
        ask(asked, terms_for("hdp-bit"), run=run)
        bits.append(len(ask(asked, survey_for("L"), run=run).plus))
    assert bits[0] > 0
    assert bits == [bits[0], 0, bits[0], 0]


def test_item_facts_of_other_items(agent):
    for bad in (
        facts_for(catalogue="other"),
        facts_for(
            bias=np.zeros(3, np.float32),
            variance=np.zeros(3, np.float32),
            popularity=np.zeros(3, np.float32),
            patterns=np.zeros((3, 0), np.float32),
        ),
    ):
        refuses(agent, bad, "protocol", 1)  # it is no offer
        before = agent.store.ledger.entries()
        assert not agent.learn(TABLE, bad)
        assert (agent.model, agent.store.ledger.entries()) == (None, before)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"hello",
        bytes(100),
        encode(TABLE),
        encode(terms_for()),
        encode(Reply(run=RUN, number=0, part="job", body=b"")),
        envelope(b""),
        envelope(b"\x93\x01\x02\x03"),
        envelope(encode(ItemCounts(counts=np.zeros(30, np.int64)))),
        envelope(encode(Envelope(run=RUN, number=0, part="job", body=b""))),
        envelope(encode(Gradients(number=1, sums=np.zeros((1, 1), np.float32)))),
    ],
)
def test_what_is_no_envelope_or_no_message(agent, run, data):
    _refused(agent, data, "protocol")
    _refused(agent, envelope(b"x", part="sum"), "secure-sum")
    assert isinstance(ask(agent, _round(1), 1), Gradients)


def test_what_is_too_long_is_not_even_read(agent, monkeypatch):
    class Long(bytes):
        def __len__(self):
            return MAX_BYTES + 1

    _refused(agent, Long(b"x"), "protocol")


def test_a_full_disk(agent, run, monkeypatch):
    def full(*_):
        raise StorageError("nothing was written: the disk refused")

    good = _round(1)
    with monkeypatch.context() as broken:
        broken.setattr(agent.store.runs, "put_reply", full)
        refuses(agent, good, "storage", 1)
    # What was half done is forgotten: the round is still to be answered, once.
    assert isinstance(ask(agent, good, 1), Gradients)
    refuses(agent, _round(1, item_factors=np.ones((30, 4), np.float32)), "protocol", 1)


def test_refusals_tell_a_word_and_the_log_no_rating():
    said = []
    agent = agent_for(make_store(ratings=part([4])), log=said.append)
    run = Run([agent])
    run.open()
    for name in ATTACKS:
        ask(agent, _round(**({"number": 1} | ATTACKS[name])), 1)
    assert len(said) >= len(ATTACKS) - 1
    for rating in part([4]).item_ids.tolist():
        assert not any(f"item {rating}" in line for line in said)


def test_items_with_few_raters_stay_out():
    agent = agent_for(
        make_store(ratings=part([4]), policy=replace(OPEN, min_raters=12)), SeededNoise(3)
    )
    run = Run([agent])
    run.open()
    raters = np.where(np.arange(30) % 2, 15, 11)
    sums = ask(agent, _round(1, raters=raters), 1).sums
    assert not sums[raters < 12].any()
    rated = np.isin(np.arange(30), part([4]).item_codes) & (raters >= 12)
    assert sums[rated].any(axis=1).all()


def test_a_catalogue_that_cannot_be_one():
    agent = agent_for(make_store(ratings=part([4]), pin=False))
    unclear = CatalogueTable(
        ids=("01", "2"), integer_ids=True, scale_low=1.0, scale_high=5.0, scale_step=1.0
    )
    refuses(agent, unclear, "protocol")
    refuses(agent, plan_for(), "protocol")
    refuses(agent, terms_for(), "catalogue")
