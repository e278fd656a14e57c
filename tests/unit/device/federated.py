"""A small federation in one process: real agents on real stores, and a recommender that the test
plays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hdpmf.common.aggregation.masks import Roster, SecureSumServer, decode_to_recommender, propose
from hdpmf.common.aggregation.masks import encode as encode_sum
from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.methods import method_named
from hdpmf.common.privacy import PrivacySpec, SeededNoise
from hdpmf.common.privacy.mechanisms import mechanism_of
from hdpmf.common.protocol import (
    Gradients,
    ItemCounts,
    ItemFacts,
    Message,
    Plan,
    Ready,
    Refusal,
    Reply,
    Round,
    Survey,
    Terms,
    decode,
)
from hdpmf.common.protocol.catalogue import catalogue_table, known_items
from hdpmf.common.protocol.layout import (
    SumLayout,
    counts_from_sum,
    counts_layout,
    gradients_from_sum,
    gradients_layout,
)
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.recommender import Recommender
from tests import world
from tests.world import OPEN, RUN, Device, NoNoise, ask, envelope

_MADE = synthetic_world(n_users=18, n_items=30, n_ratings=300, rng=0)
WORLD = Ratings.from_arrays(
    [f"user {one:02d}" for one in _MADE.user_ids.tolist()],
    _MADE.item_ids,
    _MADE.values,
    scale=_MADE.scale,
    item_table=_MADE.item_table,
)
WEIGHTS = PrivacySpec().draw(WORLD, rng=0)
TABLE = catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table)
KNOWN = known_items(TABLE)
SEED = 7
ROUNDS = 4
MECHANISMS = {
    "mf": "none",
    "dpmf": "uniform",
    "pdpmf": "sample",
    "hdpmf": "stretch",
    "hdpmf-w": "weight",
    "hdpmf-r": "stretch",
    "hdpmf-paid": "paid",
}


def make_store(
    path: Any = ":memory:",
    ratings: Ratings = WORLD,
    *,
    users: int | None = None,
    policy: Policy = OPEN,
    pin: bool = True,
) -> DeviceStore:
    """A store with these ratings and the world's weights."""
    here = len(np.unique(ratings.user_codes))
    return world.make_store(
        ratings,
        path=path,
        users=users or max(here, 1),
        policy=policy,
        weights=WEIGHTS,
        catalogue=TABLE if pin else None,
    )


def part(users: Sequence[int]) -> Ratings:
    """The world's ratings of some users."""
    return WORLD.take(np.flatnonzero(np.isin(WORLD.user_codes, users)))


def partition(n: int) -> list[Ratings]:
    """All users, dealt out to ``n`` devices."""
    return [part([user for user in range(WORLD.n_users) if user % n == one]) for one in range(n)]


def agent_for(store: DeviceStore, noise: Any = None, **options: Any) -> Device:
    """An agent whose noise is off, or as given."""
    settings = {"simulation": True, "seed": SEED} | options
    return Device(store, noise=noise or NoNoise(), **settings)


def refuses(
    agent: Device, message: Message, reason: str, number: int = 0, *, run: bytes = RUN
) -> None:
    """The agent refuses with this word, and its ledger stays as it is."""
    before = agent.store.ledger.entries()
    found = ask(agent, message, number, run=run)
    assert isinstance(found, Refusal), found
    assert found.reason == reason
    assert agent.store.ledger.entries() == before


def terms_for(method: str = "hdpmf", view: str = "messages", **changes: Any) -> Terms:
    """Terms of a run over the world."""
    n = WORLD.n_users
    fields = {"users": n, "minimum": n, "credit": n} | changes
    return world.terms(method, view, TABLE, **({"sharing": fields["minimum"]} | fields))


def plan_for(method: str = "hdpmf", **changes: Any) -> Plan:
    """A plan that fits the terms."""
    fields = {"n_factors": 4, "epochs": ROUNDS, "mechanism": MECHANISMS[method]}
    return world.plan(TABLE, **(fields | changes))


def survey_for(design: str = "A", **changes: Any) -> Survey:
    """A survey that fits the terms."""
    return world.survey(design, TABLE, **({"contributors": WORLD.n_users} | changes))


def facts_for(**changes: Any) -> ItemFacts:
    """Item facts of the world."""
    return world.facts(TABLE, **changes)


def enrol(devices: Sequence[Device]) -> Roster:
    """Every device pins the roster of all."""
    world.enrol(devices)
    return Roster([device.store.identity.public for device in devices])


class Run:
    """A recommender that plays a whole training with agents, honestly unless the test interferes.

    Args:
        agents: The devices.
        method: What is trained.
        view: What the recommender sees.
        heard: Told every envelope and reply, with the agent's place.
    """

    def __init__(
        self,
        agents: Sequence[Device],
        method: str = "hdpmf",
        view: str = "messages",
        *,
        heard: Callable[[int, bytes, bytes], None] | None = None,
        run: bytes = RUN,
        plan: Plan | None = None,
        terms: Terms | None = None,
    ) -> None:
        self.agents = list(agents)
        self.plan = plan or plan_for(method)
        self.terms = terms or terms_for(method, view)
        self.run = run
        self.roster = enrol(agents) if view == "sums" else None
        self._heard = heard
        mechanism = mechanism_of(method_named(method))
        self.recommender = Recommender(self.plan, mechanism, SeededNoise(3, 1), h_per_item=True)

    def tell(self, message: Message, number: int = 0) -> list[Any]:
        """All agents' answers."""
        data = envelope(message, number, run=self.run)
        return [
            self._opened(one, data, agent.answer(data)) for one, agent in enumerate(self.agents)
        ]

    def _opened(self, place: int, data: bytes, answer: bytes) -> Any:
        if self._heard is not None:
            self._heard(place, data, answer)
        reply = decode(answer)
        assert isinstance(reply, Reply)
        found = decode(reply.body)
        assert not isinstance(found, Refusal), found
        return found

    def open(self) -> None:
        """Everything before the first round."""
        for agent in self.agents:
            assert agent.learn(TABLE)
        self.tell(self.terms)
        reports = self.tell(self.plan)
        opening = self.recommender.open(
            [one if hasattr(one, "smallest") else None for one in reports]
        )
        counts = self.tell(opening)
        if self.roster is not None:
            total = self.sum(0, counts_layout)
            counts = [counts_from_sum(self.plan, len(self.agents), total)]
        assert all(isinstance(one, ItemCounts) for one in counts)
        self.recommender.start(counts)

    def round(self) -> None:
        """One round."""
        message = self.recommender.next_round()
        replies = self.tell(message, message.number)
        if self.roster is not None:
            assert replies == [Ready(number=message.number)] * len(self.agents)
            total = self.sum(message.number, gradients_layout)
            replies = [gradients_from_sum(self.plan, message.number, len(self.agents), total)]
        assert all(isinstance(one, Gradients) for one in replies)
        self.recommender.aggregate(replies)

    def finish(self) -> np.ndarray:
        """The rest, to the final factors."""
        while self.recommender.number < self.plan.epochs:
            self.round()
        last = self.recommender.next_round()
        self.publish(last)
        return last.item_factors

    def publish(self, numbers: Round | ItemFacts) -> None:
        """Let all agents see the model of the run."""
        plan = self.plan if isinstance(numbers, Round) else None
        for agent in self.agents:
            assert agent.learn(TABLE, numbers, plan, run=self.run), agent.said

    def sum(self, number: int, layout: Callable[[Plan, int], SumLayout]) -> np.ndarray:
        """A secure sum over all agents."""
        assert self.roster is not None
        words = layout(self.plan, len(self.agents))
        return secure_sum(self, self.roster, number, words)


def secure_sum(
    run: Run, roster: Roster, number: int, words: SumLayout, **options: Any
) -> np.ndarray:
    """A secure sum over the agents of a run."""
    n = len(run.agents)
    settings = {"minimum": n, "wide": words.wide} | options
    server = SecureSumServer(propose(roster, words.length, **settings), roster)
    outgoing = server.advance()
    while outgoing:
        for device, message in outgoing.items():
            data = envelope(encode_sum(message), number, run=run.run, part="sum")
            answer = run.agents[device].answer(data)
            if run._heard is not None:
                run._heard(device, data, answer)
            reply = decode(answer)
            assert isinstance(reply, Reply)
            assert reply.part == "sum", decode(reply.body)
            server.receive(device, decode_to_recommender(reply.body))
        outgoing = server.advance()
    return server.result.total
