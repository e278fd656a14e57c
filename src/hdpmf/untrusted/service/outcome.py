"""The outcome of a run: its model, the statement of what that is worth, and a summary to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from hdpmf.common.data import RatingScale
from hdpmf.common.methods import method_named
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.privacy.accounting import Setting, cost
from hdpmf.common.privacy.accounting.costs import rounded_up
from hdpmf.common.protocol import ItemFacts, SumContribution, Survey
from hdpmf.common.protocol.catalogue import number_of
from hdpmf.common.protocol.task import task_id
from hdpmf.untrusted.recommender.runs import SurveyAnswer
from hdpmf.untrusted.service.settings import METHOD, VIEW, RunSettings

if TYPE_CHECKING:
    from hdpmf.untrusted.service.run import Run


@dataclass(frozen=True, slots=True, repr=False)
class RunOutcome:
    """The end of a run.

    Attributes:
        statement: What the recommender could see and what that is worth.
        answer: The sum.
        summary: Everything worth keeping, as plain values.
    """

    run: bytes
    model: PublicModel
    statement: Statement
    answer: SumContribution
    summary: dict[str, Any]


def outcome_of(
    run: Run, facts: ItemFacts, survey: Survey, earlier: Sequence[SurveyAnswer] = ()
) -> RunOutcome:
    """Return the outcome of a run.

    Args:
        run: With its sum.
        facts: What was made of it.
        survey: What was asked.
        earlier: Releases of earlier runs that were combined with this one's.
    """
    settings, checkpoint = run.settings, run.checkpoint
    run.metrics.stage = "done"
    statement = state(settings, run.known.scale, [past.survey.epsilon for past in earlier])
    about = {
        "run": run.id.hex(),
        "method": METHOD,
        "catalogue": run.known.fingerprint,
        "catalogue_version": number_of(run.table),
        "settings": msgspec.to_builtins(settings),
        "privacy": statement.as_dict(),
    }
    summary = about | {
        "users": checkpoint.reports,
        "task": task_id(checkpoint.document).hex(),
        "impossible_numbers": checkpoint.impossible,
        "combined_runs": 1 + len(earlier),
    }
    model = PublicModel.of_run(about, run.table, facts, survey)
    return RunOutcome(run.id, model, statement, checkpoint.sum(), summary)


@dataclass(frozen=True, slots=True)
class Statement:
    """An epsilon with what it stands on, for one run as it went.

    Attributes:
        view: What the recommender sees.
        epsilon: The largest budget of a rating.
        status: What it stands on, ``proved``.
        sees: What the recommender could see.
        guarantee: What follows for a rating, in a sentence.
        needs: What has to hold for it.
    """

    view: str
    epsilon: float
    status: str
    sees: str
    guarantee: str
    needs: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def state(settings: RunSettings, scale: RatingScale, earlier: Sequence[float] = ()) -> Statement:
    """Return the statement of a run.

    Args:
        earlier: Epsilon of each run whose answer is combined with this one's; a rating is in one of
            them only.
    """
    found = cost(setting_of(settings, scale), VIEW)
    claim = method_named(METHOD).claim(VIEW)
    epsilon = found.pure
    guarantee = (
        "PROVED. A change of one rating's value costs at most its weight times epsilon "
        f"{rounded_up(epsilon, 4)}, pure differential privacy. {found.reason}"
    )
    if earlier:
        epsilon = max(epsilon, *earlier)
        guarantee += (
            f" What {1 + len(earlier)} runs released is put together. Each rating is in one of "
            "them and pays once, whatever their number: its weight times the epsilon of that run, "
            f"at most {rounded_up(epsilon, 4)}. All ratings of a person cost the sum of theirs, "
            "whichever runs they are in."
        )
    return Statement(VIEW, epsilon, found.status, claim.sees, guarantee, claim.needs)


def setting_of(settings: RunSettings, scale: RatingScale) -> Setting:
    """Return the accountant's setting of a run."""
    return Setting(METHOD, epsilon=settings.epsilon, coding=settings.coding, scale=scale)
