"""Attacks 2, 3 and 4: participants by choice, devices that claim to be many, and colluders'
shares of the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hdpmf.common.aggregation.masks import encode as encode_sum
from hdpmf.common.aggregation.masks import propose
from hdpmf.common.protocol import Ready, Refusal, Reply, decode
from hdpmf.common.protocol.layout import survey_layout
from hdpmf.errors import ConfigError
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.policy import Policy
from hdpmf.untrusted.service.settings import RunSettings
from tests.world import ask, enrol, envelope, survey, table, terms, waiting_numbers

from .hostile import STARS, device

TABLE = table()
ROSTER = 300
COLLUDING = 15


def asked(
    roster: Sequence[int] | None = None, policy: Policy | None = None, **changes: Any
) -> tuple[Participant, Any]:
    """A device on a roster of 300, and what it says to such terms."""
    agent = device(STARS, policy=policy, catalogue=TABLE)
    enrol([agent], others=ROSTER - 1, users=roster)
    fields = {"users": ROSTER, "minimum": 250, "sharing": 235} | changes
    return agent, ask(agent, terms("hdp-sum", "sums", TABLE, **fields))


def refused(answer: Any) -> bool:
    return isinstance(answer, Refusal) and answer.reason == "policy"


def test_honest_terms_are_taken() -> None:
    agent, answer = asked()
    assert type(answer).__name__ == "Accepted"
    assert ask(agent, survey("A", TABLE, contributors=235)) == Ready(number=0)


@pytest.mark.parametrize("minimum", [16, 29])
def test_a_sum_over_the_target_and_colluders_only(minimum: int) -> None:
    """A run over the target and 15 colluders of a roster of 300 was within a minimum of 16: 38
    of 40 items found.
    """
    assert refused(asked(minimum=minimum, sharing=1)[1])


def test_neither_does_the_plan_of_a_sum_get_away_with_it() -> None:
    agent, _ = asked()
    ask(agent, survey("A", TABLE, contributors=235))
    pinned = agent.store.roster
    assert pinned is not None
    words = survey_layout(survey("A", TABLE), 20)
    for n, minimum in ((COLLUDING + 1, COLLUDING + 1), (60, 48), (200, 200)):
        offer = propose(
            pinned.roster, words.length, participants=range(n), minimum=minimum, wide=True
        )
        reply = decode(agent.answer(envelope(encode_sum(offer), 0, part="sum")))
        assert isinstance(reply, Reply)
        assert reply.part == "refusal"


@pytest.mark.parametrize("sharing", [250, 236])
def test_the_noise_is_whole_without_the_colluders(sharing: int) -> None:
    """With n' = minimum, 15 of 16 colluding left epsilon 1.09 on the score entry; now n' + C <=
    minimum.
    """
    assert refused(asked(sharing=sharing)[1])
    assert not refused(asked(sharing=235)[1])


def test_a_survey_does_not_divide_the_noise_among_more() -> None:
    agent, _ = asked()
    answer = ask(agent, survey("A", TABLE, contributors=236))
    assert isinstance(answer, Refusal)


def test_users_that_a_device_claims_count_for_nothing() -> None:
    """One that claimed 2^31 - 1 users made the honest shares vanish: 40 of 40 recovered without
    noise.
    """
    claimed = [1] * (ROSTER - 1) + [(1 << 31) - 1]
    many = sum(claimed)
    assert refused(
        asked(claimed, users=many, minimum=many // 2, sharing=many // 2 - COLLUDING, credit=many)[1]
    )
    agent, _ = asked(claimed, users=many, minimum=many // 2, sharing=many // 2 - COLLUDING)
    ask(agent, survey("A", TABLE, contributors=235))
    pinned = agent.store.roster
    assert pinned is not None
    offer = propose(
        pinned.roster, survey_layout(survey("A", TABLE), 300).length, minimum=300, wide=True
    )
    reply = decode(agent.answer(envelope(encode_sum(offer), 0, part="sum")))
    assert isinstance(reply, Reply)
    assert reply.part == "refusal"


def test_who_allows_silos_reckons_with_the_largest_as_colluders() -> None:
    users = [1] * 280 + [10] * 20
    policy = Policy(max_credit=10)
    total = sum(users)
    short = asked(users, policy, users=total, minimum=400, sharing=400 - COLLUDING, credit=10)[1]
    assert refused(short)
    assert not refused(asked(users, policy, users=total, minimum=400, sharing=250, credit=10)[1])
    assert refused(
        asked(users, users=total, minimum=400, sharing=250, credit=10)[1]
    )  # who does not, takes one for one


def test_a_careful_owner_reckons_with_more() -> None:
    careful = Policy(max_colluding="1/3", min_fraction="3/4")
    assert refused(asked(policy=careful)[1])
    assert refused(asked(policy=careful, minimum=200, sharing=100)[1])
    assert not refused(asked(policy=careful, minimum=250, sharing=150)[1])


def test_the_whole_noise_is_in_the_smallest_sum() -> None:
    """What honest devices really draw: the noise of the honest shares of the smallest sum is that
    of the proof.

    Of 1,500 draws of Laplace noise the mean size has a standard error of 2.6 %, so that this fails
    by chance less than once in 10^13 times. Shares for all 80 who are there leave 76 % of that
    size, and half the noise leaves 50 %.
    """
    settings = RunSettings(method="hdp-sum", view="sums", minimum=60, rounds=1, max_colluding=0.1)
    sharing = settings.sharing([1] * 80)
    assert sharing == 52
    wide = table(ids=tuple(f"item {place:04d}" for place in range(1_500)))
    agents = [device({}, policy=Policy(max_colluding="1/10"), catalogue=wide) for _ in range(80)]
    enrol(agents)
    honest = np.zeros(len(wide.ids))
    for agent in agents[8:60]:  # of 60 in the sum the first 8 tell theirs
        ask(agent, terms("hdp-sum", "sums", wide, users=80, minimum=60, sharing=sharing))
        assert ask(agent, survey("A", wide, contributors=sharing)) == Ready(number=0)
        honest += waiting_numbers(agent)[: len(wide.ids)]
    scale = 64 * 10 / (0.98 * 0.5)
    assert abs(np.abs(honest).mean() / scale - 1) < 0.2


def test_a_recommender_that_leaves_nobody_to_make_the_noise_is_told_so() -> None:
    with pytest.raises(ConfigError, match="raise the minimum"):
        RunSettings(method="hdp-sum", view="sums", minimum=16, rounds=1).sharing([1] * 400)
    assert (
        replace(RunSettings(method="hdp-sum", view="sums", minimum=40, rounds=1)).sharing([1] * 400)
        == 20
    )


def test_tiny_epsilons_ask_only_whether_a_device_is_there() -> None:
    """Ratings that had spent everything answered 50 runs of epsilon 1e-18."""
    assert refused(asked(epsilon=1e-18)[1])
    assert refused(asked(epsilon=1e-6)[1])
