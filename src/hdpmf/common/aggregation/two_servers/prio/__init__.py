"""Prio3: a device shares a vector, servers check and sum the shares without seeing it.

The cryptography only: Prio3 of draft-irtf-cfrg-vdaf-08, its circuit SumVec, and a circuit of ours
for ratings. It imports nothing else of ours. What it does and does not promise is in
``docs/two-servers.md``.
"""

from hdpmf.common.aggregation.two_servers.prio.field import (
    FIELD64,
    FIELD128,
    Field,
    compile_kernels,
)
from hdpmf.common.aggregation.two_servers.prio.one_rating import OneRatingPerItem, prio3_one_rating
from hdpmf.common.aggregation.two_servers.prio.prio3 import (
    NONCE_SIZE,
    Preparation,
    Prio3,
    ReportShares,
    prio3_sum_vec,
    prio3_sum_vec_multiproof,
)
from hdpmf.common.aggregation.two_servers.prio.proof import SumVec, soundness_bits

__all__ = [
    "FIELD64",
    "FIELD128",
    "NONCE_SIZE",
    "Field",
    "OneRatingPerItem",
    "Preparation",
    "Prio3",
    "ReportShares",
    "SumVec",
    "compile_kernels",
    "prio3_one_rating",
    "prio3_sum_vec",
    "prio3_sum_vec_multiproof",
    "soundness_bits",
]
