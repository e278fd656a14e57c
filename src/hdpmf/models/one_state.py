"""Models in many threads: a writer changes a copy, which appears at once; a reader keeps one state.

Writers of a model wait for each other; readers wait for nobody. What a writer learned is seen whole
or, where it fails, not at all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


class Turn:
    """A lock of one model; what is made of the model's file or deep copy has its own."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Turn], tuple[()]]:
        return Turn, ()


def writing(method: F) -> F:
    """Let a method change a copy of the model, whose state then takes the place of the model's."""

    @wraps(method)
    def in_a_copy(self: Any, *args: Any, **options: Any) -> Any:
        with self.__dict__.setdefault("_turn", Turn()):
            draft = copy.copy(self)
            if "devices_" in draft.__dict__:
                draft.devices_ = copy.copy(draft.devices_)  # it replaces its arrays one by one
            answer = method(draft, *args, **options)
            self.__dict__ = draft.__dict__  # one step: never some attributes of both
        return self if answer is draft else answer

    return cast(F, in_a_copy)


def reading(method: F) -> F:
    """Let a method see one state of the model from its beginning to its end."""

    @wraps(method)
    def of_one_state(self: Any, *args: Any, **options: Any) -> Any:
        return method(copy.copy(self), *args, **options)

    return cast(F, of_one_state)
