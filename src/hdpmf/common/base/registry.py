"""Things that packages can add under a name: methods, data sets, metrics, models for lists.

An entry point names one of them, or a sequence of them; it is loaded when somebody first looks.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeVar

from hdpmf.errors import ConfigError, HdpmfError


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
