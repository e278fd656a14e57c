"""Privacy levels: one for the owner, and others for items that are more private.

Both are privacy weights. A rating of weight W may spend W times the policy's epsilon in its whole
life.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hdpmf.common.privacy.spec import PrivacySpec
from hdpmf.errors import ConfigError
from hdpmf.private.device.own_items import current_catalogue
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.marks import NO_GENRE, genre_key

GROUPS = {group.name: group.low for group in PrivacySpec().user_groups}
"""The paper's groups of people, and the weight at which each begins."""

SENSITIVE = GROUPS["conservative"]
"""The weight of an item that is marked as sensitive."""

MISSES = {0.25: 0.779, 0.5: 0.765, 1.0: 0.754, 2.0: 0.747}
"""How many stars predictions miss by on average, by epsilon, if everybody allows so much: hdp-sum
on MovieLens 100K with the paper's weights, K = 10, five seeds (``hdpmf paper run``;
docs/results/csv/figure_epsilon.csv)."""

MISS_ALONE = 0.833
"""The same where nobody sends anything, and each device predicts its owner's own mean."""


def group_of(weight: float) -> str:
    """The paper's group that a weight is in."""
    return max(
        (low, name) for name, low in GROUPS.items() if low <= weight or name == "conservative"
    )[1]


def privacy_weight(store: DeviceStore) -> float:
    """Return the owner's privacy weight."""
    return store.rated.beta


def set_privacy_weight(store: DeviceStore, weight: float) -> None:
    """Turn the dial. What was sent before stays sent."""
    check_weight(weight)
    store.set_weight(beta=weight)


def item_weights(store: DeviceStore, of: Iterable[str] | None = None) -> dict[str, float]:
    """Return the items that weigh less than 1, of all or of these few."""
    return {item: weight for item, weight in store.rated.item_weights(of).items() if weight < 1}


def genres(store: DeviceStore) -> dict[str, list[str]]:
    """Return the genres of the items that the owner sees, each with its items.

    Items that have none are under ``NO_GENRE``, the last.
    """
    shown = current_catalogue(store)
    found: dict[str, list[str]] = {}
    bare = []
    if shown is not None:
        for item, own in zip(
            shown.table.ids, shown.table.genres or ((),) * len(shown.table.ids), strict=True
        ):
            named = [genre for genre in own if genre_key(genre) != NO_GENRE]
            for genre in named:
                found.setdefault(genre, []).append(item)
            if not named:
                bare.append(item)
    return dict(sorted(found.items())) | ({NO_GENRE: bare} if bare else {})


def mark(store: DeviceStore, items: Sequence[str], weight: float = SENSITIVE) -> None:
    """Mark items as sensitive: they weigh at most so much, whatever else is said of them.

    A weight of 1 takes the mark away, and nothing else that holds an item down.
    """
    check_weight(weight)
    with store.transaction():
        for item in items:
            store.marks.put("item", item, weight)


def mark_genre(store: DeviceStore, genre: str, weight: float = SENSITIVE) -> int:
    """Mark a genre as sensitive, and return how many items of it the owner sees.

    It is marked for all recommenders, and for items that come later. A weight of 1 takes the mark
    away, and nothing else that holds an item down.

    Args:
        genre: Its name, or ``NO_GENRE`` for items without one.
        weight: What its items weigh at most.

    Raises:
        ConfigError: There is no such genre.
    """
    check_weight(weight)
    key = genre_key(genre)
    items = [own for name, own in genres(store).items() if genre_key(name) == key]
    if not items and key not in store.marks.genres():
        raise ConfigError("the catalogue has no such genre; nothing was changed")
    store.marks.put("genre", genre, weight)
    return len(set().union(*items))


@dataclass(frozen=True, slots=True)
class HeldDown:
    """The rules that apply to an item. PRIVATE.

    Attributes:
        weight: The least that they say.
        own: The weight that the owner gave to the item.
        genres: Marked genres that it is of.
        without_genre: It has no genre, and could be of a marked one.
    """

    weight: float
    own: float
    marked: bool
    genres: tuple[str, ...]
    without_genre: bool

    def in_words(self) -> str:
        """Say what holds the item down; empty where nothing does."""
        if self.weight >= 1:
            return ""
        reasons = [
            *([f"you gave it the weight {self.own:g}"] if self.own < 1 else []),
            *(["it is marked as sensitive"] if self.marked else []),
            *(f"the genre {genre} is marked as sensitive" for genre in self.genres),
            *(
                ["it has no genre, and could be of one that is marked"]
                if self.without_genre
                else []
            ),
        ]
        return f"It weighs {self.weight:g}: {'; '.join(reasons)}."


def held_down(store: DeviceStore, item: str) -> HeldDown:
    """Return the rules that apply to an item."""
    marked = store.marks.genres()
    own_genres = store.marks.genres_of({item})[item]
    names = {row.name for row in store.marks.rows() if row.kind == "item"}
    return HeldDown(
        weight=store.rated.item_weights([item]).get(item, 1.0),
        own=store.rated.gammas([item]).get(item, 1.0),
        marked=item in names,
        genres=tuple(sorted(own_genres & marked.keys())),
        without_genre=not own_genres
        and (NO_GENRE in marked or item in store.marks.unanswered([item])),
    )


def check_weight(weight: float) -> None:
    """Refuse what is no privacy level."""
    if not 0 < weight <= 1:
        raise ConfigError("the dial goes from more than 0 (most private) to 1")
