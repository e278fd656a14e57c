"""One federation in memory for all tests: devices on real stores, a recommender's service and its
files, two servers, carriers with faults, and a clock that tests move.

A test takes the parts that it needs. `Federation` is devices (`Device`) and a service on a network
in memory; `ServerPair` is a leader and a helper; `MemoryCarrier` is all that a device can reach, in
the test's hands. The makers of messages (`terms`, `plan`, `survey` and the others) build what an
honest recommender would send, and take changes for the others.
"""

import pytest

pytest.importorskip("pyhpke")
pytest.importorskip("sqlalchemy")

from tests.world.carrier import HOUR, Clock, MemoryCarrier, live
from tests.world.devices import (
    OPEN,
    Device,
    NoNoise,
    ask,
    enrol,
    make_store,
    part_of,
    rows_in,
    waiting_numbers,
    waiting_sum,
    whole_life_policy,
)
from tests.world.federation import (
    BITS,
    FEW,
    GROWING,
    PACE,
    PLENTY,
    SUMS,
    Federation,
    Killed,
    Network,
    as_on_devices,
    growing_federation,
    small_federation,
)
from tests.world.messages import (
    RUN,
    a_round,
    envelope,
    facts,
    opening,
    plan,
    stars,
    survey,
    table,
    terms,
)
from tests.world.servers import KnownNoise, ServerPair, make_report, server_keys
from tests.world.tokens import issuer, make_token

__all__ = [
    "BITS",
    "FEW",
    "GROWING",
    "HOUR",
    "OPEN",
    "PACE",
    "PLENTY",
    "RUN",
    "SUMS",
    "Clock",
    "Device",
    "Federation",
    "Killed",
    "KnownNoise",
    "MemoryCarrier",
    "Network",
    "NoNoise",
    "ServerPair",
    "a_round",
    "as_on_devices",
    "ask",
    "enrol",
    "envelope",
    "facts",
    "growing_federation",
    "issuer",
    "live",
    "make_report",
    "make_store",
    "make_token",
    "opening",
    "part_of",
    "plan",
    "rows_in",
    "server_keys",
    "small_federation",
    "stars",
    "survey",
    "table",
    "terms",
    "waiting_numbers",
    "waiting_sum",
    "whole_life_policy",
]
