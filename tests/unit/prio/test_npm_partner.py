"""npm's @divviup/prio3 0.8.0, another implementation of version 08: their reports to our
servers, ours to theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdpmf.common.aggregation.two_servers.prio import Prio3, ReportShares, prio3_sum_vec
from hdpmf.errors import PrioError
from tests.unit.prio import npm_packages
from tests.unit.prio.prio_servers import check, key_of

PACKAGE = "@divviup/prio3@0.8.0"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def partner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our script, with the package beside it."""
    return npm_packages.install(
        PACKAGE, Path(__file__).with_name("npm_partner.mjs"), tmp_path_factory.mktemp("npm")
    )


@pytest.mark.parametrize(("entries", "bits", "chunk"), [(10, 8, 9), (3, 16, 7), (60, 10, 40)])
def test_reports_go_both_ways(partner: Path, entries: int, bits: int, chunk: int):
    vdaf = prio3_sum_vec(entries, bits, chunk)
    rng = np.random.default_rng(entries)
    rows = rng.integers(0, 2**bits, (4, entries))
    nonces = [rng.bytes(16) for _ in rows]
    randomness = [rng.bytes(vdaf.random_size) for _ in rows]
    ours = [
        vdaf.shard(vdaf.circuit.encode(row), *how)
        for row, *how in zip(rows, nonces, randomness, strict=True)
    ]
    bits_of_a_lie = vdaf.circuit.encode(rows[0])
    bits_of_a_lie[:1] = vdaf.field.vector([2])
    lie = vdaf.shard(bits_of_a_lie, nonces[0])
    answer = ask(partner, vdaf, rows, nonces, randomness, [*ours, lie])

    # The same bytes leave a device, and the same bytes go between servers.
    theirs = [
        ReportShares(
            bytes.fromhex(report["publicShare"]),
            [bytes.fromhex(share) for share in report["inputShares"]],
        )
        for report in answer["sharded"]
    ]
    assert theirs == ours
    assert answer["checked"][:-1] == [
        messages(vdaf, *report) for report in zip(nonces, theirs, strict=True)
    ]
    # Each side's servers count the other side's reports, and refuse its lies.
    assert answer["sum"] == rows.sum(axis=0).tolist()
    shares = [check(vdaf, report, nonce) for nonce, report in zip(nonces, theirs, strict=True)]
    sums = [
        vdaf.field.add(vdaf.field.add(a, b), vdaf.field.add(c, d))
        for a, b, c, d in zip(*shares, strict=True)
    ]
    assert vdaf.unshard([vdaf.field.encode(total) for total in sums]) == answer["sum"]
    assert answer["checked"][-1]["refused"] == "Verify error"
    with pytest.raises(PrioError):
        vdaf.verify([bytes.fromhex(part) for part in answer["checked"][-1]["parts"]])


def messages(vdaf: Prio3, nonce: bytes, report: ReportShares) -> dict[str, Any]:
    """What goes between our servers."""
    parts = [
        vdaf.prepare(key_of(vdaf), server, nonce, report.public_share, share)[1]
        for server, share in enumerate(report.input_shares)
    ]
    return {"parts": [part.hex() for part in parts], "message": vdaf.verify(parts).hex()}


def ask(
    partner: Path, vdaf: Prio3, rows, nonces, randomness, reports: list[ReportShares]
) -> dict[str, Any]:
    """What the partner makes of measurements, and of reports."""
    question = {
        "length": vdaf.circuit.output_length,
        "bits": vdaf.circuit.bits,
        "chunk": vdaf.circuit.chunk,
        "verifyKey": key_of(vdaf).hex(),
        "measurements": [
            {"measurement": row.tolist(), "nonce": nonce.hex(), "rand": rand.hex()}
            for row, nonce, rand in zip(rows, nonces, randomness, strict=True)
        ],
        "reports": [
            {
                "nonce": nonce.hex(),
                "publicShare": report.public_share.hex(),
                "inputShares": [share.hex() for share in report.input_shares],
            }
            for nonce, report in zip([*nonces, nonces[0]], reports, strict=True)
        ],
    }
    answer: dict[str, Any] = npm_packages.ask(partner, question)
    return answer
