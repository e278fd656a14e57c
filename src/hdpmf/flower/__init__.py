"""The paper's rounds over machines: an ordinary Flower app (docs/flower.md).

Flower is used by its public interface only: ``flwr.app``, ``flwr.clientapp``, ``flwr.serverapp``,
``flwr.simulation``.
"""

import os
from pathlib import Path

# Flower reads on import whether it may send telemetry and look for updates. Here it may not, unless
# the environment says so.
for _name, _value in (("FLWR_TELEMETRY_ENABLED", "0"), ("FLWR_DISABLE_UPDATE_CHECK", "1")):
    os.environ.setdefault(_name, _value)

APP = Path(__file__).parent
"""The folder for ``flwr run``."""
