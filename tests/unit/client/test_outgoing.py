"""The one place where messages are made that leave a device: it makes no others."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.aggregation.two_servers.prio.prio3 import prio3_sum_vec
from hdpmf.common.protocol import Accepted, Opening, Terms
from hdpmf.errors import ProtocolError
from hdpmf.private.client.outgoing import compose, masked, split_report


def test_what_recommenders_send_no_client_sends() -> None:
    assert compose(Accepted) == Accepted()
    for kind in (Opening, Terms, DeviceIdentity, bytes):
        with pytest.raises(ProtocolError, match=f"never sends a {kind.__name__}"):
            compose(kind)


def test_only_messages_of_a_secure_sum_are_masked() -> None:
    for wrong in (b"bytes", Accepted(), np.zeros(3)):
        with pytest.raises(ProtocolError, match=f"never sends a {type(wrong).__name__}"):
            masked(wrong)  # type: ignore[arg-type]


def test_a_report_is_made_for_one_rating_per_item_only() -> None:
    entries = np.zeros(4, np.int64), np.zeros(4, np.int64)
    with pytest.raises(ProtocolError, match="at most one rating per item"):
        split_report(prio3_sum_vec(4, 3), entries, bytes(16), at=3600)
