"""The PRIVATE side: ratings, privacy weights and user vectors, and everything that touches them.

A shard holds one or more users: a phone is a shard of one, a hospital's server a shard of many, a simulation one
shard of all. What leaves it is made in ``outgoing`` and nowhere else.
"""

from hdpmf.shard.devices import Devices
from hdpmf.shard.shard import Shard

__all__ = ["Devices", "Shard"]
