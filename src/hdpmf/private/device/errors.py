"""Errors with which a device refuses: a word for a class of them, the details for its owner."""

from __future__ import annotations

from typing import Literal

from hdpmf.errors import (
    HdpmfError,
    MissingExtraError,
    ProtocolError,
    RatingsError,
    StorageError,
)

Reason = Literal[
    "policy",  # the device's own policy forbids it
    "protocol",  # malformed, out of turn, or not what was agreed
    "catalogue",  # the item table does not follow from the one that the device has seen last
    "busy",  # not in this moment: another task is under way, or the owner has not answered yet
    "storage",  # the device's disk refused
    "unavailable",  # the device cannot (an extra that is not installed, no ratings)
]


class DeclinedError(ProtocolError):
    """A refusal with its word.

    Attributes:
        reason: Its class.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


class UnansweredError(DeclinedError):
    """The owner has not answered yet. It may be asked again."""


_WORDS: tuple[tuple[type[HdpmfError], Reason], ...] = (
    (StorageError, "storage"),
    (MissingExtraError, "unavailable"),
    (RatingsError, "unavailable"),
)


def reason_of(error: HdpmfError) -> Reason:
    """The word for an error."""
    if isinstance(error, DeclinedError):
        return error.reason
    return next((word for kind, word in _WORDS if isinstance(error, kind)), "protocol")
