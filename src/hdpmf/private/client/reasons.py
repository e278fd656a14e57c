"""Reasons why an item is in somebody's list, from the parts of its score.

A reason names what the person has rated. So it is made on the private side only, for the person;
nothing of it is sent, logged or kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hdpmf.common.model.device_fit import PERIOD

HIGH = 4.0
"""Stars from which on "highly" is said."""

_NAMED = 2  # rated items, or features

Kind = Literal["own", "popularity", "taste", "stars"]


def _nothing() -> np.ndarray:
    return np.zeros((0, 0))


@dataclass(frozen=True, slots=True, repr=False, eq=False, kw_only=True)
class Parts:
    """The parts of a person's scores of some items, which add up to the score of each. PRIVATE.

    Attributes:
        base: What a usual item has. The other parts are what sets an item apart from it.
        popularity: For each item, of what people choose in general.
        stars: Of the predicted rating; empty where it has no part.
        rated: Positions of what the person rated.
        own: Of each of these, one row each.
        features: Names of features.
        taste: Of each of these, one row each.
        absent: Which features an item does not have, one row each.
    """

    base: float
    popularity: np.ndarray
    stars: np.ndarray = field(default_factory=lambda: np.zeros(0))
    rated: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    own: np.ndarray = field(default_factory=_nothing)
    features: tuple[str, ...] = ()
    taste: np.ndarray = field(default_factory=_nothing)
    absent: np.ndarray = field(default_factory=_nothing)

    @property
    def kinds(self) -> dict[Kind, np.ndarray]:
        """The sum of each kind of part, for each item."""
        none = np.zeros(len(self.popularity))
        return {
            "own": self.own.sum(axis=0) if self.own.size else none,
            "popularity": self.popularity,
            "taste": self.taste.sum(axis=0) if self.taste.size else none,
            "stars": self.stars if self.stars.size else none,
        }

    @property
    def scores(self) -> np.ndarray:
        """All parts together."""
        return np.asarray(self.base + sum(self.kinds.values()))


@dataclass(frozen=True, slots=True, repr=False)
class Reason:
    """The largest part of an item's score. PRIVATE.

    Attributes:
        kind: Which part.
        rated: Of ``own``: positions of the rated items that speak most for it.
        features: Of ``taste``: names of the features that do.
        absent: Those of them that it does not have: what this person does not choose.
    """

    kind: Kind
    rated: tuple[int, ...] = ()
    features: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def reasons(parts: Parts, items: np.ndarray) -> list[Reason | None]:
    """The reason for each item of a list; None where nothing sets it apart from a usual one.

    Args:
        parts: Of the list.
        items: The list, as positions in the catalogue: no item is a reason for itself.
    """
    kinds = parts.kinds
    names, sizes = list(kinds), np.array(list(kinds.values()))
    largest = sizes.argmax(axis=0)
    return [
        _reason(parts, names[kind], position, item) if sizes[kind, position] > 0 else None
        for position, (kind, item) in enumerate(zip(largest.tolist(), items.tolist(), strict=True))
    ]


def _reason(parts: Parts, kind: Kind, position: int, item: int) -> Reason:
    if kind == "own":
        others = np.flatnonzero(parts.rated != item)
        return Reason(
            kind, rated=tuple(parts.rated[others[_first(parts.own[others, position])]].tolist())
        )
    if kind == "taste":
        together: dict[str, float] = {}
        for name, value in zip(parts.features, parts.taste[:, position].tolist(), strict=True):
            told = "year" if name.startswith(PERIOD) else name
            together[told] = together.get(told, 0.0) + value
        names = list(together)
        told_first = tuple(names[at] for at in _first(np.array(list(together.values()))))
        lacking = {
            name
            for name, absent in zip(parts.features, parts.absent[:, position], strict=True)
            if absent
        }
        return Reason(
            kind, features=told_first, absent=tuple(name for name in told_first if name in lacking)
        )
    return Reason(kind)


def in_words(
    reason: Reason | None,
    *,
    title: Callable[[int], str],
    stars: Callable[[int], float] | None,
    expected: float | None,
) -> str | None:
    """A reason as the person reads it.

    Args:
        reason: The reason, or None.
        title: What a rated item is called.
        stars: How the person rated it; None where they chose it, and there are no ratings.
        expected: The rating that is expected of it; None where nothing predicts any.
    """
    if reason is None or (reason.kind == "own" and not reason.rated):
        return None
    if reason.kind == "own":
        named = " and ".join(map(title, reason.rated))
        if stars is None:
            return f"because you chose {named}"
        highly = " highly" if all(stars(item) >= HIGH for item in reason.rated) else ""
        return f"because you rated {named}{highly}"
    if reason.kind == "taste":
        genres = all(name.startswith("genre:") for name in reason.features)
        words = ", ".join(
            _feature_in_words(name, name in reason.absent) for name in reason.features
        )
        return f"your {'genres' if genres else 'taste'}: {words}"
    if reason.kind == "popularity" or expected is None:
        return "popular" if reason.kind == "popularity" else None
    return f"people like you would give it {expected:.1f}"


def _feature_in_words(name: str, absent: bool) -> str:
    """A genre or another word by itself; a number as the item's own."""
    kind, _, word = name.rpartition(":")
    if kind in ("", "number"):
        return f"its {word}"
    return f"no {word}" if absent else word


def _first(values: np.ndarray) -> np.ndarray:
    """The places of the few largest values above zero, the largest first."""
    order = np.argsort(-values, kind="stable")[:_NAMED]
    return np.asarray(order[values[order] > 0])
