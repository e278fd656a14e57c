"""Privacy claims: an epsilon together with its status, in words that travel with the number."""

from __future__ import annotations

from dataclasses import dataclass

from hdpmf.common.methods import Method, Status


@dataclass(frozen=True, slots=True)
class PrivacyClaim:
    """An epsilon together with what it stands on. Wherever epsilon is printed, this is printed.

    Attributes:
        epsilon: The largest budget of any rating (a rating's own is W_ij times this); None without
            privacy.
        status: ``none`` (no protection), ``nominal`` (the paper's number, not a guarantee) or
            ``proved``.
        view: What the observer is assumed to see for the claim to mean anything.
        reason: One sentence.
        honest: For a nominal epsilon: what an observer of the training gets, from the accountant.
        noise: ``simulated`` where it came from a seed, as all of this library's does: the law is
            that of the claim, but whoever has the seed has the noise. Nothing to publish.
        items: ``rated`` where the items of a model of this library are those that somebody rated:
            which ones there are tells that somebody did, and epsilon does not cover that.
            ``stated`` where they are a public list (``Ratings.over``). Empty where a recommender
            stated them, as in a federation.
    """

    epsilon: float | None
    status: Status
    view: str
    reason: str
    honest: str = ""
    noise: str = ""
    items: str = ""

    @property
    def worth(self) -> str:
        """The status, and that the noise was simulated where it was."""
        return f"{self.status}, {self.noise}" if self.noise else self.status

    def __str__(self) -> str:
        if self.epsilon is None:
            return f"no privacy ({self.reason})"
        return f"epsilon {self.epsilon:g} ({self.worth}; {self.view})"


def claim_of(method: Method | None, epsilon: float, *, labels: bool = False) -> PrivacyClaim:
    """Return the claim for a model of this method; nothing for a model of no registered method."""
    if method is None:
        return PrivacyClaim(
            None, "none", "everything", "it is not registered as a method, so nothing is claimed"
        )
    claim = method.claim(labels=labels)
    stated = (
        None
        if claim.status == "none"
        else 0.0
        if claim.value == 0 and not claim.presence
        else epsilon
    )
    return PrivacyClaim(stated, claim.status, claim.against, claim.reason)
