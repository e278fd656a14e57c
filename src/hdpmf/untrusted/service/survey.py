"""A run of the one-round designs: a survey, answered once in a rating's life, and its estimates.

With taste labels there are two jobs: the survey and, once devices know by what to draw labels, the
grouping. Bits are a data set that the recommender keeps; a model for lists is trained on it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from hdpmf.common.data.item_features import fingerprint
from hdpmf.common.methods.method import claim_of
from hdpmf.common.privacy.coding import WEIGHT_SCALE
from hdpmf.common.protocol import (
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
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.common.protocol.enrolment import Enrolled
from hdpmf.common.protocol.layout import (
    contribution_from_sum,
    popularity_from_sum,
    popularity_layout,
    survey_layout,
)
from hdpmf.common.protocol.lists import digest_of
from hdpmf.errors import FederationError
from hdpmf.untrusted.recommender.lists.training import check_trainable, train_list_model
from hdpmf.untrusted.recommender.one_round import Answer, OneRoundRecommender
from hdpmf.untrusted.recommender.release import Release, join_contributions
from hdpmf.untrusted.recommender.runs import SurveyAnswer
from hdpmf.untrusted.recommender.sums import add_up_runs, clamp_to_feasible
from hdpmf.untrusted.service.aggregation import Accumulator, Job, JobResult, Summation
from hdpmf.untrusted.service.aggregation.two_servers import NOISES
from hdpmf.untrusted.service.folder import ServiceFolder
from hdpmf.untrusted.service.run_files import Checkpoint, decode_as

if TYPE_CHECKING:
    from hdpmf.untrusted.service.run import Run

T = TypeVar("T")

Sum = TypeVar("Sum", SumContribution, Popularity)


class SurveyRun:
    """Asks devices once and keeps the answer.

    Args:
        run: Devices have agreed to its terms.
        earlier: Answers to earlier surveys of the same design.
    """

    def __init__(self, run: Run, earlier: Sequence[SurveyAnswer] = ()) -> None:
        self._run = run
        self._earlier = tuple(earlier)
        settings = run.settings
        if settings.kind.family == "bits":
            check_trainable(settings.list_model)
        self.survey: Survey = settings.survey(
            run.known, settings.sharing(run.enrolled.users.values())
        )
        self._recommender = OneRoundRecommender(
            self.survey,
            run.known.features,
            score=settings.labels,
            n_patterns=settings.patterns,
            retired=run.known.retired,
        )

    def conduct(self) -> tuple[Answer, ItemFacts]:
        """Return the answers of this run's devices, and the facts from all answers."""
        run = self._run
        checkpoint = self._run.checkpoint
        if checkpoint.stage == "open":
            checkpoint.stage = "count" if self.survey.labels else "work"
        if checkpoint.stage == "count":
            self._count()
        if checkpoint.stage == "work":
            self._ask()
        answer = load_answer(checkpoint)
        if self.survey.labels:
            self._recommender.resume(
                [decode_as(checkpoint.counted, Popularity)], decode_as(checkpoint.round, Grouping)
            )
        facts = self._recommender.facts([answer], n_sums=self._noises(), earlier=self._earlier)
        self._train_lists([*(past.answer for past in self._earlier), answer])
        lists = checkpoint.lists
        facts = msgspec.structs.replace(
            facts, prior=run.settings.prior, lists=digest_of(lists) if lists else None
        )
        checkpoint.stage = "done"
        run.save()
        return answer, facts

    def _train_lists(self, answers: Sequence[Answer]) -> None:
        """Keep bits as a data set, and train a model for lists on it; nobody is asked."""
        run = self._run
        checkpoint = self._run.checkpoint
        settings = self._run.settings
        if settings.kind.family != "bits" or checkpoint.lists or checkpoint.stage != "fit":
            return
        known = run.known
        release = Release(
            # A data set stands by itself: whichever version of a catalogue it is from, it is about
            # these items.
            msgspec.structs.replace(
                self.survey, catalogue=fingerprint(known.items, known.features)
            ),
            join_contributions(
                [answer for answer in answers if isinstance(answer, BitContribution)]
            ),
            known.items,
            claim_of(settings.kind, settings.epsilon),
            f"run {run.id.hex()}",
            item_table=known.item_table,
            features=known.features,
        )
        run.files.keep_release(release)
        run.stage("training a model for lists")
        # Kept before it is published: whoever goes on after a kill has the same bytes, which the
        # facts name.
        checkpoint.lists = encode(train_list_model(settings.list_model, release.presence).table())
        run.save()

    def _noises(self) -> float:
        """Return how many times the whole noise is in the answer: every secure sum adds its own."""
        aggregation = self._run.aggregation
        if self.survey.labels or self.survey.design == "L":
            return aggregation.noises
        return max(aggregation.surplus(self._run.checkpoint.members), 1.0)

    def _count(self) -> None:
        """With taste labels, first sum the items' weights, which decide how labels are drawn."""
        run = self._run
        checkpoint = self._run.checkpoint
        survey = self.survey
        job = Job(
            number=0,
            words="counting what is rated",
            offer=survey,
            devices=checkpoint.agreed,
            kind=Popularity,
            summation=Summation(
                layout=lambda n: popularity_layout(survey, n),
                read=lambda n, total: popularity_from_sum(survey, n, total),
            ),
            part="counts",
        )
        self._begin(job)
        collected = run.aggregation.collect(job)
        counted = self._possible(collected.value, collected)
        grouping = self._recommender.group([counted], run.aggregation.noises)
        # Kept before it is sent: whoever goes on after a kill sends the same.
        checkpoint.counted = encode(counted)
        checkpoint.round = encode(grouping)
        checkpoint.stage = "work"
        self._end(job, collected)

    def _ask(self) -> None:
        run = self._run
        checkpoint = self._run.checkpoint
        collected: JobResult[BitContribution] | JobResult[SumContribution]
        answer: Answer
        if self.survey.design == "L":
            job = self._bits()
            self._begin(job)
            collected = run.aggregation.collect(job)
            answer = collected.value
            checkpoint.answer = encode(answer)
            checkpoint.stage = "fit"
            self._end(job, collected)
        else:
            sums = self._sums()
            self._begin(sums)
            summed = run.aggregation.collect(sums)
            answer = self._possible(summed.value, summed)
            checkpoint.answer = encode(answer)
            checkpoint.stage = "fit"
            self._end(sums, summed)

    def _bits(self) -> Job[BitContribution]:
        users = self._run.enrolled.users
        n_items = self.survey.n_items
        return Job(
            number=0,
            words="asking the survey",
            offer=self.survey,
            devices=self._run.checkpoint.agreed,
            kind=BitContribution,
            accumulator=lambda: _BitAccumulator(users, n_items),
        )

    def _sums(self) -> Job[SumContribution]:
        checkpoint = self._run.checkpoint
        survey = self.survey
        grouping = decode_as(checkpoint.round, Grouping) if survey.labels else None
        heads = 0 if grouping is None else len(grouping.heads)
        return Job(
            number=0 if grouping is None else 1,
            words="asking the survey" if grouping is None else "asking by labels",
            offer=grouping or survey,
            # By labels only those whose weights are counted: the two sums are to be about the same
            # ratings.
            devices=checkpoint.agreed if grouping is None else checkpoint.members,
            kind=SumContribution,
            summation=Summation(
                layout=lambda n: survey_layout(survey, n, heads),
                read=lambda n, total: contribution_from_sum(survey, n, total, heads),
            ),
            part="whole" if grouping is None else "labels",
            grouping=grouping,
        )

    def _possible(self, answer: Sum, collected: JobResult[Sum]) -> Sum:
        """Return a sum as the users behind it can have made it."""
        answer, changed = clamp_to_feasible(self.survey, answer, collected.users, collected.noises)
        self._run.impossible(changed, collected.users)
        return answer

    def _begin(self, job: Job[T]) -> None:
        run = self._run
        run.stage(job.words)
        run.metrics.members = len(run.checkpoint.agreed)
        run.metrics.round_begins(job.number + 1)

    def _end(self, job: Job[T], collected: JobResult[T]) -> None:
        run = self._run
        checkpoint = self._run.checkpoint
        checkpoint.members = tuple(sorted(collected.devices or ()))
        checkpoint.users.append(collected.users)
        checkpoint.seconds.append(run.metrics.round_ends(collected.users))
        run.save()
        run.aggregation.forget(job.number)


class _BitAccumulator(Accumulator[BitContribution]):
    """Every device's bits, with senders counted over all devices."""

    expected = (BitContribution,)

    def __init__(self, users: Mapping[str, int], n_items: int) -> None:
        self._users = users
        self._n_items = n_items
        self._parts: dict[str, BitContribution] = {}

    def take(self, device: str, message: Message) -> str | None:
        """Take a device's bits."""
        if not isinstance(message, BitContribution):
            return "unexpected"
        reason = _implausible(message, self._users[device], self._n_items)
        if reason is None:
            self._parts[device] = message
        return reason

    def total(self, devices: Collection[str]) -> BitContribution:
        """Return the bits of these devices as if one had sent them, in the order of their names."""
        order = sorted(devices)
        starts = np.cumsum([0, *(self._users[device] for device in order)]).tolist()
        return _join_bits(
            [(self._parts[device], start) for device, start in zip(order, starts, strict=False)]
        )


def _join_bits(parts: Sequence[tuple[BitContribution, int]]) -> BitContribution:
    """Return bits as if one device had sent them; its senders begin with these numbers."""
    return BitContribution(
        senders=_joined([part.senders + start for part, start in parts]),
        items=_joined([part.items for part, _ in parts]),
        units=_joined([part.units for part, _ in parts]),
        plus=_joined([part.plus for part, _ in parts]),
    )


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def survey_answer(folder: ServiceFolder, run: bytes) -> SurveyAnswer:
    """Return the release of a survey, and how many times the whole noise is in it."""
    record = folder.record(run)
    checkpoint = folder.run_files(run).load()
    settings = record.settings
    users = Enrolled(record.devices).users
    sharing = settings.sharing(users.values())
    noises = 1.0
    if settings.view == "two-servers":
        noises = NOISES
    elif settings.view == "sums":
        noises = max(
            settings.counted(users[device] for device in checkpoint.members) / sharing, 1.0
        )
    # Those that were asked about, not those that there are now.
    known = known_items(folder.items_of(run))
    return SurveyAnswer(
        settings.survey(known, sharing),
        load_answer(checkpoint),
        noises,
        tuple(known.retired.tolist()),
    )


def weight_deviations(folder: ServiceFolder, run: bytes) -> np.ndarray | None:
    """Return the standard deviation of the noise in each item's weight, earlier runs included.

    None with taste labels, whose weights come from two sums with noise of different scales.
    """
    record = folder.record(run)
    if record.settings.labels is not None:
        return None
    n_items = len(known_items(folder.items_of(run)).items)
    if record.settings.kind.family != "sums":  # who rated what is in plain sight
        return np.zeros(n_items)
    own = survey_answer(folder, run)
    earlier = [survey_answer(folder, bytes.fromhex(name)) for name in record.earlier]
    scales = (
        add_up_runs(own.survey, own, earlier)[1]
        if earlier
        else np.full(n_items, math.sqrt(own.noises))
    )
    return np.asarray(math.sqrt(2.0) * WEIGHT_SCALE / own.survey.epsilon * scales)


def load_answer(checkpoint: Checkpoint) -> Answer:
    """Return what the devices of a run answered."""
    answer = decode(checkpoint.answer)
    if not isinstance(answer, Answer):
        raise FederationError("the checkpoint holds no answer to the survey; start a new run")
    return answer


def _implausible(bits: BitContribution, users: int, n_items: int) -> str | None:
    """Return why these bits cannot be those of so many users, or None."""
    return _implausible_pairs(bits.senders, bits.items, users, n_items)


def _implausible_pairs(
    senders: np.ndarray, items: np.ndarray, users: int, n_items: int
) -> str | None:
    """Return why these cannot be ratings of so many users, or None."""
    if len(items) == 0:
        return None
    if int(items.max()) >= n_items or int(senders.max()) >= users:
        return "range"
    pairs = senders * n_items + items
    return "duplicate" if len(np.unique(pairs)) < len(pairs) else None
