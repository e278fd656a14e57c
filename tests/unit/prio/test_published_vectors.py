"""The draft's own test vectors for version 08, byte by byte.

The vectors are long and simple: their randomness, nonce and key are 00 01 02 ... So what stands
here is what was put in, and of what has to come out the hash: the first 32 digits of the SHA-256 of
``json.dumps`` of that entry of all reports in ``poc/test_vec/08/NAME.json`` of
github.com/cfrg/draft-irtf-cfrg-vdaf (tag draft-irtf-cfrg-vdaf-08).
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from hdpmf.common.aggregation.two_servers.prio import Prio3, prio3_sum_vec, prio3_sum_vec_multiproof
from tests.unit.prio.prio_servers import NONCE, key_of

TEN = [list(range(10)), [1] * 10, [255] * 10]
THREE = [[10000, 32000, 9], [19342, 19615, 3061], [15986, 24671, 23910]]


def run(vdaf: Prio3, measurements: list[list[int]]) -> dict[str, Any]:
    """What the draft writes down of a batch, as it writes it, and the result."""
    seen: dict[str, list[Any]] = defaultdict(list)
    field, sums = (
        vdaf.field,
        [np.zeros(vdaf.circuit.output_length, vdaf.field.dtype)] * vdaf.servers,
    )
    for measurement in measurements:
        report = vdaf.shard(vdaf.circuit.encode(measurement), NONCE, bytes(range(vdaf.random_size)))
        prepared = [
            vdaf.prepare(key_of(vdaf), server, NONCE, report.public_share, share)
            for server, share in enumerate(report.input_shares)
        ]
        message = vdaf.verify([part for _, part in prepared])
        outputs = [vdaf.finish(kept, message) for kept, _ in prepared]
        sums = [field.add(total, output) for total, output in zip(sums, outputs, strict=True)]
        seen["public_share"].append(report.public_share.hex())
        seen["input_shares"].append([share.hex() for share in report.input_shares])
        seen["prep_shares"].append([[part.hex() for _, part in prepared]])
        seen["prep_messages"].append([message.hex()])
        seen["out_shares"].append(
            [[element.tobytes().hex() for element in output] for output in outputs]
        )
    seen["agg_shares"] = [field.encode(total).hex() for total in sums]
    assert (
        vdaf.unshard([field.encode(total) for total in sums])
        == np.sum(measurements, axis=0).tolist()
    )
    return {
        name: hashlib.sha256(json.dumps(entry).encode()).hexdigest()[:32]
        for name, entry in seen.items()
    }


def test_field64_with_several_proofs():
    # Prio3SumVecWithMultiproof_0, which has four proofs
    assert run(prio3_sum_vec_multiproof(10, 8, 9, proofs=4), TEN) == {
        "public_share": "dc4243af2b7d60bae780515051807d69",
        "input_shares": "64c9d256c04c9cca14b46374b23553e9",
        "prep_shares": "d95c5f6e58c6b2a5fc0df1c034b36708",
        "prep_messages": "6fadb87515c8b0400032615e971b95c1",
        "out_shares": "32ba0b5e88b563dd77951ac95c846012",
        "agg_shares": "bd536afd0a07d73a369c693d369e27b8",
    }


@pytest.mark.slow
def test_field128_with_two_servers():
    # Prio3SumVec_0
    assert run(prio3_sum_vec(10, 8, 9), TEN) == {
        "public_share": "cbd8961ab2a84aef9bc6b2810ac35272",
        "input_shares": "a4dbff68d65cbc8c84a821a773c7dc10",
        "prep_shares": "f47c499edc6ce567a78726f4e213287a",
        "prep_messages": "75910495689249cea8641fcd76ecea6f",
        "out_shares": "3a4cdd1bc72544a77f3e1dbc857c4465",
        "agg_shares": "7f526f92ec10080bc5ad7ad043f689c0",
    }


@pytest.mark.slow
def test_field128_with_three_servers():
    # Prio3SumVec_1
    assert run(prio3_sum_vec(3, 16, 7, servers=3), THREE) == {
        "public_share": "10879400499f84f9c0da9a6b49eb1d00",
        "input_shares": "848f99594cd6923662d1961e3cdff420",
        "prep_shares": "e4d1e05ce2ecafab225cd6c7762195ca",
        "prep_messages": "022be4cf56072be28d3cd57ed82b0600",
        "out_shares": "f802e3a3fa5cb28caa7949d39e7d57e7",
        "agg_shares": "28f861de77b74e12751090b532167fad",
    }
