"""Reasons why an item is in somebody's list, from the parts of its score.

A reason names what the person has rated. So it is made on the private side only, for the person;
nothing of it is sent, logged or kept.

What is personal comes first where it is real: where it makes at least a tenth of all that raises
the item above what people choose in general. Otherwise the larger of the other parts is named.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

import numpy as np

from hdpmf.common.data.item_features import NUMBER
from hdpmf.common.model.device_fit import is_period, period_in_words
from hdpmf.private.client.parts import GENERAL, Kind, Parts, TasteParts

HIGH = 4.0
"""Stars from which on somebody liked an item."""

REAL = 0.1
"""The least share of a personal part in all that raises an item.

Taste is named with it for 80 % of the items in lists of hdp-sum on ML-100K and ML-1M; with a fifth
it would be for 59 % and 62 %.
"""

DRIVING = 0.25
"""Two titles are a cause, and not just examples, if they have this share of what ratings add."""

_NAMED = 2  # rated items, or features

_BESIDE = 0.25  # a second feature is named if its part is this large beside the first


@dataclass(frozen=True, slots=True, repr=False)
class Reason:
    """A part of an item's score. PRIVATE.

    Attributes:
        kind: Which part.
        rated: Of ``own`` and ``taste``: positions of the rated items that speak most for it.
        features: Of ``taste``: names of the features that the person chooses and the item has, of a
            number ``high`` or ``low`` and its name.
        driven: Of ``taste``: whether ``rated`` are a cause, and not just examples.
    """

    kind: Kind
    rated: tuple[int, ...] = ()
    features: tuple[str, ...] = ()
    driven: bool = False


def reasons(
    parts: Parts, items: np.ndarray, undated: Set[int] = frozenset()
) -> list[Reason | None]:
    """The reason for each item of a list; None where nothing sets it apart from a usual one.

    Args:
        parts: Of the list.
        items: The list, as positions in the catalogue: no item is a reason for itself.
        undated: Positions of items whose year is unknown: no period is told of them.
    """
    kinds = parts.kinds
    names, sizes = list(kinds), np.array(list(kinds.values()))
    rises = np.maximum(sizes, 0.0).sum(axis=0)
    tastes = None if parts.taste is None else _Tastes(parts.taste, undated)
    found = []
    for position, (item, rise) in enumerate(zip(items.tolist(), rises.tolist(), strict=True)):
        each = dict(zip(names, sizes[:, position].tolist(), strict=True))
        found.append(_reason(parts, tastes, each, position, item, REAL * rise))
    return found


def _reason(
    parts: Parts,
    tastes: _Tastes | None,
    sizes: dict[Kind, float],
    position: int,
    item: int,
    least: float,
) -> Reason | None:
    """The largest personal part that is real, or else the largest of the others above zero."""
    personal: tuple[Kind, Kind] = ("own", "taste")
    for kind in sorted(personal, key=lambda kind: -sizes[kind]):
        if sizes[kind] <= 0 or sizes[kind] < least:
            continue
        if kind == "taste" and tastes is not None:
            reason = tastes.reason(position, item, least)
            if reason is not None:
                return reason
        if kind == "own":
            others = np.flatnonzero(parts.rated != item)
            first = parts.rated[others[_first(parts.own[others, position])]].tolist()
            if first:
                return Reason("own", rated=tuple(first))
    # A taste for what few people choose raises an item that few people choose.
    so: dict[Kind, np.ndarray] = {"popularity": parts.popularity, "stars": parts.stars}
    general = [
        kind for kind, part in so.items() if part.size and min(part[position], sizes[kind]) > 0
    ]
    return Reason(max(general, key=lambda kind: sizes[kind])) if general else None


class _Tastes:
    """Finds reasons of taste for the items of one person's list."""

    def __init__(self, taste: TasteParts, undated: Set[int]) -> None:
        self._taste = taste
        self._sizes = taste.sizes
        self._undated = undated
        self._special = [at for at, name in enumerate(taste.names) if name not in GENERAL]
        self._periods = [at for at in self._special if is_period(taste.names[at])]
        self._pulls = taste.pulls[:, self._special]
        self._dated = np.array([item not in undated for item in taste.rated.tolist()], bool)

    def reason(self, position: int, item: int, least: float) -> Reason | None:
        """Name what the item has and the person chooses; None where that is less than ``least``."""
        sizes = self._named_sizes(position, item)
        columns = list(sizes)
        first = [columns[at] for at in _first(np.array(list(sizes.values())))]
        first = [column for column in first if sizes[column] >= _BESIDE * sizes[first[0]]]
        if not first or sum(sizes[column] for column in first) < least:
            return None
        first.sort(key=lambda column: column in self._periods)
        rated, driven = self._titles(first, position, item)
        words = tuple(self._word(column, position) for column in first)
        return Reason("taste", rated=rated, features=words, driven=driven)

    def _named_sizes(self, position: int, item: int) -> dict[int, float]:
        """The parts of what can be named, by column.

        That is what the item has and the person chooses more than others: a part can also come
        from features that go together. That most items are no Westerns is no reason. All periods
        are one part, as an item has one of them: how much more the person chooses this one than a
        usual one.
        """
        taste, sizes = self._taste, self._sizes[:, position]
        able = taste.present[:, position] & (taste.leaning * taste.apart[:, position] > 0)
        found = {at: float(sizes[at]) for at in self._special if able[at]}
        for period in self._periods:
            if found.pop(period, None) is not None and item not in self._undated:
                found[period] = float(sizes[self._periods].sum())
        return found

    def _titles(self, columns: list[int], position: int, item: int) -> tuple[tuple[int, ...], bool]:
        """The liked items with all of these features that add most to the item's taste part."""
        taste = self._taste
        kinds = [column for column in columns if not _is_number(taste.names[column])]
        if not kinds:
            return (), False
        able = taste.liked & taste.shared[:, kinds].all(axis=1) & (taste.rated != item)
        if any(column in self._periods for column in kinds):
            able &= self._dated
        adds = self._pulls @ taste.apart[self._special, position]
        rows = np.flatnonzero(able)
        rows = rows[_first(adds[rows])]
        driven = adds[rows].sum() >= DRIVING * np.maximum(adds, 0.0).sum()
        return tuple(taste.rated[rows].tolist()), bool(len(rows) and driven)

    def _word(self, column: int, position: int) -> str:
        name = self._taste.names[column]
        if not _is_number(name):
            return name
        size = "high" if self._taste.apart[column, position] > 0 else "low"
        return f"{size} {name.removeprefix(NUMBER)}"


def _is_number(name: str) -> bool:
    """Tell numbers, which every item has, from genres and other words."""
    return name.startswith(NUMBER) or (":" not in name and not is_period(name))


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
    if reason is None:
        return None
    named = " and ".join(dict.fromkeys(map(title, reason.rated)))  # two items can have one title
    if reason.kind == "own":
        if stars is None:
            return f"because you chose {named}"
        highly = " highly" if all(stars(item) >= HIGH for item in reason.rated) else ""
        return f"because you rated {named}{highly}"
    if reason.kind == "taste":
        return _taste_in_words(reason, named)
    if reason.kind == "popularity":
        return "many people choose it"
    return None if expected is None else f"people like you would give it {expected:.1f}"


def _taste_in_words(reason: Reason, titles: str) -> str:
    words = ", ".join(map(_feature_in_words, reason.features))
    if reason.driven:
        return f"because you liked {titles}: {words}"
    if all(map(is_period, reason.features)):
        return f"from {words}, " + (
            f"like {titles} that you rated highly" if titles else "which you choose more than most"
        )
    genres = all(name.startswith("genre:") for name in reason.features)
    return f"your {'genres' if genres else 'taste'}: {words}{f', as in {titles}' if titles else ''}"


def _feature_in_words(name: str) -> str:
    """A period by its years; a genre or another word by itself."""
    return period_in_words(name) if is_period(name) else name.rpartition(":")[2]


def _first(values: np.ndarray) -> np.ndarray:
    """The places of the few largest values above zero, the largest first."""
    order = np.argsort(-values, kind="stable")[:_NAMED]
    return np.asarray(order[values[order] > 0])
