"""What the recommender of a run could see, and what that is worth to the people behind the
ratings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hdpmf.common.data import RatingScale
from hdpmf.common.privacy.accounting import Cost, Setting, cost
from hdpmf.untrusted.service.settings import RunSettings

TYPICAL_RATERS = 20


@dataclass(frozen=True, slots=True)
class Statement:
    """An epsilon with what it stands on, for one run as it went.

    Attributes:
        view: ``messages`` or ``sums``.
        epsilon: The largest budget of a rating, or None without a guarantee or claim.
        status: ``proved``, ``nominal`` (the paper's number, not a guarantee) or ``none``.
        sees: What the recommender could see.
        guarantee: What follows for a rating, in a sentence.
        honest: For a nominal epsilon, what the accountant says that it costs; else empty.
        needs: What has to hold for it.
    """

    view: str
    epsilon: float | None
    status: str
    sees: str
    guarantee: str
    honest: str
    needs: str

    def lines(self) -> tuple[str, ...]:
        """For people."""
        said = (
            f"The recommender could see: {self.sees}.",
            f"Guarantee: {self.guarantee}",
            f"What it really costs: {self.honest}." if self.honest else "",
            f"It needs: {self.needs}." if self.needs else "",
        )
        return tuple(line for line in said if line)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def state(
    settings: RunSettings,
    scale: RatingScale,
    *,
    noise_budget: float | None = None,
    earlier: Sequence[float] = (),
) -> Statement:
    """The statement of a run.

    Args:
        settings: Of the run.
        scale: The public rating scale.
        noise_budget: The budget that set the noise, where devices' reports set it.
        earlier: Epsilon of each run whose answer is put together with this one's; a rating is in
            one of them only.
    """
    setting = _setting(settings, scale, noise_budget)
    found = cost(setting, settings.view, n_raters=TYPICAL_RATERS)
    claim = settings.kind.claim(settings.view, labels=settings.labels is not None)
    epsilon, status, guarantee = _worth(settings, found, scale)
    if epsilon is not None and earlier:
        epsilon = max(epsilon, *earlier)
        guarantee += _once(1 + len(earlier), epsilon)
    return Statement(
        settings.view,
        epsilon,
        status,
        claim.sees,
        guarantee,
        _honest(found) if status == "nominal" else "",
        claim.needs if status != "none" else "",
    )


def _worth(settings: RunSettings, found: Cost, scale: RatingScale) -> tuple[float | None, str, str]:
    if found.status == "proved" and math.isfinite(found.pure):
        words = (
            "PROVED. A change of one rating's value costs at most its weight times epsilon "
            f"{found.pure:.4g}, pure "
            f"differential privacy. {found.reason}"
        )
        return found.pure, "proved", words + _presence(settings, scale)
    if found.status == "nominal":
        words = (
            f"NOMINAL, epsilon {settings.epsilon:g} as the paper counts it; no guarantee. "
            f"{found.reason} {found.caveat}"
        )
        return settings.epsilon, "nominal", words
    return None, "none", f"NONE. {found.reason}"


def _once(runs: int, epsilon: float) -> str:
    """Every rating is in one of the runs only, so that their costs do not add up: the largest
    counts.
    """
    return (
        f" What {runs} runs released is put together. Each rating is in one of them and "
        "pays once, whatever their "
        f"number: its weight times the epsilon of that run, at most {epsilon:.4g}. All "
        "ratings of a person cost the "
        "sum of theirs, whichever runs they are in."
    )


def _presence(settings: RunSettings, scale: RatingScale) -> str:
    """With taste labels presence costs nearly as much as a value, which is worth a word."""
    if settings.labels is None:
        return ""
    found = cost(_setting(settings, scale, None), "sums-h-known", neighbours="presence")
    return f" Whether the rating is there at all costs at most its weight times {found.pure:.3g}."


def _honest(found: Cost) -> str:
    where = f" of an item with {TYPICAL_RATERS} raters" if found.view == "messages" else ""
    return f"{found.in_numbers()} for a rating of weight 1{where}, counting its own gradients only"


def _setting(settings: RunSettings, scale: RatingScale, noise_budget: float | None) -> Setting:
    needs_budgets = not settings.one_round and settings.mechanism().needs_budgets
    return Setting(
        settings.method,
        epsilon=settings.epsilon,
        factors=settings.factors,
        rounds=settings.rounds,
        h="item" if settings.h_per_item else "shared",
        noise_budget=noise_budget if needs_budgets else None,
        design=settings.design,
        coding=settings.coding if settings.kind.family == "sums" else "auto",
        scale=scale,
        labels=settings.labels is not None,
    )
