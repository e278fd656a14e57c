"""Attacks by what a message becomes: small on the wire, large in memory, or a number that nobody
expected.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from hdpmf.common.base.msgpack import fits_in_memory
from hdpmf.common.protocol import (
    BitContribution,
    CatalogueTable,
    Plan,
    Survey,
    decode,
    encode,
)
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.errors import ProtocolError

LONG = 4_000_000


def _list(count: int, element: bytes) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + element * count


def _map(**values: bytes) -> bytes:
    return bytes([0x80 + len(values)]) + b"".join(
        msgspec.msgpack.encode(name) + part for name, part in values.items()
    )


def _catalogue(**changes: bytes) -> bytes:
    plain = {
        "type": "CatalogueTable",
        "ids": ["1"],
        "integer_ids": True,
        "scale_low": 1.0,
        "scale_high": 5.0,
    }
    values = {name: msgspec.msgpack.encode(value) for name, value in plain.items()}
    return _map(**values, scale_step=b"\xc0", **changes)


BOMBS = {
    "genres in lists of their own": lambda: _catalogue(genres=_list(LONG // 4, b"\x91\xa2ab")),
    "empty lists for a shape": lambda: _map(
        type=msgspec.msgpack.encode("ItemCounts"),
        counts=_map(dtype=b"\xa2i8", data=b"\xc4\x00", shape=_list(LONG, b"\x90")),
    ),
    "empty maps for an array": lambda: _map(
        type=msgspec.msgpack.encode("ItemCounts"),
        counts=_map(dtype=_list(LONG, b"\x80"), data=b"\xc0", shape=b"\xc0"),
    ),
    "a promise of four billion": lambda: _catalogue(
        genres=b"\xdd\xff\xff\xff\xff" + b"\x90" * LONG
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_message_takes_no_more_memory_than_is_fair_before_it_is_checked(name: str):
    data = BOMBS[name]()
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="too much memory"):
            decode(data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 20  # 80 times the message, before


def test_honest_messages_fit():
    nothing = np.zeros(1_000_000, np.int64)
    units = np.ones(1_000_000, np.int64)
    data = encode(
        BitContribution(senders=nothing, items=nothing, units=units, plus=nothing, ruler=nothing)
    )
    assert fits_in_memory(data)
    assert isinstance(decode(data), BitContribution)


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


def _survey(**changes: float) -> Survey:
    fields = {
        "design": "A",
        "coding": "soft",
        "epsilon": 1.0,
        "n_items": 10,
        "catalogue": "x",
        "contributors": 5,
        "scale_low": 1.0,
        "scale_high": 5.0,
        "scale_step": 1.0,
    }
    return Survey(**fields | changes)


@pytest.mark.parametrize(
    "make",
    [
        lambda: _plan(n_items=1, n_factors=1 << 23),
        lambda: _plan(n_items=1 << 40),
        lambda: _plan(epochs=10**12),
        lambda: _survey(n_items=1 << 40),
        lambda: _survey(scale_step=1e-300),
    ],
)
def test_sizes_are_bounded_before_anything_is_made_of_them(make: Callable[[], object]):
    with pytest.raises(ProtocolError):
        make()


def test_what_is_usual_is_allowed():
    for message in (_plan(n_factors=200), _survey(scale_step=0.5)):
        assert type(decode(encode(message))) is type(message)


@pytest.mark.parametrize("step", [1e-300, 5e-324, 1e-9])
def test_a_tiny_step_of_the_scale_is_an_error_of_ours(step: float):
    with pytest.raises(ProtocolError, match="steps"):
        known_items(
            CatalogueTable(
                ids=("1",), integer_ids=True, scale_low=1.0, scale_high=5.0, scale_step=step
            )
        )
