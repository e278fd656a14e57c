"""All sentences of a page in one file, so that it can be translated."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files


class Wording:
    """Sentences by name, as ``rate.title``. A name that is not there is an error of ours.

    Args:
        package: Where ``words.toml`` is.
    """

    def __init__(self, package: str) -> None:
        self.sentences: Mapping[str, str] = _flat(
            tomllib.loads(files(package).joinpath("words.toml").read_text("utf-8"))
        )

    def __call__(self, name: str, **values: object) -> str:
        """A sentence with its values."""
        return self.sentences[name].format(**values) if values else self.sentences[name]

    def count(self, name: str, n: int) -> str:
        """A sentence about ``n`` things: ``name.one`` or ``name.many``."""
        return self(f"{name}.{'one' if n == 1 else 'many'}", n=f"{n:,}")


def _flat(table: Mapping[str, object], before: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        else:
            found[before + name] = str(value)
    return found
