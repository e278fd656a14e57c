"""A report through all servers, as tests need it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdpmf.common.aggregation.two_servers.prio import FIELD64, SEED_SIZE, Prio3, ReportShares
from hdpmf.errors import PrioError

NONCE = bytes(range(16))
KEY = bytes(range(SEED_SIZE))
HALF = (FIELD64.modulus + 1) // 2
"""Twice this is 1."""


def check(vdaf: Prio3, report: ReportShares, nonce: bytes = NONCE) -> list[np.ndarray]:
    """Every server's share of what is summed, or a refusal."""
    prepared = [
        vdaf.prepare(KEY, server, nonce, report.public_share, share)
        for server, share in enumerate(report.input_shares)
    ]
    message = vdaf.verify([part for _, part in prepared])
    return [vdaf.finish(kept, message) for kept, _ in prepared]


def accepted(vdaf: Prio3, numbers: Sequence[int]) -> bool:
    """Return True if servers count a vector of these whole numbers."""
    try:
        check(vdaf, vdaf.shard(vdaf.field.vector(numbers), NONCE))
    except PrioError:
        return False
    return True


def sum_of(vdaf: Prio3, vectors: Sequence[np.ndarray]) -> list[int]:
    """The sum of encoded vectors, by all servers."""
    totals = [np.zeros(vdaf.circuit.output_length, vdaf.field.dtype) for _ in range(vdaf.servers)]
    for number, vector in enumerate(vectors):
        nonce = number.to_bytes(16, "big")
        outputs = check(vdaf, vdaf.shard(vector, nonce), nonce)
        totals = [
            vdaf.field.add(total, output) for total, output in zip(totals, outputs, strict=True)
        ]
    return vdaf.unshard([vdaf.field.encode(total) for total in totals])
