"""Small devices for the recommender's tests: the private side's own classes, without a store or
a policy.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hdpmf.common.aggregation.masks import (
    DeviceIdentity,
    Roster,
    SecureSumClient,
    SumPolicy,
    decode_to_device,
)
from hdpmf.common.aggregation.masks import encode as encode_sum
from hdpmf.common.aggregation.masks.messages import SumPlan
from hdpmf.common.base.threads import Workers
from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.net import RecommenderTransport
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import (
    Accepted,
    Call,
    CatalogueTable,
    CatalogueVersion,
    DeviceCard,
    Envelope,
    Here,
    ItemFacts,
    ListTable,
    Message,
    Opening,
    Plan,
    Ready,
    Refusal,
    Reply,
    Round,
    Survey,
    Terms,
    decode,
    encode,
)
from hdpmf.common.protocol.catalogue import catalogue_table, known_items
from hdpmf.common.protocol.enrolment import Enrolled
from hdpmf.common.protocol.layout import (
    counts_layout,
    gradients_layout,
    survey_layout,
    survey_numbers,
)
from hdpmf.errors import HdpmfError
from hdpmf.private.client import Shard
from hdpmf.private.client.contributions import OneRoundShard
from hdpmf.untrusted.service.aggregation.direct import Direct
from hdpmf.untrusted.service.aggregation.masks import Masks
from hdpmf.untrusted.service.run import Run
from hdpmf.untrusted.service.settings import RunSettings

POLICY = SumPolicy(min_survivors=2, min_neighbours=1, threshold_fraction=Fraction(1, 2))


class SmallDevice:
    """Answers messages; exact repeats get the same bytes."""

    def __init__(self, ratings: Ratings, settings: RunSettings, number: int) -> None:
        self.identity = DeviceIdentity.generate()
        self.name = self.identity.public.hex()
        self.ratings = ratings
        self.roster: Roster | None = None
        self.pinned: str | None = None
        self.log: list[Message | bytes] = []
        self._settings = settings
        weights = PrivacyWeights.uniform(ratings)
        if settings.one_round:
            self.one_round = OneRoundShard(
                ratings,
                weights,
                SeededNoise(number, stream=7),
                epsilon=settings.epsilon,
                catalogue=known_items(
                    catalogue_table(ratings.items, ratings.scale, ratings.item_table)
                ).fingerprint,
                simulation=True,
            )
        else:
            noise = SeededNoise(number, 2)
            self.shard = Shard(ratings, weights, settings.mechanism(), noise, 0, Workers(1))
        self._outbox: dict[bytes, bytes] = {}
        self._numbers: np.ndarray | None = None
        self._job: Message | None = None
        self._client: SecureSumClient | None = None

    @property
    def card(self) -> DeviceCard:
        return DeviceCard(name=self.name[:8], identity=self.name, users=self.ratings.n_users)

    def answer(self, data: bytes) -> bytes:
        if data not in self._outbox:
            envelope = decode(data)
            assert isinstance(envelope, Envelope)
            try:
                body, part = self._body(envelope), "sum" if envelope.part == "sum" else "job"
            except HdpmfError:
                body, part = encode(Refusal(reason="protocol")), "refusal"
            self._outbox[data] = encode(
                Reply(run=envelope.run, number=envelope.number, part=part, body=body)
            )
        return self._outbox[data]

    def _body(self, envelope: Envelope) -> bytes:
        if envelope.part == "sum":
            return self._in_sum(envelope.body)
        message = decode(envelope.body)
        self.log.append(message)
        return encode(self._reply(message))

    def _reply(self, message: Message) -> Message:
        summed = self._settings.view == "sums"
        match message:
            case Call():
                return Here(catalogue=self.pinned, run=None, number=0)
            case CatalogueTable() | CatalogueVersion():
                self.pinned = known_items(message).fingerprint
            case Terms() | ItemFacts() | ListTable():
                pass
            case Plan():
                self._plan = message
                return self.shard.accept(message) or Accepted()
            case Opening():
                counts = self.shard.open(message)
                self._job, self._numbers = message, counts.counts
                return Ready(number=0) if summed else counts
            case Round():
                self.shard._round = max(
                    self.shard._round, message.number - 1
                )  # it may have been away
                self.shard.receive(message)
                if message.number > self._plan.epochs:
                    return Accepted()
                gradients = self.shard.contribute()
                self._job, self._numbers = (
                    message,
                    np.rint(gradients.sums.reshape(-1) * 2.0**20).astype(np.int64),
                )
                return Ready(number=message.number) if summed else gradients
            case Survey():
                self.one_round.accept(message)
                answer = self.one_round.contribute()
                if not summed:
                    return answer
                self._job, self._numbers = message, survey_numbers(answer)
                return Ready(number=0)
        return Accepted()

    def _in_sum(self, data: bytes) -> bytes:
        message = decode_to_device(data)
        if isinstance(message, SumPlan):
            assert self._numbers is not None
            assert self.roster is not None
            n = message.n_participants
            layout = {
                Opening: lambda: counts_layout(self._plan, n),
                Round: lambda: gradients_layout(self._plan, n),
                Survey: lambda: survey_layout(self._job, n),
            }[type(self._job)]()
            self._client = SecureSumClient(
                self.identity, self.roster, layout.encode(self._numbers), POLICY
            )
        assert self._client is not None
        return encode_sum(self._client.answer(message))


class World:
    """Devices over a small world, and the recommender's roster of them."""

    def __init__(
        self, settings: RunSettings, sizes: list[int], ratings: Ratings | None = None
    ) -> None:
        self.ratings = (
            synthetic_world(sum(sizes), 40, 30 * sum(sizes), rng=5) if ratings is None else ratings
        )
        self.settings = settings
        self.table = catalogue_table(
            self.ratings.items, self.ratings.scale, self.ratings.item_table
        )
        ends = np.cumsum(sizes)
        self.devices = [
            SmallDevice(part_of(self.ratings, end - size, end), settings, number)
            for number, (size, end) in enumerate(zip(sizes, ends.tolist(), strict=True))
        ]
        self.enrolled = Enrolled(device.card for device in self.devices)
        if len(self.devices) > 2:
            for device in self.devices:
                device.roster = self.enrolled.roster
        self.answers: dict[str, Callable[[bytes], bytes]] = {
            device.name: device.answer for device in self.devices
        }

    def run(self, network: RecommenderTransport, **options: Any) -> Run:
        """A run of these devices."""
        kind = Masks if self.settings.view == "sums" else Direct
        meanwhile = {"meanwhile": options.pop("meanwhile")} if "meanwhile" in options else {}
        return Run(
            settings=self.settings,
            table=self.table,
            enrolled=self.enrolled,
            aggregation=kind(network, **meanwhile),
            **options,
        )


def part_of(ratings: Ratings, begin: int, end: int) -> Ratings:
    """The ratings of the users from ``begin`` to ``end``, over the whole catalogue."""
    own = (ratings.user_codes >= begin) & (ratings.user_codes < end)
    part = ratings.take(own)
    return Ratings.from_arrays(
        ratings.users.ids[part.user_codes],
        ratings.items.ids[part.item_codes],
        part.values,
        scale=ratings.scale,
        item_table=ratings.item_table,
        items_index=ratings.items,
    )


@pytest.fixture
def make_world() -> Callable[..., World]:
    return World
