"""Carrying messages: an interface, devices inside this process, and HTTPS between machines."""

from hdpmf.common.net.in_process import InProcessNetwork
from hdpmf.common.net.interface import (
    MAX_BYTES,
    Answer,
    DeviceReply,
    DeviceTransport,
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
