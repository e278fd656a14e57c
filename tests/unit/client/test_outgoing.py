"""The one place where messages are made that leave a device: it makes no others."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.aggregation.two_servers.prio.prio3 import prio3_sum_vec
from hdpmf.common.protocol import Opening
from hdpmf.common.protocol.identity import Identity
from hdpmf.errors import ProtocolError
from hdpmf.private.client.outgoing import compose, split_report


def test_what_recommenders_send_no_client_sends() -> None:
    for kind in (Opening, Identity, bytes):
        with pytest.raises(ProtocolError, match=f"never sends a {kind.__name__}"):
            compose(kind)


def test_a_report_is_made_for_one_rating_per_item_only() -> None:
    entries = np.zeros(4, np.int64), np.zeros(4, np.int64)
    with pytest.raises(ProtocolError, match="at most one rating per item"):
        split_report(prio3_sum_vec(4, 7, None, b""), entries, bytes(16), at=3600)
