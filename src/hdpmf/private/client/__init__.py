"""The PRIVATE side of every method: ratings, weights, user vectors, and the code that uses them.

A client holds one or more users: a phone is a client of one, a hospital's server a client of many,
a simulation one client of all.
"""

from typing import TYPE_CHECKING, Any

from hdpmf.private.client.devices import Devices

if TYPE_CHECKING:
    from hdpmf.private.client.gradients import GradientClient

__all__ = ["Devices", "GradientClient"]


def __getattr__(name: str) -> Any:
    # A client's kernels need Numba, which a machine that trains on its GPU need not have.
    if name == "GradientClient":
        from hdpmf.private.client.gradients import GradientClient

        return GradientClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
