"""Searching items by their titles."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right

from hdpmf.common.protocol import CatalogueTable


class TitleSearch:
    """Finds items by parts of their titles, as fast as one types.

    Args:
        table: The items.
    """

    def __init__(self, table: CatalogueTable) -> None:
        self.table = table
        self._lines = [
            f" {plain(title or item)}"
            for title, item in zip(table.titles or table.ids, table.ids, strict=True)
        ]
        self._text = "\n".join(self._lines)
        self._starts: list[int] = []
        at = 0
        for line in self._lines:
            self._starts.append(at)
            at += len(line) + 1

    def __repr__(self) -> str:
        return f"TitleSearch({len(self._lines):,} items)"

    def find(self, wanted: str, most: int = 20) -> list[int]:
        """Positions of items with all words in the title; titles that begin so come first."""
        words = plain(wanted).split()
        if not words:
            return []
        whole = " ".join(words)
        rarest = words[0] if len(words) == 1 else min(words, key=self._text.count)
        found: dict[int, None] = {}
        if self._lines[0].startswith(f" {whole}"):
            found[0] = None
        needles: list[tuple[str, list[str]]] = [
            (f"\n {whole}", []),
            (f" {whole}", []),
            (rarest, words),
        ]
        for needle, every in needles:
            at = self._text.find(needle)
            while at >= 0 and len(found) < most:
                line = bisect_right(self._starts, at + needle.startswith("\n")) - 1
                if line not in found and all(word in self._lines[line] for word in every):
                    found[line] = None
                ends = (
                    self._starts[line + 1] - 1 if line + 1 < len(self._starts) else len(self._text)
                )
                at = self._text.find(needle, ends)
            if len(found) >= most:
                break
        return list(found)


def plain(text: str) -> str:
    """Small letters without accents, words apart by one space."""
    bare = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(letter for letter in bare if not unicodedata.combining(letter)).split())
