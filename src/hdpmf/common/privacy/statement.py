"""Privacy statements: one document that says who sees what, what it costs, and what it leaves out.

A statement is a value with every number on its page, made where its facts are: beside a model or in
a recommender's folder. ``templates/statement.html`` has the words that need no number.
"""

from __future__ import annotations

import hashlib
import math
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from hdpmf.common.methods import method_named
from hdpmf.common.methods.method import Method, PrivacyClaim
from hdpmf.common.methods.registry import at_most
from hdpmf.common.privacy.accounting import DELTA, Cost, Setting, cost, epsilon_at, guess, pure
from hdpmf.common.privacy.accounting.accountants import Composed
from hdpmf.common.privacy.accounting.costs import rounded_up, sure_of
from hdpmf.common.privacy.accounting.person import sentence, share

TYPICAL_RATERS = 20
"""Raters of the item that costs of the paper's methods, which depend on it, are stated for."""
LARGE_EPSILON = 10.0
"""Above this a bound says next to nothing: a guess may be right more than 99.99 % of the time."""
ONE_USER = "The sum is over one person: everything that is learned is about this person."

_STATUSES = ("proved", "author's claim", "nominal", "no guarantee")  # the strongest first


def large_epsilon(epsilon: str) -> str:
    """Return the warning of an epsilon above ``LARGE_EPSILON``."""
    return (
        f"One rating of weight 1 has epsilon {epsilon}, which is above {LARGE_EPSILON:g}: such a "
        "bound promises a person next to nothing."
    )


@dataclass(frozen=True, slots=True)
class Amount:
    """A privacy cost; None where no number bounds it.

    Attributes:
        at_delta: The smallest proved epsilon at the statement's delta.
        right: How often a guess between two equally likely truths is right, at most.
        sure: The share of cases, at most, in which somebody could be 99 % sure.
    """

    pure: float | None = None
    at_delta: float | None = None
    right: float = 1.0
    sure: float = 1.0
    status: str = "no guarantee"

    @classmethod
    def of(cls, *costs: Cost) -> Amount:
        """Return what an accountant finds for all of these together."""
        event = costs[0].event if len(costs) == 1 else Composed(tuple(one.event for one in costs))
        at_delta = epsilon_at(event, costs[0].delta)
        if math.isinf(at_delta):
            return cls()
        whole = pure(event)
        return cls(
            pure=whole if math.isfinite(whole) else None,
            at_delta=at_delta,
            right=guess(event),
            sure=sure_of(event),
            status=max((one.status for one in costs), key=_STATUSES.index),
        )

    @property
    def words(self) -> str:
        """The cost for people, rounded up."""
        if self.at_delta is None or self.pure == 0:
            return "no bound" if self.at_delta is None else "0: nothing"
        certain = f", 99 % sure in at most {share(self.sure)} of cases" if self.sure else ""
        return f"{self.epsilon}; a guess is right at most {at_most(self.right)}{certain}" + {
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


@dataclass(frozen=True, slots=True)
class Party:
    """Somebody who sees something, and what one rating of weight 1 then costs its person."""

    who: str
    sees: str
    value: Amount
    presence: Amount


@dataclass(frozen=True, slots=True)
class PersonRow:
    """What all ratings of one person cost together; the person is known by a place alone.

    Attributes:
        value: How they were given.
        presence: Their history against none.
        exchange: Their history against any other one.
    """

    place: str
    ratings: int
    value: Amount
    presence: Amount
    exchange: Amount

    @property
    def risk(self) -> str:
        """What the person risks, in a sentence."""
        if self.presence.at_delta is None:
            return "Whether a person has rated anything, and what, is in plain sight."
        said = sentence(self.presence, self.exchange)
        return f"{said[0].upper()}{said[1:]}."


@dataclass(frozen=True, slots=True)
class PeopleCosts:
    """The costs of whole people, from the least to the most, or a bound on them.

    Attributes:
        users: How many there are; None where that is not known here.
        note: Why there are no rows, or what they leave out.
    """

    users: int | None
    rows: tuple[PersonRow, ...] = ()
    note: str = ""


def made_now(command: str, files: Mapping[str, Path]) -> dict[str, str]:
    """Return how a statement is made: what changes from one making to the next."""
    software = {name: version(name) for name in ("hdpmf", "msgspec", "numpy", "scipy")}
    software["Python"] = platform.python_version()
    return {
        "Date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "Command": command,
        "Software": ", ".join(f"{name} {number}" for name, number in sorted(software.items())),
        **{
            f"{name}, SHA-256": hashlib.sha256(path.read_bytes()).hexdigest()
            for name, path in sorted(files.items())
        },
    }


@dataclass(frozen=True, slots=True)
class PrivacyStatement:
    """A privacy statement.

    Attributes:
        title: The method in a few words.
        view: What the recommender sees, or would see.
        claim: What the epsilon stands on, as ``PrivacyClaim``, with what it needs and its proof.
        sent: What leaves the device.
        stays_open: What the method leaves unprotected, and what its protection needs.
        warnings: What should make a reader stop.
        confidential: Whether parts are exact about private ratings and wishes.
        made: How it was made, by what to call it; nothing else changes when it is made again.
    """

    kind: Literal["model", "recommender"]
    name: str
    title: str
    view: str
    claim: dict[str, Any]
    delta: float
    sent: str
    stays_open: str
    parties: tuple[Party, ...]
    people: PeopleCosts
    budget: tuple[str, ...]
    audit_command: str
    warnings: tuple[str, ...]
    confidential: bool
    made: dict[str, str]


def render(statement: PrivacyStatement) -> bytes:
    """Return the statement as a page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("hdpmf.common.privacy"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = templates.get_template("statement.html").render(s=statement, at_most=at_most)
    return (text.rstrip() + "\n").encode()


@dataclass(frozen=True, slots=True)
class Subject:
    """What a statement is about.

    Attributes:
        settings: The method as it was run: first as the claim has it, then in all other runs that
            the same ratings may have taken part in.
        view: What the recommender sees, or would see.
        claim: Its epsilon with what that stands on.
        alone: A sum was over one person.
    """

    kind: Literal["model", "recommender"]
    name: str
    settings: tuple[Setting, ...]
    view: str
    claim: PrivacyClaim
    alone: bool

    @property
    def method(self) -> Method:
        """The method."""
        return method_named(self.settings[0].method)

    def amount(
        self, neighbours: str, view: str | None = None, *, ratings: int | None = None
    ) -> Amount:
        """Return the cost of one rating of weight 1 that took part in everything.

        With ``ratings``: of a person with this many such ratings, all together.
        """
        return Amount.of(
            *(
                cost(
                    setting,
                    view or self.view,
                    unit="rating" if ratings is None else "user",
                    weight=1.0 if ratings is None else [1.0] * ratings,
                    neighbours=neighbours,
                    n_raters=TYPICAL_RATERS,
                )
                for setting in self.settings
            )
        )

    def statement(self, people: PeopleCosts, made: dict[str, str]) -> PrivacyStatement:
        """Return the statement: what is known of the subject, and what follows for a person."""
        method, claim = self.method, self.claim
        stated = method.claim(self.view)
        audit = f"hdpmf audit run --method {method.name} --view "
        audit += "sums" if self.view == "two-servers" else self.view
        return PrivacyStatement(
            kind=self.kind,
            name=self.name,
            title=f"{method.label}: {method.summary}",
            view=self.view,
            claim={
                "epsilon": claim.epsilon,
                "status": claim.status,
                "against": claim.view,
                "reason": claim.reason,
                "honest": claim.honest or None,
                "noise": claim.noise or "released",
                "items": claim.items or None,
                "needs": stated.needs or None,
                "proof": cost(self.settings[0], self.view).reference or None,
                "per": "person" if method.unit == "person" else "rating of weight 1",
                "unit": "a whole person: all that is sent about them, against an empty history"
                if method.unit == "person"
                else "one rating; a rating of privacy weight W pays W times epsilon",
            },
            delta=DELTA,
            sent=method.form.sent,
            stays_open=method.form.stays_open,
            parties=self._parties_of_model() if self.kind == "model" else self._parties_of_run(),
            people=people,
            budget=(self._budget(),),
            audit_command=f"{audit} --epsilon {self.settings[0].epsilon:g}"
            if method.audited
            else "",
            warnings=tuple(self._warnings(people)),
            confidential=self.kind == "model" and bool(people.rows),
            made=made,
        )

    def _party(self, who: str, sees: str, view: str | None = None) -> Party:
        value, presence = self.amount("value", view), self.amount("presence", view)
        return Party(who=who, sees=sees, value=value, presence=presence)

    def _parties_of_model(self) -> tuple[Party, ...]:
        names = {
            "messages": "An observer of every message, were it run between machines",
            "sums": "An observer of sums over users, were only these seen",
            "two-servers": "The recommender with one of two servers, were it run with them",
        }
        return (
            self._party(
                "Anyone who has the model's folder recommender/, but not the seed",
                "the published model, which is computed from what the claim's observer sees",
            ),
            *(
                self._party(names[view], self.method.claim(view).sees, view)
                for view in self.method.offered
            ),
        )

    def _parties_of_run(self) -> tuple[Party, ...]:
        return (
            self._party("The recommender", self.method.claim(self.view).sees),
            self._party(
                "The recommender together with one of the servers",
                "the noised sums, and that server's shares",
            ),
            self._party(
                "Other people, and everybody who has the published model",
                "the model, which is computed from what the recommender sees",
            ),
            Party(
                who="Both servers together",
                sees="every report: nothing protects a rating from them",
                value=Amount(),
                presence=Amount(),
            ),
        )

    def _budget(self) -> str:
        value = self.amount(self.settings[0].about(self.view))
        spent = "without bound" if value.at_delta is None else f"epsilon {value.epsilon}"
        part = " that was in all runs" if self.kind == "recommender" else ""
        return f"A rating of weight 1{part} has spent at most: {spent}."

    def _warnings(self, people: PeopleCosts) -> list[str]:
        claim, found = self.claim, []
        if claim.epsilon is None:
            found.append(f"Nothing is protected: {claim.reason}.")
        if claim.status == "nominal":
            found.append(
                f"Epsilon {claim.epsilon:g} is NOMINAL: it is the paper's number and no guarantee."
                + (f" What it really costs: {claim.honest}." if claim.honest else "")
            )
        if claim.status == "author's claim":
            found.append(
                f"Epsilon {claim.epsilon:g} is what the author of {self.method.name} claims; hdpmf "
                "has not checked it."
            )
        value = self.amount(self.settings[0].about(self.view))
        if value.status == "proved" and (value.at_delta or 0.0) > LARGE_EPSILON:
            found.append(large_epsilon(value.epsilon))
        # Where a method does not hide who rated what, there is only how.
        heavy = [
            row
            for row in people.rows
            if (row.presence.at_delta or row.value.at_delta or 0.0) > LARGE_EPSILON
        ]
        if heavy and self.kind == "model":
            found.append(
                f"All ratings of one person together have an epsilon above {LARGE_EPSILON:g} from "
                f"the place '{heavy[0].place}' on: about a whole person the bound promises next to "
                "nothing there. A limit (max_ratings), smaller weights or a smaller epsilon bound "
                "it."
            )
        if self.alone:
            found.append(ONE_USER)
        if claim.noise == "simulated":
            found.append("The noise is SIMULATED: this model is to evaluate with, not to publish.")
        return found
