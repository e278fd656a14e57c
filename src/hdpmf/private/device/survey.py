"""A one-round run on a device: each rating answers once, and facts end the run.

With taste labels the answer has two parts, each in a secure sum of its own: how much weight items
have and, once the device has drawn its label, everything else.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hdpmf.common.methods import method_named
from hdpmf.common.privacy.coding import FEWEST_LABEL_EPSILON
from hdpmf.common.protocol import (
    Grouping,
    ItemFacts,
    Message,
    Ready,
    SumContribution,
    Survey,
    Terms,
)
from hdpmf.common.protocol.layout import SumLayout, popularity_layout, survey_layout, survey_numbers
from hdpmf.errors import ProtocolError
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.private.device.budget import (
    Participation,
    agreed_words,
    charge,
    check_policy,
    choose,
    participation,
    paying_ratings,
    units_paid,
)
from hdpmf.private.device.disclosures.journal import Action
from hdpmf.private.device.errors import OutOfTurnError
from hdpmf.private.device.model_update import PublishedModel
from hdpmf.private.device.recommender_state import kept
from hdpmf.private.device.session import Ended, Outcome, Session


class SurveySession(Session):
    """Answers a survey once."""

    def take(self, message: Message, body: bytes) -> Outcome:
        """The answer to a message of this run."""
        match message:
            case Survey():
                return self._survey(message, body)
            case Grouping():
                return self._group(message, body)
            case _:
                raise ProtocolError(f"a {type(message).__name__} has no place in a survey")

    def revive(self, number: int) -> None:
        """Draw the numbers again: those that were drawn before the restart have left in no form.

        A label is never drawn again. The one that was drawn is in the store.
        """
        survey, grouping = kept(self.state.plan, Survey), kept(self.state.opening, Grouping)
        if (
            survey is None
            or self.agreed().view != "sums"
            or number != (0 if grouping is None else 1)
        ):
            return
        part = self._paid()
        if grouping is not None and self.state.labels is not None:
            labels = np.frombuffer(self.state.labels, np.bool_)
            if len(labels) != part.ratings.n_users:  # of other users than those who are here now
                part, labels = (
                    participation(self._store, np.zeros(0, np.intp)),
                    np.zeros(part.ratings.n_users, np.bool_),
                )
            client = self._client(survey, part)
            client.resume(grouping, labels)
            self._second(client, part)
        else:
            self._first(survey, self._client(survey, part), part)

    def content(self) -> bytes:
        """As in ``Session``: of those that have paid."""
        return self._paid().content

    def choose_anew(self) -> None:
        """As in ``Session``: until something is in a sum."""
        terms, store = self.agreed(), self._store
        if self.state.summed >= 0:
            return
        words = "the owner has changed ratings of the run, not sent yet; they are chosen again"
        with store.transaction():
            store.ledger.give_back(self.entry("returned", 0, words), 1.0)
            taken = choose(store, terms, self._setup.recommender)
            agreed = self.entry("agreed", 0, agreed_words(terms, self.claim_status()))
            charge(store, agreed, taken)
            self.state.taking_part = participation(store, taken.positions).digest
            self.save()

    def _survey(self, survey: Survey, body: bytes) -> Outcome:
        terms = self.agreed()
        if self.state.charged:
            raise OutOfTurnError("refused: a survey is answered once; another one gets no answer")
        check_survey(survey, terms)
        taken = choose(self._store, terms, self._setup.recommender)
        part = participation(self._store, taken.positions, units_paid(taken.pays, terms))
        self.state.plan, self.state.charged, self.state.taking_part, self.touched = (
            body,
            True,
            part.digest,
            True,
        )
        answer = self._first(survey, self._client(survey, part), part)
        # Numbers for a secure sum leave later, under masks; bits leave with this answer.
        action: Action = "agreed" if isinstance(answer, Ready) else "sent"
        return Outcome(
            answer,
            self.entry(action, 0, agreed_words(terms, self.claim_status())),
            taken,
            part.table,
        )

    def _group(self, grouping: Grouping, body: bytes) -> Outcome:
        terms, survey, state = self.agreed(), kept(self.state.plan, Survey), self.state
        if survey is None or not survey.labels or state.summed < 0:
            raise OutOfTurnError(
                "refused: labels were not agreed on, or come before this device's weights are "
                "summed"
            )
        if state.labels is not None:
            raise OutOfTurnError("refused: the labels here are drawn; a label is drawn once")
        # Its owner may have changed it since the survey came.
        check_policy(self._store.policy, terms)
        part = self._paid()
        client = self._client(survey, part)
        client.resume()
        client.group(grouping)
        if client.labels is None:
            raise ProtocolError("no label was drawn")
        # In the store with this answer, before anything made with it can leave.
        state.opening, state.labels, state.number, self.touched = (
            body,
            client.labels.tobytes(),
            1,
            True,
        )
        answer = self._second(client, part)
        return Outcome(
            answer,
            self.entry(
                "agreed", 1, "drew a taste label, which stays here, and sums its ratings by it"
            ),
        )

    def _paid(self) -> Participation:
        return paying_ratings(self._store, self.run, self.agreed())

    def _client(self, survey: Survey, part: Participation) -> OneRoundClient:
        terms, setup = self.agreed(), self._setup
        client = OneRoundClient(
            part.ratings,
            part.weights,
            setup.noise,
            epsilon=terms.epsilon,
            catalogue=terms.catalogue,
            n_users=min(self._store.users, terms.credit),
            simulation=setup.simulation,
        )
        client.accept(survey)
        return client

    def _first(self, survey: Survey, client: OneRoundClient, part: Participation) -> Message:
        if survey.labels:
            return self.wait_for_sum(0, client.count().weights, part.content)
        answer = client.contribute()
        if not isinstance(answer, SumContribution):
            return answer
        return self.wait_for_sum(0, survey_numbers(answer), part.content)

    def _second(self, client: OneRoundClient, part: Participation) -> Message:
        answer = client.contribute()
        if not isinstance(answer, SumContribution):
            raise ProtocolError("taste labels are for sums over users, not for bits")
        return self.wait_for_sum(1, survey_numbers(answer), part.content)

    def layout(self, number: int) -> Callable[[int], SumLayout]:
        """As in ``Session``: everything at once or, with taste labels, weights first."""
        survey, grouping = kept(self.state.plan, Survey), kept(self.state.opening, Grouping)
        if survey is None:
            raise ProtocolError("a survey must come first")
        if survey.labels and number == 0:
            return lambda n: popularity_layout(survey, n)
        groups = () if grouping is None else (len(grouping.heads),)
        return lambda n: survey_layout(survey, n, *groups)

    def finish(self, published: PublishedModel) -> Ended:
        """As in ``Session``: with the item facts."""
        if not isinstance(published.numbers, ItemFacts):
            raise ProtocolError("refused: the model of a survey is item facts")
        terms = self.agreed()
        model = published.local(self._setup.recommender, terms, self.state.plan)
        self.state.over, self.touched, self.sum = True, True, None
        self.state.number = max(self.state.number, terms.rounds)
        charged = self.state.charged
        entry = self.entry("received", terms.rounds, "facts about items") if charged else None
        return Ended(model, entry)


def check_survey(survey: Survey, terms: Terms) -> None:
    """Raise ProtocolError unless the survey is what the terms say."""
    if survey.design not in method_named(terms.method).designs:
        raise ProtocolError(
            f"refused: the survey has the design {survey.design}, the terms say {terms.method}"
        )
    if survey.labels != terms.labels:
        raise ProtocolError(
            "refused: the survey is by taste labels where the terms are not, or the other way round"
        )
    if survey.labels and survey.epsilon < FEWEST_LABEL_EPSILON:
        raise ProtocolError(f"refused: labels need an epsilon of at least {FEWEST_LABEL_EPSILON:g}")
    if survey.epsilon != terms.epsilon:
        raise ProtocolError("refused: the survey's epsilon is not that of the terms")
    if terms.view == "sums" and survey.contributors > terms.sharing:
        raise ProtocolError(
            f"refused: the survey counts on {survey.contributors} users' noise, the terms "
            f"on {terms.sharing}"
        )
