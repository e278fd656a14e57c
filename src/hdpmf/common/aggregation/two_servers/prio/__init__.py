"""Prio3: a device shares a vector, servers check and sum the shares without seeing it.

The cryptography only: Prio3 of draft-irtf-cfrg-vdaf-20, and circuits of ours. It imports nothing
else of ours. What it does and does not promise is in ``docs/two-servers.md``.
"""

from hdpmf.common.aggregation.two_servers.prio.bounded_vector import (
    BoundedVector,
    prio3_bounded_vector,
)
from hdpmf.common.aggregation.two_servers.prio.field import (
    FIELD64,
    Field,
    compile_kernels,
)
from hdpmf.common.aggregation.two_servers.prio.prio3 import (
    NONCE_SIZE,
    SEED_SIZE,
    Preparation,
    Prio3,
    ReportShares,
)
from hdpmf.common.aggregation.two_servers.prio.proof import soundness_bits
from hdpmf.common.aggregation.two_servers.prio.rank_one import RankOne, prio3_rank_one

__all__ = [
    "FIELD64",
    "NONCE_SIZE",
    "SEED_SIZE",
    "BoundedVector",
    "Field",
    "Preparation",
    "Prio3",
    "RankOne",
    "ReportShares",
    "compile_kernels",
    "prio3_bounded_vector",
    "prio3_rank_one",
    "soundness_bits",
]
