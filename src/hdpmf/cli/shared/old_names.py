"""Options that were renamed: the old ones still work, with a note on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_OLD, _NEW = "--device", "--on"
_UNIFORM = "--uniform-weights"
_VALUES = {"cuda": "gpu"}


def with_current_names(arguments: Sequence[str]) -> list[str]:
    """The arguments with ``--device cuda`` as ``--on gpu`` and ``--uniform-weights`` as ``--weights uniform``.

    What follows a bare ``--`` is left alone.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    current: list[str] = []
    for argument in arguments[:end]:
        name, equals, value = argument.partition("=")
        if name == _OLD:
            print(f"note: {_OLD} is now called {_NEW}, and cuda is gpu", file=sys.stderr, flush=True)
            current.append(_NEW + equals + _VALUES.get(value, value))
        elif argument == _UNIFORM:
            print(f"note: {_UNIFORM} is now written --weights uniform", file=sys.stderr, flush=True)
            current += ["--weights", "uniform"]
        elif current and current[-1] == _NEW:
            current.append(_VALUES.get(argument, argument))
        else:
            current.append(argument)
    return current + list(arguments[end:])
