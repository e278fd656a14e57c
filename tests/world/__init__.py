"""What tests share: two servers with reports and tokens, and a clock that tests move."""

import pytest

pytest.importorskip("pyhpke")
pytest.importorskip("sqlalchemy")

from tests.world.clock import HOUR, Clock
from tests.world.servers import KnownNoise, ServerPair, make_report
from tests.world.tokens import issuer, make_token

__all__ = [
    "HOUR",
    "Clock",
    "KnownNoise",
    "ServerPair",
    "issuer",
    "make_report",
    "make_token",
]
