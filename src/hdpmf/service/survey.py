"""A run of the one-round designs: a survey, answered once in a rating's life, and what is made of all the answers.

With taste labels there are two sums: of the survey (job 0) and, once devices know by what to draw labels, of the
grouping (job 1). The facts come in the message after the last job's. Bits are a data set that the recommender keeps; a
model for lists is trained on it and follows the facts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from hdpmf.errors import FederationError
from hdpmf.privacy.claims import claim_of
from hdpmf.protocol import (
    BitContribution,
    Grouping,
    ItemFacts,
    Message,
    Popularity,
    SumContribution,
    Survey,
    decode,
    encode,
)
from hdpmf.protocol.layout import (
    contribution_from_sum,
    popularity_from_sum,
    popularity_layout,
    survey_layout,
)
from hdpmf.protocol.lists import digest_of
from hdpmf.ratings.item_features import fingerprint
from hdpmf.recommender.lists import check_trainable, train_list_model
from hdpmf.recommender.one_round import Answer, OneRoundRecommender
from hdpmf.recommender.possible import possible
from hdpmf.recommender.release import Release, joined
from hdpmf.recommender.runs import Answered
from hdpmf.service.run import FederatedRun
from hdpmf.service.run_files import Checkpoint, kept
from hdpmf.service.sums import sum_when_ready

Sum = TypeVar("Sum", SumContribution, Popularity)


class SurveyRun:
    """Asks devices once and keeps the answer.

    Args:
        run: The run; devices have agreed to its terms.
        earlier: What came of earlier surveys of the same design.
    """

    def __init__(self, run: FederatedRun, earlier: Sequence[Answered] = ()) -> None:
        self._run = run
        self._earlier = tuple(earlier)
        settings = run.settings
        if settings.kind.family == "bits":
            check_trainable(settings.list_model)
        self.survey: Survey = settings.survey(run.known, settings.sharing(run.enrolled.users.values()))
        self._recommender = OneRoundRecommender(
            self.survey,
            run.known.features,
            score=settings.labels,
            n_patterns=settings.patterns,
            retired=run.known.retired,
        )

    def conduct(self) -> tuple[Answer, ItemFacts]:
        """The answers of this run's devices, and the facts from all answers, which devices that are there then have."""
        run, checkpoint = self._run, self._run.checkpoint
        if checkpoint.stage == "open":
            checkpoint.stage = "count" if self.survey.labels else "work"
        if checkpoint.stage == "count":
            self._count()
        if checkpoint.stage == "work":
            self._ask()
        answer = kept_answer(checkpoint)
        if self.survey.labels:
            self._recommender.resume([kept(checkpoint.counted, Popularity)], kept(checkpoint.round, Grouping))
        # Every secure sum comes with noise of its own.
        surplus = 1.0 if self.survey.labels else self._surplus(checkpoint.members)
        facts = self._recommender.facts([answer], n_sums=max(surplus, 1.0), earlier=self._earlier)
        self._train_lists([*(past.answer for past in self._earlier), answer])
        lists = checkpoint.lists
        facts = msgspec.structs.replace(facts, prior=run.settings.prior, lists=digest_of(lists) if lists else None)
        if checkpoint.stage == "deliver":
            run.stage("handing out the item facts")
            run.deliver(checkpoint.agreed, facts_number(facts), facts, lists)
        return answer, facts

    def _train_lists(self, answers: Sequence[Answer]) -> None:
        """Of bits: keep them as a data set, and train a model for lists on it. Neither asks anything of anybody."""
        run, checkpoint, settings = self._run, self._run.checkpoint, self._run.settings
        if settings.kind.family != "bits" or checkpoint.lists or checkpoint.stage != "deliver":
            return
        known = run.known
        release = Release(
            # A data set stands by itself: whichever version of a catalogue it is from, it is about these items.
            msgspec.structs.replace(self.survey, catalogue=fingerprint(known.items, known.features)),
            joined([answer for answer in answers if isinstance(answer, BitContribution)]),
            known.items,
            claim_of(settings.kind, settings.epsilon),
            f"run {run.id.hex()}",
            item_table=known.item_table,
            features=known.features,
        )
        run.files.keep_release(release)
        run.stage("training a model for lists")
        # Kept before it is sent: whoever goes on after a kill sends the same bytes, which the facts name.
        checkpoint.lists = encode(train_list_model(settings.list_model, release.presence).table())
        run.save()

    def _surplus(self, devices: Collection[str]) -> float:
        return 1.0 if self.survey.design == "L" else self._run.surplus(devices)

    def _possible(self, answer: Sum, devices: Collection[str]) -> Sum:
        """A sum as the users behind it can have made it."""
        users = self._run.enrolled.count_users(devices)
        answer, changed = possible(self.survey, answer, users, self._surplus(devices))
        self._run.impossible(changed, devices)
        return answer

    def _count(self) -> None:
        """With taste labels, first: how much weight items have, and by that how devices draw their labels."""
        run, checkpoint = self._run, self._run.checkpoint
        self._begin("counting what is rated", 1)
        summed = sum_when_ready(run, 0, checkpoint.agreed, self.survey, lambda n: popularity_layout(self.survey, n))
        counted = self._possible(popularity_from_sum(self.survey, summed.participants, summed.total), summed.devices)
        grouping = self._recommender.group([counted])
        # Kept before it is sent: whoever goes on after a kill sends the same.
        checkpoint.counted, checkpoint.round = encode(counted), encode(grouping)
        checkpoint.stage = "work"
        self._end(0, summed.devices)

    def _ask(self) -> None:
        checkpoint = self._run.checkpoint
        number = 1 if self.survey.labels else 0
        self._begin("asking by labels" if number else "asking the survey", number + 1)
        answer: Answer
        if self.survey.design == "L":
            answer, devices = self._bits()
        else:
            grouping = kept(checkpoint.round, Grouping) if number else None
            heads = 0 if grouping is None else len(grouping.heads)
            # By labels only those whose weights are counted: the two sums are to be about the same ratings.
            asked = checkpoint.members if number else checkpoint.agreed
            summed = sum_when_ready(
                self._run, number, asked, grouping or self.survey, lambda n: survey_layout(self.survey, n, heads)
            )
            answer = self._possible(
                contribution_from_sum(self.survey, summed.participants, summed.total, heads), summed.devices
            )
            devices = set(summed.devices)
        checkpoint.answer, checkpoint.stage = encode(answer), "deliver"
        self._end(number, devices)

    def _begin(self, words: str, number: int) -> None:
        run = self._run
        run.stage(words)
        run.metrics.members = len(run.checkpoint.agreed)
        run.metrics.round_begins(number)

    def _end(self, number: int, devices: Collection[str]) -> None:
        run, checkpoint = self._run, self._run.checkpoint
        checkpoint.members = tuple(sorted(devices))
        checkpoint.users.append(run.enrolled.count_users(devices))
        checkpoint.seconds.append(run.metrics.round_ends(checkpoint.users[-1]))
        run.save()
        run.files.drop_sum_log(number)

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
        ordered = [parts[device] for device in order]
        starts = np.concatenate(([0], np.cumsum([users[device] for device in order]))).astype(np.int64)
        joined = BitContribution(
            senders=np.concatenate([part.senders + start for part, start in zip(ordered, starts, strict=False)]),
            items=np.concatenate([part.items for part in ordered]),
            units=np.concatenate([part.units for part in ordered]),
            plus=np.concatenate([part.plus for part in ordered]),
        )
        return joined, devices


def kept_answer(checkpoint: Checkpoint) -> Answer:
    """What the devices of a run answered."""
    answer = decode(checkpoint.answer)
    if not isinstance(answer, Answer):
        raise FederationError("the checkpoint holds no answer to the survey; start a new run")
    return answer


def facts_number(facts: ItemFacts) -> int:
    """Of the message that brings the item facts: after the last job's."""
    return 2 if facts.labels else 1


def _implausible(bits: BitContribution, users: int, n_items: int) -> str | None:
    """Why these bits cannot be those of so many users, or None."""
    if len(bits.items) == 0:
        return None
    if int(bits.items.max()) >= n_items or int(bits.senders.max()) >= users:
        return "range"
    pairs = bits.senders * n_items + bits.items
    return "duplicate" if len(np.unique(pairs)) < len(pairs) else None
