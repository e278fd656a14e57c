"""How a run ended: its model, what that is worth, and a summary to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.protocol import ItemFacts, ListTable, Opening, Plan, Round, Survey, decode
from hdpmf.common.protocol.lists import digest_of
from hdpmf.common.protocol.task import task_id
from hdpmf.common.protocol.versions import number_of
from hdpmf.untrusted.recommender.one_round import Answer
from hdpmf.untrusted.recommender.runs import Answered
from hdpmf.untrusted.service.run_files import kept
from hdpmf.untrusted.service.statement import Statement, state

if TYPE_CHECKING:
    from hdpmf.untrusted.service.run import Run


@dataclass(frozen=True, slots=True, repr=False)
class RunOutcome:
    """How a run ended.

    Attributes:
        model: The result.
        statement: What the recommender could see and what that is worth.
        answer: Of a survey, what this run's devices answered.
        summary: All of it that is worth keeping, as plain values.
    """

    run: bytes
    model: PublicModel
    statement: Statement
    answer: Answer | None
    summary: dict[str, Any]


def outcome_of(
    run: Run,
    numbers: Round | ItemFacts,
    plan: Plan | Survey,
    answer: Answer | None,
    *,
    earlier: Sequence[Answered] = (),
    traffic: tuple[int, int] = (0, 0),
) -> RunOutcome:
    """The outcome of a run.

    Args:
        run: Of which all sums are made.
        numbers: The final factors or the item facts.
        plan: What they belong to.
        answer: Of a survey, this run's.
        earlier: What earlier runs released, where that was put together with this one's.
        traffic: Bytes in and out before the run began.
    """
    settings, metrics, checkpoint = run.settings, run.metrics, run.checkpoint
    metrics.stage = "done"
    opening = decode(checkpoint.opening) if checkpoint.opening else None
    statement = state(
        settings,
        run.known.scale,
        noise_budget=opening.noise_budget if isinstance(opening, Opening) else None,
        earlier=[past.survey.epsilon for past in earlier],
    )
    facts = {
        "run": run.id.hex(),
        "method": settings.method,
        "catalogue": run.known.fingerprint,
        "catalogue_version": number_of(run.table),
        "settings": msgspec.to_builtins(settings),
        "privacy": statement.as_dict(),
    }
    summary = facts | {
        **_who(run),
        "rounds": len(checkpoint.users),
        "rounds_lost": len(checkpoint.lost),
        "least_users_in_a_round": min(checkpoint.users, default=0),
        "seconds": sum(checkpoint.seconds),
        "bytes_in": metrics.bytes_in - traffic[0],
        "bytes_out": metrics.bytes_out - traffic[1],
        "refusals": metrics.refusals_of_run,
        "impossible_numbers": checkpoint.impossible,
        "wrong_shares": list(checkpoint.barred),
        "delivered": len(checkpoint.delivered),
        "cohorts": 1 + len(earlier),
    }
    lists = kept(checkpoint.lists, ListTable) if checkpoint.lists else None
    if lists is not None:
        summary["lists"] = {
            "kind": settings.list_model,
            "bytes": len(checkpoint.lists),
            "sha256": digest_of(checkpoint.lists),
        }
    model = PublicModel.of_run(facts, run.table, numbers, plan, lists)
    return RunOutcome(run.id, model, statement, answer, summary)


def _who(run: Run) -> dict[str, Any]:
    """Who took part. With two servers the recommender knows how many reports came, not whose."""
    if run.settings.view == "two-servers":
        names = [task_id(period.document).hex() for period in run.checkpoint.periods]
        return {"devices": None, "users": run.checkpoint.users[-1], "tasks": names}
    members = run.checkpoint.members
    return {"devices": len(members), "users": run.enrolled.count_users(members)}
