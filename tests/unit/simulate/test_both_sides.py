"""The service and real device agents: who takes part, who comes later, and who only wants the
model.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import ItemFacts, Round, encode
from hdpmf.common.protocol.lists import digest_of
from hdpmf.errors import ConfigError
from hdpmf.models import HDPBit
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.recommendations import recommend
from hdpmf.untrusted.recommender import pattern_choice
from hdpmf.untrusted.recommender.release import Release
from hdpmf.untrusted.service.aggregation.direct import Direct
from hdpmf.untrusted.service.daemon import Daemon, Peers
from hdpmf.untrusted.service.run import Run
from hdpmf.untrusted.service.settings import RunSettings
from hdpmf.untrusted.service.survey import load_answer
from tests.world import FEW, Device, Federation

pytestmark = pytest.mark.slow

WORLD = synthetic_world(12, 80, 240, rng=3)


@pytest.fixture
def town(tmp_path: Path) -> Federation:
    """Twelve devices, none of which is enrolled or connected."""
    return Federation(WORLD, folder=tmp_path, policy=FEW, joined=0)


def test_a_run_with_devices_is_none_of_two_servers(town: Federation) -> None:
    town.enroll(*range(8))
    settings = RunSettings(method="hdp-sum", view="two-servers", minimum=6, rounds=1)
    with pytest.raises(ConfigError, match="no pair of servers is pinned"):
        town.service.begin(settings)
    with pytest.raises(ConfigError, match="sums by two servers come from a task"):
        Run(
            settings=settings,
            table=town.folder.catalogue,
            enrolled=town.folder.enrolled,
            aggregation=Direct(town.network),
        )


@pytest.mark.parametrize(
    "settings",
    [
        RunSettings(method="hdpmf", view="messages", minimum=6, rounds=2, factors=3),
        RunSettings(method="hdp-sum", view="sums", minimum=6, rounds=1),
        RunSettings(method="hdp-bit", view="messages", minimum=6, rounds=1),
    ],
)
def test_who_only_wants_the_model_gets_it_and_pays_nothing(
    town: Federation, settings: RunSettings
) -> None:
    town.enroll(*range(8))
    town.connect(*range(7))
    town.run(settings)
    assert town.devices[7].model is None
    town.connect(7)
    town.look()
    late, early = town.stores[7], town.stores[0]
    user = str(WORLD.users.ids[7])
    assert late.ledger.spent_total() == 0.0
    assert early.ledger.spent_total() > 0.0
    assert not {entry.action for entry in late.ledger.entries()} & {"agreed", "sent"}
    assert len(recommend(late, 3, user=user, model=town.devices[7].model)) == 3


def test_serving_lets_new_devices_in_and_gives_them_the_model(town: Federation) -> None:
    town.enroll(*range(8))
    town.connect(*range(8))
    settings = RunSettings(method="hdp-bit", view="messages", minimum=6, rounds=1)
    town.run(settings)
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

    peers = Peers(devices=town.network, admit=admitted.extend)
    with pytest.raises(KeyboardInterrupt):
        Daemon(town.folder, peers, sleep=later).live()
    assert town.cards[9].identity in admitted
    town.look()
    assert town.devices[9].model is not None


def test_a_folder_is_served_by_one_process_at_a_time(town: Federation) -> None:
    with (
        town.folder.serving(),
        pytest.raises(ConfigError, match="another process serves"),
        town.folder.serving(),
    ):
        pass
    with town.folder.serving():
        pass


def test_devices_that_come_later_add_to_what_there_is_and_the_others_pay_nothing_more(
    town: Federation,
) -> None:
    settings = RunSettings(method="hdp-sum", view="sums", minimum=5, rounds=1, epsilon=0.5)
    town.enroll(*range(6))
    town.connect(*range(6))
    first = town.run(settings)
    paid = town.spent()
    town.enroll(*range(6, 12))
    town.connect(*range(6, 12))
    second = town.run(settings)
    assert (first.summary["cohorts"], second.summary["cohorts"]) == (1, 2)
    # Everybody takes part; those who have answered have nothing new, although half of their epsilon
    # is left.
    assert second.summary["devices"] == 12
    assert town.spent()[:6] == paid[:6]
    assert all(store.ledger.spent_total() > 0 for store in town.stores[6:])


def test_a_device_says_no_by_its_policy_and_the_others_go_on(town: Federation) -> None:
    town.stores[0].set_policy(Policy())
    town.stores[1].set_policy(Policy(methods=("hdpmf",)))
    town.enroll(*range(8))
    town.connect(*range(8))
    outcome = town.run(RunSettings(method="hdpmf", view="messages", minimum=6, rounds=2, factors=3))
    assert outcome.summary["refusals"] == {"policy": 2}
    assert outcome.summary["devices"] == 6
    assert town.stores[0].ledger.spent_total() == 0.0


def test_a_second_run_finds_the_budget_spent(town: Federation) -> None:
    town.enroll(*range(8))
    town.connect(*range(8))
    settings = RunSettings(
        method="hdpmf", view="messages", minimum=6, rounds=1, factors=3, epsilon=1.0
    )
    first = town.run(settings)
    paid = town.spent()
    # Devices answer alike whatever they have left to spend; ratings without a budget are not in
    # what they send.
    second = town.run(settings)
    assert isinstance(first.model.numbers, Round)
    assert isinstance(second.model.numbers, Round)
    assert first.model.numbers.raters.sum() > 0 == second.model.numbers.raters.sum()
    assert town.spent() == paid


@pytest.mark.parametrize("view", ["messages", "sums"])
def test_a_device_that_was_away_takes_the_next_round(town: Federation, view: str) -> None:
    town.enroll(*range(8))
    town.connect(*range(8))

    def after_round() -> None:
        number = town.service.metrics.number
        if number == 1:
            town.disconnect(0)
        if number == 3:
            town.connect(0)

    town.service.metrics.listeners.append(after_round)
    outcome = town.run(
        RunSettings(method="hdpmf", view=view, minimum=6, rounds=5, factors=3)  # type: ignore[arg-type]
    )
    users = town.folder.run_files(outcome.run).load().users
    assert users == [8, 7, 7, 8, 8]
    assert outcome.summary["refusals"] == {}
    assert [agent.model is not None for agent in town.devices[:8]] == [True] * 8


BITS = RunSettings(method="hdp-bit", view="messages", minimum=6, rounds=1)


@pytest.mark.parametrize("gain", [1.0, -1.0])
def test_bits_choose_whether_who_rated_what_is_used(
    town: Federation, monkeypatch: pytest.MonkeyPatch, gain: float
) -> None:
    monkeypatch.setattr(pattern_choice, "ENOUGH", 0.0)
    monkeypatch.setattr(pattern_choice, "held_out_gains", lambda *_: np.full(9, gain))
    town.enroll(*range(8))
    town.connect(*range(8))
    facts = town.run(BITS).model.numbers
    assert isinstance(facts, ItemFacts)
    assert (facts.similarity is not None) == (gain > 0)


def test_bits_leave_a_data_set_and_a_model_for_lists_that_devices_order_by(
    town: Federation,
) -> None:
    town.stores[1].set_policy(msgspec.structs.replace(FEW, max_list_bytes=0))
    town.enroll(*range(8))
    town.connect(*range(7))
    outcome = town.run(BITS)
    path = town.folder.path / "runs" / outcome.run.hex() / "ratings.release"
    release, facts = Release.load(path), outcome.model.numbers
    assert path.stat().st_mode & 0o777 == 0o600
    assert (release.claim.status, release.claim.noise, release.claim.items) == ("proved", "", "")
    assert outcome.run.hex() in release.origin
    # Whoever has the data set makes the same of it, offline.
    model = HDPBit.from_release(release)
    assert isinstance(facts, ItemFacts)
    assert facts.bias.tobytes() == model.facts_.bias.tobytes()
    assert facts.patterns.tobytes() == model.facts_.patterns.tobytes()
    assert model.lists_ is not None
    assert facts.lists == digest_of(encode(model.lists_.table()))
    # Devices have it: all but the one whose owner takes none, and a late one.
    assert outcome.summary["refusals"] == {}
    assert outcome.summary["lists"]["sha256"] == facts.lists
    assert town.devices[7].model is None
    town.connect(7)
    town.look()
    kept = [agent.model.lists if agent.model else None for agent in town.devices[:8]]
    assert [lists and digest_of(lists) for lists in kept] == [facts.lists, b"", *[facts.lists] * 6]
    # And with its own ratings each orders items as the library does.
    for number in (0, 7):
        store, last = town.stores[number], town.devices[number].model
        before = store.ratings()
        assert before.timestamps is None
        user = str(before.users.ids[0])
        unrated = np.setdiff1d(np.arange(WORLD.n_items), before.item_codes)[0]
        store.rate(str(WORLD.items.ids[unrated]), 5.0, user=user)  # now, and so the only one known
        own = store.ratings()
        assert own.timestamps is not None
        model.fold_in(own, replace=True)
        for now in (float(own.timestamps.max()), float(own.timestamps.max()) + 1e12):
            ours = recommend(store, 5, user=user, model=last, now=now)
            wanted = model.recommend(user, 5, now=now)
            assert [one.item for one in ours] == [str(one.item) for one in wanted]
            assert [one.rank_score for one in ours] == [one.rank_score for one in wanted]


def test_bits_of_all_cohorts_are_one_data_set(town: Federation) -> None:
    sizes, answers = [], []
    for cohort in (range(6), range(6, 12)):
        town.enroll(*cohort)
        town.connect(*cohort)
        outcome = town.run(BITS)
        release = Release.load(town.folder.path / "runs" / outcome.run.hex() / "ratings.release")
        sizes.append((release.presence.n_users, len(release.bits.items)))
        answers.append(len(load_answer(town.folder.run_files(outcome.run).load()).items))  # type: ignore[union-attr]
    assert sizes[0] == (6, answers[0])
    assert sizes[1][1] == sum(answers)
    assert (
        digest_of(encode(HDPBit.from_release(release).lists_.table()))
        == outcome.model.numbers.lists
    )  # type: ignore[union-attr]


def test_a_recommender_that_is_killed_publishes_the_lists_that_it_had_trained(
    town: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    town.enroll(*range(6))
    town.connect(*range(6))
    run = town.service.begin(BITS)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hdpmf.untrusted.service.run.outcome_of", killed)
        with pytest.raises(KeyboardInterrupt):
            town.service.conduct(run)
    trained = town.folder.run_files(run).load().lists
    monkeypatch.delattr(
        "hdpmf.untrusted.service.survey.train_list_model"
    )  # nothing is trained again
    outcome = town.service.conduct(run)
    town.look()
    assert trained
    assert [agent.model.lists for agent in town.devices[:6] if agent.model] == [trained] * 6
    assert outcome.model.lists is not None
    model = town.folder.model()
    assert model is not None
    assert model.lists is not None
    assert encode(model.lists) == trained  # from its files, too


def test_a_device_that_does_not_reach_the_lists_gets_them_later(
    town: Federation,
) -> None:
    town.enroll(*range(7))
    town.connect(*range(7))
    outcome = town.run(BITS)
    device = Device(town.stores[0], noise=SeededNoise(0), simulation=True)
    files = {path.name: path.read_bytes() for path in (town.folder.path / "public").iterdir()}
    device.files.files = {name: data for name, data in files.items() if "lists" not in name}
    device.look_now()
    assert device.model is not None
    assert (device.model.lists, device.complete) == (b"", False)
    device.files.files = files
    device.look_now()
    assert digest_of(device.model.lists) == outcome.summary["lists"]["sha256"]
    assert device.complete
