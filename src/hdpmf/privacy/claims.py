"""What a method's epsilon is worth, in words that travel with the number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["none", "nominal", "proved"]


@dataclass(frozen=True, slots=True)
class PrivacyClaim:
    """An epsilon together with what it stands on. Wherever epsilon is printed, this is printed.

    Attributes:
        epsilon: The largest budget of any rating (a rating's own is W_ij times this); None without privacy.
        status: ``none`` (no protection), ``nominal`` (the paper's number, not a guarantee) or ``proved``.
        view: What the observer is assumed to see for the claim to mean anything.
        reason: One sentence.
        honest: For a nominal epsilon: what an observer of the training gets, from the accountant.
    """

    epsilon: float | None
    status: Status
    view: str
    reason: str
    honest: str = ""

    def __str__(self) -> str:
        if self.epsilon is None:
            return f"no privacy ({self.reason})"
        return f"epsilon {self.epsilon:g} ({self.status}; {self.view})"


NOT_PRIVATE = PrivacyClaim(None, "none", "everything", "ratings are used without any noise")

NOTHING_SENT = PrivacyClaim(0.0, "proved", "all messages", "nothing leaves the device")


def nominal(epsilon: float) -> PrivacyClaim:
    """The claim of the paper's schemes."""
    return PrivacyClaim(
        epsilon,
        "nominal",
        "final item factors, one noise draw, user vectors independent of the ratings",
        "as stated in the paper; training sends fresh messages every round, which its proof does not cover",
    )
