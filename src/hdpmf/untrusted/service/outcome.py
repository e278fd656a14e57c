"""The outcome of a run: its model, the statement of what that is worth, and a summary to keep.

Refusals are explained to the operator by class, with counts and nothing about a device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from hdpmf.common.data import RatingScale
from hdpmf.common.methods import RUN_EPSILON
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.privacy.accounting import Cost, Setting, cost
from hdpmf.common.privacy.accounting.costs import rounded_up
from hdpmf.common.protocol import (
    ItemFacts,
    ListTable,
    Opening,
    Plan,
    Round,
    Survey,
    decode,
)
from hdpmf.common.protocol.catalogue import number_of
from hdpmf.common.protocol.lists import digest_of
from hdpmf.common.protocol.task import task_id
from hdpmf.untrusted.recommender.one_round import Answer
from hdpmf.untrusted.recommender.runs import SurveyAnswer
from hdpmf.untrusted.service.run_files import decode_as
from hdpmf.untrusted.service.settings import RunSettings

if TYPE_CHECKING:
    from hdpmf.untrusted.service.run import Run


@dataclass(frozen=True, slots=True, repr=False)
class RunOutcome:
    """The end of a run.

    Attributes:
        statement: What the recommender could see and what that is worth.
        answer: Of a survey, what this run's devices answered.
        summary: Everything worth keeping, as plain values.
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
    earlier: Sequence[SurveyAnswer] = (),
    traffic: tuple[int, int] = (0, 0),
) -> RunOutcome:
    """Return the outcome of a run.

    Args:
        run: With all its sums.
        numbers: The final factors or the item facts.
        plan: What they belong to.
        answer: Of a survey, this run's.
        earlier: Releases of earlier runs that were combined with this one's.
        traffic: Bytes in and out before the run began.
    """
    settings = run.settings
    metrics = run.metrics
    checkpoint = run.checkpoint
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
        "cohorts": 1 + len(earlier),
    }
    lists = decode_as(checkpoint.lists, ListTable) if checkpoint.lists else None
    if lists is not None:
        summary["lists"] = {
            "kind": settings.list_model,
            "bytes": len(checkpoint.lists),
            "sha256": digest_of(checkpoint.lists),
        }
    model = PublicModel.of_run(facts, run.table, numbers, plan, lists)
    return RunOutcome(run.id, model, statement, answer, summary)


def _who(run: Run) -> dict[str, Any]:
    """Return the participants. With two servers only the number of reports is known."""
    if run.settings.view == "two-servers":
        names = [task_id(period.document).hex() for period in run.checkpoint.periods]
        return {"devices": None, "users": run.checkpoint.users[-1], "tasks": names}
    members = run.checkpoint.members
    return {"devices": len(members), "users": run.enrolled.count_users(members)}


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
        honest: For a nominal epsilon, its cost by the accountant; else empty.
    """

    view: str
    epsilon: float | None
    status: str
    sees: str
    guarantee: str
    honest: str
    needs: str

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
    """Return the statement of a run.

    Args:
        noise_budget: The budget that set the noise, where devices' reports set it.
        earlier: Epsilon of each run whose answer is combined with this one's; a rating is in one of
            them only.
    """
    setting = setting_of(settings, scale, noise_budget)
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
            f"{rounded_up(found.pure, 4)}, pure differential privacy. {found.reason}"
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
    """Return the note that costs of runs do not add up: a rating is in one of them only."""
    return (
        f" What {runs} runs released is put together. Each rating is in one of them and pays once, "
        "whatever their number: its weight times the epsilon of that run, at most "
        f"{rounded_up(epsilon, 4)}. All ratings of a person cost the sum of theirs, whichever runs "
        "they are in."
    )


def _presence(settings: RunSettings, scale: RatingScale) -> str:
    """With taste labels presence costs nearly as much as a value, which is worth a word."""
    if settings.labels is None:
        return ""
    found = cost(setting_of(settings, scale), "sums-h-known", neighbours="presence")
    presence = rounded_up(found.pure)
    return f" Whether the rating is there at all costs at most its weight times {presence}."


def _honest(found: Cost) -> str:
    where = f" of an item with {TYPICAL_RATERS} raters" if found.view == "messages" else ""
    return f"{found.in_numbers()} for a rating of weight 1{where}, counting its own gradients only"


def setting_of(
    settings: RunSettings, scale: RatingScale, noise_budget: float | None = None
) -> Setting:
    """Return the accountant's setting of a run."""
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


_WORDS = {
    "policy": (
        "their owners' policies forbid it",
        "compare method, epsilon, rounds and --minimum with what owners agree to; by "
        f"default hdp-sum, epsilon {RUN_EPSILON:g} (max_epsilon_per_run) and "
        "sums over 16 devices and a tenth of the roster",
    ),
    "protocol": (
        "a message was not what they had agreed to, or out of turn",
        "see that devices have this version; after a restore, give the run up",
    ),
    "catalogue": (
        "the catalogue does not follow from the one that they have seen last",
        "after a restore, add what was added since once more (hdpmf recommender items): the same "
        "items give the same version",
    ),
    "secure-sum": (
        "a secure sum was not as they insist on, or broke off",
        "have owners pin the newest roster; more devices, or more neighbours in config.toml",
    ),
    "busy": (
        "they were answering somebody else in that moment, or their owners have not "
        "said yet whether they want to",
        "nothing, unless it stays so; owners who are asked find the question on their "
        "page or by hdpmf device consent",
    ),
    "storage": ("their disks refused", "tell the owners: nothing is sent or lost meanwhile"),
    "unavailable": (
        "they could not, for now: no roster pinned, or numbers lost in a restart",
        "have owners pin the roster (hdpmf device join --roster)",
    ),
}
_OURS = (
    "their answers could not be taken",
    "see that devices have this version; take off who keeps sending such",
)


@dataclass(frozen=True, slots=True)
class RefusalClass:
    """Refusals of one class: its name, their number, its meaning, and the remedy."""

    reason: str
    count: int
    why: str
    todo: str


def refusal_classes(counts: Mapping[str, int]) -> list[RefusalClass]:
    """All classes, the most frequent first."""
    found = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return [RefusalClass(reason, count, *_WORDS.get(reason, _OURS)) for reason, count in found]


def refusals_in_words(counts: Mapping[str, int]) -> list[str]:
    """A line for each class, the most frequent first."""
    return [
        f"{each.count} refusals ({each.reason}): {each.why}; to do: {each.todo}"
        for each in refusal_classes(counts)
    ]


def refusals_in_short(counts: Mapping[str, int]) -> str:
    """All classes in a few words."""
    return ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items())) or "none"
