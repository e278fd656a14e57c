"""Which column is which."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hdpmf.errors import ConfigError, RatingsError
from hdpmf.wording import say, tell

T = TypeVar("T")

COLUMNS = ("user", "item", "rating", "timestamp")
_OPTIONAL = ("rating", "timestamp")
# Spellings of the same thing, lower case, letters and digits only. The first need no word; the others are guesses.
_SPELLINGS = {
    "user": ("user", "userid"),
    "item": ("item", "itemid", "movieid"),
    "rating": ("rating",),
    "timestamp": ("timestamp",),
}
_GUESSES = {
    "user": (
        "uid", "users", "customer", "customerid", "client", "clientid", "member", "memberid", "reviewer", "reviewerid",
        "account", "accountid", "visitor", "visitorid", "person", "personid", "reader", "readerid",
    ),
    "item": (
        "iid", "items", "movie", "film", "filmid", "book", "bookid", "isbn", "product", "productid", "article",
        "articleid", "asin", "sku", "ean", "business", "businessid", "song", "songid", "track", "trackid", "game",
        "gameid", "recipe", "recipeid",
    ),
    "rating": ("ratings", "stars", "star", "score", "overall", "grade", "bookrating", "reviewrating", "ratingvalue"),
    "timestamp": (
        "time", "date", "datetime", "ratedat", "createdat", "unixreviewtime", "reviewtime", "eventtime",
        "ratingtimestamp",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Found:
    """The columns' names where they are from.

    Attributes:
        user: The user's.
        item: The item's.
        rating: None where there are no ratings: implicit feedback.
        timestamp: None where there are no times.
        guessed: Which of ours were guessed.
    """

    user: str
    item: str
    rating: str | None
    timestamp: str | None
    guessed: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """All of them."""
        return [name for name in (self.user, self.item, self.rating, self.timestamp) if name is not None]

    def times(self, read: Callable[[], T], origin: str) -> T | None:
        """The times; none where their column was a guess that turns out to be wrong."""
        try:
            return read()
        except RatingsError:
            if "timestamp" not in self.guessed:
                raise
            tell(f"{origin}: column '{self.timestamp}' holds no times that can be read, so it is left out")
            return None


def match_columns(
    names: Sequence[str], wanted: Mapping[str, str] | None, origin: str, implicit: bool | None = False
) -> Found:
    """Find which column is which.

    Args:
        names: The columns there are.
        wanted: Names given by the caller, by our names.
        origin: What the columns are from, for messages.
        implicit: True: ratings are not looked for; False: they have to be there; None: they may be absent, with a
            word about it.
    """
    wanted = dict(wanted or {})
    strange = set(wanted) - set(COLUMNS)
    if strange:
        raise ConfigError(
            f"columns are called {', '.join(COLUMNS)} here, as in {say('columns', 'user')}; "
            f"unknown: {', '.join(sorted(strange))}"
        )
    if implicit and "rating" in wanted:
        raise ConfigError("implicit feedback has no ratings to read; name no column for them")
    found: dict[str, str] = {}
    guessed: list[str] = []
    for ours in COLUMNS:
        if ours == "rating" and implicit:
            continue
        candidates, sure = _candidates(names, ours, wanted.get(ours))
        if len(candidates) == 1:
            found[ours] = candidates[0]
            if not sure:
                guessed.append(ours)
        elif len(candidates) > 1 and (sure or ours != "timestamp"):
            raise RatingsError(
                f"{origin}: more than one column could be '{ours}' ({_listed(candidates)}); say which with "
                f"{say('columns', ours)}"
            )
        elif ours not in _OPTIONAL or ours in wanted or (ours == "rating" and implicit is False):
            or_none = f", or that there is none (clicks, purchases) with {say('implicit')}" if ours == "rating" else ""
            raise RatingsError(
                f"{origin}: no column '{wanted.get(ours, ours)}' among {_listed(names)}; "
                f"say which one it is with {say('columns', ours)}{or_none}"
            )
    if guessed:
        words = ", ".join(f"{ours} = {found[ours]}" for ours in guessed)
        tell(f"{origin}: columns guessed by their names: {words}; say otherwise with {say('columns', guessed[0])}")
    if "rating" not in found and not implicit:
        tell(
            f"{origin}: no column of ratings among {_listed(names)}, so this is read as implicit feedback: who chose "
            f"what, nothing more. If there is one, say which with {say('columns', 'rating')}"
        )
    return Found(found["user"], found["item"], found.get("rating"), found.get("timestamp"), tuple(guessed))


def is_known(name: str, ours: str) -> bool:
    """Whether a column of that name would be taken for that one of ours."""
    return _plain(name) in (*_SPELLINGS[ours], *_GUESSES[ours])


def _candidates(names: Sequence[str], ours: str, wanted: str | None) -> tuple[list[str], bool]:
    """The columns that could be it, and whether that is sure (if there is a single one)."""
    if wanted is not None:
        return [name for name in names if name == wanted], True
    if ours in names:
        return [ours], True
    usual = [name for name in names if _plain(name) in _SPELLINGS[ours]]
    return (usual, True) if usual else ([name for name in names if _plain(name) in _GUESSES[ours]], False)


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _listed(names: Sequence[str]) -> str:
    """List column names, leaving out what looks like data taken for a header."""
    shown = [name for name in names if name[:1].isalpha() and len(name) <= 40][:12]
    return ("columns " + ", ".join(shown)) if shown else f"{len(names)} columns without names"
