"""The service and real device agents: who takes part, who comes later, and who only wants the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hdpmf.device.agent import DeviceAgent
from hdpmf.device.local_model import recommend
from hdpmf.device.policy import Policy
from hdpmf.device.store import DeviceStore
from hdpmf.errors import ConfigError, FederationError
from hdpmf.federation.population import deal
from hdpmf.privacy import PrivacyWeights
from hdpmf.privacy.sampling import SeededNoise
from hdpmf.protocol import DeviceCard, Round
from hdpmf.protocol.catalogue import catalogue_table
from hdpmf.ratings import synthetic_world
from hdpmf.service.folder import Config, ServiceFolder
from hdpmf.service.service import Service
from hdpmf.service.settings import Pace, RunSettings
from hdpmf.transport import InProcessNetwork

WORLD = synthetic_world(12, 80, 240, rng=3)
SMALL = {
    "require_sums": False, "min_participants": 2, "min_devices": 2, "min_neighbours": 1, "threshold_fraction": "1/2",
    "max_rounds": 5,
}  # fmt: skip
OPEN = Policy(methods=("hdp-sum", "hdp-bit", "hdpmf", "mf"), allow_nominal=True, allow_unprotected=True, **SMALL)


class Town:
    """Twelve devices, of which some are connected, and a service."""

    def __init__(self, folder: Path, stack: ExitStack, policies: dict[int, Policy] | None = None) -> None:
        self.network = InProcessNetwork({})
        self.stores, self.agents, self.cards = [], [], []
        for number, home in enumerate(deal(WORLD, PrivacyWeights.uniform(WORLD), 12, 0)):
            store = stack.enter_context(DeviceStore.create(":memory:", policy=(policies or {}).get(number, OPEN)))
            store.add(home.ratings)
            agent = DeviceAgent(store, noise=SeededNoise(number), simulation=True, seed=0)
            name = store.identity.public.hex()
            self.stores.append(store)
            self.agents.append(agent)
            self.cards.append(DeviceCard(name=f"d{number}", identity=name, node=name))
        table = catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table)
        pace = Pace(gather=0.0, deadline=5.0, attempts=2, pause=0.0)
        self.folder = ServiceFolder.create(folder / "r", Config(name="town", pace=pace), table)
        self.service = Service(self.folder, self.network, sleep=lambda _: None)

    def enroll(self, *numbers: int) -> None:
        self.folder.enroll([self.cards[number] for number in numbers])
        cards = self.folder.enrolled.cards
        for number in map([card.identity for card in self.cards].index, (card.identity for card in cards)):
            keys = [bytes.fromhex(card.identity) for card in cards]
            self.stores[number].pin_roster(keys, [card.users for card in cards])

    def connect(self, *numbers: int) -> None:
        for number in numbers:
            self.network.attach(self.cards[number].identity, self.agents[number].answer)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    "settings",
    [
        RunSettings(method="hdpmf", view="messages", minimum=6, rounds=2, factors=3),
        RunSettings(method="hdp-sum", view="sums", minimum=6, rounds=1),
        RunSettings(method="hdp-bit", view="messages", minimum=6, rounds=1),
    ],
)
def test_who_only_wants_the_model_gets_it_and_pays_nothing(
    tmp_path: Path, stack: ExitStack, settings: RunSettings
) -> None:
    town = Town(tmp_path, stack)
    town.enroll(*range(8))
    town.connect(*range(7))
    town.service.conduct(town.service.begin(settings))
    assert town.service.hand_out() == 0
    town.connect(7)
    assert town.service.hand_out() == 1
    assert town.service.hand_out() == 0
    late, early = town.stores[7], town.stores[0]
    user = str(WORLD.users.ids[7])
    assert late.ledger.spent_total() == 0.0
    assert early.ledger.spent_total() > 0.0
    assert not {entry.action for entry in late.ledger.entries()} & {"agreed", "sent"}
    assert len(recommend(late, 3, user=user, model=town.agents[7].model)) == 3


def test_staying_lets_new_devices_in_and_gives_them_the_model(tmp_path: Path, stack: ExitStack) -> None:
    town = Town(tmp_path, stack)
    town.enroll(*range(8))
    town.connect(*range(8))
    settings = RunSettings(method="hdp-bit", view="messages", minimum=6, rounds=1)
    town.service.conduct(town.service.begin(settings))
    admitted: list[str] = []
    looks = 0

    def later(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            town.folder.enroll([town.cards[9]])
            town.connect(9)
        if looks == 3:
            raise KeyboardInterrupt

    town.service._sleep = later
    with pytest.raises(KeyboardInterrupt):
        town.service.stay(lambda card: admitted.append(card.identity))
    assert town.cards[9].identity in admitted
    assert town.agents[9].model is not None


def test_a_folder_is_served_by_one_process_at_a_time(tmp_path: Path, stack: ExitStack) -> None:
    town = Town(tmp_path, stack)
    with town.folder.serving(), pytest.raises(ConfigError, match="another process serves"), town.folder.serving():
        pass
    with town.folder.serving():
        pass


def test_devices_that_come_later_answer_once_more_for_themselves(tmp_path: Path, stack: ExitStack) -> None:
    town = Town(tmp_path, stack)
    settings = RunSettings(method="hdp-sum", view="sums", minimum=5, rounds=1, epsilon=0.5)
    town.enroll(*range(6))
    town.connect(*range(6))
    first = town.service.conduct(town.service.begin(settings))
    paid = [store.ledger.spent_total() for store in town.stores]
    with pytest.raises(FederationError, match="every enrolled device has answered"):
        town.service.begin(settings)
    town.enroll(*range(6, 12))
    town.connect(*range(6, 12))
    second = town.service.conduct(town.service.begin(settings))
    assert (first.summary["cohorts"], second.summary["cohorts"]) == (1, 2)
    assert second.summary["devices"] == 6
    assert [store.ledger.spent_total() for store in town.stores][:6] == paid[:6]
    assert all(store.ledger.spent_total() > 0 for store in town.stores[6:])
    # The earlier ones get what came of everybody's answers.
    assert town.service.hand_out() == 6


def test_a_device_says_no_by_its_policy_and_the_others_go_on(tmp_path: Path, stack: ExitStack) -> None:
    town = Town(tmp_path, stack, policies={0: Policy(), 1: Policy(methods=("hdpmf",))})
    town.enroll(*range(8))
    town.connect(*range(8))
    outcome = town.service.conduct(
        town.service.begin(RunSettings(method="hdpmf", view="messages", minimum=6, rounds=2, factors=3))
    )
    assert outcome.summary["refusals"] == {"policy": 2}
    assert outcome.summary["devices"] == 6
    assert town.stores[0].ledger.spent_total() == 0.0


def test_a_second_run_finds_the_budget_spent(tmp_path: Path, stack: ExitStack) -> None:
    town = Town(tmp_path, stack)
    town.enroll(*range(8))
    town.connect(*range(8))
    settings = RunSettings(method="hdpmf", view="messages", minimum=6, rounds=1, factors=3)
    first = town.service.conduct(town.service.begin(settings))
    paid = [store.ledger.spent_total() for store in town.stores]
    # Devices answer alike whatever they have left to spend; ratings without a budget are not in what they send.
    second = town.service.conduct(town.service.begin(settings))
    assert isinstance(first.model.numbers, Round)
    assert isinstance(second.model.numbers, Round)
    assert first.model.numbers.raters.sum() > 0 == second.model.numbers.raters.sum()
    assert [store.ledger.spent_total() for store in town.stores] == paid


@pytest.mark.parametrize("view", ["messages", "sums"])
def test_a_device_that_was_away_takes_the_next_round(tmp_path: Path, stack: ExitStack, view: str) -> None:
    town = Town(tmp_path, stack)
    town.enroll(*range(8))
    town.connect(*range(8))

    def after_round() -> None:
        number = town.service.metrics.number
        if number == 1:
            town.network.detach(town.cards[0].identity)
        if number == 3:
            town.connect(0)

    town.service.metrics.listeners.append(after_round)
    outcome = town.service.conduct(
        town.service.begin(RunSettings(method="hdpmf", view=view, minimum=6, rounds=5, factors=3))  # type: ignore[arg-type]
    )
    users = town.folder.run_files(outcome.run).load().users
    assert users == [8, 7, 7, 8, 8]
    assert outcome.summary["refusals"] == {}
    assert outcome.summary["delivered"] == 8
