"""Names as people see them: two names that look the same are the same."""

from __future__ import annotations

import unicodedata

# Letters of other scripts that look like Latin ones, small or capital, and those that look alike
# among Latin letters and digits. Both sides of a comparison go through it, so that a letter more
# here makes two different names equal only if they differ in nothing else.
_LOOKS_LIKE = str.maketrans(
    {
        **dict(zip("авԁеһіјкӏмнорԛсѕтуѵԝхү", "abdehijklmhopqcstyvwxy", strict=True)),  # Cyrillic
        **dict(zip("αβεζηικμνορτυχγ", "abezhikmnoptyxy", strict=True)),  # Greek
        **dict(zip("ıɑɡℓ", "iagl", strict=True)),
    }
)
_ALIKE = str.maketrans("01|i", "olll")


def plain_name(text: str) -> str:
    """Return what is compared of a name: without case, width, look-alikes and extra spaces."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    alike = unicodedata.normalize("NFKC", folded).translate(_LOOKS_LIKE).translate(_ALIKE)
    return " ".join(alike.split())
