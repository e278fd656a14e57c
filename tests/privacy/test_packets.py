"""Everything that leaves a device, recorded and searched.

Nothing private is in it in clear, and with secure sums it does not depend on the ratings.

Entropy and noise are fixed here, so that the tests come out the same every time.
"""

from __future__ import annotations

import random
import secrets

import numpy as np
import pytest
from scipy import stats

from hdpmf.common.aggregation.masks import Roster, SecureSumServer, decode_to_recommender, propose
from hdpmf.common.aggregation.masks import encode as encode_sum
from hdpmf.common.aggregation.masks.messages import MaskedVector
from hdpmf.common.data import IdIndex, Ratings, RatingScale
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import (
    Envelope,
    Opening,
    Plan,
    Reply,
    Round,
    Survey,
    Terms,
    decode,
    encode,
)
from hdpmf.common.protocol.catalogue import catalogue_table, known_items
from hdpmf.common.protocol.layout import counts_layout, gradients_layout, survey_layout
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from tests.world import Device, NoNoise, waiting_numbers

pytestmark = pytest.mark.slow

LEVEL = 1e-4
"""Of each statistical test below."""

ITEMS = IdIndex([f"film {number:03d}" for number in range(60)])
SCALE = RatingScale(0.0, 10.0)
RUN = b"a recorded run.."
DEVICES = 4
POLICY = Policy(
    methods=("hdpmf", "hdpmf-paid", "hdp-sum", "hdp-bit"),
    allow_nominal=True,
    min_participants=3,
    min_devices=3,
    require_sums=False,
    min_neighbours=2,
    min_fraction="0",
    max_colluding="0",
)
TABLE = catalogue_table(ITEMS, SCALE)
FINGERPRINT = known_items(TABLE).fingerprint


@pytest.fixture(autouse=True)
def _fixed_secrets(monkeypatch):
    monkeypatch.setattr(secrets, "token_bytes", random.Random(1).randbytes)
    monkeypatch.setattr(secrets, "randbits", random.Random(2).getrandbits)


def ratings_of(device, seed):
    """Ratings with values and weights that no other number is likely to equal by chance."""
    rng = np.random.default_rng([seed, device])
    items = rng.choice(60, 14, replace=False)
    values = (10 * rng.random(14)).astype(np.float32)
    table = Ratings.from_arrays(
        [f"person {device}"] * 14, ITEMS.ids[items], values, scale=SCALE, items_index=ITEMS
    )
    return table, PrivacyWeights.from_parts(
        table, users=float(0.3 + 0.6 * rng.random()), items=0.5 + 0.5 * rng.random(60)
    )


class Recorder:
    """Devices, and everything that leaves them."""

    def __init__(self, view, seed=1):
        self.view, self.left = view, [[] for _ in range(DEVICES)]
        self.stores, self.agents = [], []
        for device in range(DEVICES):
            ratings, weights = ratings_of(device, seed)
            store = DeviceStore.create(":memory:", policy=POLICY)
            store.pin_catalogue(TABLE)
            store.add(ratings)
            store.set_weights(weights, ratings)
            self.stores.append(store)
            noise = SeededNoise(seed * 100 + device)
            self.agents.append(Device(store, noise=noise, simulation=True, seed=seed))
        keys = [store.identity.public for store in self.stores]
        for store in self.stores:
            store.pin_roster(keys, [1] * DEVICES)
        self.roster = Roster(keys)

    def tell(self, body, number=0, part="job", device=None):
        asked = range(DEVICES) if device is None else [device]
        replies = []
        for one in asked:
            data = self.agents[one].answer(
                encode(Envelope(run=RUN, number=number, part=part, body=body))
            )
            self.left[one].append(data)
            reply = decode(data)
            assert isinstance(reply, Reply)
            assert reply.part != "refusal", decode(reply.body)
            replies.append(reply.body)
        return replies

    def sum(self, number, words, until=None):
        plan = propose(self.roster, words.length, minimum=DEVICES, wide=words.wide)
        server = SecureSumServer(plan, self.roster)
        outgoing = server.advance()
        while outgoing:
            for device, message in outgoing.items():
                body = self.tell(encode_sum(message), number, "sum", device)[0]
                server.receive(device, decode_to_recommender(body))
            if isinstance(decode_to_recommender(body), until or ()):
                return None
            outgoing = server.advance()
        return words.decode(server.result.total)

    def terms(self, method, rounds):
        return Terms(
            method=method,
            view=self.view,
            epsilon=0.5,
            rounds=rounds,
            catalogue=FINGERPRINT,
            users=DEVICES,
            minimum=DEVICES,
            sharing=DEVICES,
            labels=method == "hdp-sum" and rounds == 2,
        )

    def train(self, method="hdpmf", mechanism="stretch", rounds=3):
        plan = Plan(
            n_items=60,
            n_factors=4,
            epochs=rounds,
            learning_rate=0.1,
            reg=0.01,
            mechanism=mechanism,
            epsilon=0.5,
            scale_low=0.0,
            scale_high=10.0,
            scale_steps=True,
            fresh_noise=True,
        )
        self.tell(encode(self.terms(method, rounds)))
        self.tell(encode(plan))
        self.tell(encode(Opening(noise_budget=0.5)))
        if self.view == "sums":
            self.sum(0, counts_layout(plan, DEVICES))
        rng = np.random.default_rng(5)
        for number in range(1, rounds + 1):
            factors = rng.normal(0, 0.3, (60, 4)).astype(np.float32)
            h = (
                None
                if mechanism == "paid"
                else rng.exponential(size=(60, 4)).astype(np.float32) + np.float32(0.01)
            )
            message = Round(number=number, item_factors=factors, raters=np.full(60, DEVICES), h=h)
            self.tell(encode(message), number)
            if self.view == "sums":
                self.sum(number, gradients_layout(plan, DEVICES))
        factors = rng.normal(0, 0.3, (60, 4)).astype(np.float32)
        last = Round(number=rounds + 1, item_factors=factors, raters=np.full(60, DEVICES), h=None)
        for agent in self.agents:
            assert agent.learn(TABLE, last, plan, run=RUN)

    def survey(self, design, until=None):
        survey = survey_of(design)
        self.tell(encode(self.terms("hdp-bit" if design == "L" else "hdp-sum", 1)))
        self.tell(encode(survey))
        if design != "L":
            self.sum(0, survey_layout(survey, DEVICES), until)


def survey_of(design):
    return Survey(
        design=design,
        coding="threshold" if design == "L" else "soft",
        epsilon=0.5,
        n_items=60,
        catalogue=FINGERPRINT,
        contributors=DEVICES,
        scale_low=0.0,
        scale_high=10.0,
        scale_step=None,
    )


def number_patterns(numbers):
    """How a number may look in bytes: single and double precision, either end first."""
    array = np.unique(np.asarray(numbers, np.float64).ravel())
    return {one.tobytes() for kind in ("<f4", ">f4", "<f8", ">f8") for one in array.astype(kind)}


def private_patterns(recorder, device):
    """Ratings, weights, user vectors, ids and item lists of one device, as bytes that they might
    leave as.
    """
    store, agent = recorder.stores[device], recorder.agents[device]
    ratings, weights = store.ratings(), store.weights()
    found = {"ratings": number_patterns(ratings.values)}
    found["weights"] = number_patterns(
        [*weights.beta, *weights.gamma[ratings.item_codes], *weights.for_ratings(ratings)]
    )
    if agent.model is not None and agent.model.vectors:
        found["vectors"] = number_patterns(np.frombuffer(agent.model.vectors, np.float32))
    found["names"] = {b"person", *(str(one).encode() for one in ratings.item_ids.tolist())}
    codes = np.sort(ratings.item_codes)
    found["items"] = {np.array(codes[at : at + 3], kind).tobytes() for at in range(len(codes) - 2)
                      for kind in ("<i4", "<i8", ">i4", ">i8")}  # fmt: skip
    found["items"] |= {bytes(codes[at : at + 4].tolist()) for at in range(len(codes) - 3)}
    bits = np.zeros(60, np.uint8)
    bits[codes] = 1
    found["items"] |= {
        np.packbits(bits, bitorder=order).tobytes() for order in ("big", "little")
    } | {bits.tobytes()}
    return found


RUNS = {
    "hdpmf, messages": lambda: ("messages", lambda one: one.train()),
    "hdpmf, sums": lambda: ("sums", lambda one: one.train()),
    "hdpmf-paid, sums": lambda: ("sums", lambda one: one.train("hdpmf-paid", "paid")),
    "hdp-sum": lambda: ("sums", lambda one: one.survey("A")),
    "hdp-bit": lambda: ("messages", lambda one: one.survey("L")),
}


@pytest.mark.parametrize("name", RUNS)
def test_nothing_private_leaves_in_clear(name):
    view, play = RUNS[name]()
    recorder = Recorder(view)
    play(recorder)
    for device in range(DEVICES):
        everything = b"".join(recorder.left[device])
        for kind, patterns in private_patterns(recorder, device).items():
            found = any(one in everything for one in patterns)
            # One bit per rating comes with its item: that is this design, and the ledger and the
            # documents say so.
            assert found == (name == "hdp-bit" and kind == "items"), f"{kind} of device {device}"


def test_the_search_finds_what_is_there():
    recorder = Recorder("messages")
    recorder.train()
    private = private_patterns(recorder, 0)
    ratings, model = recorder.stores[0].ratings(), recorder.agents[0].model
    for kind, leak in (
        ("ratings", ratings.values.tobytes()),
        ("weights", recorder.stores[0].weights().for_ratings(ratings).tobytes()),
        ("vectors", model.vectors),
        ("names", b"... film 0" + str(ratings.item_ids[0]).encode()),
        ("items", np.sort(ratings.item_codes).tobytes()),
    ):
        assert any(one in leak for one in private[kind]), kind


def test_without_secure_sums_it_shows_which_items_were_rated_as_the_ledger_says():
    recorder = Recorder("messages")
    recorder.train()
    rated = np.unique(recorder.stores[0].ratings().item_codes)
    shown = [decode(decode(data).body) for data in recorder.left[0]]
    counts = next(one for one in shown if hasattr(one, "counts")).counts
    assert np.array_equal(np.flatnonzero(counts), rated)
    assert "and which items it rated" in recorder.stores[0].ledger.entries()[0].words


def test_lengths_and_kinds_do_not_depend_on_ratings():
    seen = []
    for seed in (1, 2):
        recorder = Recorder("sums", seed)
        recorder.train()
        kinds = [(decode(data).part, len(data)) for data in recorder.left[0]]
        seen.append(kinds)
    assert seen[0] == seen[1]


def words_seen(seed, runs):
    """Masked vectors of device 0, and all that it sent, over runs with the same ratings."""
    vectors, sent = [], []
    for _ in range(runs):
        recorder = Recorder("sums", seed)
        recorder.survey("A", until=MaskedVector)
        replies = [decode(data) for data in recorder.left[0]]
        words = [decode_to_recommender(one.body) for one in replies if one.part == "sum"]
        vectors.append(
            np.frombuffer(
                next(one.words for one in words if isinstance(one, MaskedVector)), np.uint8
            )
        )
        sent.append(np.frombuffer(b"".join(recorder.left[0]), np.uint8))
    return np.array(vectors), np.array(sent)


def p_value(one, other):
    """Whether two sets of bytes have the same distribution."""
    table = np.array(
        [np.bincount(np.ravel(one), minlength=256), np.bincount(np.ravel(other), minlength=256)]
    )
    return stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue


def test_with_secure_sums_what_leaves_is_independent_of_the_ratings():
    """40 runs with each of two sets of ratings: 38,000 bytes of masked words each, compared in
    three ways.
    """
    (one, sent), (other, sent_other) = words_seen(1, 40), words_seen(2, 40)
    assert one.shape == other.shape
    assert p_value(one, other) > LEVEL
    for vectors in (one, other):
        assert stats.chisquare(np.bincount(vectors.ravel(), minlength=256)).pvalue > LEVEL
    # Number by number: its mean over the runs of one set against the other's; the smallest of 121
    # p-values.
    sizes = one.view("<u8").astype(float), other.view("<u8").astype(float)
    assert stats.ttest_ind(*sizes).pvalue.min() > LEVEL / sizes[0].shape[1]
    # Everything else that was sent: the same length, and the same bytes but for keys, shares and
    # signatures.
    assert sent.shape[1] == sent_other.shape[1]
    assert p_value(sent, sent_other) > LEVEL


def test_the_statistics_tell_two_sets_of_ratings_apart_without_masks():
    """What would leave without masks and noise: the same test sees the difference at once."""

    vectors = []
    for seed in (1, 2):
        recorder = Recorder("sums", seed)
        recorder.agents = [
            Device(store, noise=NoNoise(), simulation=True) for store in recorder.stores
        ]
        recorder.tell(encode(recorder.terms("hdp-sum", 1)))
        recorder.tell(encode(survey_of("A")))
        vectors.append(np.tile(waiting_numbers(recorder.agents[0], RUN), (40, 1)))
    assert p_value(vectors[0].view(np.uint8), vectors[1].view(np.uint8)) < LEVEL
