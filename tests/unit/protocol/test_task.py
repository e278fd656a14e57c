"""The pair of servers, and that a report is for one task alone."""

from __future__ import annotations

import contextlib

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.protocol.servers import Servers
from hdpmf.common.protocol.task import Linear, Pairs, prio_of
from hdpmf.errors import ConfigError, HdpmfError
from tests.unit.protocol.test_documents import LINEAR, PAIRS, task

PAIR = task().servers


@pytest.mark.parametrize("sums", [LINEAR, PAIRS], ids=["linear", "pairs"])
def test_a_report_is_bound_to_its_task(sums: Linear | Pairs) -> None:
    nonce, name, other = bytes(16), b"1" * 32, b"2" * 32
    prio = prio_of(task(sums), name)
    row = np.full(3 if isinstance(sums, Pairs) else sums.entries, 20)
    report = prio.shard(prio.circuit.encode(row), nonce)  # type: ignore[attr-defined]

    def check(name: bytes) -> None:
        prio = prio_of(task(sums), name)
        parts = [
            prio.prepare(bytes(32), place, nonce, report.public_share, share)[1]
            for place, share in enumerate(report.input_shares)
        ]
        prio.verify(parts)

    check(name)
    with pytest.raises(HdpmfError):
        check(other)


def test_one_organisation_is_not_two() -> None:
    with pytest.raises(ConfigError, match="two organisations"):
        Servers(
            leader=PAIR.leader, helper=msgspec.structs.replace(PAIR.helper, organisation="North")
        )
    with pytest.raises(ConfigError, match="same key"):
        Servers(
            leader=PAIR.leader,
            helper=msgspec.structs.replace(PAIR.leader, organisation="south"),
        )


def test_a_pair_is_a_file_with_a_digest() -> None:
    assert Servers.from_json(PAIR.to_json()) == PAIR
    moved = Servers(
        leader=PAIR.leader, helper=msgspec.structs.replace(PAIR.helper, url="https://elsewhere")
    )
    assert moved.digest != PAIR.digest
    with pytest.raises(ConfigError, match="https://"):
        msgspec.structs.replace(PAIR.leader, url="http://north.example")


@given(st.binary(max_size=400))
def test_any_bytes_are_a_pair_or_an_error(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        Servers.from_json(data)
