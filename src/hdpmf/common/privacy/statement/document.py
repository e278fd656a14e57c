"""The privacy statement as a value: everything on its pages, and nothing computed when rendered."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from hdpmf.common.methods import method_named
from hdpmf.common.methods.method import Claim, Form, Method, PrivacyClaim
from hdpmf.common.methods.registry import at_most
from hdpmf.common.privacy.accounting import DELTA, Cost, Setting, cost, epsilon_at, guess, pure
from hdpmf.common.privacy.accounting.costs import rounded_up
from hdpmf.common.privacy.accounting.events import Composed
from hdpmf.errors import StorageError

Kind = Literal["model", "run", "recommender"]

TYPICAL_RATERS = 20
"""Raters of the item that costs of the paper's methods, which depend on it, are stated for."""


_ORDER = ("proved", "author's claim", "nominal", "no guarantee")
"""From the strongest status to the weakest."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a statement, as JSON has it."""


class Amount(_Part, frozen=True, kw_only=True):
    """A privacy cost; None where no number bounds it.

    Attributes:
        pure: Pure epsilon.
        at_delta: The smallest proved epsilon at the statement's delta.
        guess: How often a guess between two equally likely truths is right, at most.
        status: As an accountant's ``Cost`` has it.
    """

    pure: float | None
    at_delta: float | None
    guess: float
    status: str

    @classmethod
    def of(cls, *costs: Cost) -> Amount:
        """Return what an accountant finds for all of these together."""
        event = costs[0].event if len(costs) == 1 else Composed(tuple(one.event for one in costs))
        at_delta = epsilon_at(event, costs[0].delta)
        if math.isinf(at_delta):
            return cls.unbounded()
        whole = pure(event)
        weakest = max((one.status for one in costs), key=_ORDER.index)
        return cls(
            pure=whole if math.isfinite(whole) else None,
            at_delta=at_delta,
            guess=guess(event),
            status=weakest,
        )

    @classmethod
    def unbounded(cls) -> Amount:
        """Return the cost where nothing keeps an observer from being certain."""
        return cls(pure=None, at_delta=None, guess=1.0, status="no guarantee")

    @property
    def words(self) -> str:
        """The cost for people, rounded up."""
        if self.at_delta is None:
            return "no bound"
        if self.pure == 0:
            return "0: nothing"
        return f"{self.epsilon}; a guess is right at most {at_most(self.guess)}" + {
            "nominal": ", NOMINAL: no guarantee",
            "author's claim": ", AUTHOR'S CLAIM: not checked",
        }.get(self.status, "")

    @property
    def epsilon(self) -> str:
        """The epsilon alone, rounded up; a star marks one at delta."""
        if self.at_delta is None:
            return "no bound"
        if self.pure is not None and self.at_delta >= 0.95 * self.pure:
            return rounded_up(self.pure)
        exact = "" if self.pure is None else f"{rounded_up(self.pure)}, or "
        return f"{exact}{rounded_up(self.at_delta)}*"


class Party(_Part, frozen=True, kw_only=True):
    """Somebody who sees something, and what one rating of weight 1 then costs.

    Attributes:
        value: How the rating was given.
        presence: Whether there is a rating at all.
    """

    who: str
    sees: str
    value: Amount | None = None
    presence: Amount | None = None


class PersonRow(_Part, frozen=True, kw_only=True):
    """One person of a distribution, known by their place alone.

    Attributes:
        place: ``median``, ``most``, ...
        ratings: How many they have.
        value: The cost of all their ratings together, about values.
        presence: The same about whether this person is there at all.
    """

    place: str
    ratings: int
    value: Amount
    presence: Amount


class PeopleCosts(_Part, frozen=True, kw_only=True):
    """The costs of whole people.

    Attributes:
        users: How many there are; None where that is not known here.
        rows: People by their place in the order of pure epsilon; empty where it is not known here.
        note: Why there are none, or what they leave out.
        bound: Where they are not known: the most that public parameters allow anyone to cost.
    """

    users: int | None
    rows: tuple[PersonRow, ...] = ()
    note: str = ""
    bound: PersonRow | None = None

    @property
    def shown(self) -> tuple[PersonRow, ...]:
        """The rows of the table."""
        return self.rows if self.bound is None else (*self.rows, self.bound)


class RunRow(_Part, frozen=True, kw_only=True):
    """A run of a recommender."""

    number: int
    method: str
    view: str
    epsilon: float | None
    status: str
    users: int | None
    state: str


class Retained(_Part, frozen=True, kw_only=True):
    """Data that is kept: by whom, how long, and what deletes it."""

    what: str
    who: str
    how_long: str
    deleted_by: str


class Question(_Part, frozen=True, kw_only=True):
    """A question of a data-protection impact assessment.

    Attributes:
        part: Of Article 35(7), or of another one.
        by_controller: True where only whoever runs it can answer; then ``answer`` is a hint.
    """

    part: str
    question: str
    answer: str
    by_controller: bool = False


class Provenance(_Part, frozen=True, kw_only=True):
    """What changes from one making of the statement to the next, and nothing else does.

    Attributes:
        date: When the statement was made.
        command: What makes it again.
        versions: Of software.
        code: SHA-256 of the installed package's sources.
        files: SHA-256 of public files that the statement is about, by name.
        runs: Ids of the runs, by number.
    """

    date: str
    command: str
    versions: dict[str, str]
    code: str
    files: dict[str, str] = {}
    runs: dict[str, str] = {}


class PrivacyStatement(_Part, frozen=True, kw_only=True):
    """A privacy statement.

    Attributes:
        kind: What it is about.
        name: Of the model or the recommender.
        title: The method in a few words.
        view: What the recommender sees: ``messages``, ``sums`` or ``two-servers``.
        claim: What the epsilon stands on, as ``PrivacyClaim``, with what it needs and its proof.
        trainings: How many trainings on the same ratings are counted, the one at hand included.
        warnings: What should make a reader stop.
        confidential: Parts that are exact about private ratings and wishes.
    """

    kind: Kind
    name: str
    method: str
    title: str
    view: str
    claim: dict[str, Any]
    delta: float
    trainings: int
    parties: tuple[Party, ...]
    people: PeopleCosts
    budget: tuple[str, ...]
    runs: tuple[RunRow, ...]
    audit_command: str
    flow: tuple[tuple[str, str], ...]
    retention: tuple[Retained, ...]
    not_protected: tuple[str, ...]
    warnings: tuple[str, ...]
    questions: tuple[Question, ...]
    confidential: tuple[str, ...]
    provenance: Provenance

    def to_json(self) -> bytes:
        """Return the statement as a JSON document."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> PrivacyStatement:
        """Read a statement that `to_json` wrote."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise StorageError(f"this is no privacy statement ({error}); make it again") from error

    def lasting(self) -> dict[str, Any]:
        """Return what making it again gives again: all but its provenance."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        del fields["provenance"]
        return fields


@dataclass(frozen=True, slots=True)
class Subject:
    """What a statement is about.

    Attributes:
        setting: The method as it was run.
        view: What the recommender sees, or would see.
        claim: Its epsilon with what that stands on.
        users: How many people are in it; None where that is not known.
        minimum: Fewest users in a sum, of a run.
        trainings: Trainings on the same ratings, this one included: each pays again.
        others: Other runs that the same ratings may have taken part in, with their views.
        tuned: Settings were chosen by errors on private ratings.
    """

    kind: Kind
    name: str
    setting: Setting
    view: str
    claim: PrivacyClaim
    users: int | None = None
    minimum: int | None = None
    trainings: int = 1
    others: tuple[tuple[Setting, str], ...] = ()
    tuned: bool = False
    delta: float = DELTA

    @property
    def method(self) -> Method:
        """The method."""
        return method_named(self.setting.method)

    @property
    def audit_command(self) -> str:
        """The command that attacks the claim; empty where there is no game."""
        if not self.method.audited:
            return ""
        view = "sums" if self.view == "two-servers" else self.view
        return (
            f"hdpmf audit run --method {self.method.name} --view {view} "
            f"--epsilon {self.setting.epsilon:g}"
        )

    @property
    def form(self) -> Form:
        """The way the method is run."""
        return self.method.form(self.setting.labels)

    @property
    def stated(self) -> Claim:
        """The method's claim for the view."""
        return self.method.claim(self.view, labels=self.setting.labels)

    def amount(
        self, neighbours: str, view: str | None = None, *, ratings: int | None = None
    ) -> Amount:
        """Return the cost of one rating of weight 1 that took part in everything.

        With ``ratings``: of a person with this many such ratings, all together.
        """
        runs = [(self.setting, self.view if view is None else view, self.trainings)]
        runs += [(setting, seen, 1) for setting, seen in self.others]
        unit = "rating" if ratings is None else "user"
        weight = 1.0 if ratings is None else [1.0] * ratings
        return Amount.of(
            *(
                cost(
                    setting,
                    seen,
                    unit=unit,
                    weight=weight,
                    neighbours=neighbours,
                    n_raters=TYPICAL_RATERS,
                    releases=releases,
                    delta=self.delta,
                )
                for setting, seen, releases in runs
            )
        )
