"""Carrying messages: an interface without an engine, one inside this process, and Flower's
between machines.
"""

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
