"""The parts of a person's scores: what each rating, taste, popularity and stars add. PRIVATE.

They add up to the score. Reasons why an item is in somebody's list are made of them. A reason names
what the person has rated. So it is made on the private side only, for the person; nothing of it is
sent, logged or kept.

Titles are named only where the model says that they go with the item: then they are its neighbours
in who chooses what. A taste in features has words of its own; that somebody liked one drama is no
cause for every other one.

What is personal comes first where it is real: where it makes at least a tenth of all that raises
the item above what people choose in general. Otherwise the larger of the other parts is named.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hdpmf.common.data.item_features import NUMBER
from hdpmf.common.model.list_model import ListModel, quiet_products
from hdpmf.common.model.taste import POPULARITY, RATINGS, is_period, period_in_words

Kind = Literal["own", "popularity", "taste", "stars"]

GENERAL: dict[str, Kind] = {POPULARITY: "popularity", RATINGS: "stars"}
"""Columns of taste that say no more about an item than these kinds of parts do."""


def _nothing() -> np.ndarray:
    return np.zeros((0, 0))


@dataclass(frozen=True, slots=True, repr=False, eq=False, kw_only=True)
class TasteParts:
    """A person's taste in features of some items, and the ratings that it comes from. PRIVATE.

    Attributes:
        apart: How far above what people choose each item has each feature, one row per feature.
        present: Which features an item has at all, one row per feature.
        pulls: What each rating adds to the taste for each feature, one row per rating.
        leaning: How much more of each feature the person chooses than people in general.
    """

    names: tuple[str, ...]
    apart: np.ndarray
    present: np.ndarray
    pulls: np.ndarray
    leaning: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """The part of each feature in the score of each item, one row per feature."""
        return np.asarray(self.apart * self.pulls.sum(axis=0)[:, None])


@dataclass(frozen=True, slots=True, repr=False, eq=False, kw_only=True)
class Parts:
    """The parts of a person's scores of some items, which add up to the score of each. PRIVATE.

    Attributes:
        base: What a usual item has. The other parts are what sets an item apart from it.
        popularity: For each item, of what people choose in general.
        chosen: Which items are chosen more than a usual one for certain; empty where all that seem
            so are.
        stars: Of the predicted rating; empty where it has no part.
        rated: Positions of what the person rated, as far as ``own`` knows it.
        own: Of each of these, one row each.
        taste: Of features; None where they have no part.
    """

    base: float
    popularity: np.ndarray
    chosen: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    stars: np.ndarray = field(default_factory=lambda: np.zeros(0))
    rated: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    own: np.ndarray = field(default_factory=_nothing)
    taste: TasteParts | None = None

    @property
    def kinds(self) -> dict[Kind, np.ndarray]:
        """The sum of each kind of part, for each item.

        A taste for what many choose, or for what others rate highly, says nothing about the item
        that popularity and stars do not say. So it counts with these.
        """
        none = np.zeros(len(self.popularity))
        found: dict[Kind, np.ndarray] = {
            "own": self.own.sum(axis=0) if self.own.size else none,
            "popularity": self.popularity,
            "taste": none,
            "stars": self.stars if self.stars.size else none,
        }
        if self.taste is not None:
            for name, size in zip(self.taste.names, self.taste.sizes, strict=True):
                kind = GENERAL.get(name, "taste")
                found[kind] = found[kind] + size
        return found

    @property
    def scores(self) -> np.ndarray:
        """All parts together."""
        return np.asarray(self.base + sum(self.kinds.values()))


@quiet_products
def list_parts(
    lists: ListModel,
    rated: np.ndarray,
    inputs: np.ndarray,
    items: np.ndarray,
    shares: np.ndarray | None = None,
) -> Parts:
    """Return the parts of the scores of ``items`` for somebody who rated ``rated``.

    Linear forms are sums over what was rated. So is the solution of ``factors``: each rated item
    has a part in the right-hand side.

    Args:
        inputs: How far above the lowest, each.
        items: Positions of the items that are scored.
        shares: Of each item of the catalogue in what people choose; what ratings add is then
            counted from what they add to that. Without it nothing is taken off.
    """
    positions, shown = lists.positions(rated), lists.positions(items)
    inside = positions >= 0
    rated, known, known_inputs = rated[inside], positions[inside], inputs[inside]
    decode = lists.decode.rows(shown).astype(np.float64)
    usual = None
    if shares is not None:
        usual = shares if lists.heads is None else shares[lists.heads]
        decode = np.vstack([decode, (usual @ lists.decode.whole) * lists.decode.unit])
    if lists.form == "factors":
        system, pulls = lists.system(known, known_inputs)
        own = pulls @ np.linalg.solve(system, decode.T)
    else:
        encoded = known_inputs[:, None] * lists.encode.rows(known)
        own = encoded @ decode.T + _entries(lists, known, known_inputs, shown, usual)
    everyone = lists.output.astype(np.float64)
    base = float(everyone.mean() if usual is None else usual @ everyone)
    popularity = everyone[shown] - base
    if usual is not None:
        base += float(own[:, -1].sum())
        own = own[:, :-1] - own[:, -1:]
    if (shown < 0).any():
        # Items that it does not know come last for everybody.
        last = float(lists.scores(rated, known_inputs).min())
        own[:, shown < 0] = 0.0
        popularity[shown < 0] = last - base
    return Parts(base=base, popularity=popularity, rated=rated, own=own)


def _entries(
    lists: ListModel,
    rated: np.ndarray,
    inputs: np.ndarray,
    shown: np.ndarray,
    usual: np.ndarray | None,
) -> np.ndarray:
    """Return what single entries add to the scores of the shown items, one row per rated item.

    With ``usual`` there is one more column: what they add to these shares of all items.
    """
    found = np.zeros((len(rated), len(shown) + (usual is not None)))
    entries = lists.entries
    if len(entries.items) == 0:
        return found
    column = np.full(len(entries.start) - 1, -1)
    column[shown[shown >= 0]] = np.flatnonzero(shown >= 0)
    counts = entries.start[rated + 1] - entries.start[rated]
    rows = np.repeat(np.arange(len(rated)), counts)
    at = np.arange(len(rows)) + np.repeat(
        entries.start[rated] - (np.cumsum(counts) - counts), counts
    )
    values = entries.whole[at] * entries.unit * inputs[rows]
    columns = column[entries.items[at]]
    here = columns >= 0
    np.add.at(found, (rows[here], columns[here]), values[here])
    if usual is not None:
        found[:, -1] = np.bincount(rows, values * usual[entries.items[at]], len(rated))
    return found


HIGH = 4.0
"""Stars from which on somebody liked an item."""

REAL = 0.1
"""The least share of a personal part in all that raises an item.

Taste is named with it for 80 % of the items in lists of hdp-sum on ML-100K and ML-1M; with a fifth
it would be for 59 % and 62 %.
"""

_NAMED = 2  # rated items, or features

_BESIDE = 0.25  # a second feature is named if its part is this large beside the first


@dataclass(frozen=True, slots=True, repr=False)
class Reason:
    """A part of an item's score. PRIVATE.

    Attributes:
        rated: Of ``own``: positions of the rated items that speak most for it.
        features: Of ``taste``: names of the features that the person chooses and the item has, of a
            number ``high`` or ``low`` and its name.
    """

    kind: Kind
    rated: tuple[int, ...] = ()
    features: tuple[str, ...] = ()


def reasons(
    parts: Parts, items: np.ndarray, undated: Set[int] = frozenset()
) -> list[Reason | None]:
    """The reason for each item of a list; None where nothing sets it apart from a usual one.

    Args:
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
    if parts.chosen.size and not parts.chosen[position]:
        del so["popularity"]
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

    def reason(self, position: int, item: int, least: float) -> Reason | None:
        """Name what the item has and the person chooses; None where that is less than ``least``."""
        sizes = self._named_sizes(position, item)
        columns = list(sizes)
        first = [columns[at] for at in _first(np.array(list(sizes.values())))]
        first = [column for column in first if sizes[column] >= _BESIDE * sizes[first[0]]]
        if not first or sum(sizes[column] for column in first) < least:
            return None
        first.sort(key=lambda column: column in self._periods)
        words = tuple(self._word(column, position) for column in first)
        return Reason("taste", features=words)

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
        return _taste_in_words(reason)
    if reason.kind == "popularity":
        return "many people choose it"
    return None if expected is None else f"you would probably give it {expected:.1f}"


def _taste_in_words(reason: Reason) -> str:
    words = ", ".join(map(_feature_in_words, reason.features))
    if all(map(is_period, reason.features)):
        return f"from {words}, which you choose more than most"
    genres = all(name.startswith("genre:") for name in reason.features)
    return f"your {'genres' if genres else 'taste'}: {words}"


def _feature_in_words(name: str) -> str:
    """A period by its years; a genre or another word by itself."""
    return period_in_words(name) if is_period(name) else name.rpartition(":")[2]


def _first(values: np.ndarray) -> np.ndarray:
    """The places of the few largest values above zero, the largest first."""
    order = np.argsort(-values, kind="stable")[:_NAMED]
    return np.asarray(order[values[order] > 0])
