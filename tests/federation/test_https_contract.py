"""HTTPS keeps every transport's promises: TLS on loopback, signed requests, two device processes
that poll.
"""

from __future__ import annotations

from tests.federation.transport_contract import TransportContract


class TestHttps(TransportContract):
    pass
