"""What tests share: devices on real stores, two servers, a carrier with faults, and a clock that
tests move.

`ServerPair` is a leader and a helper; `MemoryCarrier` is all that a device can reach, in the test's
hands. The makers of messages (`terms`, `survey` and the others) build what an honest recommender
would publish, and take changes for the others.
"""

import pytest

pytest.importorskip("pyhpke")
pytest.importorskip("sqlalchemy")

from tests.world.carrier import HOUR, Clock, MemoryCarrier, live
from tests.world.devices import (
    PLENTY,
    Device,
    as_on_devices,
    make_store,
    part_of,
    whole_life_policy,
)
from tests.world.messages import RUN, facts, stars, survey, table, terms
from tests.world.servers import KnownNoise, ServerPair, make_report
from tests.world.tokens import issuer, make_token

__all__ = [
    "HOUR",
    "PLENTY",
    "RUN",
    "Clock",
    "Device",
    "KnownNoise",
    "MemoryCarrier",
    "ServerPair",
    "as_on_devices",
    "facts",
    "issuer",
    "live",
    "make_report",
    "make_store",
    "make_token",
    "part_of",
    "stars",
    "survey",
    "table",
    "terms",
    "whole_life_policy",
]
