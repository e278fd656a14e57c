"""Names as people see them: two names that look the same are the same."""

from __future__ import annotations

import unicodedata

# Letters of other scripts that are read as Latin ones; what capitals look like is not what small
# letters look like (Greek eta is an n, capital Eta an H). Both sides of a comparison go through
# it, so that a letter more here makes two different names equal only if they differ in nothing
# else.
_LOOKS_LIKE = str.maketrans(
    {
        **dict(zip("авгԁеһіјкӏмнорԛсѕтуѵԝхүь", "abrdehijklmhopqcstyvwxyb", strict=True)),
        **dict(zip("АВЕНІЈКӀМОРԚСЅТУѴԜХҮ", "ABEHIJKlMOPQCSTYVWXY", strict=True)),
        **dict(zip("αβγεζηικμνορτυχωϲϳ", "abyeznikmvoptuxwcj", strict=True)),
        **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX", strict=True)),
        **dict(zip("ıɑɡℓ", "iagl", strict=True)),
    }
)
_ALIKE = str.maketrans("01|i", "olll")  # I is an i in small letters, and looks like an l


def plain_name(text: str) -> str:
    """Return what is compared of a name: without case, width, look-alikes and extra spaces."""
    latin = unicodedata.normalize("NFKC", text).translate(_LOOKS_LIKE).casefold()
    return " ".join(unicodedata.normalize("NFKC", latin).translate(_ALIKE).split())


def plain_letters(text: str) -> str:
    """Return the letters and digits of a plain name, without accents, spaces and punctuation.

    Stricter than `plain_name`: "rn" is an m, and "vv" a w. For names of which there are two.
    """
    apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text))
    bare = "".join(letter for letter in apart if letter.isalnum() or letter == "|")
    return plain_name(bare).replace("rn", "m").replace("vv", "w")
