"""Errors with which a device refuses: a word for the recommender, the details for its own log."""

from __future__ import annotations

from hdpmf.common.protocol.federation import Reason
from hdpmf.errors import (
    DivergedError,
    HdpmfError,
    MissingExtraError,
    PrivacyError,
    ProtocolError,
    RatingsError,
    SecureSumError,
    StorageError,
)


class DeclinedError(ProtocolError):
    """A refusal with its word.

    Attributes:
        reason: What the recommender is told.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


class UnansweredError(DeclinedError):
    """The owner has not answered yet. It may be asked again."""


class OutOfTurnError(ProtocolError):
    """A message whose turn is over. It is refused unread, so that the run may go on."""


_WORDS: tuple[tuple[type[HdpmfError], Reason], ...] = (
    (StorageError, "storage"),
    (SecureSumError, "secure-sum"),
    (MissingExtraError, "unavailable"),
    (RatingsError, "unavailable"),
    # Where ledger or policy refuse, their word is given there; what is left are numbers that nobody
    # honest sends.
    (PrivacyError, "protocol"),
    (DivergedError, "protocol"),
)


def reason_of(error: HdpmfError) -> Reason:
    """The word for an error."""
    if isinstance(error, DeclinedError):
        return error.reason
    return next((word for kind, word in _WORDS if isinstance(error, kind)), "protocol")
