"""A run of the one-round designs: a survey, answered once in a rating's life, and what is made of all the answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdpmf.errors import FederationError
from hdpmf.protocol import (
    Accepted,
    BitContribution,
    ItemFacts,
    Message,
    Ready,
    SumContribution,
    Survey,
    decode,
    encode,
)
from hdpmf.protocol.layout import contribution_from_sum, survey_layout
from hdpmf.recommender.item_bias import facts_from_bits, facts_from_sums
from hdpmf.service.conversation import Conversation
from hdpmf.service.sums import sum_when_ready

FACTS_NUMBER = 1
"""Of the letter that brings the item facts."""

Answers = SumContribution | BitContribution


class SurveyRun:
    """Asks devices once and keeps the answer.

    Args:
        run: The run; devices have agreed to its terms.
        earlier: What came of earlier surveys of the same design, answered by other devices.
    """

    def __init__(self, run: Conversation, earlier: Sequence[Answers] = ()) -> None:
        self._run = run
        self._earlier = tuple(earlier)
        self.survey: Survey = run.settings.survey(run.known)

    def conduct(self) -> tuple[Answers, ItemFacts]:
        """The answers of this run's devices, and the facts from all answers, which devices that are there then have."""
        run, checkpoint = self._run, self._run.checkpoint
        if checkpoint.stage == "open":
            checkpoint.stage = "work"
        if checkpoint.stage == "work":
            self._ask()
        answer = decode(checkpoint.answer)
        if not isinstance(answer, Answers):
            raise FederationError("the checkpoint holds no answer to the survey; start a new run")
        facts = make_facts(self.survey, [*self._earlier, answer], self._features(), run.settings.patterns)
        if checkpoint.stage == "deliver":
            self._deliver(facts)
        return answer, facts

    def _features(self) -> np.ndarray | None:
        features = self._run.known.features
        return None if features is None else features.matrix

    def _ask(self) -> None:
        run, checkpoint, metrics = self._run, self._run.checkpoint, self._run.mailroom.metrics
        run.stage("asking the survey")
        metrics.members = len(checkpoint.agreed)
        metrics.round_begins(1)
        answer, devices = self._summed() if self.survey.design != "L" else self._bits()
        checkpoint.answer, checkpoint.members = encode(answer), tuple(sorted(devices))
        checkpoint.users.append(run.enrolled.count_users(devices))
        checkpoint.seconds.append(metrics.round_ends(checkpoint.users[-1]))
        checkpoint.stage = "deliver"
        run.save()
        run.files.drop_sum_log(0)

    def _summed(self) -> tuple[SumContribution, set[str]]:
        run = self._run

        def take(device: str, answer: Message) -> str | None:
            return None if isinstance(answer, Ready) and answer.number == 0 else "out-of-round"

        summed = sum_when_ready(
            run,
            0,
            lambda: run.collect(run.checkpoint.agreed, 0, self.survey, take, Ready),
            lambda participants: survey_layout(self.survey, participants),
        )
        return contribution_from_sum(self.survey, summed.participants, summed.total), set(summed.devices)

    def _bits(self) -> tuple[BitContribution, set[str]]:
        """Every device's bits, with senders counted over all devices."""
        run, users = self._run, self._run.enrolled.users
        parts: dict[str, BitContribution] = {}

        def take(device: str, answer: Message) -> str | None:
            if not isinstance(answer, BitContribution):
                return "unexpected"
            reason = _implausible(answer, users[device], self.survey.n_items)
            if reason is None:
                parts[device] = answer
            return reason

        devices = run.collect(run.checkpoint.agreed, 0, self.survey, take, BitContribution)
        order = sorted(devices)
        starts = np.concatenate(([0], np.cumsum([users[one] for one in order]))).astype(np.int64)
        joined = BitContribution(
            senders=np.concatenate([parts[one].senders + start for one, start in zip(order, starts, strict=False)]),
            items=np.concatenate([parts[one].items for one in order]),
            units=np.concatenate([parts[one].units for one in order]),
            plus=np.concatenate([parts[one].plus for one in order]),
        )
        return joined, devices

    def _deliver(self, facts: ItemFacts) -> None:
        run, checkpoint = self._run, self._run.checkpoint
        run.stage("handing out the item facts")
        here = run.mailroom.present() & set(checkpoint.agreed)
        took = {one for one, _ in run.mailroom.ask(here, FACTS_NUMBER, facts, run.pace.deadline, Accepted)}
        checkpoint.delivered = tuple(sorted(took | set(checkpoint.delivered)))
        checkpoint.stage = "done"
        run.save()


def make_facts(
    survey: Survey, answers: Sequence[Answers], features: np.ndarray | None, n_patterns: int = 0
) -> ItemFacts:
    """Item facts from the answers of one or several cohorts.

    Every secure sum comes with noise of its own, so the more cohorts the more noise is in what they add up to; the
    facts are computed with that. Bits carry their noise each by itself.
    """
    sums = [one for one in answers if isinstance(one, SumContribution)]
    bits = [one for one in answers if isinstance(one, BitContribution)]
    if sums and bits:
        raise FederationError("answers of different designs cannot be put together")
    if bits:
        return facts_from_bits(survey, bits, features, n_patterns)
    return facts_from_sums(survey, sums, features, n_sums=len(sums))


def _implausible(bits: BitContribution, users: int, n_items: int) -> str | None:
    """Why these bits cannot be those of so many users, or None."""
    if len(bits.items) == 0:
        return None
    if int(bits.items.max()) >= n_items or int(bits.senders.max()) >= users:
        return "range"
    pairs = bits.senders * n_items + bits.items
    return "duplicate" if len(np.unique(pairs)) < len(pairs) else None
