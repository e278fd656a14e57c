"""How much of a sum's noise one device makes: what the smallest agreed sum needs, never what the
largest would.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hdpmf.common.protocol import Ready
from tests.world import NoNoise, ask

from .federated import Run, agent_for, enrol, make_store, partition, refuses, survey_for, terms_for

MINIMUM, SHARING = 14, 12
"""Of 18 users on three devices: shares of 1/18 would leave a sum over 14, two of whom collude, with
two thirds of the noise. The three numbers differ, so that none is taken for another unnoticed."""


class Sized(NoNoise):
    """Noise off, and a note of every share that was asked for."""

    def __init__(self) -> None:
        self.shares: list[tuple[int, int]] = []

    def laplace_share(
        self, scale: object, n_shares: int, size: Any, *, count: int = 1
    ) -> np.ndarray:
        self.shares.append((n_shares, count))
        return np.zeros(size, np.int64)


def devices() -> tuple[list[Any], list[Sized]]:
    """Three devices of six users."""
    noise = [Sized() for _ in range(3)]
    return [
        agent_for(make_store(ratings=part), own)
        for part, own in zip(partition(3), noise, strict=True)
    ], noise


def test_a_survey_may_not_count_on_more_users_than_share_the_noise():
    agents, noise = devices()
    enrol(agents)
    terms = terms_for("hdp-sum", "sums", minimum=MINIMUM, sharing=SHARING)
    for place, contributors in enumerate((SHARING + 1, MINIMUM, 18)):
        run = bytes([place]) * 16
        ask(agents[0], terms, run=run)
        refuses(agents[0], survey_for(contributors=contributors), "protocol", run=run)
    assert not noise[0].shares
    ask(agents[0], terms)
    assert ask(agents[0], survey_for(contributors=SHARING)) == Ready(number=0)
    assert set(noise[0].shares) == {(SHARING, 6)}


def test_rounds_of_hdpmf_paid_are_shared_by_those_who_share_the_noise():
    agents, noise = devices()
    run = Run(
        agents,
        "hdpmf-paid",
        "sums",
        terms=terms_for("hdpmf-paid", "sums", minimum=MINIMUM, sharing=SHARING),
    )
    run.open()
    run.round()
    for own in noise:
        assert set(own.shares) == {(SHARING, 6)}
