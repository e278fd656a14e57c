"""Whole runs over the network inside one process: results, faults and resumption."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

from hdpmf.common.methods import RUN_EPSILON, method_named
from hdpmf.common.net import InProcessNetwork
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.mechanisms import mechanism_of
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import (
    Envelope,
    ItemCounts,
    ItemFacts,
    Plan,
    Refusal,
    Reply,
    Round,
    Terms,
    decode,
    encode,
)
from hdpmf.errors import FederationError
from hdpmf.models import HDPSum, make_model
from hdpmf.untrusted.recommender import Recommender
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.outcome import RunOutcome
from hdpmf.untrusted.service.settings import Pace, RunSettings
from tests.world import Federation, small_federation

pytestmark = pytest.mark.slow

PACE = Pace(gather=0.0, deadline=30.0, attempts=3, pause=0.0)


def run(world: Federation, settings: RunSettings, **options: Any) -> RunOutcome:
    return world.run_alone(settings, **({"pace": PACE} | options)).conduct(
        random_source=SeededNoise(0, 1)
    )


def library_factors(world: Federation, settings: RunSettings) -> np.ndarray:
    model = make_model(
        settings.method,
        n_factors=settings.factors,
        learning_rate=settings.learning_rate,
        epochs=settings.rounds,
        rng=0,
    )
    return model.fit(world.ratings, PrivacyWeights.uniform(world.ratings)).catalogue_.factors


@pytest.mark.parametrize(
    ("view", "sizes"),
    [
        ("messages", [24]),
        *(
            (view, sizes)
            for view in ("messages", "sums")
            for sizes in ([1] * 24, [10, 9, 5], [5, 1, 18])
        ),
    ],
)
def test_without_noise_the_factors_are_the_librarys_in_any_partition(
    view: Any, sizes: list[int]
) -> None:
    settings = RunSettings(
        method="mf", view=view, minimum=24, rounds=4, factors=4, credit=18, max_colluding=0.0
    )
    world = small_federation(sizes)
    final = run(world, settings).model.numbers
    assert isinstance(final, Round)
    np.testing.assert_allclose(final.item_factors, library_factors(world, settings), atol=1e-5)


@pytest.mark.parametrize("method", ["dpmf", "pdpmf", "hdpmf", "hdpmf-w", "hdpmf-r", "hdpmf-paid"])
@pytest.mark.parametrize("view", ["messages", "sums"])
def test_every_method_runs_in_both_views(method: Any, view: Any) -> None:
    settings = RunSettings(method=method, view=view, minimum=6, rounds=3, factors=3)
    world = small_federation([1] * 8)
    outcome = run(world, settings)
    final = outcome.model.numbers
    assert isinstance(final, Round)
    assert final.number == 4
    assert outcome.summary["rounds"] == 3
    assert outcome.summary["users"] == 8
    proved = method == "hdpmf-paid" and view == "sums"
    bare = method == "hdpmf-paid" and view == "messages"
    assert outcome.statement.status == ("proved" if proved else "none" if bare else "nominal")


def test_one_device_of_everyone_gives_the_librarys_factors_with_noise_too() -> None:
    settings = RunSettings(
        method="hdpmf-paid",
        view="messages",
        minimum=20,
        rounds=5,
        factors=4,
        credit=20,
        epsilon=1.0,
    )
    world = small_federation([20], noise=lambda number: SeededNoise(0, 2))
    final = run(world, settings).model.numbers
    assert isinstance(final, Round)
    np.testing.assert_allclose(final.item_factors, library_factors(world, settings), atol=1e-5)


def test_h_of_every_round_is_drawn_as_the_library_draws_it() -> None:
    settings = RunSettings(method="hdpmf", view="messages", minimum=1, rounds=5, factors=4)
    world = small_federation([20])
    run(world, settings)
    (plan,) = world.devices[0].told(Plan)
    library = Recommender(
        plan, mechanism_of(method_named("hdpmf")), SeededNoise(0, 1), settings.h_per_item
    )
    library.open([])
    library.start([ItemCounts(counts=np.zeros(plan.n_items, np.int64))])
    rounds = world.devices[0].told(Round)
    assert len(rounds) == 5
    for message in rounds:
        np.testing.assert_array_equal(message.h, library.next_round().h)


def test_a_survey_by_secure_sum_is_the_librarys() -> None:
    settings = RunSettings(method="hdp-sum", view="sums", minimum=20, rounds=1, epsilon=1000.0)
    world = small_federation([1] * 20)
    outcome = run(world, settings)
    model = HDPSum(epsilon=1000.0, rng=0).fit(world.ratings)
    facts = outcome.model.numbers
    assert isinstance(facts, ItemFacts)
    assert outcome.statement.status == "proved"
    np.testing.assert_allclose(facts.bias, model.facts_.bias, atol=0.02)


def test_bits_arrive_from_every_device() -> None:
    settings = RunSettings(method="hdp-bit", view="messages", minimum=9, rounds=1)
    world = small_federation([1, 2, 3, 3])
    outcome = run(world, settings)
    assert len(outcome.answer.items) == len(world.ratings)  # type: ignore[union-attr]
    assert int(outcome.answer.senders.max()) == 8  # type: ignore[union-attr]
    assert (outcome.statement.status, outcome.statement.epsilon) == ("proved", RUN_EPSILON)


def test_members_may_drop_out_and_come_back() -> None:
    settings = RunSettings(method="hdpmf", view="messages", minimum=5, rounds=6, factors=3)
    world = small_federation([1] * 8)

    def before(exchange: int, asked: Collection[str]) -> None:
        if len(world.devices[1].told(Round)) == 2:
            world.disconnect(0)
        if len(world.devices[1].told(Round)) == 3:
            world.connect(0)

    world.network.before = before
    outcome = run(world, settings)
    assert outcome.summary["least_users_in_a_round"] == 7
    rounds = [message.number for message in world.devices[0].told(Round)]
    assert 3 not in rounds
    assert rounds[-1] == 6


@pytest.mark.parametrize(("minimum", "users"), [(6, 6), (5, 5)])
def test_a_device_whose_owner_is_asked_has_its_turn_later_if_there_is_time(
    minimum: int, users: int
) -> None:
    """With enough others the run does not wait for it."""
    settings = RunSettings(method="hdpmf", view="messages", minimum=minimum, rounds=2, factors=3)
    world, metrics = small_federation([1] * 6), Metrics()
    pauses: list[float] = []
    asked: list[int] = []
    name = world.devices[2].name

    def answer(data: bytes) -> bytes:
        envelope = decode(data)
        assert isinstance(envelope, Envelope)
        if isinstance(decode(envelope.body), Terms):
            asked.append(len(pauses))
            if len(pauses) < 3:  # the owner has not said yes yet
                refusal = encode(Refusal(reason="busy"))
                return encode(
                    Reply(run=envelope.run, number=envelope.number, part="refusal", body=refusal)
                )
        return world.answers[name](data)

    world.network.attach(name, answer)
    pace = Pace(gather=20.0, deadline=30.0, attempts=3, pause=0.1)
    outcome = run(world, settings, pace=pace, metrics=metrics, sleep=pauses.append)
    assert outcome.summary["users"] == users
    assert asked == ([0, 1, 2, 3] if users == 6 else [0])
    assert metrics.refusals == {"busy": 1}  # however often it was asked


def test_too_few_devices_stop_the_run_with_a_clear_error() -> None:
    settings = RunSettings(method="hdpmf", view="messages", minimum=6, rounds=3, factors=3)
    world = small_federation([1] * 6)
    deaf = world.devices[2].name

    def lost(message: bytes) -> bytes:
        raise ConnectionError

    network = InProcessNetwork({**world.answers, deaf: lost})
    with pytest.raises(FederationError, match="5 users agreed"):
        run(world, settings, network=network)
