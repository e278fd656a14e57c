"""A page is reachable on this machine only, and under one name only."""

from __future__ import annotations

import socket

import pytest

from hdpmf.common.web.local_server import Loopback
from hdpmf.errors import ConfigError


def test_it_listens_on_loopback_only_with_a_name_that_nobody_can_guess():
    first, second = Loopback.listen(), Loopback.listen()
    try:
        addresses = {listener.getsockname()[0] for listener in first.sockets}
        assert addresses <= {"127.0.0.1", "::1"}
        assert "127.0.0.1" in addresses
        assert {listener.getsockname()[1] for listener in first.sockets} == {first.port}
        assert first.host.endswith(f".localhost:{first.port}")
        assert first.host.partition(".")[0] != second.host.partition(".")[0]
        assert len(first.host.partition(".")[0]) >= 16
    finally:
        first.close()
        second.close()


def test_a_port_that_is_taken_is_said():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigError, match="is taken"):
            Loopback.listen(other.getsockname()[1])


def test_a_port_that_somebody_has_on_ipv6_is_not_used():
    with socket.socket(socket.AF_INET6) as other:
        try:
            other.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        other.listen()
        with pytest.raises(ConfigError, match="is taken"):
            Loopback.listen(other.getsockname()[1])
