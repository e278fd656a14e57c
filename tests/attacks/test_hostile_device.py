"""One hostile device in a run of real agents: what it sends wrong is corrected, it is named, and
the run goes on.
"""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from hdpmf.common.aggregation.masks import (
    DeviceIdentity,
    IntegerCoding,
    Roster,
    ToRecommender,
    decode_to_recommender,
    propose,
)
from hdpmf.common.aggregation.masks import encode as encode_sum
from hdpmf.common.aggregation.masks.messages import DealtShares, Unmasking
from hdpmf.common.data import synthetic_world
from hdpmf.common.protocol import BitContribution, Reply, Terms, decode, encode
from hdpmf.common.protocol.catalogue import catalogue_table, known_items
from hdpmf.common.protocol.layout import SumLayout
from hdpmf.errors import HdpmfError, SecureSumError
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.session import Plans, SumOfJob
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.recommender.bits import facts_from_bits
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import Pace, RunSettings
from tests.world import Federation

pytestmark = pytest.mark.slow

N = 12
WORLD = synthetic_world(N, 60, 200, rng=3)
POLICY = Policy(
    methods=("hdp-sum", "hdpmf", "hdpmf-paid"),
    allow_nominal=True,
    min_participants=2,
    min_devices=2,
    min_neighbours=1,
    max_rounds=5,
)
Change = Callable[[ToRecommender], ToRecommender]


def wrong_shares(message: ToRecommender) -> ToRecommender:
    if not isinstance(message, Unmasking):
        return message
    return replace(
        message,
        seeds={
            device: bytes([share[0] ^ 1]) + share[1:] for device, share in message.seeds.items()
        },
    )


def no_shares(message: ToRecommender) -> ToRecommender:
    return replace(message, seeds={}, keys={}) if isinstance(message, Unmasking) else message


def town(folder: Path, hostile: dict[int, Change]) -> tuple[Service, list[str], list[str]]:
    made = Federation(WORLD, folder=folder, policy=POLICY, noise=None)
    for number, agent in enumerate(made.devices):
        made.network.attach(agent.name, _answers(made.answers[agent.name], hostile.get(number)))
    said: list[str] = []
    service = made.restart_service(log=said.append)
    return service, [agent.name for agent in made.devices], said


def _answers(honest: Callable[[bytes], bytes], change: Change | None) -> Callable[[bytes], bytes]:
    def answer(data: bytes) -> bytes:
        reply = decode(honest(data))
        assert isinstance(reply, Reply)
        if change is not None and reply.part == "sum":
            return encode(
                replace(reply, body=encode_sum(change(decode_to_recommender(reply.body))))
            )
        return encode(reply)

    return answer


@pytest.mark.parametrize("method", ["hdp-sum", "hdpmf"])
@pytest.mark.parametrize("change", [wrong_shares, no_shares])
def test_one_wrong_share_does_not_end_the_run(tmp_path: Path, method: str, change: Change) -> None:
    unmasked = 0

    def counting(message: ToRecommender) -> ToRecommender:
        nonlocal unmasked
        unmasked += isinstance(message, Unmasking)
        return change(message)

    service, names, said = town(tmp_path, {4: counting})
    more = {"rounds": 1} if method == "hdp-sum" else {"rounds": 2, "factors": 3}
    service.conduct(service.begin(RunSettings(method=method, view="sums", minimum=9, **more)))
    named = [line for line in said if "wrong shares" in line]
    if change is wrong_shares:
        assert len(named) == 1
        assert names[4][:16] in named[0]
        assert unmasked == 1  # in later sums it has no part
    else:
        assert named == []  # silence is no lie
        assert unmasked == (1 if method == "hdp-sum" else 3)


def test_more_liars_than_can_be_corrected_are_named(tmp_path: Path) -> None:
    service, names, said = town(tmp_path, dict.fromkeys(range(6), wrong_shares))
    with pytest.raises(HdpmfError, match="right shares"):
        service.conduct(
            service.begin(RunSettings(method="hdp-sum", view="sums", minimum=9, rounds=1))
        )
    named = {line.split()[1] for line in said if "wrong shares" in line}
    assert named
    assert named <= {name[:16] for name in names[:6]}


def test_a_recommender_cannot_draw_for_ever() -> None:
    """It breaks off whenever it does not like who holds shares, and proposes the same sum again."""
    store = DeviceStore.create(":memory:", policy=POLICY)
    others = [DeviceIdentity.generate().public for _ in range(19)]
    store.pin_roster([store.identity.public, *others], [1] * 20)
    items = store.pin_catalogue(
        catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table)
    ).known.fingerprint
    terms = Terms(
        method="hdp-sum",
        view="sums",
        epsilon=1.0,
        rounds=1,
        catalogue=items,
        users=20,
        minimum=16,
        sharing=10,
    )
    job = SumOfJob(
        0, np.zeros(5, np.int64), lambda n: SumLayout(5, IntegerCoding(1000, n)), terms, b""
    )
    roster = Roster([store.identity.public, *others])
    plans = Plans(store, "recommender")
    for _ in range(32):
        job.answer(store, encode_sum(propose(roster, 5, minimum=16)), plans, lambda: None)
    again = encode_sum(propose(roster, 5, minimum=16))
    with pytest.raises(SecureSumError, match="too many plans"):
        job.answer(store, again, plans, lambda: None)


def test_a_card_of_two_billion_users_costs_the_recommender_no_memory() -> None:
    """Its bits say that they are of the last of them."""
    bits = BitContribution(
        senders=np.array([2**31 - 2]), items=np.array([3]), units=np.array([64]), plus=np.array([1])
    )  # fmt: skip
    known = known_items(catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table))
    survey = RunSettings(method="hdp-bit", view="messages", minimum=1, rounds=1).survey(known, 1)
    tracemalloc.start()
    try:
        facts_from_bits(survey, [bits], None, n_patterns=4)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100 << 20


def test_an_honest_recommender_that_tries_again_stays_far_below_what_devices_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four of twelve drop out of every attempt, and nine are needed: as many plans as attempts,
    and nothing left.
    """
    drawn: Counter[Plans] = Counter()
    draw = Plans.draw

    def counted(plans: Plans) -> None:
        draw(plans)
        drawn[plans] = plans.open

    def lost(message: ToRecommender) -> ToRecommender:
        return (
            Unmasking(session=message.session, seeds={}, keys={})
            if isinstance(message, DealtShares)
            else message
        )

    monkeypatch.setattr(Plans, "draw", counted)
    service, _, _ = town(tmp_path, dict.fromkeys(range(4), lost))
    run = service.begin(RunSettings(method="hdp-sum", view="sums", minimum=9, rounds=1))
    with pytest.raises(HdpmfError, match="broke off 2 times"):  # as often as the town's pace says
        service.conduct(run)
    assert list(drawn.values()) == [2] * N
    assert (
        10 * Pace().attempts < Policy().max_plans_per_day
    )  # ten sums may fail in a day, and more may follow
