"""Names as people see them: two names that look the same are the same."""

from __future__ import annotations

import re
import unicodedata

from hdpmf.errors import ConfigError

LONGEST_NAME = 60
"""Characters of a recommender's name: it stands in one line on a phone."""

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


_CONFUSED_SCRIPTS = {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"}


def check_scripts(name: str) -> None:
    """Raise ConfigError if a word of a name has letters of several of the look-alike scripts."""
    for word in name.split():
        scripts = {
            unicodedata.name(letter, "").partition(" ")[0]
            for letter in unicodedata.normalize("NFKC", word)
            if letter.isalpha()
        }
        if len(scripts & _CONFUSED_SCRIPTS) > 1:
            raise ConfigError(
                f"the name {name!r} mixes letters of {' and '.join(sorted(scripts))} in one word, "
                "as a name does that is made to look like another; write it in one script"
            )


# Controls, invisible and bidirectional characters, halves of surrogates, private and unassigned
# ones, and separators of lines: with these a name could choose one of and show another.
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_BLANK = set("\u115f\u1160\u2800\u3164\uffa0")  # letters and signs that are drawn as nothing
_MOST_MARKS = 2  # accents over one letter; more of them cover the lines around it
_ADDRESS_LIKE = re.compile(r"://|\w\.\w{2,}|@\w")


def claimed_name(text: str) -> str:
    """Return a name that somebody gives themselves, as it is shown: NFC, with single spaces.

    Raises:
        ConfigError: It is empty or too long, has characters that cannot be seen, mixes scripts, or
            looks like an address: a name is only claimed, an address can be checked.
    """
    letters = unicodedata.normalize("NFC", text)
    spaced = "".join(" " if unicodedata.category(each) == "Zs" else each for each in letters)
    name = re.sub(" +", " ", spaced).strip(" ")
    kinds = [unicodedata.category(letter) for letter in name]
    marks = "".join("m" if kind in ("Mn", "Me") else "-" for kind in kinds)
    if not 1 <= len(name) <= LONGEST_NAME or not any(map(str.isalnum, name)):
        raise ConfigError(
            f"a recommender's name has 1 to {LONGEST_NAME} characters, and a letter or digit "
            f"among them; not {name[:LONGEST_NAME]!r}"
        )
    if _UNSEEN & set(kinds) or _BLANK & set(name) or "m" * (_MOST_MARKS + 1) in marks:
        raise ConfigError(
            f"the name {name!r} has characters that cannot be seen, or that change what is beside "
            "them; write it without"
        )
    if _ADDRESS_LIKE.search(unicodedata.normalize("NFKC", name)):
        raise ConfigError(
            f"the name {name!r} looks like an address, which is shown beside it anyway; give the "
            "name that people know it by"
        )
    check_scripts(name)
    return name
