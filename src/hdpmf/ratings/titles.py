"""Made-up titles, years and genres for the synthetic world."""

from __future__ import annotations

import numpy as np

GENRES = (
    "Drama",
    "Comedy",
    "Action",
    "Thriller",
    "Romance",
    "Adventure",
    "Crime",
    "Science Fiction",
    "Horror",
    "Family",
    "Mystery",
    "Musical",
)
_FIRST = (
    "Amber", "Broken", "Crimson", "Distant", "Electric", "Forgotten", "Golden", "Hollow", "Invisible", "Jade",
    "Kindred", "Last", "Midnight", "Northern", "Open", "Paper", "Quiet", "Restless", "Silver", "Tender",
    "Unwritten", "Velvet", "Wandering", "Young",
)  # fmt: skip
_SECOND = (
    "Anchor", "Bridge", "Carnival", "Detective", "Empire", "Falcon", "Garden", "Harbour", "Island", "Journey",
    "Kingdom", "Lantern", "Mirror", "Night", "Orchard", "Parade", "Question", "River", "Station", "Theatre",
    "Umbrella", "Voyage", "Window", "Zephyr",
)  # fmt: skip
_THIRD = (
    "of Glass",
    "in Winter",
    "at Dawn",
    "Without Maps",
    "by the Sea",
    "for Two",
    "Returns",
    "Underground",
)


def invent_titles(n_items: int, generator: np.random.Generator) -> tuple[list[str], list[int]]:
    """Make up a title, with the year in brackets as MovieLens has it, and the year, for each item.

    Titles all differ: words are combined in a shuffled order, and numbered like sequels when they run out.
    """
    words = len(_FIRST) * len(_SECOND) * (len(_THIRD) + 1)
    order = generator.permutation(words).tolist()
    # More recent years are more common, as in MovieLens.
    years = (2024 - np.minimum(generator.exponential(14, size=n_items), 90)).astype(int).tolist()
    titles = [_title(order[item % words], item // words, years[item]) for item in range(n_items)]
    return titles, years


def _title(combination: int, sequel: int, year: int) -> str:
    rest, first = divmod(combination, len(_FIRST))
    third, second = divmod(rest, len(_SECOND))
    ending = f" {_THIRD[third - 1]}" if third else ""
    number = f" {sequel + 1}" if sequel else ""
    return f"{_FIRST[first]} {_SECOND[second]}{ending}{number} ({year})"
