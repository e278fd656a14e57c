"""Real devices and the recommender that talks to them; everything that leaves is recorded.

The audited device is a real ``Participant`` with a store, the default policy and ``ReleasedNoise``;
so are the honest others of a sum. Colluding devices of the roster are in the sum as well, with
zeros: what they add, they tell. Sums are real secure sums, so that nothing is read from inside of a
device.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from hdpmf.common.aggregation.masks import (
    DeviceIdentity,
    Roster,
    SecureSumClient,
    SecureSumServer,
    decode_to_recommender,
    propose,
)
from hdpmf.common.aggregation.masks import encode as encode_sum
from hdpmf.common.data import IdIndex, Ratings
from hdpmf.common.methods import federated
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.net.carrier import FilesHere
from hdpmf.common.privacy.sampling import ReleasedNoise
from hdpmf.common.protocol import (
    CatalogueTable,
    Envelope,
    Message,
    Plan,
    Refusal,
    Reply,
    Round,
    decode,
    encode,
)
from hdpmf.common.protocol.catalogue import catalogue_table, known_items
from hdpmf.common.protocol.layout import SumLayout
from hdpmf.errors import ProtocolError
from hdpmf.lab.audit.canaries import SCALE
from hdpmf.lab.audit.world import PlantedNoise
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.publish import public_files

# All three differ, so that a share that is sized by the wrong one is found.
ROSTER = 24
"""Devices of the roster."""

MINIMUM = 18
"""Devices of a sum."""

HONEST = 16
"""Devices of a sum whose shares make the whole noise."""

RUN = b"audited run....."


@dataclass(frozen=True, slots=True)
class DeviceAnswer:
    """One answer of the audited device, as an outsider sees it.

    ``kind`` is the type of the message, or the reason of a refusal.
    """

    kind: str
    size: int
    seconds: float
    body: bytes

    @property
    def shape(self) -> tuple[str, int]:
        """The part of an answer that must not depend on ratings."""
        return self.kind, self.size


def item_table(n_items: int) -> CatalogueTable:
    """Return a table of ``n_items`` items, rated with one to five stars."""
    return catalogue_table(IdIndex([f"item {number:06d}" for number in range(n_items)]), SCALE)


def audited_policy(epsilon: float) -> Policy:
    """Return the default policy, but with every method and view, and any number of ratings.

    Its demands on sums are those of every device.
    """
    return Policy(
        methods=federated(),
        allow_nominal=True,
        allow_unprotected=True,
        require_sums=False,
        max_total=None,
        epsilon=max(epsilon, 1.0),
        max_epsilon_per_run=None,
    )


def make_agent(
    table: CatalogueTable,
    stars: np.ndarray,
    policy: Policy,
    *,
    weight: float = 1.0,
    noise_factor: float = 1.0,
) -> tuple[Participant, DeviceStore, FilesHere]:
    """Make a device with these ratings (one per item, 0 for none), and the files that it sees."""
    store = DeviceStore.create(":memory:", policy=policy, scale=SCALE)
    store.pin_catalogue(table)
    known = known_items(table).items
    rated = np.flatnonzero(stars)
    if len(rated):
        store.add(
            Ratings.from_arrays(
                ["me"] * len(rated), known.ids[rated], stars[rated], scale=SCALE, items_index=known
            )
        )
        store.set_weight(user="me", beta=weight)
    files = FilesHere({})
    if noise_factor == 1.0:
        return Participant(store, files), store, files
    planted: Any = PlantedNoise(ReleasedNoise(), noise_factor)
    # Only simulation takes noise that is not released.
    return Participant(store, files, noise=planted, simulation=True), store, files


class Cohort:
    """A recommender's conversation with an audited device and, for sums, with honest others.

    Args:
        stars: Ratings of the audited device, one per item, 0 for none.
        others: The same of every other honest device; they are known to the recommender.
        policy: Everybody's.
        sums: The recommender sees sums; otherwise the audited device is alone.
        weight: Privacy weight of all ratings.
        noise_factor: Less than 1 plants a fault into every device.
    """

    def __init__(
        self,
        table: CatalogueTable,
        stars: np.ndarray,
        others: np.ndarray,
        policy: Policy,
        *,
        sums: bool,
        weight: float = 1.0,
        noise_factor: float = 1.0,
    ) -> None:
        made = [
            make_agent(table, own, policy, weight=weight, noise_factor=noise_factor)
            for own in (stars, *([others] * (HONEST - 1) if sums else []))
        ]
        self._agents = [agent for agent, _, _ in made]
        self._stores = [store for _, store, _ in made]
        self._files = [files for _, _, files in made]
        self._table = table
        self._strangers = [DeviceIdentity.generate() for _ in range(ROSTER - len(made))]
        keys = [
            *(store.identity.public for store in self._stores),
            *(stranger.public for stranger in self._strangers),
        ]
        for store in self._stores:
            store.pin_roster(keys, [1] * ROSTER)
        self._roster = Roster(keys)
        self._policy = policy
        self.fingerprint = known_items(table).fingerprint
        self.answers: list[DeviceAnswer] = []

    def close(self) -> None:
        """Close the stores."""
        for store in self._stores:
            store.close()

    def send(self, message: Message, number: int = 0) -> Message:
        """Send all devices a message; return the audited one's answer."""
        body = encode(message)
        for index in range(1, len(self._agents)):
            answer = self._ask(index, body, number)
            if isinstance(answer, Refusal):
                raise ProtocolError(f"an honest device refused: {answer.reason}")
        return self._ask(0, body, number)

    def publish(self, final: Round, plan: Plan) -> None:
        """Publish final factors, and let all devices learn them."""
        model = PublicModel.of_run({"run": RUN.hex()}, self._table, final, plan)
        published = public_files(self._table, model)
        for agent, files in zip(self._agents, self._files, strict=True):
            files.files = published
            agent.poll_soon()
            agent.look()

    def probe(self, body: bytes, number: int = 0, *, run: bytes = RUN, part: str = "job") -> None:
        """Send the audited device any bytes; its answer is recorded."""
        self._reply(0, body, number, part, run)

    def ask(self, kind: type[Any], message: Message, number: int = 0) -> Any:
        """Send a message; raise an error unless the answer is of this kind."""
        answer = self.send(message, number)
        if not isinstance(answer, kind):
            word = answer.reason if isinstance(answer, Refusal) else type(answer).__name__
            raise ProtocolError(
                f"the audited device answered {word} where {kind.__name__} was expected"
            )
        return answer

    def sum(self, number: int, layout: SumLayout) -> np.ndarray:
        """Return the secure sum of a job, less what the recommender's own devices added."""
        cohort = range(MINIMUM)
        plan = propose(
            self._roster, layout.length, participants=cohort, minimum=MINIMUM, wide=layout.wide
        )
        server = SecureSumServer(plan, self._roster)
        nothing = layout.encode(np.zeros(layout.length, np.int64))
        colluding = [
            SecureSumClient(stranger, self._roster, nothing, self._policy.sum_policy())
            for stranger in self._strangers[: MINIMUM - len(self._agents)]
        ]
        outgoing = server.advance()
        while outgoing:
            for index, message in outgoing.items():
                if index >= len(self._agents):
                    server.receive(index, colluding[index - len(self._agents)].answer(message))
                    continue
                reply = self._reply(index, encode_sum(message), number, "sum")
                server.receive(index, decode_to_recommender(reply.body))
            outgoing = server.advance()
        if server.result is None:
            raise ProtocolError("the secure sum of an audited run came to nothing")
        return layout.decode(server.result.total)

    def _ask(self, index: int, body: bytes, number: int) -> Message:
        return decode(self._reply(index, body, number, "job").body)

    def _reply(self, index: int, body: bytes, number: int, part: Any, run: bytes = RUN) -> Reply:
        data = encode(Envelope(run=run, number=number, part=part, body=body))
        begin = time.perf_counter()
        answer = self._agents[index].answer(data)
        seconds = time.perf_counter() - begin
        reply = decode(answer)
        if not isinstance(reply, Reply):
            raise ProtocolError("a device answered something that is no reply")
        if index == 0:
            self.answers.append(DeviceAnswer(_kind(reply), len(answer), seconds, reply.body))
        return reply


def _kind(reply: Reply) -> str:
    if reply.part == "sum":
        return type(decode_to_recommender(reply.body)).__name__
    message = decode(reply.body)
    return message.reason if isinstance(message, Refusal) else type(message).__name__
