"""Titles as people write and look for them: upright, exact ones first, and with typos."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from hdpmf.common.protocol.catalogue import CatalogueTable, plain

_ARTICLES = (
    *("the", "a", "an"),
    *("der", "die", "das", "ein", "eine"),
    *("le", "la", "les", "l'", "un", "une"),
    *("el", "los", "las", "il", "lo", "gli", "una"),
    *("de", "het", "een", "den", "det"),
)
_INVERTED = re.compile(
    rf"^(?P<rest>[^()]*\S), (?P<article>{'|'.join(_ARTICLES)})(?P<more>(?: \(.*\))?)$",
    re.IGNORECASE,
)
_LEADING = re.compile(rf"^(?:(?:{'|'.join(_ARTICLES)}) |l')(?=\S)")
_BRACKETS = re.compile(r"\([^()]*\)")


def upright(title: str) -> str:
    """Return a title with its article where people say it: "Godfather, The" is "The Godfather"."""
    if ", " not in title:
        return title
    return _turned(_BRACKETS.sub(lambda part: f"({_turned(part[0][1:-1])})", title))


def _turned(title: str) -> str:
    parts = _INVERTED.match(title)
    if parts is None:
        return title
    article = parts["article"]
    space = "" if article.endswith("'") else " "
    return f"{article[0].upper()}{article[1:]}{space}{parts['rest']}{parts['more']}"


def _without_article(text: str) -> tuple[str, str]:
    """Return a plain title without its article, and the article."""
    found = _LEADING.match(text)
    return (text, "") if found is None else (text[found.end() :], f" {found[0].strip()}")


class TitleSearch:
    """Finds items by parts of their titles, as fast as one types.

    Where nothing has all words, words of titles count that differ by a letter or two.
    """

    def __init__(self, table: CatalogueTable) -> None:
        self.table = table
        self._lines: list[str] = []
        self._exact: dict[str, list[int]] = {}
        self._starts: list[int] = []
        self._words: dict[int, list[tuple[str, int]]] | None = None
        at = 0
        for title, item in zip(table.titles or table.ids, table.ids, strict=True):
            bare, article = _without_article(plain(upright(title or item)).replace(",", ""))
            self._starts.append(at)
            self._exact.setdefault(bare.partition(" (")[0], []).append(len(self._lines))
            self._lines.append(f" {bare}{article}")  # as lists of titles are sorted
            at += len(self._lines[-1]) + 1
        self._text = "\n".join(self._lines)

    def __repr__(self) -> str:
        return f"TitleSearch({len(self._lines):,} items)"

    def find(self, wanted: str, most: int = 20) -> list[int]:
        """Positions of items with all words in the title.

        The very title comes first, then titles that begin so, with or without an article.
        """
        text = " ".join(plain(upright(wanted.strip())).replace(",", " ").split())
        if not text:
            return []
        positions = self._with_all(text.split(), _without_article(text)[0], most)
        if not positions:
            for words in self._near(text.split()):
                positions += self._with_all(words, " ".join(words), most - len(positions))
        return list(dict.fromkeys(positions))[:most]

    def _with_all(self, words: list[str], begin: str, most: int) -> list[int]:
        """Return the items with all words: the very title, those that begin so, and others."""
        found = dict.fromkeys(
            line
            for line in self._exact.get(begin, ())
            if all(word in self._lines[line] for word in words)
        )
        if self._lines[0].startswith(f" {begin}") and all(word in self._lines[0] for word in words):
            found[0] = None
        rarest = words[0] if len(words) == 1 else min(words, key=self._text.count)
        for needle in (f"\n {begin}", f" {begin}", rarest):
            for line in self._at(needle, words):
                if len(found) >= most:
                    return list(found)[:most]
                found[line] = None
        return list(found)[:most]

    def _at(self, needle: str, every: list[str]) -> Iterator[int]:
        """Yield the lines in which a text and every word is."""
        at = self._text.find(needle)
        while at >= 0:
            line = bisect_right(self._starts, at + needle.startswith("\n")) - 1
            if all(word in self._lines[line] for word in every):
                yield line
            ends = self._starts[line + 1] - 1 if line + 1 < len(self._starts) else len(self._text)
            at = self._text.find(needle, ends)

    def _near(self, words: list[str]) -> Iterator[list[str]]:
        """Yield the words, with the nearest that titles have for those that no title has."""
        known = [[word] if word in self._text else self._nearest(word) for word in words]
        if not all(known):
            return
        for place in range(max(map(len, known))):
            yield [each[min(place, len(each) - 1)] for each in known]

    def _nearest(self, word: str) -> list[str]:
        """Return the words of titles that differ least from one, three at most."""
        most = 0 if len(word) < 4 else 1 if len(word) < 8 else 2
        if not most:
            return []
        if self._words is None:
            self._words = _by_length(self._text.split())
        letters = _letters(word)
        close = []
        for length in range(len(word) - most, len(word) + most + 1):
            for other, own in self._words.get(length, ()):
                if (letters ^ own).bit_count() <= 2 * most:
                    distance = _distance(word, other, most)
                    if distance <= most:
                        close.append((distance, other))
        return [other for _, other in sorted(close)[:3]]


def _by_length(words: Iterable[str]) -> dict[int, list[tuple[str, int]]]:
    """Return different words by their length, each with the set of its letters."""
    found: dict[int, list[tuple[str, int]]] = {}
    for word in dict.fromkeys(words):
        found.setdefault(len(word), []).append((word, _letters(word)))
    return found


def _letters(word: str) -> int:
    """Return a word's letters as a set of bits: a quick look at whether two can be alike."""
    bits = 0
    for letter in word:
        bits |= 1 << (ord(letter) % 64)
    return bits


def _distance(left: str, right: str, most: int) -> int:
    """Return how many letters to change, leave out, add or swap; any number above ``most``."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for place, letter in enumerate(left, start=1):
        before, last, row = row, before, [place]
        for other in range(1, len(right) + 1):
            cost = min(
                before[other] + 1, row[-1] + 1, before[other - 1] + (letter != right[other - 1])
            )
            swapped = place > 1 and other > 1
            if swapped and letter == right[other - 2] and left[place - 2] == right[other - 1]:
                cost = min(cost, last[other - 2] + 1)
            row.append(cost)
        if min(row) > most and min(before) > most:
            return most + 1
    return row[-1]
