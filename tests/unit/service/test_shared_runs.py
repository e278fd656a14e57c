"""Runs of hdp-share between real devices, two servers and a service, all in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("pyhpke")
pytest.importorskip("sqlalchemy")
pytest.importorskip("starlette")

from hdpmf.common.aggregation.two_servers.dap.messages import id_from_text, id_to_text
from hdpmf.common.aggregation.two_servers.tokens import Token
from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.net.sum_servers import ServersHere
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.levels import HIDDEN, LEVELS, OPEN
from hdpmf.common.protocol import (
    BitContribution,
    DeviceCard,
    ItemFacts,
    OpenContribution,
    SharedContribution,
    SumContribution,
    encode,
)
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.errors import ConfigError, TransportError
from hdpmf.private.client.outgoing import shared_headers
from hdpmf.private.client.ranking import BlendedOrder, ChooseAndLike
from hdpmf.private.client.sharing import ShareClient
from hdpmf.private.device.recommendations import prepare, recommend
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.recommender import sharing
from hdpmf.untrusted.recommender.sharing import Shared, facts_from_shares
from hdpmf.untrusted.recommender.sums import facts_from_sums
from hdpmf.untrusted.service.aggregation.token_issuer import TokenIssuer
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.keys import pin_servers
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.publish import public_file
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import Pace, RunSettings
from hdpmf.untrusted.service.shared_inbox import SharedInbox
from tests.world import PLENTY, Clock, Device, KnownNoise, NoNoise, ServerPair

PERIOD = 7200
SETTINGS = RunSettings(
    method="hdp-share", view="two-servers", minimum=3, rounds=1, epsilon=1.0, period=PERIOD
)
RATINGS = synthetic_world(24, 30, 480, rng=5)
ITEMS = [str(item) for item in RATINGS.items.ids.tolist()]


class Town:
    """Devices, two servers without noise, and a recommender; a carrier of the devices.

    Users go to devices in the order of the devices' keys, which is that of what they show.
    """

    def __init__(self, folder: Path, levels: list[str], kept: tuple[int, ...] = ()) -> None:
        self.clock = Clock(1_800_000_000.0)
        self.pair = ServerPair(self.clock, (KnownNoise(0), KnownNoise(0)))
        table = catalogue_table(RATINGS.items, RATINGS.scale, RATINGS.item_table)
        config = Config(name="town", pace=Pace(pause=0.0, attempts=1))
        self.folder = ServiceFolder.create(folder / "r", config, table)
        pin_servers(self.folder.path, "town", self.pair.servers)
        policy = msgspec.structs.replace(
            PLENTY,
            methods=("hdp-share", "hdp-sum"),
            servers=(self.pair.servers.digest,),
            max_list_bytes=1 << 20,
        )
        stores = [DeviceStore.create(":memory:", policy=policy) for _ in levels]
        self.stores = sorted(stores, key=lambda store: store.identity.public.hex())
        self.levels, self.kept = levels, kept
        self.issuer = TokenIssuer()
        self.inbox = SharedInbox()
        self.lost = False
        for user, store in enumerate(self.stores):
            own = RATINGS.user_codes == user
            for item, value in zip(RATINGS.item_codes[own], RATINGS.values[own], strict=True):
                store.rate(ITEMS[item], float(value))
            store.sharing.put_all("item", {ITEMS[place]: "hidden" for place in kept})
            store.set_sharing_level(levels[user])  # type: ignore[arg-type]
        self.folder.enroll(
            DeviceCard(name=f"d{n}", identity=store.identity.public.hex())
            for n, store in enumerate(self.stores)
        )
        self.devices = [
            Device(
                store,
                self,
                recommender="https://town",
                every=60.0,
                clock=self.clock,
                uniform=lambda: 0.5,
                noise=NoNoise(),
                simulation=True,
            )
            for store in self.stores
        ]
        self.service = self.serve()

    def serve(self, **options: Any) -> Service:
        servers = ServersHere(self.pair.leader, self.pair.helper)
        given = {"servers": servers, "sleep": self.sleep, "clock": self.clock}
        given |= {"issuer": self.issuer, "inbox": self.inbox}
        return Service(self.folder, **(given | options))

    def sleep(self, seconds: float) -> None:
        self.clock.now += max(seconds, 1.0)
        for device in self.devices:
            device.step()

    def run(self, settings: RunSettings = SETTINGS) -> RunOutcome:
        outcome = self.service.conduct(self.service.begin(settings))
        self.sleep(200.0)
        return outcome

    # The carrier of a device

    def fetch(self, name: str, most: int) -> bytes:
        data = public_file(self.folder.path / "public", name)
        if data is None or len(data) > most:
            raise TransportError("not there")
        return data

    def upload(
        self, leader: Any, path: str, headers: dict[str, str], body: bytes, leaving: Any
    ) -> int:
        leaving()
        task = id_from_text(path.split("/")[2], 32)
        self.pair.leader.upload(task, body, Token.from_header(headers["authorization"]))
        return 201

    def request_token(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        signature = bytes.fromhex(headers["hdpmf-signature"])
        return self.issuer.take(path.split("/")[2], headers["hdpmf-device"], signature, body)

    def share(self, path: str, headers: dict[str, str], body: bytes, leaving: Any) -> int:
        if self.lost:
            raise TransportError("unreachable")
        leaving()
        signature = bytes.fromhex(headers["hdpmf-signature"])
        return self.inbox.take(path.split("/")[2], headers["hdpmf-device"], signature, body)


def library(town: Town, n_users: int) -> tuple[SumContribution, Shared, Any]:
    """What one client of all these people sends, without noise, and the survey."""
    own = RATINGS.take(RATINGS.user_codes < n_users)
    everybody = Ratings.from_arrays(
        own.user_codes,
        own.items.ids[own.item_codes],
        own.values,
        scale=own.scale,
        items_index=own.items,
        item_table=own.item_table,
    )
    people = np.array([LEVELS.index(level) for level in town.levels], np.int8)  # type: ignore[arg-type]
    items = np.full(RATINGS.n_items, OPEN, np.int8)
    items[list(town.kept)] = HIDDEN
    weights = PrivacyWeights.uniform(everybody).with_levels(users=people, items=items)
    survey = SETTINGS.survey(town.folder.known, 1)
    client = ShareClient(
        everybody,
        weights,
        NoNoise(),  # type: ignore[arg-type]
        epsilon=1.0,
        catalogue=survey.catalogue,
        n_users=1,
        simulation=True,
    )
    client.accept(survey)
    sums = client.contribute()
    return sums, Shared(*client.shared()), survey


def assert_same_facts(found: Any, expected: ItemFacts) -> None:
    assert isinstance(found, ItemFacts)
    for name in found.__struct_fields__:
        mine, theirs = getattr(found, name), getattr(expected, name)
        if name == "similarity" and theirs is not None:
            np.testing.assert_array_equal(mine.items, theirs.items)
            np.testing.assert_allclose(
                mine.columns.astype(float), theirs.columns.astype(float), atol=2e-3
            )
        elif isinstance(theirs, np.ndarray):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6, err_msg=name)
        elif name not in ("lists", "prior"):
            assert mine == pytest.approx(theirs), name


MIXED = ["hidden"] * 6 + ["seen"] * 10 + ["open"] * 4 + ["hidden"] * 2 + ["seen", "open"]


@pytest.mark.parametrize("blend", [0.0, 0.5])
@pytest.mark.parametrize("levels", [MIXED, ["seen"] * 24, ["open"] * 24])
def test_the_federations_facts_are_the_librarys(
    tmp_path: Path, levels: list[str], blend: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a model for lists and without, whichever so few people would choose."""
    monkeypatch.setattr(sharing, "choose_blend", lambda *args, **options: blend)
    town = Town(tmp_path, levels, kept=(0, 1, 2))
    outcome = town.run()
    sums, shared, survey = library(town, 24)
    assert isinstance(outcome.answer, SumContribution)
    for name in ("scores", "weights", "total"):
        np.testing.assert_array_equal(getattr(outcome.answer, name), getattr(sums, name))
    expected = facts_from_shares(survey, [sums], [shared], town.folder.known.features, n_sums=2)
    assert_same_facts(outcome.model.numbers, expected.facts)
    assert expected.facts.blend == blend
    assert (outcome.model.lists is None) == (expected.lists is None) == (blend == 0)
    if expected.lists is not None and outcome.model.lists is not None:
        assert encode(outcome.model.lists) == encode(expected.lists.table())
    shown = outcome.summary["levels"]
    people = {level: levels.count(level) for level in ("seen", "open")}
    assert shown["seen"] == {"people": people["seen"], "ratings": len(shared.bits.items)}
    assert shown["open"] == {"people": people["open"], "ratings": len(shared.opens.items)}
    assert (outcome.summary["users"], outcome.summary["devices"]) == (24, None)
    assert (outcome.statement.view, outcome.statement.status) == ("two-servers", "proved")
    for store, device in zip(town.stores, town.devices, strict=True):
        assert device.model is not None
        assert len(recommend(store, 5, keep_rated=True, model=device.model)) == 5
        order = prepare(store, device.model).maker.order
        assert isinstance(order, BlendedOrder if blend else ChooseAndLike)


def test_each_rating_left_by_one_way_and_paid_there(tmp_path: Path) -> None:
    town = Town(tmp_path, MIXED, kept=(0, 1, 2))
    town.run()
    for store, level in zip(town.stores, town.levels, strict=True):
        ratings = store.ratings()
        hidden = store.weights().levels_for(ratings) == HIDDEN
        pays = hidden if level == "open" else np.ones(len(ratings), bool)
        np.testing.assert_allclose(store.ledger.spent(ratings), pays.astype(float))
        views = {entry.view for entry in store.ledger.entries() if entry.action == "sent"}
        assert views == {"two-servers"} | (set() if level == "hidden" else {"messages"})


def test_with_nobody_who_shares_it_is_hdp_sum(tmp_path: Path) -> None:
    town = Town(tmp_path, ["hidden"] * 8)
    outcome = town.run()
    sums, _, survey = library(town, 8)
    features = town.folder.known.features
    matrix = None if features is None else features.matrix
    assert_same_facts(outcome.model.numbers, facts_from_sums(survey, [sums], matrix, 2))
    assert outcome.model.lists is None
    assert outcome.summary["levels"]["seen"] == {"people": 0, "ratings": 0}


def test_a_second_run_takes_what_is_new_and_is_put_together(tmp_path: Path) -> None:
    town = Town(tmp_path, ["hidden"] * 4 + ["seen"] * 4)
    first = town.run()
    rated = {entry.item for entry in town.stores[5].records()}
    new = next(item for item in ITEMS if item not in rated)
    town.stores[5].rate(new, 4.0)
    second = town.run()
    assert second.summary["levels"]["seen"] == {"people": 1, "ratings": 1}
    assert isinstance(second.answer, SumContribution)
    assert not second.answer.weights.any()
    before, after = first.model.numbers, second.model.numbers
    assert isinstance(before, ItemFacts)
    assert isinstance(after, ItemFacts)
    assert after.popularity.sum() > 0.5 * before.popularity.sum()


class KilledError(BaseException):
    """The process ends here."""


def test_a_killed_recommender_goes_on_with_what_was_confirmed(tmp_path: Path) -> None:
    town = Town(tmp_path, ["seen"] * 6)
    run = town.service.begin(SETTINGS)

    def sleep(seconds: float) -> None:
        town.sleep(seconds)
        if len(town.inbox.messages()) == 6:
            raise KilledError

    with pytest.raises(KilledError):
        town.serve(sleep=sleep).conduct(run)
    town.inbox = SharedInbox()  # what was in memory is gone
    outcome = town.serve().conduct(run)
    assert outcome.summary["levels"]["seen"]["people"] == 6
    assert not (town.folder.path / "runs" / run.hex() / "shared").exists()
    assert town.folder.run_files(run).load().shared


def test_who_is_not_heard_is_missing_and_pays_nothing(tmp_path: Path) -> None:
    town = Town(tmp_path, ["seen"] * 5)
    town.lost = True
    outcome = town.run()
    assert outcome.summary["levels"]["seen"] == {"people": 0, "ratings": 0}
    assert [store.ledger.spent_total() for store in town.stores] == [0.0] * 5


def liars() -> dict[str, SharedContribution]:
    """Messages that no device of one user can have."""
    none = np.zeros(0, np.int64)
    bits = {"senders": none, "items": none, "units": none, "plus": none}
    opened = {"senders": none, "items": none, "steps": none}

    def message(some: dict[str, list[int]], other: dict[str, list[int]]) -> SharedContribution:
        given = {name: np.array(row, np.int64) for name, row in some.items()}
        more = {name: np.array(row, np.int64) for name, row in other.items()}
        return SharedContribution(
            bits=BitContribution(**bits | given), opened=OpenContribution(**opened | more)
        )

    one = {"senders": [0], "items": [3], "units": [64], "plus": [1]}
    return {
        "another user": message(one | {"senders": [1]}, {}),
        "no such item": message(one | {"items": [30]}, {}),
        "no such step": message({}, {"senders": [0], "items": [3], "steps": [5]}),
        "twice": message(one, {"senders": [0], "items": [3], "steps": [2]}),
    }


@pytest.mark.parametrize("lie", [*liars(), "no message", "another message"])
def test_messages_of_liars_are_left_out(tmp_path: Path, lie: str) -> None:
    town = Town(tmp_path, ["hidden"] * 4 + ["seen"] * 2)
    run = town.service.begin(SETTINGS)
    known = liars()
    body = encode(known[lie]) if lie in known else b"\x80" if lie == "no message" else None
    if body is None:
        body = encode(SETTINGS.survey(town.folder.known, 1))
    identity = town.stores[0].identity

    def sleep(seconds: float) -> None:
        town.sleep(seconds)
        task = town.folder.run_files(run).load().periods
        if task and town.inbox.messages() == {}:
            from hdpmf.common.protocol.task import task_id

            name = task_id(task[0].document)
            signature = bytes.fromhex(shared_headers(identity, name, body)["hdpmf-signature"])
            assert town.inbox.take(id_to_text(name), identity.public.hex(), signature, body) == 201

    outcome = town.serve(sleep=sleep).conduct(run)
    assert outcome.summary["levels"]["seen"]["people"] == 2
    assert sum(outcome.summary["refusals"].values()) == 1


def test_masks_and_single_messages_do_not_carry_it() -> None:
    for view in ("sums", "messages"):
        with pytest.raises(ConfigError, match="two-servers"):
            RunSettings(method="hdp-share", view=view, minimum=3, rounds=1)  # type: ignore[arg-type]
