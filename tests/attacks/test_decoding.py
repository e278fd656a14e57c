"""Attacks by what a message becomes: a number that nobody expected."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hdpmf.common.protocol import (
    CatalogueTable,
    Plan,
    decode,
    encode,
)
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.errors import ProtocolError


def _plan(**changes: float) -> Plan:
    fields = {
        "n_items": 10,
        "n_factors": 4,
        "epochs": 3,
        "learning_rate": 0.01,
        "reg": 0.1,
        "mechanism": "stretch",
        "epsilon": 1.0,
        "scale_low": 1.0,
        "scale_high": 5.0,
        "scale_steps": True,
        "fresh_noise": True,
    }
    return Plan(**fields | changes)


@pytest.mark.parametrize(
    "make",
    [
        lambda: _plan(n_items=1, n_factors=1 << 23),
        lambda: _plan(n_items=1 << 40),
        lambda: _plan(epochs=10**12),
    ],
)
def test_sizes_are_bounded_before_anything_is_made_of_them(make: Callable[[], object]):
    with pytest.raises(ProtocolError):
        make()


def test_what_is_usual_is_allowed():
    assert decode(encode(_plan(n_factors=200))) == _plan(n_factors=200)


@pytest.mark.parametrize("step", [1e-300, 5e-324, 1e-9])
def test_a_tiny_step_of_the_scale_is_an_error_of_ours(step: float):
    with pytest.raises(ProtocolError, match="steps"):
        known_items(
            CatalogueTable(
                ids=("1",), integer_ids=True, scale_low=1.0, scale_high=5.0, scale_step=step
            )
        )
