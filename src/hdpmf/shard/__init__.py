"""The PRIVATE side: ratings, privacy weights and user vectors, and everything that touches them.

A shard holds one or more users: a phone is a shard of one, a hospital's server a shard of many, a simulation one
shard of all. What leaves it is made in ``outgoing`` and nowhere else.
"""

from typing import TYPE_CHECKING, Any

from hdpmf.shard.devices import Devices

if TYPE_CHECKING:
    from hdpmf.shard.shard import Shard

__all__ = ["Devices", "Shard"]


def __getattr__(name: str) -> Any:
    # A shard's kernels need Numba, which a machine that trains on its GPU need not have.
    if name == "Shard":
        from hdpmf.shard.shard import Shard

        return Shard
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
