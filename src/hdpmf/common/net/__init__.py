"""Carrying messages: an interface, devices inside this process, and HTTPS between machines."""

from hdpmf.common.net.carrier import Answer, DeviceReply, InProcessNetwork, RecommenderTransport

__all__ = ["Answer", "DeviceReply", "InProcessNetwork", "RecommenderTransport"]
