"""Secure sums through agents: a recommender that wants a smaller sum, another sum, or the same
numbers twice.
"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from hdpmf.common.aggregation.masks import (
    DeviceIdentity,
    Roster,
    SecureSumServer,
    decode_to_recommender,
    propose,
)
from hdpmf.common.aggregation.masks import encode as encode_sum
from hdpmf.common.aggregation.masks.messages import MaskedVector
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import Accepted, Opening, Ready, Refusal, Reply, decode
from hdpmf.common.protocol.federation import cohort_of
from hdpmf.common.protocol.layout import (
    counts_from_sum,
    counts_layout,
    gradients_layout,
    survey_layout,
)
from tests.world import OPEN, ask, envelope, waiting_numbers, waiting_sum

from .federated import (
    WORLD,
    Run,
    agent_for,
    enrol,
    make_store,
    part,
    partition,
    plan_for,
    refuses,
    secure_sum,
    survey_for,
    terms_for,
)

N = 6


@pytest.fixture
def run():
    """Six silos that are ready to have their ratings counted."""
    made = Run(
        [
            agent_for(make_store(ratings=one), SeededNoise(place))
            for place, one in enumerate(partition(N))
        ],
        "hdpmf",
        "sums",
    )
    made.tell(made.terms)
    made.tell(made.plan)
    assert made.tell(made.recommender.open([])) == [Ready(number=0)] * N
    return made


def proposed(run, words=None, **changes):
    words = words or counts_layout(run.plan, N)
    options = {"minimum": N, "wide": words.wide} | changes
    return propose(run.roster, words.length, **options)


def to_device(run, place, message, number=0):
    return decode(run.agents[place].answer(envelope(encode_sum(message), number, part="sum")))


def refused(run, message, number=0, place=0, reason="secure-sum"):
    before = run.agents[place].store.ledger.entries()
    reply = to_device(run, place, message, number)
    assert isinstance(reply, Reply)
    assert decode(reply.body) == Refusal(reason=reason)
    assert run.agents[place].store.ledger.entries() == before


def test_a_sum_that_breaks_off_before_the_vectors_is_tried_again(run):
    for device in range(N):
        assert to_device(run, device, proposed(run)).part == "sum"
    total = run.sum(0, counts_layout)
    assert np.array_equal(counts_from_sum(run.plan, N, total).counts, WORLD.item_counts())


def test_numbers_go_into_one_sum(run):
    """Two sums over different devices would differ by one device's numbers."""
    run.sum(0, counts_layout)
    for others in (proposed(run), proposed(run, participants=[0, 1, 2, 3], minimum=4)):
        refused(run, others)
    # Neither does asking for the job again make them ready again, nor a restart.
    refuses(run.agents[0], run.recommender.open([]), "secure-sum")
    again = agent_for(run.agents[0].store)
    refuses(again, run.recommender.open([]), "secure-sum")


def test_the_ledger_says_so_before_the_vector_leaves(run):
    store = run.agents[2].store
    server = SecureSumServer(proposed(run), run.roster)
    outgoing = server.advance()
    seen = []
    while outgoing:
        for device, message in outgoing.items():
            reply = decode_to_recommender(to_device(run, device, message).body)
            if device == 2:
                seen.append((type(reply), [one.action for one in store.ledger.entries()]))
            server.receive(device, reply)
        outgoing = server.advance()
    for kind, actions in seen:
        position = [one for one, _ in seen].index(MaskedVector)
        assert (actions == ["agreed", "sent"]) == (seen.index((kind, actions)) >= position)


def test_a_vector_that_could_not_be_written_down_does_not_leave(run, monkeypatch):
    from hdpmf.errors import StorageError

    def full(*_, **__):
        raise StorageError("the disk refused")

    server = SecureSumServer(proposed(run), run.roster)
    outgoing = server.advance()
    for _ in range(2):
        for device, message in outgoing.items():
            server.receive(device, decode_to_recommender(to_device(run, device, message).body))
        outgoing = server.advance()
    with monkeypatch.context() as broken:
        broken.setattr(run.agents[1].store.ledger, "note", full)
        refused(run, outgoing[1], place=1, reason="storage")


@pytest.mark.parametrize(
    "changes",
    [
        {"minimum": 5},  # five of these devices have fewer users than were agreed on
        {"minimum": 4, "participants": [0, 1, 2, 3]},
        {"neighbours": 2, "minimum": N, "threshold": 2},
    ],
)
def test_a_smaller_sum_than_was_agreed_on(changes):
    agents = [
        agent_for(make_store(ratings=one, policy=replace(OPEN, min_neighbours=4)))
        for one in partition(N)
    ]
    run = Run(agents, "hdpmf", "sums")
    run.tell(run.terms)
    run.tell(run.plan)
    run.tell(run.recommender.open([]))
    refused(run, proposed(run, **changes))
    run.sum(0, counts_layout)


def test_a_smaller_threshold_and_fewer_devices_than_the_policy_wants():
    agents = [
        agent_for(
            make_store(ratings=one, policy=replace(OPEN, threshold_fraction="3/4", min_devices=N))
        )
        for one in partition(N)
    ]
    terms = terms_for("hdpmf", "sums", minimum=3)
    run = Run(agents, "hdpmf", "sums", terms=terms)
    run.tell(run.terms)
    run.tell(run.plan)
    run.tell(run.recommender.open([]))
    refused(run, proposed(run, threshold=3))
    refused(run, proposed(run, threshold=4, minimum=5))
    secure_sum(run, run.roster, 0, counts_layout(run.plan, N), threshold=4)


def test_other_words(run):
    words = counts_layout(run.plan, N)
    refused(run, proposed(run, wide=True))
    refused(run, propose(run.roster, words.length + 1, minimum=N))
    refused(run, proposed(run, words=gradients_layout(run.plan, N)))


def test_strangers(run):
    others = Roster(
        [
            run.agents[0].store.identity.public,
            *(DeviceIdentity.generate().public for _ in range(N - 1)),
        ]
    )
    refused(run, propose(others, 30, minimum=N))
    refused(run, proposed(run, participants=[1, 2, 3, 4], minimum=4))  # without this device


def test_a_sum_for_another_job(run):
    for number in (1, 7):
        refused(run, proposed(run), number)
    reply = decode(
        run.agents[0].answer(envelope(encode_sum(proposed(run)), 0, run=b"x" * 16, part="sum"))
    )
    assert decode(reply.body) == Refusal(reason="protocol")
    run.sum(0, counts_layout)
    counts = WORLD.item_counts().astype(np.int64)
    run.recommender.start([type("Counts", (), {"counts": counts})()])
    message = run.recommender.next_round()
    assert run.tell(message, 1) == [Ready(number=1)] * N
    refused(run, proposed(run))  # the counts again
    refused(run, proposed(run, words=gradients_layout(run.plan, N)), 2)
    run.sum(1, gradients_layout)
    refused(run, proposed(run, words=gradients_layout(run.plan, N)), 1)


def test_repeated_steps_get_the_same_bytes(run):
    plan = proposed(run)
    assert to_device(run, 0, plan) == to_device(run, 0, plan)
    server = SecureSumServer(proposed(run), run.roster)
    outgoing = server.advance()
    while outgoing:
        for device, message in outgoing.items():
            replies = [to_device(run, device, message) for _ in range(3)]
            assert replies[0] == replies[1] == replies[2]
            server.receive(device, decode_to_recommender(replies[0].body))
        outgoing = server.advance()
    assert len([one for one in run.agents[0].store.ledger.entries() if one.action == "sent"]) == 1


def test_a_message_out_of_turn_ends_the_sum_but_not_the_run(run):
    server = SecureSumServer(proposed(run), run.roster)
    first = server.advance()
    for device, message in first.items():
        server.receive(device, decode_to_recommender(to_device(run, device, message).body))
    second = server.advance()
    to_device(run, 0, proposed(run))  # another plan: that sum is over
    refused(run, second[0])
    run.sum(0, counts_layout)


def test_lost_numbers_are_not_said_to_be_ready(run):
    """Counts come back after a restart; a round's gradients do not, because they would have
    other noise.
    """
    opening = run.recommender.open([])
    run.agents = [agent_for(agent.store, SeededNoise(9)) for agent in run.agents]
    assert ask(run.agents[0], opening) == Ready(number=0)
    counts = counts_from_sum(run.plan, N, run.sum(0, counts_layout))
    run.recommender.start([counts])
    message = run.recommender.next_round()
    run.tell(message, 1)
    again = agent_for(run.agents[3].store, SeededNoise(9))
    refuses(again, message, "unavailable", 1)
    reply = decode(
        again.answer(
            envelope(encode_sum(proposed(run, words=gradients_layout(run.plan, N))), 1, part="sum")
        )
    )
    assert decode(reply.body) == Refusal(reason="secure-sum")
    following = replace(message, number=2)
    assert ask(again, following, 2) == Ready(number=2)


def test_a_suspended_device_goes_on_with_the_numbers_of_its_round(run):
    run.recommender.start([counts_from_sum(run.plan, N, run.sum(0, counts_layout))])
    run.tell(run.recommender.next_round(), 1)
    before = run.agents[3]
    numbers = waiting_numbers(before)
    after = agent_for(before.store, SeededNoise(9))
    after.resume(before.suspend())
    assert np.array_equal(waiting_numbers(after), numbers)
    run.agents[3] = after
    run.sum(1, gradients_layout)
    assert waiting_sum(after).numbers is None


def test_a_surveys_numbers_come_back_with_new_noise_that_nobody_has_seen():
    agents = [
        agent_for(make_store(ratings=one), SeededNoise(place))
        for place, one in enumerate(partition(N))
    ]
    roster = enrol(agents)
    run = Run(agents, "hdpmf", terms=terms_for("hdp-sum", "sums"))
    survey = survey_for()
    run.tell(run.terms)
    run.tell(survey)
    first = waiting_numbers(run.agents[0])
    run.agents = [
        agent_for(agent.store, SeededNoise(90 + place)) for place, agent in enumerate(agents)
    ]
    assert run.tell(survey) == [Ready(number=0)] * N
    assert not np.array_equal(waiting_numbers(run.agents[0]), first)
    secure_sum(run, roster, 0, survey_layout(survey, N))
    assert waiting_sum(run.agents[0]).numbers is None
    refuses(run.agents[0], survey, "secure-sum")
    assert len([one for one in run.agents[0].store.ledger.entries() if one.action == "agreed"]) == 1


def test_terms_of_more_users_than_the_roster_has():
    agents = [agent_for(make_store(ratings=one)) for one in partition(3)]
    refuses(agents[0], terms_for("hdp-sum", "sums"), "unavailable")  # no roster yet
    enrol(agents)
    refuses(agents[0], terms_for("hdp-sum", "sums", users=19, minimum=18), "protocol")
    ask(agents[0], terms_for("hdp-sum", "sums"))


def test_in_the_sums_view_no_gradient_leaves_by_itself():
    said = []
    agents = [agent_for(make_store(ratings=one)) for one in partition(3)]
    run = Run(
        agents,
        "hdpmf",
        "sums",
        heard=lambda place, asked, reply: said.append(
            type(decode(decode(reply).body))
            if decode(reply).part == "job"
            else type(decode_to_recommender(decode(reply).body))
        ),
    )
    run.open()
    run.finish()
    assert {one.__name__ for one in said} == {
        "Accepted",
        "Ready",
        "Advertisement",
        "DealtShares",
        "MaskedVector",
        "Confirmation",
        "Unmasking",
    }


def test_numbers_too_large_for_the_words_are_reduced_by_their_width():
    agents = [agent_for(make_store(ratings=part([one]))) for one in range(3)]
    terms = terms_for("hdpmf", "sums", users=3, minimum=3)
    run = Run(agents, "hdpmf", "sums", terms=terms)
    run.tell(run.terms)
    run.tell(plan_for())
    run.tell(Opening(noise_budget=0.5))
    numbers, words = waiting_numbers(run.agents[0]), counts_layout(run.plan, 3)
    assert np.array_equal(words.encode(numbers + 2**40), numbers.astype(np.uint32))
    assert to_device(run, 0, propose(run.roster, 30, neighbours=2, minimum=3)).part == "sum"


def cohort_run(size=N - 1):
    """Six silos, and a run that asks so many of them; who is not asked."""
    agents = [
        agent_for(make_store(ratings=one), SeededNoise(place))
        for place, one in enumerate(partition(N))
    ]
    users = sum(agent.store.users for agent in agents)
    terms = terms_for("hdpmf", "sums", cohort=size, beacon="drand 7", minimum=users // 2)
    made = Run(agents, "hdpmf", "sums", terms=terms)
    names = [agent.store.identity.public.hex() for agent in agents]
    chosen = cohort_of("drand 7", names, size)
    return made, [place for place, name in enumerate(names) if name not in chosen]


def test_only_the_cohort_that_the_beacon_chooses_takes_part():
    made, (outside,) = cohort_run()
    for place, agent in enumerate(made.agents):
        if place == outside:
            refuses(agent, made.terms, "protocol")
        else:
            assert ask(agent, made.terms) == Accepted()


def test_without_a_roster_nobody_can_see_who_was_chosen():
    agent = agent_for(make_store(ratings=partition(N)[0]), SeededNoise(0))
    refuses(agent, terms_for("hdpmf", "messages", cohort=3, beacon="drand 7"), "protocol")


def test_a_sum_with_others_than_the_cohort_is_refused():
    made, (outside,) = cohort_run()
    inside = [place for place in range(N) if place != outside]
    first = made.agents[inside[0]]
    for message in (made.terms, made.plan):
        ask(first, message)
    assert ask(first, made.recommender.open([])) == Ready(number=0)
    words = counts_layout(made.plan, N)
    refused(made, proposed(made, words), place=inside[0])
    words = counts_layout(made.plan, N - 1)
    plan = proposed(made, words, participants=inside, minimum=N - 1)
    assert to_device(made, inside[0], plan).part == "sum"
