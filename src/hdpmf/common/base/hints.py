"""Hints in messages, worded for the reader: Python, the command line, or an experiment's TOML."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

Language = Literal["python", "shell", "toml"]

_HINTS: dict[str, dict[Language, str]] = {
    "columns": {
        "python": 'columns={{"{0}": ...}}',
        "shell": "--column {0}=NAME",
        "toml": 'columns = {{{0} = "..."}}',
    },
    "scale": {
        "python": "scale=(low, high)",
        "shell": "--scale LOW HIGH",
        "toml": "scale = [low, high]",
    },
    "step": {
        "python": "scale=(low, high) without a step",
        "shell": "--scale LOW HIGH without --step",
        "toml": "scale = [low, high]",
    },
    "missing": {"python": "missing=W", "shell": "--missing-weight W", "toml": "missing_weight = W"},
    "implicit": {"python": "implicit=True", "shell": "--implicit", "toml": "implicit = true"},
    "fold-in": {
        "python": "model.fold_in(ratings)",
        "shell": "hdpmf fold-in FOLDER FILE",
        "toml": "model.fold_in(ratings)",
    },
    "replace": {"python": "replace=True", "shell": "--replace", "toml": "replace=True"},
    "duplicates": {
        "python": 'duplicates="last" (or first, mean, max)',
        "shell": "--duplicates last (or first, mean, max)",
        "toml": 'duplicates = "last" (or first, mean, max)',
    },
}


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=5)


_LANGUAGE: ContextVar[Language] = ContextVar("language", default="python")
_NOTIFY: ContextVar[Callable[[str], object]] = ContextVar("notify", default=_warn)


@contextmanager
def message_language(
    language: Language, notify: Callable[[str], object] | None = None
) -> Iterator[None]:
    """Word messages for this language; pass notes to ``notify`` instead of warnings."""
    before, listener = (
        _LANGUAGE.set(language),
        _NOTIFY.set(_NOTIFY.get() if notify is None else notify),
    )
    try:
        yield
    finally:
        _LANGUAGE.reset(before)
        _NOTIFY.reset(listener)


def hint(option: str, about: str = "") -> str:
    """Return how to give an option in the reader's language; ``about`` is its column."""
    return _HINTS[option][_LANGUAGE.get()].format(about)


def notify(text: str) -> None:
    """Report something that was decided for the user: a warning, or a note on a command line."""
    _NOTIFY.get()(text)
