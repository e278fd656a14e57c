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
    Call,
    Envelope,
    Gradients,
    Here,
    ItemCounts,
    ItemFacts,
    Message,
    Plan,
    Ready,
    Refusal,
    Reply,
    Survey,
    Terms,
    decode,
    encode,
)
from hdpmf.common.protocol.catalogue import catalogue_table, known_items
from hdpmf.common.protocol.layout import (
    SumLayout,
    counts_from_sum,
    counts_layout,
    gradients_from_sum,
    gradients_layout,
)
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.recommender import Recommender

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
RUN = b"the first run..."
SEED = 7
ROUNDS = 4
OPEN = Policy(
    methods=(
        "mf",
        "dpmf",
        "pdpmf",
        "hdpmf",
        "hdpmf-w",
        "hdpmf-r",
        "hdpmf-paid",
        "hdp-sum",
        "hdp-bit",
    ),
    allow_nominal=True,
    require_sums=False,
    allow_unprotected=True,
    min_participants=3,
    min_devices=3,
    min_neighbours=2,
    min_fraction="0",
    max_colluding="0",
    max_credit=100,
    min_epsilon_per_run=1e-9,
)
MECHANISMS = {
    "mf": "none",
    "dpmf": "uniform",
    "pdpmf": "sample",
    "hdpmf": "stretch",
    "hdpmf-w": "weight",
    "hdpmf-r": "stretch",
    "hdpmf-paid": "paid",
}


class Silent:
    """Noise off."""

    def uniforms(self, n: int) -> np.ndarray:
        return np.zeros(n)

    def discrete_gaussian(self, sigma: np.ndarray) -> np.ndarray:
        return np.zeros(np.shape(sigma), np.int64)

    def laplace_share(
        self, scale: object, n_shares: int, size: Any, *, count: int = 1
    ) -> np.ndarray:
        return np.zeros(size, np.int64)

    def discrete_laplace(self, scale: object, size: Any) -> np.ndarray:
        return np.zeros(size, np.int64)

    def bits(self, p_plus: np.ndarray, epsilon: Any = None) -> np.ndarray:
        return np.asarray(p_plus) > 0.5


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
    store = DeviceStore.create(path, users=users or max(here, 1), policy=policy)
    if len(ratings):
        store.add(ratings)
        store.set_weights(WEIGHTS, ratings)
    if pin:
        store.pin_catalogue(TABLE)
    return store


def part(users: Sequence[int]) -> Ratings:
    """The world's ratings of some users."""
    return WORLD.take(np.flatnonzero(np.isin(WORLD.user_codes, users)))


def partition(n: int) -> list[Ratings]:
    """All users, dealt out to ``n`` devices."""
    return [part([user for user in range(WORLD.n_users) if user % n == one]) for one in range(n)]


def agent_for(store: DeviceStore, noise: Any = None, **options: Any) -> Participant:
    """An agent whose noise is off, or as given."""
    settings = {"simulation": True, "seed": SEED} | options
    return Participant(store, noise=noise or Silent(), **settings)


def envelope(
    message: Message | bytes, number: int = 0, *, run: bytes = RUN, kind: str = "job"
) -> bytes:
    """An envelope, as it travels."""
    body = message if isinstance(message, bytes) else encode(message)
    return encode(Envelope(run=run, number=number, part=kind, body=body))  # type: ignore[arg-type]


def ask(agent: Participant, message: Message, number: int = 0, *, run: bytes = RUN) -> Message:
    """What the agent says to a message; a Refusal where it refuses."""
    reply = decode(agent.answer(envelope(message, number, run=run)))
    assert isinstance(reply, Reply)
    assert (reply.run, reply.number) == (run, number)
    found = decode(reply.body)
    assert isinstance(found, Refusal) == (reply.part == "refusal")
    return found


def refuses(
    agent: Participant, message: Message, reason: str, number: int = 0, *, run: bytes = RUN
) -> None:
    """The agent refuses with this word, and its ledger stays as it is."""
    before = agent._store.ledger.entries()
    found = ask(agent, message, number, run=run)
    assert isinstance(found, Refusal), found
    assert found.reason == reason
    assert agent._store.ledger.entries() == before


def terms_for(method: str = "hdpmf", view: str = "messages", **changes: Any) -> Terms:
    """Terms of a run over the world."""
    one_round = method in ("hdp-sum", "hdp-bit")
    fields = {
        "method": method,
        "view": view,
        "epsilon": 0.5,
        "rounds": 1 if one_round else ROUNDS,
        "catalogue": KNOWN.fingerprint,
        "users": WORLD.n_users,
        "minimum": WORLD.n_users,
        "credit": WORLD.n_users,
    }
    fields |= changes
    return Terms(**({"sharing": fields["minimum"]} | fields))


def plan_for(method: str = "hdpmf", **changes: Any) -> Plan:
    """A plan that fits the terms."""
    fields = {
        "n_items": WORLD.n_items,
        "n_factors": 4,
        "epochs": ROUNDS,
        "learning_rate": 0.05,
        "reg": 0.01,
        "mechanism": MECHANISMS[method],
        "epsilon": 0.5,
        "scale_low": WORLD.scale.low,
        "scale_high": WORLD.scale.high,
        "scale_steps": True,
        "fresh_noise": True,
    }
    return Plan(**(fields | changes))


def survey_for(design: str = "A", **changes: Any) -> Survey:
    """A survey that fits the terms."""
    scale = WORLD.scale
    fields = {
        "design": design, "coding": "threshold" if design == "L" else "soft", "epsilon": 0.5,
        "n_items": WORLD.n_items, "catalogue": KNOWN.fingerprint, "contributors": WORLD.n_users,
        "scale_low": scale.low, "scale_high": scale.high, "scale_step": scale.step,
    }  # fmt: skip
    return Survey(**(fields | changes))


def facts_for(**changes: Any) -> ItemFacts:
    """Item facts of the world."""
    n = WORLD.n_items
    fields = {
        "catalogue": KNOWN.fingerprint,
        "mean": 3.5,
        "bias": np.linspace(-1, 1, n).astype(np.float32),
        "variance": np.full(n, 0.1, np.float32),
        "popularity": np.ones(n, np.float32),
        "patterns": np.zeros((n, 0), np.float32),
    }
    return ItemFacts(**(fields | changes))


def enrol(agents: Sequence[Participant]) -> Roster:
    """Every device pins the roster of all."""
    stores = [agent._store for agent in agents]
    keys, users = [one.identity.public for one in stores], [one.users for one in stores]
    for store in stores:
        store.pin_roster(keys, users)
    return Roster(keys)


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
        agents: Sequence[Participant],
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
        for here in self.tell(Call()):
            assert isinstance(here, Here)
        if any(agent._store.fingerprint is None for agent in self.agents):
            self.tell(TABLE)
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
        self.tell(last, last.number)
        return last.item_factors

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
            data = envelope(encode_sum(message), number, run=run.run, kind="sum")
            answer = run.agents[device].answer(data)
            if run._heard is not None:
                run._heard(device, data, answer)
            reply = decode(answer)
            assert isinstance(reply, Reply)
            assert reply.part == "sum", decode(reply.body)
            server.receive(device, decode_to_recommender(reply.body))
        outgoing = server.advance()
    return server.result.total
