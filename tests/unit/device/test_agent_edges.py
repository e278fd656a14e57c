"""What an agent does at the very edge of what it takes, and the words that its owner reads."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.protocol import Accepted, Message, Opening, Refusal, Reply, Round, decode, encode
from hdpmf.errors import ConfigError, StorageError
from hdpmf.private.device.budget import TYPICAL_RATERS, agreed_words
from hdpmf.private.device.device_identity import card_of
from tests.world import RUN, ask, envelope, waiting_sum

from .federated import (
    WORLD,
    agent_for,
    enrol,
    facts_for,
    make_store,
    plan_for,
    refuses,
    survey_for,
    terms_for,
)


def test_a_message_in_the_envelope_of_another_job_is_refused() -> None:
    agent = agent_for(make_store())
    refuses(agent, facts_for(), "protocol", 0)
    refuses(agent, terms_for(), "protocol", 1)
    assert ask(agent, terms_for()) == Accepted()
    refuses(agent, plan_for(), "protocol", 1)
    assert ask(agent, plan_for()) == Accepted()
    refuses(agent, Opening(noise_budget=0.5), "protocol", 1)
    other = agent_for(make_store())
    assert ask(other, terms_for("hdp-bit")) == Accepted()
    refuses(other, survey_for("L"), "protocol", 1)


def test_the_number_of_raters_is_named_where_the_cost_depends_on_it() -> None:
    words = {
        (method, view): agreed_words(terms_for(method, view), "nominal")
        for method, view in (
            ("hdpmf", "messages"),
            ("hdpmf", "sums"),
            ("hdp-bit", "messages"),
            ("hdp-sum", "sums"),
        )
    }
    named = [
        pair for pair, text in words.items() if f"(an item with {TYPICAL_RATERS} raters)" in text
    ]
    assert named == [("hdpmf", "messages")]
    assert all("The accountant, for a rating of weight 1" in text for text in words.values())


def _conversation(method: str, view: str) -> list[tuple[Message, int]]:
    """What an agent is told in a run, but for secure sums."""
    if method == "hdp-bit":
        return [(terms_for(method), 0), (survey_for("L"), 0)]
    if method == "hdp-sum":
        return [(terms_for(method, view), 0), (survey_for("A"), 0)]
    raters, n = np.full(WORLD.n_items, WORLD.n_users), (WORLD.n_items, 4)
    V, h = np.full(n, 0.1, np.float32), None if method == "hdpmf-paid" else np.ones(n, np.float32)
    rounds = [Round(number=k, item_factors=V * k, raters=raters, h=h) for k in (1, 2)]
    opening = Opening(noise_budget=0.5)
    talk: list[tuple[Message, int]] = [
        (terms_for(method, view), 0),
        (plan_for(method), 0),
        (opening, 0),
    ]
    return talk if view == "sums" else talk + [(message, message.number) for message in rounds]


@pytest.mark.parametrize(
    ("method", "view", "step"),
    [
        *(
            (method, "messages", step)
            for method, n in (("hdpmf", 5), ("hdp-bit", 2))
            for step in range(n)
        ),
        *(("hdp-sum", "sums", step) for step in range(2)),
        *(("hdpmf-paid", "sums", step) for step in range(3)),
    ],
)
def test_what_the_disk_refused_has_not_happened(
    method: str, view: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same message again is answered as if nothing had been: nothing is known here that is
    not on the disk.
    """

    def lived(
        failing: int | None,
    ) -> tuple[list[Message], list[tuple[str, float]], bytes | None, bool]:
        agent = agent_for(make_store())
        enrol([agent, *(agent_for(make_store()) for _ in range(2))])
        answers = []
        for place, (message, number) in enumerate(_conversation(method, view)):
            if place == failing:
                with monkeypatch.context() as patched:
                    patched.setattr(agent.store.runs, "put_reply", _refused)
                    assert ask(agent, message, number) == Refusal(reason="storage")
                before = agent.store.ledger.entries()
                sums = decode(agent.answer(envelope(b"no message", number, part="sum")))
                assert isinstance(sums, Reply)
                assert sums.part == "refusal"  # no numbers wait for a sum that nobody has paid for
                assert agent.store.ledger.entries() == before
            answers.append(ask(agent, message, number))
        entries = [(entry.action, entry.paid) for entry in agent.store.ledger.entries()]
        return answers, entries, agent.store.runs.load(RUN), waiting_sum(agent) is not None

    answers, entries, state, waiting = lived(None)
    again = lived(step)
    assert list(map(encode, again[0])) == list(map(encode, answers))
    assert again[1:] == (entries, state, waiting)


def _refused(*_: object) -> None:
    raise StorageError("the disk is full")


def test_a_restarted_survey_makes_ready_only_what_was() -> None:
    store = make_store()
    agent = agent_for(store)
    enrol([agent, *(agent_for(make_store()) for _ in range(2))])
    for message, number in _conversation("hdp-sum", "sums"):
        ask(agent, message, number)
    again = agent_for(store)
    for other in (1, 2):
        again.answer(envelope(b"no message", other, part="sum"))
        assert waiting_sum(again) is None
    again.answer(envelope(b"no message", 0, part="sum"))
    assert waiting_sum(again) is not None


def test_a_store_without_a_name_has_no_card() -> None:
    with pytest.raises(ConfigError, match="has no name"):
        card_of(make_store())
