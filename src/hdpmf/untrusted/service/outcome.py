"""The outcome of a run: its model, the statement of what that is worth, and a summary to keep.

Beside it the privacy statement of a recommender, of all its runs together. It knows no ratings and
no weights, so it states the most that whole people can cost, and leaves what they did cost to their
devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from hdpmf.common.data import RatingScale
from hdpmf.common.methods import method_named
from hdpmf.common.methods.method import PrivacyClaim
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.privacy.accounting import Setting, cost
from hdpmf.common.privacy.accounting.costs import rounded_up
from hdpmf.common.privacy.statement import (
    PeopleCosts,
    PersonRow,
    PrivacyStatement,
    Subject,
    made_now,
)
from hdpmf.common.protocol import ItemFacts, SumContribution, Survey
from hdpmf.common.protocol.catalogue import number_of
from hdpmf.common.protocol.task import task_id
from hdpmf.errors import ConfigError
from hdpmf.untrusted.recommender.runs import SurveyAnswer
from hdpmf.untrusted.service.settings import METHOD, VIEW, RunSettings

if TYPE_CHECKING:
    from hdpmf.untrusted.service.folder import ServiceFolder
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


def statement_of_recommender(
    folder: ServiceFolder, command: str, *, lifetime: float, person_limit: float
) -> PrivacyStatement:
    """Return the privacy statement of a recommender, for a rating that was in all of its runs.

    Args:
        folder: With its runs.
        command: What makes the statement again.
        lifetime: What a device with the default policy lets a rating of weight 1 spend in its life.
        person_limit: What it lets all ratings of one person spend together.

    Raises:
        ConfigError: There is no run yet.
    """
    runs = folder.runs()
    if not runs:
        raise ConfigError(
            f"{folder.path} has no run yet, so there is nothing to state; begin one with: hdpmf "
            "recommender run"
        )
    ended = {run: found for run in runs if (found := folder.summary(run)) is not None}
    last = [*(ended or runs)][-1]
    # The last one is what the claim is about.
    counted = [last, *(run for run in runs if run != last)]
    scale, claim = folder.known.scale, method_named(METHOD).claim(VIEW)
    summary = ended.get(last, {})
    users = summary.get("users")
    # Devices have limits per person, which this side does not know. Where they are reached, one
    # more rating takes weight from others, so that its presence costs more; how large they are does
    # not matter.
    settings = tuple(
        replace(setting_of(folder.record(run).settings, scale), max_ratings=1_000_000)
        for run in counted
    )
    subject = Subject(
        kind="recommender",
        name=folder.config.name,
        settings=settings,
        view=VIEW,
        claim=PrivacyClaim(
            summary["privacy"]["epsilon"] if summary else settings[0].epsilon,
            claim.status,
            claim.against,
            claim.reason,
        ),
        alone=users == 1,
    )
    items = len(folder.known.items)
    bound = PersonRow(
        place="upper bound: every item of the catalogue rated with weight 1",
        ratings=items,
        value=subject.amount("value", ratings=items),
        presence=subject.amount("presence", ratings=items),
        exchange=subject.amount("exchange", ratings=items),
    )
    people = PeopleCosts(
        users=users,
        rows=(bound,),
        note="What single people have spent is not known here: a recommender knows neither ratings "
        "nor privacy weights. The table has the most that anyone can have spent by the parameters "
        "that runs published. By default a device has a limit, too: all ratings of a person spend "
        f"at most {rounded_up(person_limit)} in their whole life (max_total). People see their own "
        "cost on their own device: hdpmf device ledger.",
    )
    model = folder.path / "runs" / last.hex() / "model"
    files = {f"model/{path.name}": path for path in model.glob("*") if path.is_file()}
    return subject.statement(people, made_now(command, files), lifetime)
