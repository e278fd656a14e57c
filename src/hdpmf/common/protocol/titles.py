"""Titles as people write and look for them."""

import re
import unicodedata

from hdpmf.common.protocol.catalogue import CatalogueTable

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


def find_titles(table: CatalogueTable, wanted: str) -> list[int]:
    """Return the positions of items with all these words in the title, the shortest title first."""
    words = _plain(upright(wanted.strip())).split()
    titles = [_plain(upright(title)) for title in table.titles or table.ids]
    found = [place for place, title in enumerate(titles) if all(word in title for word in words)]
    return sorted(found, key=lambda place: len(titles[place])) if words else []


def _plain(text: str) -> str:
    """Return small letters without accents and commas."""
    bare = unicodedata.normalize("NFKD", text.casefold().replace(",", ""))
    return "".join(letter for letter in bare if not unicodedata.combining(letter))
