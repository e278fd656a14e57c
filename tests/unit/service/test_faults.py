"""A recommender that is killed goes on; a device that sends anything at all does no harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdpmf.common.net import DeviceReply, InProcessNetwork
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import (
    Accepted,
    Envelope,
    Gradients,
    ItemCounts,
    Opening,
    Refusal,
    Reply,
    Round,
    decode,
    encode,
)
from hdpmf.errors import FederationError, SecureSumError
from hdpmf.models import make_model
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.run_files import RunFolder
from hdpmf.untrusted.service.settings import Pace, RunSettings
from tests.world import Federation, Killed, small_federation

pytestmark = pytest.mark.slow


def go_on(world: Federation, settings: RunSettings, folder: Path, **options: Any) -> RunOutcome:
    run = world.run_alone(settings, id=b"r" * 16, files=RunFolder(folder), **options)
    return run.conduct(random_source=SeededNoise(0, 1))


@pytest.mark.parametrize(("view", "step"), [("messages", 7), ("sums", 9)])
def test_a_killed_recommender_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, view: Any, step: int
) -> None:
    settings = RunSettings(method="mf", view=view, minimum=8, rounds=3, factors=3, credit=2)
    point, last = 0, False
    model = None
    while not last:
        world = small_federation([2, 2, 2, 2])
        folder = tmp_path / str(point)
        folder.mkdir()
        world.network.replies_left = point
        try:
            go_on(world, settings, folder)
            last = True  # it ended before the moment came
        except Killed:
            final = go_on(world, settings, folder).model.numbers
            assert isinstance(final, Round)
            model = model or make_model("mf", n_factors=3, epochs=3, rng=0).fit(
                world.ratings, PrivacyWeights.uniform(world.ratings)
            )
            np.testing.assert_allclose(final.item_factors, model.catalogue_.factors, atol=1e-5)
            assert [path.name for path in folder.iterdir()] == ["checkpoint.msgpack"]
        for device in world.devices:
            assert [message.number for message in device.told(Round)] == [1, 2, 3]
            assert len(device.told(Opening)) == 1
        point += step
    assert point >= 5 * step


def test_with_noise_a_restart_sends_the_same_h(tmp_path: Path) -> None:
    settings = RunSettings(method="hdpmf", view="messages", minimum=4, rounds=3, factors=3)
    world = small_federation([1, 1, 1, 1])
    world.network.replies_left = 22
    with pytest.raises(Killed):
        world.run_alone(settings, id=b"r" * 16, files=RunFolder(tmp_path)).conduct()
    world.run_alone(settings, id=b"r" * 16, files=RunFolder(tmp_path)).conduct()
    rounds = [decode(offer) for offer in {*chain(*(device.offers for device in world.devices))}]
    numbers = [found.number for found in rounds if isinstance(found, Envelope) and found.number > 0]
    assert sorted(numbers) == [1, 2, 3]  # to all devices the same bytes


def _reply(envelope: Envelope, body: bytes, **change: Any) -> bytes:
    fields = {
        "run": envelope.run,
        "number": envelope.number,
        "part": envelope.part,
        "body": body,
    } | change
    return encode(Reply(**fields))


def _with_nan(shape: tuple[int, int]) -> bytes:
    honest = encode(Gradients(number=1, sums=np.ones(shape, np.float32)))
    unit, nan = np.float32(1).tobytes(), np.float32(np.nan).tobytes()
    return honest.replace(unit, nan, 1)


HOSTILE: dict[str, tuple[str, Callable[[Envelope], bytes]]] = {
    "garbage": ("malformed", lambda envelope: b"\xc1\xff" * 20),
    "nothing": ("malformed", lambda envelope: b""),
    "not a reply": ("malformed", lambda envelope: encode(Accepted())),
    "garbage inside": ("malformed", lambda envelope: _reply(envelope, b"\x93\x01")),
    "not finite": ("malformed", lambda envelope: _reply(envelope, _with_nan((40, 3)))),
    "another run": (
        "other-run",
        lambda envelope: _reply(envelope, encode(Accepted()), run=b"x" * 16),
    ),
    "another round": (
        "out-of-round",
        lambda envelope: _reply(envelope, encode(Accepted()), number=envelope.number + 1),
    ),
    "another part": (
        "unexpected",
        lambda envelope: _reply(envelope, encode(Accepted()), part="sum"),
    ),
    "another message": (
        "unexpected",
        lambda envelope: _reply(envelope, encode(ItemCounts(counts=np.zeros(40, np.int64)))),
    ),
    "another shape": (
        "shape",
        lambda envelope: _reply(
            envelope, encode(Gradients(number=1, sums=np.zeros((40, 2), np.float32)))
        ),
    ),
    "an older round": (
        "out-of-round",
        lambda envelope: _reply(
            envelope, encode(Gradients(number=2, sums=np.zeros((40, 3), np.float32)))
        ),
    ),
    "enormous": (
        "range",
        lambda envelope: _reply(
            envelope, encode(Gradients(number=1, sums=np.full((40, 3), 1e30, np.float32)))
        ),
    ),
    "a refusal": (
        "policy",
        lambda envelope: _reply(envelope, encode(Refusal(reason="policy")), part="refusal"),
    ),
    "a bad refusal": (
        "malformed",
        lambda envelope: _reply(envelope, encode(Accepted()), part="refusal"),
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_gradients_are_refused_and_counted(tmp_path: Path, what: str) -> None:
    settings = RunSettings(method="mf", view="messages", minimum=4, rounds=1, factors=3)
    world = small_federation([1] * 5)
    reason, lie = HOSTILE[what]
    honest = world.answers[world.devices[0].name]

    def answer(data: bytes) -> bytes:
        envelope = decode(data)
        assert isinstance(envelope, Envelope)
        return lie(envelope) if envelope.number == 1 else honest(data)

    metrics = Metrics()
    world.network.attach(world.devices[0].name, answer)
    outcome = go_on(world, settings, tmp_path, metrics=metrics)
    assert metrics.refusals == {reason: 1}
    assert outcome.summary["least_users_in_a_round"] == 4
    assert np.isfinite(outcome.model.numbers.item_factors).all()


def test_two_replies_of_a_device_and_replies_of_strangers_count_once_or_not_at_all(
    tmp_path: Path,
) -> None:
    settings = RunSettings(method="mf", view="messages", minimum=3, rounds=2, factors=3)
    world = small_federation([1] * 3)

    class Echoing(InProcessNetwork):
        def exchange(self, outgoing: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
            for reply in super().exchange(outgoing, deadline):
                yield reply
                yield reply
                yield DeviceReply("ab" * 32, reply.data)

    metrics = Metrics()
    outcome = go_on(world, settings, tmp_path, network=Echoing(world.answers), metrics=metrics)
    model = make_model("mf", n_factors=3, epochs=2, rng=0).fit(
        world.ratings, PrivacyWeights.uniform(world.ratings)
    )
    np.testing.assert_allclose(
        outcome.model.numbers.item_factors,  # type: ignore[union-attr]
        model.catalogue_.factors,
        atol=1e-5,
    )
    assert (
        metrics.refusals["duplicate"] == metrics.refusals["unknown-device"] == metrics.replies / 3
    )


def test_a_round_waits_a_bounded_time_and_can_be_resumed(tmp_path: Path) -> None:
    settings = RunSettings(method="mf", view="messages", minimum=4, rounds=4, factors=3)
    world = small_federation([1] * 4)
    slow = world.devices[0].name
    honest = world.answers[slow]

    def leaves(data: bytes) -> bytes:
        envelope = decode(data)
        assert isinstance(envelope, Envelope)
        if envelope.number == 2:
            world.disconnect(0)
        return honest(data) if envelope.number < 2 else b""

    world.network.attach(slow, leaves)
    with pytest.raises(
        FederationError, match="round 2 stopped after 2 attempts: 3 users answered and 4 are needed"
    ):
        go_on(world, settings, tmp_path)
    world.connect(0)
    outcome = go_on(world, settings, tmp_path)
    assert outcome.summary["rounds"] == 4


@pytest.mark.parametrize("step", range(5))
def test_devices_may_drop_out_at_any_step_of_a_sum(tmp_path: Path, step: int) -> None:
    settings = RunSettings(method="mf", view="sums", minimum=8, rounds=2, factors=3)
    world = small_federation([1] * 10)
    lost = world.devices[3].name
    honest = world.answers[lost]
    seen = 0

    def answer(data: bytes) -> bytes:
        nonlocal seen
        envelope = decode(data)
        assert isinstance(envelope, Envelope)
        if envelope.part == "sum" and envelope.number == 1:
            seen += 1
            if seen > step:
                return b""
        return honest(data)

    world.network.attach(lost, answer)
    outcome = go_on(world, settings, tmp_path)
    # From its vector on it is in the sum, whether or not it stays to the end.
    assert outcome.summary["least_users_in_a_round"] == (9 if step < 3 else 10)
    assert outcome.summary["rounds_lost"] == 0


def test_a_sum_that_breaks_off_after_vectors_gives_the_round_up(tmp_path: Path) -> None:
    settings = RunSettings(method="hdpmf", view="sums", minimum=6, rounds=3, factors=3)
    world = small_federation([1] * 6)
    for device in world.devices:
        count: dict[str, int] = {}

        def answer(
            data: bytes,
            honest: Any = world.answers[device.name],
            count: dict[str, int] = count,
        ) -> bytes:
            envelope = decode(data)
            assert isinstance(envelope, Envelope)
            if envelope.part == "sum" and envelope.number == 2:
                count["n"] = count.get("n", 0) + 1
                if count["n"] > 3:
                    return b""  # everybody leaves after the vectors
            return honest(data)

        world.network.attach(device.name, answer)
    outcome = go_on(world, settings, tmp_path)
    assert outcome.summary["rounds_lost"] == 1
    assert outcome.summary["rounds"] == 2


def test_a_broken_survey_cannot_be_asked_again(tmp_path: Path) -> None:
    settings = RunSettings(method="hdp-sum", view="sums", minimum=6, rounds=1)
    world = small_federation([1] * 6)

    def leaving(honest: Any) -> Callable[[bytes], bytes]:
        count = [0]

        def answer(data: bytes) -> bytes:
            envelope = decode(data)
            assert isinstance(envelope, Envelope)
            count[0] += envelope.part == "sum"
            return b"" if count[0] > 3 else honest(data)

        return answer

    for name, honest in world.answers.items():
        world.network.attach(name, leaving(honest))
    with pytest.raises(SecureSumError):
        go_on(world, settings, tmp_path)


def test_after_a_restart_the_recommender_waits_for_devices_to_come_back(tmp_path: Path) -> None:
    """Killed when vectors had been sent: with nobody there yet, closing the step would lose the
    survey for good.
    """
    settings = RunSettings(method="hdp-sum", view="sums", minimum=6, rounds=1)
    world = small_federation([1] * 6)
    # Call, items, terms, survey; keys, shares; then a part of the vectors.
    world.network.replies_left = 4 * 6 + 2 * 6 + 3
    with pytest.raises(Killed):
        go_on(world, settings, tmp_path)
    world.disconnect(*range(6))
    looks = 0

    def come_back(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks <= 6:
            world.connect(looks - 1)

    outcome = go_on(world, settings, tmp_path, sleep=come_back)
    assert outcome.summary["users"] == 6
    assert looks >= 6


def test_a_run_does_not_wait_for_a_device_that_says_nothing() -> None:
    settings = RunSettings(method="mf", view="messages", minimum=3, rounds=1, factors=2)
    world = small_federation([1, 1, 1, 1])
    mute = world.devices[0].name
    waits: list[float] = []

    class Network(InProcessNetwork):
        def present(self) -> frozenset[str]:
            return frozenset(world.answers)

    network = Network({name: answer for name, answer in world.answers.items() if name != mute})
    pace = Pace(gather=600.0, deadline=1.0, attempts=2, pause=1.0)
    run = world.run_alone(settings, network, pace=pace, sleep=waits.append)
    run.aggregation.gather()
    assert mute not in run.checkpoint.agreed
    assert len(run.checkpoint.agreed) == 3
    assert waits == []
