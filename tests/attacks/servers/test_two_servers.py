"""What a lying recommender or a lying leader tries with a device that reports to two servers.

Redirects, sizes and certificates are tried on a real connection in
``tests/unit/net/test_web.py``, and a kill at every commit in
``tests/unit/device/test_reporting.py``.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.data import RatingScale
from hdpmf.common.protocol import Task, decode, encode
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.common.protocol.servers import Servers
from hdpmf.common.protocol.survey_task import survey_circuit
from hdpmf.common.protocol.task import Noise, SumOfVectors, prio_of, task_id
from hdpmf.errors import ProtocolError
from hdpmf.private.client.outgoing import sealed_report, split_report
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.published_files import FARTHEST, MOST_CATALOGUE, MOST_INDEX, most_bytes
from hdpmf.private.device.recommendations import local_model
from hdpmf.private.device.store.device_store import DeviceStore
from tests.unit.device.reporting_world import (
    COLLECTOR,
    KEYS,
    N_ITEMS,
    PERIOD,
    POLICY,
    SERVERS,
    STARS,
    START,
    World,
    make_facts,
    make_store,
    make_task,
    plain_sums,
    reporter,
    server,
    survey,
    table,
)
from tests.world import live


def changed(**fields: Any) -> bytes:
    """A good task with something else in it."""
    task = decode(make_task())
    assert isinstance(task, Task)
    return encode(msgspec.structs.replace(task, **fields))


def through(task: bytes, store: DeviceStore | None = None) -> tuple[World, DeviceStore]:
    """A device lives through the period of a task."""
    world, store = World(), make_store() if store is None else store
    world.publish(task=task)
    live(reporter(store, world, 0.3), world, PERIOD + 200)
    return world, store


def refused(task: bytes, store: DeviceStore | None = None, words: str = "") -> None:
    """Nothing leaves, nothing is paid, and the owner is told why, once."""
    world, store = through(task, store)
    assert world.uploads == []
    assert store.ledger.entries() == []
    assert [line for line in world.logged if words in line and "refused" in line], world.logged
    assert len([name for name, _ in world.requests if name.startswith("task-")]) <= 1


def test_an_honest_task_is_reported_in() -> None:
    world, _ = through(make_task())
    assert world.sums(make_task()) == plain_sums(make_task(), STARS)


CIRCUIT, NOISE = survey_circuit(survey())
LIES: dict[str, Callable[[], bytes]] = {
    "no noise": lambda: changed(
        noise=tuple(Noise(entries=part.entries, scale="0/1") for part in NOISE)
    ),
    "half of it": lambda: changed(noise=(Noise(entries=N_ITEMS, scale="1/2"), *NOISE[1:])),
    "none on one item": lambda: changed(
        noise=(
            Noise(entries=1, scale="0/1"),
            Noise(entries=N_ITEMS - 1, scale=NOISE[0].scale),
            *NOISE[1:],
        )
    ),
    "other codes": lambda: changed(
        circuit=msgspec.structs.replace(CIRCUIT, codes=(0, 0, 0, 0, 1 << 20))
    ),
    "other rulers": lambda: changed(
        circuit=msgspec.structs.replace(CIRCUIT, rulers=(0, 0, 0, 0, 1 << 20))
    ),
    "another circuit": lambda: changed(
        circuit=SumOfVectors(entries=2 * N_ITEMS + 1, bits=10, chunk=5),
    ),
    "no survey": lambda: changed(survey=None),
    "by bits": lambda: changed(survey=survey(design="L", coding="threshold")),
}


@pytest.mark.parametrize("lie", LIES)
def test_other_noise_or_another_circuit_than_the_surveys(lie: str) -> None:
    refused(LIES[lie]())


PAIRS = {
    "another helper": Servers(leader=SERVERS.leader, helper=server("Helpers", KEYS[2], "b")),
    "another leader": Servers(leader=server("Leaders", KEYS[2], "a"), helper=SERVERS.helper),
    "another identity": Servers(leader=SERVERS.leader, helper=server("Helpers", KEYS[1], "e")),
    "roles exchanged": Servers(leader=SERVERS.helper, helper=SERVERS.leader),
    "another place": Servers(
        leader=msgspec.structs.replace(SERVERS.leader, url="https://hostile.example"),
        helper=SERVERS.helper,
    ),
}


@pytest.mark.parametrize("lie", PAIRS)
def test_another_pair_of_servers(lie: str) -> None:
    refused(changed(servers=PAIRS[lie]), words="policy trusts")


def test_a_device_that_trusts_no_pair_reports_to_nobody() -> None:
    refused(make_task(), make_store(policy=Policy()), words="policy trusts none")


@pytest.mark.parametrize("scale", [(4.0, 5.0, 1.0), (1.0, 5.0, 4.0), (0.5, 5.5, 1.0)], ids=str)
def test_a_task_for_a_narrower_scale(scale: tuple[float, float, float]) -> None:
    low, high, step = scale
    refused(make_task(survey(scale_low=low, scale_high=high, scale_step=step)), words="scale")


def test_an_item_table_with_a_narrower_scale() -> None:
    """As attack 1: the owner's scale is fixed, and nothing is left out by its value where it is
    not.
    """
    narrow = table(scale_low=4.0, scale_high=5.0)
    asked = survey(scale_low=4.0, catalogue=known_items(narrow).fingerprint)
    for own in (RatingScale(1, 5, 1), None):
        store = DeviceStore.create(":memory:", policy=POLICY, scale=own)
        for item, value in STARS.items():
            store.rate(item, value)
        world = World()
        world.publish(catalogue=encode(narrow), task=make_task(asked))
        live(reporter(store, world, 0.3), world, PERIOD + 200)
        if own is not None:
            assert world.uploads == []
        else:
            rated = [64 * (f"item {place:02d}" in STARS) for place in range(N_ITEMS)]
            assert world.sums(make_task(asked))[N_ITEMS : 2 * N_ITEMS] == rated


def test_another_item_table_than_the_pinned_one() -> None:
    refused(make_task(survey(catalogue="another")), words="item table")
    refused(make_task(survey(n_items=N_ITEMS - 1)), words="items")
    store, world = make_store(), World()
    store.pin_catalogue(table())
    world.publish(catalogue=encode(table(titles=("x",) * N_ITEMS)), task=make_task())
    live(reporter(store, world), world, 200)
    assert store.pinned_catalogue.table == table()


SECOND = {
    "the same period": lambda: make_task(survey(epsilon=0.25)),
    "other bytes": lambda: changed(minimum=101),
    "it overlaps": lambda: make_task(begin=START + 3600, end=START + 3600 + PERIOD),
    "it is around": lambda: make_task(begin=START - 3600, end=START + 2 * PERIOD),
    "the same survey with less minimum": lambda: changed(minimum=16),
}


@pytest.mark.parametrize("lie", SECOND)
@pytest.mark.parametrize("moment", [0.0, 0.99])
def test_a_second_task_for_the_same_period(lie: str, moment: float) -> None:
    """Whether the first one was reported in by then or not; also after a restart."""
    world, store = World(), make_store()
    first, second = make_task(), SECOND[lie]()
    world.publish(task=first)
    live(reporter(store, world, moment), world, 100)
    world.publish(task=second)
    device = reporter(store, world, 0.0)
    live(device, world, PERIOD + 200)
    world.publish(task=first)
    live(device, world, 200)
    assert [task for task, _, _ in world.uploads] == [task_id(first)]
    assert store.ledger.spent_total() == pytest.approx(0.5 * len(STARS))


def test_a_file_that_is_not_what_its_name_says() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    name = f"task-{task_id(make_task()).hex()}.msgpack"
    world.files[name] = changed(minimum=101)
    live(reporter(store, world, 0.0), world, PERIOD)
    assert world.uploads == []
    assert any("its id differs" in line for line in world.logged)
    for kind, data in (
        ("facts", make_facts()),
        ("catalogue", encode(table(years=(1990,) * N_ITEMS))),
    ):
        other, store = World(), make_store()
        other.publish(**{kind: data})
        named = other.index["model" if kind == "facts" else kind]["file"]
        other.files[named] = make_facts(4.0) if kind == "facts" else encode(table())
        live(reporter(store, other), other, 200)
        assert local_model(store) is None
        assert any("SHA-256 differs" in line for line in other.logged)


POLICIES = {
    "epsilon": lambda: (make_task(survey(epsilon=1.5)), Policy(servers=POLICY.servers)),
    "epsilon of a run": lambda: (
        make_task(),
        Policy(servers=POLICY.servers, max_epsilon_per_run=0.4),
    ),
    "tiny epsilon": lambda: (make_task(survey(epsilon=1e-6)), Policy(servers=POLICY.servers)),
    "minimum": lambda: (make_task(minimum=15), Policy(servers=POLICY.servers)),
}


@pytest.mark.parametrize("lie", POLICIES)
def test_more_than_the_policy_allows(lie: str) -> None:
    task, policy = POLICIES[lie]()
    refused(task, make_store(policy=policy))


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (START - PERIOD, START),
        (START - 2 * PERIOD, START - PERIOD),
        (START, START + FARTHEST // 3600 * 3600 + 3600),
    ],
    ids=["over", "long over", "too long"],
)
def test_periods_that_are_over_or_too_long(begin: int, end: int) -> None:
    refused(make_task(begin=begin, end=end))


def test_a_period_of_no_length_is_no_task() -> None:
    for begin, end in ((START, START), (START, START - 3600)):
        with pytest.raises(ProtocolError):
            make_task(begin=begin, end=end)


def test_somebody_else_gets_the_sums() -> None:
    world, store = World(), make_store()
    device = reporter(store, world)
    world.publish(task=make_task())
    live(device, world, PERIOD)
    other = msgspec.structs.replace(COLLECTOR, identity="d" * 64)
    world.publish(task=make_task(collector=other, begin=START + PERIOD, end=START + 2 * PERIOD))
    live(device, world, PERIOD + 100)
    assert len(world.uploads) == 1
    assert any("somebody else" in line for line in world.logged)


# What is fetched, and what comes


def test_how_much_is_read_is_said_before() -> None:
    world, store = World(), make_store()
    asked: dict[str, int] = {}
    fetch = world.fetch

    def watched(name: str, most: int) -> bytes:
        asked[name.partition("-")[0]] = most
        return fetch(name, most)

    world.fetch = watched  # type: ignore[method-assign]
    world.publish(task=make_task(), facts=make_facts())
    live(reporter(store, world), world, 200)
    few = most_bytes(N_ITEMS)
    assert asked.keys() == {"index.json", "catalogue", "keys", "task", "facts"}
    assert (asked["index.json"], asked["catalogue"]) == (MOST_INDEX, MOST_CATALOGUE)
    assert asked["task"] == asked["facts"] == few < 3_000_000


def test_an_index_that_is_too_long_is_asked_for_now_and_then() -> None:
    world, store = World(), make_store()
    world.publish(task=make_task())
    world.files["index.json"] += b" " * MOST_INDEX
    live(reporter(store, world), world, PERIOD)
    assert world.uploads == []
    assert len(world.requests) < 2 * PERIOD / 60


@pytest.mark.slow
@given(st.data())
def test_whatever_is_published_nothing_else_leaves(data: st.DataObject) -> None:
    world, store = World(), make_store()
    world.publish(task=make_task(), facts=make_facts())
    name = data.draw(st.sampled_from(sorted(world.files)))
    good = world.files[name]
    place = data.draw(st.integers(0, len(good) - 1))
    world.files[name] = data.draw(
        st.one_of(
            st.binary(max_size=200),
            st.just(good[:place]),
            st.just(
                good[:place]
                + bytes([good[place] ^ data.draw(st.integers(1, 255))])
                + good[place + 1 :]
            ),
        )
    )
    live(reporter(store, world, 0.0), world, 100)
    assert {task for task, _, _ in world.uploads} <= {task_id(make_task())}
    assert len(world.uploads) <= 1


INDEXES = [
    b"[]",
    b"{}",
    b'{"catalogue": {"sha256": "../../secret"}}',
    b'{"catalogue": {"file": "https://hostile.example/x", "sha256": "' + b"a" * 64 + b'"}}',
    b'{"catalogue": {"sha256": "' + b"a" * 64 + b'"}, "task": {"id": "x"}}',
    b'{"catalogue": {"sha256": "' + b"a" * 64 + b'", "run": "' + b"ab" * 40 + b'"}}',
]


@pytest.mark.parametrize("index", INDEXES)
def test_an_index_names_nothing_but_files_by_their_digests(index: bytes) -> None:
    world, store = World(), make_store()
    world.files["index.json"] = index
    live(reporter(store, world), world, 200)
    assert {name for name, _ in world.requests} <= {"index.json", f"catalogue-{'a' * 64}.msgpack"}


# What can be seen from outside


def _spent(policy: Policy) -> DeviceStore:
    """A device whose ratings have nothing left."""
    whole_life = msgspec.structs.replace(policy, max_epsilon_per_run=None)
    store, world = make_store(policy=whole_life), World()
    task = make_task(survey(epsilon=1.0), begin=START - 2 * PERIOD, end=START - PERIOD)
    world.now = START - 2.0 * PERIOD
    world.publish(task=task)
    live(reporter(store, world), world, PERIOD)
    assert len(world.uploads) == 1
    store.set_policy(policy)
    return store


@pytest.mark.parametrize(
    "answers", [[], ["unreachable", 503, "silent"], [403], [500] * 40], ids=str
)
def test_the_same_is_fetched_and_sent_whatever_the_ratings_are(
    answers: list[Any],
) -> None:
    everything = {f"item {place:02d}": 5.0 for place in range(N_ITEMS)}
    light = make_store()
    light.set_weight(beta=0.001)
    stores = [make_store(), make_store({}), make_store(everything), light, _spent(POLICY)]
    seen = []
    for store in stores:
        world = World()
        world.publish(task=make_task(), facts=make_facts())
        world.answers = list(answers)
        device = reporter(store, world, 0.3)
        live(device, world, PERIOD)
        seen.append(
            (world.requests, len(world.uploads), [line.split(":")[0] for line in world.logged])
        )
    pinned = [name for name, _ in seen[-1][0]]
    assert not any(
        name.startswith("catalogue") for name in pinned
    )  # this one knows the items from before
    assert [entry for entry in seen[0][0] if not entry[0].startswith("catalogue")] == seen[-1][0]
    assert all(one == seen[0] for one in seen[:-1])
    assert seen[0][1] >= 1


def test_reports_have_one_size() -> None:
    """3,706 items: nobody's, 500 and all ratings take the same bytes, and no bytes are the same."""
    asked = survey(n_items=3706)
    task = decode(make_task(asked))
    assert isinstance(task, Task)
    prio, rng = prio_of(task, bytes(32)), np.random.default_rng(0)
    reports = []
    for count in (0, 500, 3706):
        weights = np.zeros(3706, np.int64)
        weights[rng.permutation(3706)[:count]] = 64
        levels = np.where(weights, rng.integers(0, 5, 3706), 0)
        shares = split_report(prio, (weights, levels), secrets.token_bytes(16), at=START)
        reports.append(sealed_report(shares, bytes(32), (KEYS[0].config, KEYS[1].config)))
    assert len({len(report) for report in reports}) == 1
    assert len(reports[0]) < 160_000
    bits = [np.unpackbits(np.frombuffer(report[100:], np.uint8)).mean() for report in reports]
    # Level: 6 standard deviations of a fair coin thrown so often.
    assert all(abs(share - 0.5) < 6 * 0.5 / math.sqrt(8 * len(reports[0])) for share in bits)


def test_another_task_for_every_device_gets_the_whole_noise() -> None:
    """A recommender may ask every device alone. Each server's noise is whole in every sum; the
    minimum is one defence more, and it is the servers who keep it."""
    seen = []
    for alone in range(3):
        task = make_task(minimum=100 + alone)
        world, _ = through(task)
        assert [identity for identity, _, _ in world.uploads] == [task_id(task)]
        read = decode(task)
        assert isinstance(read, Task)
        assert (
            read.noise == survey_circuit(survey())[1]
        )  # as if there were no other report, and no other server
        seen.append(world.uploads[0][0])
    assert len(set(seen)) == 3
