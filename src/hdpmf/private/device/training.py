"""A run of the paper's methods on a device: plan, opening, rounds; then the final factors."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import msgspec
import numpy as np

from hdpmf.common.methods import Status, method_named
from hdpmf.common.privacy.mechanisms import MECHANISMS, mechanism_of
from hdpmf.common.protocol import (
    Accepted,
    Gradients,
    ItemCounts,
    Message,
    Opening,
    Plan,
    Round,
    Terms,
)
from hdpmf.common.protocol.layout import SumLayout, counts_layout, gradients_layout
from hdpmf.errors import ProtocolError
from hdpmf.private.client.device_gradients import DeviceGradientClient, GradientClientState
from hdpmf.private.client.outgoing import compose
from hdpmf.private.device.budget import (
    Participation,
    agreed_words,
    choose,
    participation,
    paying_ratings,
)
from hdpmf.private.device.disclosures.limits import Taken
from hdpmf.private.device.errors import DeclinedError, OutOfTurnError
from hdpmf.private.device.model_update import PublishedModel, check_plan
from hdpmf.private.device.published_files import pinned_items
from hdpmf.private.device.recommender_state import RunState, kept
from hdpmf.private.device.session import Ended, Outcome, Session, Setup

# Of ``RunState.taking_part``, in place of a digest: the ratings that took part do so no more,
_GONE = b"gone"
# and what they have not caused is given back.
_RETURNED = b"returned"


class TrainingSession(Session):
    """Agrees to a plan, counts, answers rounds, and brings user vectors up to date at the end."""

    def __init__(
        self, setup: Setup, run: bytes, state: RunState, saved: bytes | None = None
    ) -> None:
        super().__init__(setup, run, state, saved)
        self._client: DeviceGradientClient | None = None
        self._part: Participation | None = None
        self._agreed_plan = kept(state.plan, Plan)
        self._opening = kept(state.opening, Opening)

    def take(self, message: Message, body: bytes) -> Outcome:
        """The answer to a message of this run."""
        match message:
            case Plan():
                return self._agree(message, body)
            case Opening():
                return self._open(message, body)
            case Round():
                return self._round(message, body)
            case _:
                raise ProtocolError(f"a {type(message).__name__} has no place in a training")

    def revive(self, number: int) -> None:
        """Count again, because counts have no noise; gradients of a round would get other noise."""
        if number == 0 and self.state.opening is not None and self.agreed().view == "sums":
            counts = self._going_on().counts().counts
            self.wait_for_sum(0, counts, self._taking_part().content)

    def content(self) -> bytes:
        """As in ``Session``: of those that have paid, until they are others."""
        part = paying_ratings(self._store, self.run, self.agreed())
        if part.digest != self.state.taking_part:
            part = participation(self._store, np.zeros(0, np.intp))
        return part.content

    def choose_anew(self) -> None:
        """As in ``Session``: whose ratings take part in a training is settled when it begins."""

    def layout(self, number: int) -> Callable[[int], SumLayout]:
        """As in ``Session``: counts, then gradients."""
        plan, words = self._plan(), counts_layout if number == 0 else gradients_layout
        return lambda n: words(plan, n)

    def _agree(self, plan: Plan, body: bytes) -> Outcome:
        if self.state.plan is not None:
            raise OutOfTurnError("refused: a plan was agreed on already; it must not change")
        terms = self.agreed()
        check_plan(self._store, plan)
        if plan.n_items != pinned_items(self._store):
            raise ProtocolError("refused: the plan is for an earlier version of the items")
        mechanism = mechanism_of(method_named(terms.method))
        if MECHANISMS[plan.mechanism] is not type(mechanism):
            raise ProtocolError(
                f"refused: the plan has the mechanism {plan.mechanism!r}, the terms say "
                f"{terms.method}"
            )
        if plan.epsilon != terms.epsilon or plan.epochs != terms.rounds:
            raise ProtocolError("refused: the plan's epsilon or rounds are not those of the terms")
        if not plan.fresh_noise and not self._store.policy.allow_unprotected:
            raise DeclinedError(
                "policy",
                "the same noise in every round hides nothing: two rounds differ without it",
            )
        self.state.seed = secrets.randbits(63) if self._setup.seed is None else self._setup.seed
        self._agreed_plan, self.state.plan, self.touched = plan, body, True
        if not mechanism.needs_budgets:
            return Outcome(compose(Accepted))
        pays = self._choose(terms)
        report = self._new_client(terms).accept(plan)
        if report is None:
            raise ProtocolError("the mechanism reports no budgets")
        entry = self.entry("sent", 0, self._words(terms))
        return Outcome(report, entry, pays, self._taking_part().table)

    def _open(self, opening: Opening, body: bytes) -> Outcome:
        terms, plan = self.agreed(), self._plan()
        if self.state.opening is not None:
            raise OutOfTurnError("refused: an Opening comes once")
        pays = None if self.state.charged else self._choose(terms)
        if self._part is None:
            self._part = paying_ratings(self._store, self.run, terms)
        client = self._new_client(terms)
        client.accept(plan)
        counts = client.open(opening)
        self._client, self._opening, self.touched = client, opening, True
        self.state.opening, self.state.client = body, client.state().encode()
        words = self._words(terms) if pays else "how many ratings take part, per item"
        # Counts for a secure sum leave later, under masks; in the other view they leave with this
        # answer.
        entry = self.entry("sent", 0, words) if terms.view == "messages" else None
        if pays and entry is None:
            entry = self.entry("agreed", 0, words)
        return Outcome(self._answer(counts, counts.counts), entry, pays, self._taking_part().table)

    def _round(self, message: Round, body: bytes) -> Outcome:
        plan, terms = self._plan(), self.agreed()
        if message.number > plan.epochs:
            raise ProtocolError("refused: final factors are published, and not offered")
        if message.number <= self.state.number:
            raise OutOfTurnError(
                f"refused: round {self.state.number} has been answered, and this is "
                f"{message.number}"
            )
        client = self._going_on()
        client.receive(message)
        self.touched = True
        self.sum = None
        number = self.state.number = message.number
        if terms.view == "sums":
            units = client.contribute_units()
            answer: Message = self.wait_for_sum(number, units, self._taking_part().content)
            entry = None  # nothing has left yet; the ledger records it when the masked words leave
        else:
            answer = client.contribute()
            words = "gradients with this device's noise"
            if method_named(terms.method).mechanism == "none":
                words = "gradients without any noise"
            entry = self.entry("sent", number, f"round {number} of {plan.epochs}: {words}")
        self.state.client = client.state().encode()
        return Outcome(answer, entry, table=self._taking_part().table)

    def finish(self, published: PublishedModel) -> Ended:
        """As in ``Session``: with the final factors, and a last step of the user vectors.

        Where nothing was counted here, vectors are fitted when they are needed.
        """
        terms, final = self.agreed(), published.numbers
        model = published.local(self._setup.recommender, terms, self.state.plan)
        if not isinstance(final, Round) or published.plan != self._agreed_plan:
            raise ProtocolError("refused: the model is of another plan than the one agreed on")
        self.touched, self.sum, self.state.number = True, None, final.number
        if self.state.opening is None:
            self._end()
            return Ended(model, None)
        client = self._going_on()
        client.receive(final)
        ratings = self._taking_part().ratings
        users = tuple(map(str, ratings.users.ids.tolist()))
        vectors = np.ascontiguousarray(
            np.nan_to_num(client.vectors, nan=0.0, posinf=0.0, neginf=0.0), np.float32
        )
        rated = ratings.user_counts() > 0
        model = msgspec.structs.replace(
            model,
            users=tuple(
                user for user, has_rated in zip(users, rated.tolist(), strict=True) if has_rated
            ),
            vectors=vectors[rated].tobytes(),
        )
        self._end()
        words = "the final item factors; the user vectors stay here"
        return Ended(model, self.entry("received", self.state.number, words))

    def unsent(self) -> float:
        """Return the part of a finished run's cost that never left, from 0 to 1.

        With a proof each round costs its part of epsilon, so that rounds that never came cost
        nothing. Once counts are in a sum, which shows who has rated an item, a round stays paid.
        """
        terms = self._terms
        if terms is None or mechanism_of(method_named(terms.method)).needs_budgets:
            return 0.0  # budgets were sent in clear, which cannot be undone
        if self.state.taking_part == _RETURNED:
            return 0.0
        part = super().unsent()
        if (
            part
            or terms.view != "sums"
            or self._agreed_plan is None
            or self.claim_status() != "proved"
        ):
            return part
        paid = min(max(self.state.summed, 1), terms.rounds)
        return (terms.rounds - paid) / terms.rounds

    def let_go(self) -> float:
        """As in ``Session``: from the first round on in which they are left out."""
        if self.state.taking_part != _GONE:
            return 0.0
        part, self.state.taking_part = self.unsent(), _RETURNED
        return part

    def _bare(self) -> bool:
        """Return True if the plan hides nothing: noise used in two rounds can be subtracted."""
        return not self._plan().fresh_noise and self._plan().epochs > 1

    def factors(self) -> int:
        """Length of the vectors that gradients are of."""
        return self._plan().n_factors

    def claim_status(self) -> Status:
        """Return the status of this run's epsilon."""
        return "none" if self._agreed_plan is not None and self._bare() else super().claim_status()

    def _end(self) -> None:
        """Drop what is no longer needed; the run stays known, so that it does not begin again."""
        self.state.over, self.state.client = True, None
        self._client = self._part = None

    def _words(self, terms: Terms) -> str:
        plan = self._plan()
        return agreed_words(terms, self.claim_status(), plan.n_factors, fresh=plan.fresh_noise)

    def _choose(self, terms: Terms) -> Taken:
        taken = choose(self._store, terms, self._setup.recommender, bare=self._bare())
        self._part = participation(self._store, taken.positions)
        self.state.charged, self.state.taking_part, self.touched = True, self._part.digest, True
        return taken

    def _new_client(self, terms: Terms) -> DeviceGradientClient:
        part, setup = self._taking_part(), self._setup
        return DeviceGradientClient(
            part.ratings,
            part.weights,
            mechanism_of(method_named(terms.method)),
            setup.noise,
            self.state.seed,
            setup.workers,
            n_users=min(self._store.users, terms.credit),
            everyone=terms.users,
            sharing=terms.sharing,
            min_raters=self._store.policy.min_raters,
            simulation=setup.simulation,
        )

    def _taking_part(self) -> Participation:
        if self._part is None:
            raise ProtocolError("no ratings take part yet")
        return self._part

    def _going_on(self) -> DeviceGradientClient:
        """Return the client after the last round, restored if the process or ratings changed.

        If the ratings that take part are not the same any more, it goes on without any.
        """
        state, plan = self.state, self._plan()
        opening = self._opening
        if opening is None or state.client is None:
            raise ProtocolError("an Opening must come before the rounds")
        if (
            self._client is None
            or self._part is None
            or self._part.table is not self._store.ratings()
        ):
            self._part = paying_ratings(self._store, self.run, self.agreed())
            same = self._part.digest == state.taking_part
            if not same:  # nor will it be the same again, should they come back
                self._part = participation(self._store, np.zeros(0, np.intp))
                if state.taking_part != _RETURNED:
                    state.taking_part = _GONE
                self.touched = True
            self._client = self._new_client(self.agreed())
            resume = self._client.resume if same else self._client.resume_without_ratings
            resume(plan, opening, GradientClientState.decode(state.client))
        return self._client

    def _answer(self, message: ItemCounts | Gradients, numbers: np.ndarray) -> Message:
        if self.agreed().view != "sums":
            return message
        return self.wait_for_sum(0, numbers, self._taking_part().content)

    def _plan(self) -> Plan:
        if self._agreed_plan is None:
            raise ProtocolError("a plan must come first")
        return self._agreed_plan
