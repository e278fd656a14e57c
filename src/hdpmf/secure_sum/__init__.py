"""Sums over devices of which the recommender sees nothing but the sum.

The protocol is that of Bonawitz et al. (2017) with the sparse neighbour graph of Bell et al. (2020), with signed keys
and survivor lists against a recommender that does not follow it. Sums are exact, modulo 2^32::

    recommender                                  device
        SumPlan           ─────────────────────▶   checks it against its policy and its pinned roster
                          ◀─────────────────────   Advertisement   one-time keys, signed
        NeighbourKeys     ─────────────────────▶   checks signatures
                          ◀─────────────────────   DealtShares     shares of seed and mask key, sealed to neighbours
        Inbox             ─────────────────────▶
                          ◀─────────────────────   MaskedVector    vector + own mask + masks shared with neighbours
        Survivors         ─────────────────────▶   checks their number and its neighbours among them
                          ◀─────────────────────   Confirmation    signature of the list
        Confirmations     ─────────────────────▶   checks that its witnesses were told the same
                          ◀─────────────────────   Unmasking       of each neighbour one share, of one kind

Anything that carries messages can carry these. What holds against whom is in ``docs/secure-sums.md``.
"""

from hdpmf.secure_sum.client import SecureSumClient
from hdpmf.secure_sum.coding import IntegerCoding
from hdpmf.secure_sum.messages import ToDevice, ToRecommender
from hdpmf.secure_sum.plan import SumPolicy, propose
from hdpmf.secure_sum.roster import DeviceIdentity, Roster
from hdpmf.secure_sum.server import SecureSumServer, SumResult
from hdpmf.secure_sum.wire import decode_to_device, decode_to_recommender, encode

__all__ = [
    "DeviceIdentity",
    "IntegerCoding",
    "Roster",
    "SecureSumClient",
    "SecureSumServer",
    "SumPolicy",
    "SumResult",
    "ToDevice",
    "ToRecommender",
    "decode_to_device",
    "decode_to_recommender",
    "encode",
    "propose",
]
