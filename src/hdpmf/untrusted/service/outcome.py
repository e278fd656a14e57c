"""The outcome of a run: its model, the statement of what that is worth, and a summary to keep.

Beside it the privacy statement of a recommender, of all its runs together. It knows no ratings and
no weights: what it states is what a person of weight 1 can have spent at most.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from hdpmf.common.data import RatingScale
from hdpmf.common.data.checks import IMPLICIT_SCALE
from hdpmf.common.methods import method_named
from hdpmf.common.methods.method import PrivacyClaim
from hdpmf.common.model.list_model import ListModel
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
from hdpmf.common.protocol import ItemFacts
from hdpmf.common.protocol.task import task_id
from hdpmf.errors import ConfigError
from hdpmf.untrusted.service.settings import METHOD, VIEW, RunSettings

if TYPE_CHECKING:
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.run import Run


@dataclass(frozen=True, slots=True, repr=False)
class RunOutcome:
    """The end of a run.

    Attributes:
        statement: What the recommender could see and what that is worth.
        summary: Everything worth keeping, as plain values.
    """

    run: bytes
    model: PublicModel
    statement: Statement
    summary: dict[str, Any]


def outcome_of(run: Run, facts: ItemFacts, lists: ListModel) -> RunOutcome:
    """Return the outcome of a run, with what was made of its sums."""
    settings, checkpoint = run.settings, run.checkpoint
    run.metrics.stage = "done"
    statement = state(settings, run.known.scale)
    parts = (checkpoint.linear, checkpoint.pairs)
    about = {
        "run": run.id.hex(),
        "method": METHOD,
        "catalogue": run.known.fingerprint,
        "catalogue_version": run.table.number,
        "settings": msgspec.to_builtins(settings),
        "privacy": statement.as_dict(),
        "reports": [part.reports for part in parts],
    }
    summary = about | {
        "users": checkpoint.pairs.reports,
        "tasks": [task_id(part.document).hex() for part in parts],
    }
    known = run.known
    model = PublicModel(about, known.items, known.scale, known.item_table, facts, lists=lists)
    return RunOutcome(run.id, model, statement, summary)


@dataclass(frozen=True, slots=True)
class Statement:
    """An epsilon with what it stands on, for one run as it went.

    Attributes:
        view: What the recommender sees.
        epsilon: The budget of a person, for all that is sent about them.
        delta: Goes with it.
        status: What it stands on, ``proved``.
        sees: What the recommender could see.
        guarantee: What follows for a person, in a sentence.
        needs: What has to hold for it.
    """

    view: str
    epsilon: float
    delta: float
    status: str
    sees: str
    guarantee: str
    needs: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def state(settings: RunSettings, scale: RatingScale) -> Statement:
    """Return the statement of a run."""
    found = cost(
        setting_of(settings, scale),
        VIEW,
        unit="user",
        neighbours="presence",
        delta=settings.delta,
    )
    claim = method_named(METHOD).claim(VIEW)
    guarantee = (
        "PROVED. All that was sent about a person of weight 1, against nothing, costs epsilon "
        f"{rounded_up(settings.epsilon, 4)} at delta {settings.delta:g}. {found.reason}"
    )
    return Statement(
        VIEW, settings.epsilon, settings.delta, found.status, claim.sees, guarantee, claim.needs
    )


def setting_of(settings: RunSettings, scale: RatingScale) -> Setting:
    """Return the accountant's setting of a run."""
    return Setting(
        METHOD,
        epsilon=settings.epsilon,
        person_delta=settings.delta,
        scale=scale,
        implicit=scale == IMPLICIT_SCALE,
    )


def statement_of_recommender(folder: ServiceFolder, command: str) -> PrivacyStatement:
    """Return the privacy statement of a recommender, for a person who was in all of its runs.

    Args:
        folder: With its runs.
        command: What makes the statement again.

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
    settings = tuple(setting_of(folder.record(run).settings, scale) for run in counted)
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
            unit=method_named(METHOD).unit,
        ),
        alone=users == 1,
    )
    bound = PersonRow(
        place="upper bound: everybody, whatever they have rated",
        ratings=len(folder.known.items),
        value=subject.amount("value", ratings=1),
        presence=subject.amount("presence", ratings=1),
        exchange=subject.amount("exchange", ratings=1),
    )
    people = PeopleCosts(
        users=users,
        rows=(bound,),
        note="What single people have spent is not known here: a recommender knows neither ratings "
        "nor privacy weights. The table has the most that anyone can have spent by the parameters "
        "that runs published. A device has a limit for its person's whole life, beyond which it "
        "sends zeros. People see their own cost there: hdpmf device ledger.",
    )
    model = folder.path / "runs" / last.hex() / "model"
    files = {f"model/{path.name}": path for path in model.glob("*") if path.is_file()}
    return subject.statement(people, made_now(command, files))
