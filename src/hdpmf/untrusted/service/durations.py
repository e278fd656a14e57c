"""Times as people write them."""

from __future__ import annotations

import re

from hdpmf.errors import ConfigError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: str) -> int:
    """A time like 90s, 30m, 12h or 7d, in seconds."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is no time; write it as 90s, 30m, 12h or 7d")
    return int(found[1]) * _UNITS[found[2]]
