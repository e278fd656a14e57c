"""Sentences about privacy that several pages show, so that each stands once."""

from __future__ import annotations

import math

from hdpmf.methods.method import Status

OBSERVERS = {
    "messages": "Sees every message of every device (no secure sums)",
    "sums": "Sees only sums over users",
    "sums-h-known": "Sees only sums over users, but made half of the noise (h): the recommender",
    "sums-h-hidden": "Sees only sums over users, and none of the noise: somebody else",
    "two-servers": "Is the recommender together with one of the two servers that sum",
    "final": "Gets only the finished model",
}
"""Who looks, by the accountant's views."""

WHERE = {
    "messages": "where messages are seen",
    "sums": "where only sums are seen",
    "two-servers": "where two servers sum",
}
"""The views of methods, to go with what is said of a run."""

MEANING = {
    "proved": "PROVED: holds against everything that this observer sees, whatever else it knows.",
    "nominal": "NOMINAL: counts the rating's own messages only, in a typical run. No guarantee: the true cost may be "
    "higher.",
    "no guarantee": "NO GUARANTEE: nothing keeps this observer from being certain.",
}
"""What the accountant's verdicts mean."""

PROMISE: dict[Status, str] = {
    "proved": "Each rating pays its weight times epsilon, and that is a guarantee.",
    "nominal": "Each rating pays its weight times epsilon, which is nominal: no guarantee.",
    "none": "NOTHING IS HIDDEN: ratings can be computed from what is sent.",
}
"""What a device's owner is told about a run."""


def observer(view: str, has_h: bool) -> str:
    """The name of a view for people: where there is no h, knowing it makes no difference."""
    return view if has_h else view.removesuffix("-h-known").removesuffix("-h-hidden")


def guess_at(epsilon: float) -> float:
    """How often the best guess between two equally likely values is right, at most, after epsilon was spent."""
    return 1.0 / (1.0 + math.exp(-epsilon)) if epsilon < 700 else 1.0


SURE = 0.9995
"""From here on a guess is as good as certain."""


def percent(part: float, *, at_most: bool = False) -> str:
    """A probability for people, or what it is at most; certainty is only said where it is."""
    if part >= SURE:
        return "100 %" if at_most else "> 99.9 %"
    return f"{100 * part:.0f} %" if part < 0.95 else f"{100 * part:.1f} %"
