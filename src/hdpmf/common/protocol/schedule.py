"""The paper's learning-rate schedule, which both sides compute for themselves."""

from __future__ import annotations


def learning_rate_at(initial: float, epoch: int, epochs: int) -> float:
    """The rate of ``epoch`` (from 1): initial for the first quarter, a fifth until three
    quarters, then 1/25.
    """
    if epoch <= 0.25 * epochs:
        return initial
    return initial / 5 if epoch <= 0.75 * epochs else initial / 25
