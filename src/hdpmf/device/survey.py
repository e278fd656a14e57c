"""A run of the one-round designs on a device: one answer in a rating's life, then facts to fit its own vectors to."""

from __future__ import annotations

from hdpmf.device.declined import DeclinedError
from hdpmf.device.ledger import Action
from hdpmf.device.local_model import LocalModel
from hdpmf.device.paying import TakingPart, agreed_words, choose, taking_part, who_paid
from hdpmf.device.run_state import kept
from hdpmf.device.session import Outcome, Session
from hdpmf.device.summing import SumOfJob
from hdpmf.errors import ProtocolError
from hdpmf.protocol import Accepted, ItemFacts, Message, Ready, SumContribution, Survey, Terms
from hdpmf.protocol.layout import survey_layout, survey_numbers
from hdpmf.shard.contribution import OneRoundShard
from hdpmf.shard.outgoing import compose

_DESIGNS = {"hdp-sum": ("A", "S"), "hdp-bit": ("L",)}


class SurveySession(Session):
    """Answers a survey once, and keeps the facts."""

    def take(self, message: Message, body: bytes) -> Outcome:
        """The answer to a message of this run."""
        match message:
            case Survey():
                return self._survey(message, body)
            case ItemFacts():
                return self._facts(message, body)
            case _:
                raise ProtocolError(f"a {type(message).__name__} has no place in a survey")

    def revive(self) -> None:
        """Draw the numbers again: those that were drawn before the restart have left in no form."""
        survey = kept(self.state.plan, Survey)
        if survey is not None and self.agreed().view == "sums":
            self._contribute(survey, who_paid(self._store, self.run, self.state.taking_part))

    def _survey(self, survey: Survey, body: bytes) -> Outcome:
        terms = self.agreed()
        if self.state.charged:
            raise ProtocolError("refused: a survey is answered once; another one gets no answer")
        _check(survey, terms)
        pays = choose(self._store, terms)
        part = taking_part(self._store, pays[0])
        answer = self._contribute(survey, part)
        self.state.plan, self.state.charged, self.state.taking_part, self.touched = body, True, part.digest, True
        # Numbers for a secure sum leave later, under masks; bits leave with this answer.
        action: Action = "agreed" if isinstance(answer, Ready) else "sent"
        return Outcome(answer, self.entry(action, 0, agreed_words(terms, self.standing())), pays)

    def _contribute(self, survey: Survey, part: TakingPart) -> Message:
        terms, setup = self.agreed(), self._setup
        shard = OneRoundShard(
            part.ratings,
            part.weights,
            setup.noise,
            epsilon=terms.epsilon,
            catalogue=terms.catalogue,
            n_users=self._store.users,
            simulation=setup.simulation,
        )
        shard.accept(survey)
        answer = shard.contribute()
        if not isinstance(answer, SumContribution):
            return answer
        # What is under no mask never leaves: the numbers wait here for a secure sum.
        self.sum = SumOfJob(0, survey_numbers(answer), lambda n: survey_layout(survey, n), terms.minimum)
        return compose(Ready, number=0)

    def _facts(self, facts: ItemFacts, body: bytes) -> Outcome:
        known = self._store.pinned_catalogue
        if known is None or facts.catalogue != known.known.fingerprint or len(facts.bias) != len(known.positions):
            raise ProtocolError("refused: the item facts are about another item table than the pinned one")
        terms = self._terms
        model = LocalModel(
            recommender=self._setup.recommender,
            run=self.run.hex(),
            method="hdp-sum" if terms is None else terms.method,
            view="nothing" if terms is None else terms.view,
            plan=self.state.plan,
            numbers=body,
        )
        self.state.over, self.touched, self.sum = True, True, None
        self.state.number = max(self.state.number, 1)
        entry = self.entry("received", 1, "facts about items") if self.state.charged else None
        return Outcome(compose(Accepted), entry, model=model)


def _check(survey: Survey, terms: Terms) -> None:
    """Raise ProtocolError unless the survey is what the terms say."""
    if survey.design not in _DESIGNS[terms.method]:
        raise ProtocolError(f"refused: the survey has the design {survey.design}, the terms say {terms.method}")
    if survey.labels:
        raise DeclinedError("unavailable", "taste labels take a second sum, which devices do not have yet")
    if survey.epsilon != terms.epsilon:
        raise ProtocolError("refused: the survey's epsilon is not that of the terms")
    if terms.view == "sums" and survey.contributors > terms.minimum:
        raise ProtocolError(
            f"refused: the survey counts on {survey.contributors} users' noise, and a sum may be over "
            f"{terms.minimum} of them"
        )
