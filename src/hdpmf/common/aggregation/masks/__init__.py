"""Sums over devices of which the recommender sees nothing but the sum.

The protocol is that of Bonawitz et al. (2017) with the sparse graph of Bell et al. (2020), drawn by
the devices themselves, and with signed keys and survivor lists against a recommender that lies.
Sums are exact, modulo 2^32::

    recommender                      device
        SumPlan           ─────────▶   checks it against its policy and its pinned roster
                          ◀─────────   Advertisement   one-time keys, signed; who holds its shares
        PartnerKeys       ─────────▶   checks signatures
                          ◀─────────   DealtShares     shares of its secrets, sealed to its holders
        Inbox             ─────────▶
                          ◀─────────   MaskedVector    vector + own mask + masks with partners
        Survivors         ─────────▶   checks their number and its holders among them
                          ◀─────────   Confirmation    signature of the list
        Confirmations     ─────────▶   checks that its holders were told the same
                          ◀─────────   Unmasking       of each device one share, of one kind

Anything that carries messages can carry these. What holds against whom is in
``docs/secure-sums.md``.
"""

from hdpmf.common.aggregation.masks.client import SecureSumClient
from hdpmf.common.aggregation.masks.messages import (
    ToDevice,
    ToRecommender,
    decode_to_device,
    decode_to_recommender,
    encode,
)
from hdpmf.common.aggregation.masks.plan import SumPolicy, propose
from hdpmf.common.aggregation.masks.primitives import IntegerCoding
from hdpmf.common.aggregation.masks.roster import DeviceIdentity, Roster
from hdpmf.common.aggregation.masks.server import SecureSumServer

__all__ = [
    "DeviceIdentity",
    "IntegerCoding",
    "Roster",
    "SecureSumClient",
    "SecureSumServer",
    "SumPolicy",
    "ToDevice",
    "ToRecommender",
    "decode_to_device",
    "decode_to_recommender",
    "encode",
    "propose",
]
