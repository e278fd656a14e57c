"""Flower keeps every transport's promises: a real SuperLink on loopback, TLS, node
authentication, two processes.
"""

from __future__ import annotations

from transport_contract import TransportContract


class TestFlower(TransportContract):
    pass
