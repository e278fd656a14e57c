"""What an agent does at the very edge of what it takes, and the words that its owner reads."""

from __future__ import annotations

import pytest

from hdpmf.device.paying import TYPICAL_RATERS, agreed_words
from hdpmf.protocol import Accepted, Opening

from .federated import agent_for, ask, facts_for, make_store, plan_for, refuses, survey_for, terms_for


@pytest.mark.parametrize("number", [0, 1, 2])
def test_item_facts_come_as_the_last_of_up_to_two_jobs(number: int) -> None:
    assert ask(agent_for(make_store()), facts_for(), number) == Accepted()


def test_a_message_in_the_envelope_of_another_job_is_refused() -> None:
    agent = agent_for(make_store())
    refuses(agent, facts_for(), "protocol", 3)
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
        for method, view in (("hdpmf", "messages"), ("hdpmf", "sums"), ("hdp-bit", "messages"), ("hdp-sum", "sums"))
    }
    named = [pair for pair, text in words.items() if f"(an item with {TYPICAL_RATERS} raters)" in text]
    assert named == [("hdpmf", "messages")]
    assert all("The accountant, for a rating of weight 1" in text for text in words.values())
