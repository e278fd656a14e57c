"""Our own circuit: sums are plain sums, and every lie is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from hdpmf import load_dataset
from hdpmf.common.aggregation.two_servers.prio import (
    FIELD64,
    OneRatingPerItem,
    Prio3,
    ReportShares,
    prio3_one_rating,
    soundness_bits,
)
from hdpmf.common.aggregation.two_servers.prio.one_rating import LARGEST_WEIGHT
from hdpmf.common.aggregation.two_servers.prio.proof import decide, prove, query
from hdpmf.common.privacy.coding import (
    WEIGHT_UNITS,
    levels_of,
    make_coding,
    make_ruler,
    weight_units,
)
from hdpmf.errors import ConfigError, PrioError
from tests.unit.prio.prio_servers import NONCE, check, sum_of

CODES, RULERS = (-5, -5, -2, 3, 5), (-2, -1, 0, 1, 2)  # one to five stars in hdp-sum's soft coding
ITEMS = 40
HALF = (FIELD64.modulus + 1) // 2


class Said(NamedTuple):
    """What a device says, in whole numbers: any, if it lies."""

    lower: list[int]
    upper: list[int]
    levels: list[int]
    scores: list[int]
    subtotals: list[int]

    def vector(self) -> np.ndarray:
        """As it is shared."""
        return FIELD64.vector([number for part in self for number in part])


@pytest.fixture(scope="module")
def vdaf() -> Prio3:
    return prio3_one_rating(ITEMS, CODES, RULERS, b"task")


def user(items: int, levels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 65, items) * (rng.random(items) < 0.6)
    weights[: min(items, 2)] = (64, 0)[: min(items, 2)]
    return weights, rng.integers(0, levels, items)


def truth(circuit: OneRatingPerItem, seed: int = 7) -> Said:
    """A legal user's numbers, whose first two items have ratings."""
    vector = circuit.encode(*user(circuit.items, circuit.levels, seed))
    numbers = FIELD64.integers(vector)
    cuts = [0, *(circuit.items * part for part in range(1, 5)), len(numbers)]
    return Said(*(numbers[start:end] for start, end in pairwise(cuts)))


def through(table: tuple[int, ...], at: int) -> int:
    """The polynomial through the table's values at 0, 1, 2, ..., elsewhere."""
    total = 0
    for place, value in enumerate(table):
        for other in range(len(table)):
            if other != place:
                value = value * (at - other) * pow(place - other, -1, FIELD64.modulus)
        total += value
    return total % FIELD64.modulus


def consistent(circuit: OneRatingPerItem, said: Said) -> Said:
    """With the scores and subtotals that belong to digits and levels, whatever these are."""
    weights = [low + 7 * high for low, high in zip(said.lower, said.upper, strict=True)]
    rated = list(zip(weights, said.levels, strict=True))
    ruled = [weight * through(RULERS, level) for weight, level in rated]
    subtotals = [
        sum(ruled[start : start + circuit.slots])
        for start in range(0, circuit.items, circuit.slots)
    ]
    return said._replace(
        scores=[weight * through(CODES, level) for weight, level in rated], subtotals=subtotals
    )


def changed(numbers: list[int], places: dict[int, int]) -> list[int]:
    return [number + places.get(place, 0) for place, number in enumerate(numbers)]


def lower_digit(circuit, said):
    return consistent(circuit, said._replace(lower=[9, *said.lower[1:]]))


def upper_digit(circuit, said):
    return consistent(circuit, said._replace(upper=[9, *said.upper[1:]]))


def negative_weight(circuit, said):
    return consistent(
        circuit, said._replace(lower=[-1, *said.lower[1:]], upper=[0, *said.upper[1:]])
    )


def half_a_digit(circuit, said):
    return consistent(circuit, said._replace(lower=[HALF, *said.lower[1:]]))


def level(circuit, said):
    return consistent(circuit, said._replace(levels=[5, *said.levels[1:]]))


def half_a_level(circuit, said):
    return consistent(circuit, said._replace(levels=[HALF, *said.levels[1:]]))


def score(circuit, said):
    return said._replace(scores=changed(said.scores, {0: 1}))


def score_without_weight(circuit, said):
    return said._replace(scores=changed(said.scores, {1: 320}))


def scores_that_cancel_within_a_call(circuit, said):
    return said._replace(scores=changed(said.scores, {0: 1, 1: -1}))


def scores_that_cancel_between_calls(circuit, said):
    return said._replace(scores=changed(said.scores, {0: 1, circuit.slots: -1}))


def subtotal(circuit, said):
    return said._replace(subtotals=changed(said.subtotals, {0: 1}))


def subtotals_that_cancel(circuit, said):
    return said._replace(subtotals=changed(said.subtotals, {0: 1, 1: -1}))


# Each lie, and the part of the circuit that is there to refuse it: lower digits, upper digits,
# levels, scores, subtotals.
LIES: list[tuple[Callable[[OneRatingPerItem, Said], Said], int]] = [
    (lower_digit, 0),
    (negative_weight, 0),
    (half_a_digit, 0),
    (upper_digit, 1),
    (level, 2),
    (half_a_level, 2),
    (score, 3),
    (score_without_weight, 3),
    (scores_that_cancel_within_a_call, 3),
    (scores_that_cancel_between_calls, 3),
    (subtotal, 4),
    (subtotals_that_cancel, 4),
]


@pytest.mark.parametrize(
    ("lie", "constraint"), LIES, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_lie_is_refused_and_by_its_own_constraint(vdaf: Prio3, lie, constraint: int):
    said = lie(vdaf.circuit, truth(vdaf.circuit))
    with pytest.raises(PrioError, match="proof does not hold"):
        check(vdaf, vdaf.shard(said.vector(), NONCE))

    class Unchecked(OneRatingPerItem):
        def _factors(self, joint):
            factors = super()._factors(joint)
            end = len(factors) if constraint == 4 else (constraint + 1) * self.slots
            factors[constraint * self.slots : end] = 0
            return factors

    careless = Prio3(Unchecked(ITEMS, CODES, RULERS), 0xFFFF1001, proofs=3, context=b"")
    check(careless, careless.shard(said.vector(), NONCE))


def test_the_truth_is_what_lies_start_from(vdaf: Prio3):
    said = truth(vdaf.circuit)
    assert said.vector().tobytes() == consistent(vdaf.circuit, said).vector().tobytes()
    assert vdaf.circuit.calls > 1
    check(vdaf, vdaf.shard(said.vector(), NONCE))


def test_the_gadget_is_the_sum_of_the_constraints_anywhere(vdaf: Prio3):
    """At wires that are no ratings, too: that is where servers look at it."""
    circuit, prime = vdaf.circuit, FIELD64.modulus
    rng = np.random.default_rng(5)
    joint = [int(number) for number in rng.integers(0, 2**62, circuit.random_length)]
    wires = [int(number) for number in rng.integers(0, 2**62, circuit.arity)]
    lower, upper, levels = (wires[circuit.slots * part :][: circuit.slots] for part in range(3))
    constraints = [
        *(math.prod(digit - k for k in range(9)) for digit in (*lower, *upper)),
        *(math.prod(level - k for k in range(5)) for level in levels),
        *(
            (low + 7 * high) * through(CODES, at)
            for low, high, at in zip(lower, upper, levels, strict=True)
        ),
        sum(
            (low + 7 * high) * through(RULERS, at)
            for low, high, at in zip(lower, upper, levels, strict=True)
        ),
    ]
    expected = sum(
        pow(joint[0], power, prime) * value for power, value in enumerate(constraints, 1)
    )
    found = circuit.gadget(FIELD64.vector(wires).reshape(-1, 1), FIELD64.vector(joint))
    assert FIELD64.encode(found) == FIELD64.encode(FIELD64.vector([expected]))


@pytest.mark.parametrize(
    ("items", "codes", "rulers"),
    [
        (1, (0, 1), (0, 0)),
        (7, CODES, RULERS),
        (ITEMS, CODES, RULERS),
        (101, tuple(range(-9, 11, 2)), tuple(range(10))),  # half stars: ten levels
    ],
)
def test_sums_are_plain_sums(items: int, codes: tuple[int, ...], rulers: tuple[int, ...]):
    vdaf = prio3_one_rating(items, codes, rulers, b"")
    users = [user(items, len(codes), seed) for seed in range(4)]
    coded, ruled = np.array(codes), np.array(rulers)
    plain = sum(
        np.concatenate([weights * coded[levels], weights, [(weights * ruled[levels]).sum()]])
        for weights, levels in users
    )
    assert sum_of(vdaf, [vdaf.circuit.encode(*who) for who in users]) == plain.tolist()


def test_every_weight_has_digits():
    assert LARGEST_WEIGHT == WEIGHT_UNITS
    circuit = OneRatingPerItem(65, CODES, RULERS)
    weights = np.arange(65)
    output = circuit.truncate(circuit.encode(weights, weights % 5))
    assert FIELD64.integers(output)[65:-1] == weights.tolist()
    said = truth(circuit)
    assert {*said.lower, *said.upper} <= set(range(9))


@pytest.mark.parametrize("where", ["weights", "levels"])
@pytest.mark.parametrize("value", [-1, 65])
def test_a_device_does_not_share_what_is_no_rating(vdaf: Prio3, where: str, value: int):
    weights, levels = user(ITEMS, 5, 0)
    (weights if where == "weights" else levels)[3] = value
    with pytest.raises(PrioError, match="off its range") as refused:
        vdaf.circuit.encode(weights, levels)
    assert str(value) not in str(refused.value)
    with pytest.raises(PrioError, match="40 items"):
        vdaf.circuit.encode(weights[:-1], levels[:-1])


@pytest.mark.parametrize("other", ["context", "codes", "rulers"])
def test_a_report_for_another_task_or_other_parameters_is_refused(vdaf: Prio3, other: str):
    given = {"context": b"task", "codes": CODES, "rulers": RULERS}
    given[other] = b"tasks" if other == "context" else CODES[::-1]
    elsewhere = prio3_one_rating(ITEMS, **given)
    empty = elsewhere.circuit.encode(np.zeros(ITEMS, int), np.zeros(ITEMS, int))  # valid in both
    with pytest.raises(PrioError):
        check(vdaf, elsewhere.shard(empty, NONCE))
    # Not only the proof but all randomness is another one.
    randomness = bytes(vdaf.random_size)
    parts = [prio.shard(empty, NONCE, randomness).public_share for prio in (vdaf, elsewhere)]
    assert parts[0][:32] != parts[1][:32]
    assert parts[0][32:] != parts[1][32:]


def test_a_changed_share_proof_part_or_nonce_is_refused(vdaf: Prio3):
    report = vdaf.shard(truth(vdaf.circuit).vector(), NONCE)
    leader, helper = report.input_shares
    proof = vdaf.circuit.length * 8
    altered = [
        *(
            ReportShares(report.public_share, [flipped(leader, place), helper])
            for place in (0, proof, proof + 800)
        ),
        *(ReportShares(report.public_share, [leader, flipped(helper, place)]) for place in (0, 32)),
        *(ReportShares(flipped(report.public_share, place), [leader, helper]) for place in (0, 32)),
        ReportShares(report.public_share, [flipped(leader, len(leader) - 1), helper]),
    ]
    for attempt in altered:
        with pytest.raises(PrioError):
            check(vdaf, attempt)
    with pytest.raises(PrioError):
        check(vdaf, report, nonce=bytes(16))
    check(vdaf, report)


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_servers_with_different_verify_keys_accept_nothing(vdaf: Prio3):
    report = vdaf.shard(truth(vdaf.circuit).vector(), NONCE)
    parts = [
        vdaf.prepare(bytes([server] * 32), server, NONCE, report.public_share, share)[1]
        for server, share in enumerate(report.input_shares)
    ]
    with pytest.raises(PrioError):
        vdaf.verify(parts)


def test_a_point_at_which_an_input_would_be_seen_is_refused(vdaf: Prio3):
    circuit, field = vdaf.circuit, vdaf.field
    vector, joint = truth(circuit).vector(), field.vector(range(1, circuit.random_length + 1))
    proof = prove(circuit, vector, field.vector(range(circuit.arity)), joint)
    root = pow(7, (field.modulus - 1) // circuit.span, field.modulus)
    for power in (0, 1, circuit.span - 1):
        at = field.vector([*range(circuit.outputs), pow(root, power, field.modulus)])
        with pytest.raises(PrioError, match="would show an input"):
            query(circuit, vector, proof, at, joint, 1)
    elsewhere = field.vector([*range(circuit.outputs), root + 1])
    assert decide(circuit, query(circuit, vector, proof, elsewhere, joint, 1), joint)


def test_a_share_of_nothing_looks_like_a_share_of_ratings(vdaf: Prio3):
    """Level 1e-6: the mean of uniform elements; and the same sizes."""
    silent = vdaf.circuit.encode(np.zeros(ITEMS, int), np.zeros(ITEMS, int))
    loud = vdaf.circuit.encode(np.full(ITEMS, 64), np.full(ITEMS, 4))
    for vector in (silent, loud):
        report = vdaf.shard(vector, NONCE, bytes(range(3, 3 + vdaf.random_size)))
        assert [len(share) for share in report.input_shares] == [vdaf.input_share_size(0), 64]
        elements = vdaf.field.decode(
            report.input_shares[0][:-32], vdaf.input_share_size(0) // 8 - 4
        )
        mean = float((elements / FIELD64.modulus).mean())
        assert abs(mean - 0.5) < 4.9 * (1 / 12 / len(elements)) ** 0.5


def test_no_share_is_printed(vdaf: Prio3):
    report = vdaf.shard(truth(vdaf.circuit).vector(), NONCE)
    kept, _ = vdaf.prepare(bytes(32), 0, NONCE, report.public_share, report.input_shares[0])
    assert repr(report) == f"ReportShares(public_share={report.public_share!r})"
    assert repr(kept) == "Preparation()"


def test_soundness_is_what_the_pages_say():
    circuit = OneRatingPerItem(3706, CODES, RULERS)
    assert (circuit.slots, circuit.calls, circuit.degree) == (120, 31, 9)
    assert 163 < soundness_bits(circuit, 3) < 164


@pytest.mark.slow
def test_real_users_give_the_sums_of_hdp_sum(data_folder: Path):
    train = load_dataset("ml-100k")
    coding, ruler = make_coding("soft", train.scale, 1.0), make_ruler(train.scale)
    units = weight_units(np.random.default_rng(3).random(len(train)))
    vdaf = prio3_one_rating(train.n_items, coding.entries, ruler.entries, b"ml-100k")
    vectors, plain = [], np.zeros(vdaf.circuit.output_length, np.int64)
    for who in range(25):
        rows = np.flatnonzero(train.user_codes == who)
        items, values = train.item_codes[rows], train.values[rows]
        weights, levels = np.zeros((2, train.n_items), np.int64)
        weights[items], levels[items] = units[rows], levels_of(values, train.scale)
        vectors.append(vdaf.circuit.encode(weights, levels))
        np.add.at(plain, items, units[rows] * coding.encode(values))
        np.add.at(plain, train.n_items + items, units[rows])
        plain[-1] += int((units[rows] * ruler.encode(values)).sum())
    assert sum_of(vdaf, vectors) == plain.tolist()


@pytest.mark.parametrize("codes", [(1,), tuple(range(17))])
def test_a_scale_that_the_circuit_cannot_check_is_refused(codes: tuple[int, ...]):
    with pytest.raises(ConfigError, match="levels"):
        OneRatingPerItem(3, codes, codes)
