"""Names: those that people see, where two that look the same are the same, and registries by name.

Packages can add methods, data sets and metrics to a registry. An entry point names one of them, or
a sequence of them; it is loaded when somebody first looks.
"""

import difflib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeVar

from hdpmf.errors import ConfigError, HdpmfError

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


class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str:
        """As it is asked for."""


Entry = TypeVar("Entry", bound=Named)


class Registry(Mapping[str, Entry]):
    """Named values in the order in which tables show them: ours, then what was added.

    Args:
        kind: Class of the values.
        noun: What one of them is called in messages.
        group: The entry points that add some.
        error: Raised where a name is unknown.
    """

    def __init__(
        self,
        kind: type[Entry],
        noun: str,
        group: str,
        ours: Iterable[Entry] = (),
        error: type[HdpmfError] = ConfigError,
    ) -> None:
        self._kind = kind
        self._noun = noun
        self._group = group
        self._error = error
        self._known = {entry.name: entry for entry in ours}
        self._ours = tuple(self._known.values())
        self._looked = False

    def __getitem__(self, name: str) -> Entry:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def named(self, name: str) -> Entry:
        """Return the entry of that name; raise an error with the nearest one if there is none."""
        known = self._all()
        if name not in known:
            near = did_you_mean(name, known)
            raise self._error(
                f"unknown {self._noun} {name!r}; {near}choose from {', '.join(known)}"
            )
        return known[name]

    def add(self, entry: Entry) -> Entry:
        """Register an entry; the same one twice is fine, another one of that name is not.

        Raises:
            ConfigError: It is of another kind, or its name is taken.
        """
        if not isinstance(entry, self._kind):
            raise ConfigError(
                f"only a {self._kind.__name__} can be registered, not {type(entry).__name__}"
            )
        entry = self._checked(entry)
        if self._known.setdefault(entry.name, entry) != entry:
            raise ConfigError(
                f"there is a {self._noun} {entry.name!r} already; give yours another name"
            )
        return entry

    def discard(self, name: str) -> None:
        """Forget an entry that was added."""
        self._known.pop(name, None)

    def is_ours(self, entry: Entry | str) -> bool:
        """Return whether an entry is built in."""
        known: Any = self.get(entry) if isinstance(entry, str) else entry
        return any(known is ours for ours in self._ours)

    def _checked(self, entry: Entry) -> Entry:
        return entry

    def _all(self) -> dict[str, Entry]:
        if not self._looked:
            self._looked = True
            for point in entry_points(group=self._group):
                found: Any = point.load()
                for entry in (found,) if isinstance(found, self._kind) else tuple(found):
                    self.add(entry)
        return self._known


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "did you mean 'x'? " for the nearest of some names; nothing if none is near."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f"did you mean {near[0]!r}? " if near else ""
