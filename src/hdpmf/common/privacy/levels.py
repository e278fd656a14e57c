"""Levels of what is hidden: a person's ratings altogether, only their values, or nothing.

A weight says *how much* privacy a rating has, a level *what* of it is hidden. A rating has the more
hidden one of two levels: its person's and its item's for that person. Private, like the weights,
until something is shared: what a person shares shows the level.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import numpy as np

from hdpmf.common.data import IdIndex
from hdpmf.errors import PrivacyError

Level = Literal["hidden", "seen", "open"]
"""``hidden``: values, and which items were rated. ``seen``: values only; who rated what is visible.
``open``: nothing; the owner publishes the rating.
"""

LEVELS: Final[tuple[Level, ...]] = get_args(Level)
"""From the most hidden to the least. Arrays hold positions in it, as int8."""

HIDDEN, SEEN, OPEN = range(len(LEVELS))

USER_DEFAULT: Final[Level] = "hidden"
"""The level of people who say nothing."""

ITEM_DEFAULT: Final[Level] = "open"
"""The level of items that nobody marked: they restrict nothing."""


def check_level(level: str, where: str) -> Level:
    """Return a level that is one; PrivacyError otherwise.

    Args:
        level: Its name.
        where: What has it, to begin the message with.
    """
    if level not in LEVELS:
        raise PrivacyError(f"{where}: a level is {', '.join(LEVELS[:-1])} or {LEVELS[-1]}")
    return level


def level_codes(given: Any, where: str) -> np.ndarray:
    """Return levels as int8 positions in ``LEVELS``.

    Args:
        given: Names or positions, one for each row.
        where: What they are of, to begin an error's message with. The message does not repeat what
            was given: a level is private.

    Raises:
        PrivacyError: One of them is no level.
    """
    array = np.asarray(given)
    if array.ndim == 1 and array.dtype.kind in "iu":
        codes = array.astype(np.int64)
    elif array.ndim == 1:
        known: dict[str, int] = {name: code for code, name in enumerate(LEVELS)}
        written = (str(name).strip().lower() for name in array.tolist())
        codes = np.array([known.get(name, -1) for name in written], np.int64)
    else:
        raise PrivacyError(f"{where}: levels must be a list, not an array of shape {array.shape}")
    bad = np.flatnonzero((codes < 0) | (codes >= len(LEVELS)))
    if len(bad):
        raise PrivacyError(
            f"{where}, row {bad[0] + 1:,}: a level is {', '.join(LEVELS[:-1])} or {LEVELS[-1]} "
            f"({len(bad):,} rows are none of these)"
        )
    return codes.astype(np.int8)


def spread_levels(given: Any, index: IdIndex, default: Level, kind: str) -> np.ndarray:
    """Return the level of each user or item of an index, as int8 positions in ``LEVELS``.

    Args:
        given: One level for all; one for each, in the order of the index; or a mapping from ids.
        index: The users or items.
        default: The level of those whom a mapping does not name.
        kind: What to call one of them in an error's message.

    Raises:
        PrivacyError: Something is no level, or a mapping names an id that is not in the index.
    """
    if isinstance(given, str):
        code = LEVELS.index(check_level(given, f"levels of {kind}s"))
        return np.full(len(index), code, np.int8)
    if isinstance(given, Mapping):
        positions = index.find(list(given))
        unknown = int((positions < 0).sum())
        if unknown:
            raise PrivacyError(
                f"levels were given for {len(given)} {kind}s, of which {unknown} are not in the "
                "ratings; name only those that are"
            )
        codes = np.full(len(index), LEVELS.index(default), np.int8)
        codes[positions] = level_codes(list(given.values()), f"levels of {kind}s")
        return codes
    codes = level_codes(given, f"levels of {kind}s")
    if len(codes) != len(index):
        raise PrivacyError(f"expected one level for each of {len(index)} {kind}s, got {len(codes)}")
    return codes
