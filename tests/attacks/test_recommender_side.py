"""What a hostile device, or a damaged file, does to the recommender: an error in words, and in
time.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from hdpmf.cli.main import app
from hdpmf.common.aggregation.masks import DeviceIdentity, ToRecommender
from hdpmf.common.aggregation.masks import encode as encode_sum
from hdpmf.common.aggregation.masks.messages import (
    CHECK_BYTES,
    SEALED_BYTES,
    DealtShares,
    MaskedVector,
)
from hdpmf.common.aggregation.masks.primitives import is_identity_key, verifies
from hdpmf.common.data import RatingScale
from hdpmf.common.privacy.coding import sum_channels
from hdpmf.common.privacy.mechanisms import dense_laplace_scale
from hdpmf.common.protocol import (
    BitContribution,
    Gradients,
    Plan,
    Popularity,
    Reply,
    Round,
    SumContribution,
    encode,
)
from hdpmf.common.protocol.enrolment import read_card
from hdpmf.common.protocol.messages import GRADIENT_STEP, from_grid
from hdpmf.errors import ConfigError, StorageError
from hdpmf.private.client.gradients import WholeGradients
from hdpmf.untrusted.recommender import OneRoundRecommender
from hdpmf.untrusted.recommender.sums import clamp_gradients, clamp_to_feasible, coding_of
from hdpmf.untrusted.service.settings import RunSettings
from tests.world import survey, table

from .test_hostile_device import WORLD, Change, town, wrong_shares

pytestmark = pytest.mark.slow

# 20. A card with a bad key is enrolled, and then the service cannot start.


def _card(name: str = "d", identity: str | None = None) -> bytes:
    identity = DeviceIdentity.generate().public.hex() if identity is None else identity
    return json.dumps({"name": name, "identity": identity, "users": 1}).encode()


def test_honest_cards_are_taken() -> None:
    for _ in range(20):
        assert read_card(_card()).name == "d"


SMALL = [
    bytes([1, *bytes(31)]),
    bytes(32),
    (2**255 - 20).to_bytes(32, "little"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
]
"""Points of orders 1, 4, 2, 8 and 8."""


@pytest.mark.parametrize(
    "key", [*SMALL, bytes([2, *bytes(31)]), b"\xff" * 32, (2**255 - 18).to_bytes(32, "little")]
)
def test_an_identity_under_which_anybody_can_sign_is_refused(key: bytes) -> None:
    with pytest.raises(ConfigError, match="identity key"):
        read_card(_card(identity=key.hex()))


def test_why_small_points_are_no_identities() -> None:
    """A signature that nobody made, R neutral and s 0, is good for everything under the neutral
    point as a key.
    """
    neutral = SMALL[0]
    assert verifies(neutral, neutral + bytes(32), b"whatever")
    assert not is_identity_key(neutral)


def test_a_bad_card_changes_nothing_on_the_roster(tmp_path: Path) -> None:
    def call(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, [str(each) for each in arguments])
        return done.exit_code, str(done.exception or "") + done.output

    folder, good, bad = tmp_path / "r", tmp_path / "good.json", tmp_path / "bad.json"
    good.write_bytes(_card("good"))
    bad.write_bytes(_card("bad", identity="none"))
    call("recommender", "init", folder, "--data", "synthetic")
    assert call("recommender", "enroll", folder, good)[0] == 0
    code, said = call("recommender", "enroll", folder, bad, "--remove", "good")
    assert code != 0
    assert "'bad'" in said
    assert [
        card["name"] for card in json.loads((folder / "roster.json").read_bytes())["devices"]
    ] == ["good"]


# 21. A truncated state.json gives a traceback. 15. Who gave wrong shares stays named.


def test_who_gave_wrong_shares_stays_named_and_a_damaged_state_is_an_error_of_ours(
    tmp_path: Path,
) -> None:
    service, names, _ = town(tmp_path, {4: wrong_shares})
    run = service.begin(RunSettings(method="hdp-sum", view="sums", minimum=9, rounds=1))
    outcome = service.conduct(run)
    assert outcome.summary["wrong_shares"] == [names[4]]
    folder = service.folder
    assert folder.run_files(run).load().barred == (
        names[4],
    )  # a recommender that is killed knows it, too
    shown = CliRunner().invoke(app, ["recommender", "status", str(folder.path)])
    assert shown.exit_code == 0
    assert f"device d4 gave or dealt wrong shares in run {run.hex()[:12]}" in shown.output
    state = folder.path / "state.json"
    whole = state.read_bytes()
    for damaged in (
        whole[: len(whole) // 2],
        b"",
        b"{}",
        b"[]",
        b"\xff\xfe",
        whole.replace(b'"refusals":{', b'"x":{'),
    ):
        state.write_bytes(damaged)
        with pytest.raises(StorageError, match="delete it"):
            folder.state()
    state.write_bytes(whole)
    assert folder.state() == json.loads(whole)


# 20. Impossible sums are accepted: popularity 7 * 10^16 from 21 devices.


def _adds(number: int) -> Change:
    """Adds a number to every word of its masked vector, and so to every number of the sum."""

    def change(message: ToRecommender) -> ToRecommender:
        if not isinstance(message, MaskedVector):
            return message
        words = np.frombuffer(message.words, "<u8") + np.int64(number).astype("<u8")
        return replace(message, words=words.tobytes())

    return change


@pytest.mark.parametrize("number", [1 << 62, -(1 << 62), 1 << 40])
@pytest.mark.parametrize("design", ["A", "S"])
def test_impossible_sums_become_possible_ones_and_that_is_said(
    tmp_path: Path, design: str, number: int
) -> None:
    service, _, said = town(tmp_path, {4: _adds(number)})
    settings = RunSettings(method="hdp-sum", view="sums", minimum=9, rounds=1, design=design)  # type: ignore[arg-type]
    run = service.begin(settings)
    outcome = service.conduct(run)
    assert outcome.summary["impossible_numbers"] >= 2 * WORLD.n_items
    assert any("cannot come from 12 users" in line for line in said)
    facts = outcome.model.numbers
    assert (
        float(facts.popularity.max()) < 12 + 53 * 8 * 2
    )  # users, and the margin of noise of scale 8
    assert bool(np.isfinite(facts.bias).all())
    shown = CliRunner().invoke(app, ["recommender", "status", str(service.folder.path)])
    assert f"a device sent wrong numbers in run {run.hex()[:12]}" in shown.output


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("design", ["A", "S"])
def test_possible_sums_stay_as_they_are(design: str, labels: bool) -> None:
    """The most that 50 users can give, with noise far out in its tail; one unit more than the
    margin is cut.
    """
    asked = survey(design, table(), labels=labels and design == "A")
    coding, n = coding_of(asked), asked.n_items
    channels = sum_channels(design, coding, asked.epsilon, labels=asked.labels)
    users, far = 50, 30  # scales of the noise
    weights = np.full(n, 64 * users)
    for sign in (1, -1):
        answer = SumContribution(
            scores=sign * (weights * coding.presence_step + far * int(channels.score.scale)),
            weights=weights + sign * far * int(channels.weight.scale),
            total=sign * int(weights.sum()),
        )
        same, changed = clamp_to_feasible(asked, answer, users)
        assert changed == 0
        np.testing.assert_array_equal(same.scores, answer.scores)
    counted = Popularity(weights=np.full(n, 10**17))
    cut, changed = clamp_to_feasible(asked, counted, users)
    assert changed == n
    assert int(cut.weights.max()) < 64 * users + 54 * (channels.popularity or channels.weight).scale
    more, _ = clamp_to_feasible(asked, counted, users, noises=16.0)
    assert int(more.weights.max()) > int(
        cut.weights.max()
    )  # more shares than make the noise: a wider margin


def test_a_score_without_weight_is_cut() -> None:
    """A device that leaves weights alone cannot move one item's score as far as all users
    together could.
    """
    asked = survey("A", table())
    n = asked.n_items
    answer = SumContribution(scores=np.full(n, 10**15), weights=np.zeros(n, np.int64), total=0)
    few, many = (clamp_to_feasible(asked, answer, users)[0] for users in (10**6, 10**9))
    assert int(few.scores.max()) == int(many.scores.max())
    assert bool(np.isfinite(OneRoundRecommender(asked).facts([few]).bias).all())


def test_impossible_gradients_become_possible_ones_and_that_is_said(tmp_path: Path) -> None:
    add, n_numbers = _adds(1 << 50), 2 * WORLD.n_items

    def change(message: ToRecommender) -> ToRecommender:
        in_a_round = isinstance(message, MaskedVector) and len(message.words) == 8 * n_numbers
        return (
            add(message) if in_a_round else message
        )  # counts beyond the number of users end a run

    service, _, said = town(tmp_path, {4: change})
    settings = RunSettings(method="hdpmf-paid", view="sums", minimum=9, rounds=2, factors=2)
    outcome = service.conduct(service.begin(settings))
    assert outcome.summary["impossible_numbers"] == 2 * n_numbers  # of two rounds
    assert any("cannot come from 12 users" in line for line in said)


@pytest.mark.parametrize("low", [-3.0, 0.0, 1.0])
def test_possible_gradients_stay_as_they_are(low: float) -> None:
    """The most that honest devices can send: vectors along an axis, all ratings at one end,
    noise far out.
    """
    n_users, plan = 40, _plan(low)
    factors = np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 0.0]], np.float32)
    asked = Round(number=1, item_factors=factors, raters=np.array([n_users, n_users, 0]), h=None)
    noise = (
        30
        * float(dense_laplace_scale(2, 4.0, plan.epsilon, plan.epochs, GRADIENT_STEP))
        * GRADIENT_STEP
    )
    everybody, axis = np.arange(n_users), np.tile([1.0, 0.0], (n_users, 1))
    for rating in (low, low + 4.0):
        sums = np.zeros((3, 2))
        for item in (0, 1):
            scale = RatingScale(low, low + 4.0, 1.0)
            whole = WholeGradients(
                everybody,
                np.full(n_users, item),
                np.full(n_users, rating),
                np.ones(n_users),
                scale,
                3,
            )
            sums += from_grid(whole.sums(axis, factors))
        for sign in (1.0, -1.0):
            sent = Gradients(number=1, sums=(sums + sign * noise).astype(np.float32))
            same, changed = clamp_gradients(plan, asked, sent, n_users, noises=1.0)
            assert changed == 0
            np.testing.assert_array_equal(same.sums, sent.sums)
    beyond = Gradients(number=1, sums=np.full((3, 2), 1e9, np.float32))
    cut, changed = clamp_gradients(plan, asked, beyond, n_users, noises=1.0)
    assert changed == 6
    few = clamp_gradients(plan, asked, beyond, 1, noises=1.0)[0].sums
    assert few[0, 0] < cut.sums[0, 0]  # fewer users are in this sum than have rated
    assert few[2, 0] == cut.sums[2, 0]  # nothing but noise is on an item that nobody rated
    per_user = (cut.sums[0, 0] - few[0, 0]) / (n_users - 1)
    assert per_user == pytest.approx(2 * (3.0 + abs(low) + 4.0), rel=1e-3)
    wider = clamp_gradients(plan, asked, beyond, n_users, noises=16.0)[0].sums
    assert (wider > cut.sums).all()  # more shares than make the noise


def _plan(low: float) -> Plan:
    return Plan(
        n_items=3,
        n_factors=2,
        epochs=5,
        learning_rate=0.01,
        reg=0.01,
        mechanism="paid",
        epsilon=1.0,
        scale_low=low,
        scale_high=low + 4.0,
        scale_steps=True,
        fresh_noise=True,
    )


# 17. A reply is bounded by what the run asks for.


def test_what_the_run_asks_for_bounds_a_reply() -> None:
    n, factors, rows = 3_000, 12, 3_000 * 7
    sent = {
        ("hdpmf", "messages"): Gradients(number=1, sums=np.zeros((n, factors), np.float32)),
        ("hdpmf", "sums"): MaskedVector(session=bytes(16), words=bytes(8 * n * factors)),
        ("hdp-sum", "sums"): MaskedVector(
            session=bytes(16), words=bytes(8 * (4 * n + 1))
        ),  # all items are heads
        ("hdp-bit", "messages"): BitContribution(
            senders=np.zeros(rows, np.int64),
            items=np.zeros(rows, np.int64),
            units=np.ones(rows, np.int64),
            plus=np.zeros(rows, np.int64),
        ),
    }
    for (method, view), message in sent.items():
        settings = RunSettings(method=method, view=view, minimum=3, rounds=1, factors=factors)  # type: ignore[arg-type]
        longest = settings.longest_reply(n, [1, 7, 2])
        body = encode_sum(message) if isinstance(message, MaskedVector) else encode(message)
        reply = encode(
            Reply(run=bytes(16), number=1, part="sum" if view == "sums" else "job", body=body)
        )
        assert len(reply) < longest < len(reply) + (1 << 21)
    holders = {place: bytes(SEALED_BYTES) for place in range(1024)}
    shares = encode_sum(
        DealtShares(
            session=bytes(16), sealed=holders, checks=dict.fromkeys(holders, bytes(CHECK_BYTES))
        )
    )
    assert len(shares) < RunSettings(
        method="hdp-sum", view="sums", minimum=3, rounds=1
    ).longest_reply(1, [1])
