"""The page's address stays the same, and one process serves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.errors import ConfigError
from hdpmf.private.page.address import PageAddress, only_server


def test_the_address_stays_and_a_second_command_is_told_where_it_is(tmp_path: Path):
    store = tmp_path / "me.sqlite"
    address, loopback = PageAddress.of(store).listen()
    loopback.close()
    assert PageAddress.of(store) == address
    with only_server(store), pytest.raises(ConfigError, match=address.host), only_server(store):
        pass
    with only_server(store):
        pass
