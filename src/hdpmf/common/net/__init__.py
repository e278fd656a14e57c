"""Carrying messages: an interface, devices inside this process, and HTTPS between machines."""

from hdpmf.common.net.carrier import (
    MAX_BYTES,
    Answer,
    DeviceReply,
    DeviceTransport,
    InProcessNetwork,
    RecommenderTransport,
)

__all__ = [
    "MAX_BYTES",
    "Answer",
    "DeviceReply",
    "DeviceTransport",
    "InProcessNetwork",
    "RecommenderTransport",
]
