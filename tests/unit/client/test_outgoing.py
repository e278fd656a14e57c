"""The one place where messages are made that leave a device: it makes no others."""

from __future__ import annotations

import pytest

from hdpmf.common.protocol import Opening
from hdpmf.common.protocol.identity import Identity
from hdpmf.errors import ProtocolError
from hdpmf.private.client.outgoing import compose


def test_what_recommenders_send_no_client_sends() -> None:
    for kind in (Opening, Identity, bytes):
        with pytest.raises(ProtocolError, match=f"never sends a {kind.__name__}"):
            compose(kind)
