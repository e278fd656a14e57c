"""Rank one, bounded trace: sums are sums of outer products, and every lie is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.common.aggregation.two_servers.prio import (
    FIELD64,
    RankOne,
    prio3_rank_one,
    soundness_bits,
)
from hdpmf.common.aggregation.two_servers.prio.rank_one import bits_of, weights_of
from hdpmf.errors import ConfigError, PrioError
from tests.unit.prio.prio_servers import HALF, NONCE, accepted, check, sum_of

HEADS, LARGEST, BOUND = 6, 100, 20_000
VDAF = prio3_rank_one(HEADS, LARGEST, BOUND, b"task")
ENTRY, SLACK = weights_of(LARGEST), weights_of(BOUND)
BITS = HEADS * len(ENTRY)
PAIRS = [(j, k) for j in range(HEADS) for k in range(j, HEADS)]
PLACE = {pair: BITS + len(SLACK) + place for place, pair in enumerate(PAIRS)}

ROW = [100, 0, 37, 1, 60, 5]  # of squared length 14,995
OTHER = [1, 2, 3, 4, 5, 6]
LONG = [100, 100, 1, 0, 0, 0]  # one above the bound


def products(row: list[int]) -> list[int]:
    return [row[j] * row[k] for j, k in PAIRS]


def squares(row: list[int]) -> int:
    return sum(entry * entry for entry in row)


def of(row: list[int], slack: int | None = None, claims: list[int] | None = None) -> list[int]:
    """A vector for any whole numbers: what is off the range of bits is in the lowest one."""
    slack = BOUND - squares(row) if slack is None else slack
    bits = []
    for values, largest in ((row, LARGEST), ([slack], BOUND)):
        within = np.array([min(max(value, 0), largest) for value in values])
        planes = bits_of(within, largest).tolist()
        planes[0] = [
            bit + value - int(kept)
            for bit, value, kept in zip(planes[0], values, within, strict=True)
        ]
        bits += [bit for plane in planes for bit in plane]
    return [*bits, *(products(row) if claims is None else claims)]


def changed(numbers: list[int], places: dict[int, int]) -> list[int]:
    return [number + places.get(place, 0) for place, number in enumerate(numbers)]


def broken(numbers: list[int]) -> set[str]:
    """The constraints that a vector breaks, in Python's whole numbers."""
    prime = FIELD64.modulus
    row = [
        sum(weight * numbers[plane * HEADS + j] for plane, weight in enumerate(ENTRY))
        for j in range(HEADS)
    ]
    first = BITS + len(SLACK)
    slack = sum(weight * bit for weight, bit in zip(SLACK, numbers[BITS:first], strict=True))
    trace = sum(numbers[PLACE[j, j]] for j in range(HEADS)) + slack
    found = {
        "bits": any(bit % prime > 1 for bit in numbers[:first]),
        "products": any(
            (claim - true) % prime
            for claim, true in zip(numbers[first:], products(row), strict=True)
        ),
        "trace": (trace - BOUND) % prime != 0,
    }
    return {name for name, wrong in found.items() if wrong}


TRUTH = of(ROW)
MANY = [a + b for a, b in zip(products(ROW), products(OTHER), strict=True)]
TURNED = [-p if (j == 0) != (k == 0) else p for p, (j, k) in zip(products(ROW), PAIRS, strict=True)]
ALONE = [p if j == k else 0 for p, (j, k) in zip(products(ROW), PAIRS, strict=True)]
TWICE = [p if j == k else 2 * p for p, (j, k) in zip(products(ROW), PAIRS, strict=True)]
LAST = (len(ENTRY) - 1) * HEADS

LIES = {
    "bits": {
        "an entry above the largest": of([101, *ROW[1:]]),
        "an entry of all bits and one more": of([0, 101, 0, 0, 0, 0]),
        "a negative entry": of([-1, *ROW[1:]]),
        "half an entry": of([HALF, 0, 0, 0, 0, 0]),
        "an entry of another bit": changed(TRUTH, {0: 2, HEADS: -1}),
        "a negative last bit": changed(TRUTH, {LAST + 1: -1, 1: 1, 2 * HEADS + 1: 1, 31: 1}),
        "a slack of another bit": changed(TRUTH, {BITS: 2, BITS + 1: -1}),
        "half a bit of slack": changed(TRUTH, {BITS: -1, BITS + 1: HALF}),
        "a row that is one too long": of(LONG),
        "a row of the largest entries": of([LARGEST] * HEADS),
        "a row of very large entries": of([1 << 40, *OTHER[1:]]),
    },
    "products": {
        "a product": changed(TRUTH, {PLACE[0, 1]: 1}),
        "the last product": changed(TRUTH, {PLACE[4, 5]: -1}),
        "products that cancel": changed(TRUTH, {PLACE[0, 1]: 1, PLACE[0, 2]: -1}),
        "squares that cancel": changed(TRUTH, {PLACE[0, 0]: 1, PLACE[1, 1]: -1}),
        "a product and its mirror": changed(TRUTH, {PLACE[1, 4]: 60, PLACE[2, 3]: -60}),
        "half a product": changed(TRUTH, {PLACE[2, 3]: HALF}),
        "a sign": of(ROW, claims=TURNED),
        "squares alone": of(ROW, claims=ALONE),
        "products twice": of(ROW, claims=TWICE),
        "everything twice": of(OTHER, BOUND - 2 * 91, [2 * p for p in products(OTHER)]),
        "another row's products": of(ROW, BOUND - 91, products(OTHER)),
        "products of nobody's row": of([0] * HEADS, BOUND - squares(ROW), products(ROW)),
        "a row without products": of(ROW, BOUND, [0] * len(PAIRS)),
        "the products of two rows": of(ROW, BOUND - squares(ROW) - 91, MANY),
    },
    "trace": {
        "too much slack": of(ROW, BOUND - squares(ROW) + 1),
        "too little slack": of(ROW, BOUND - squares(ROW) - 1),
        "no slack": of(ROW, 0),
        "all slack": of(ROW, BOUND),
        "no slack and no row": of([0] * HEADS, 0),
        "slack for a full row": of([100, 100, 0, 0, 0, 0], 1),
        "a row that is one too long, without slack": of(LONG, 0),
        "the largest row, with all slack": of([LARGEST] * HEADS, BOUND),
    },
}


@pytest.mark.parametrize(
    ("constraint", "lie"), [(which, lie) for which, lies in LIES.items() for lie in lies]
)
def test_a_lie_against_one_constraint_is_refused(constraint: str, lie: str) -> None:
    numbers = LIES[constraint][lie]
    assert broken(numbers) == {constraint}
    assert not accepted(VDAF, numbers)


@pytest.mark.parametrize(
    "row", [ROW, [0] * HEADS, [LARGEST, LARGEST, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1], [57] * HEADS]
)
def test_the_truth_is_accepted(row: list[int]) -> None:
    """Also of just the bound's length, and of one below the length of the first lie."""
    assert VDAF.circuit.calls > 2
    vector = VDAF.circuit.encode(np.array(row))
    assert FIELD64.integers(vector) == of(row)
    assert broken(of(row)) == set()
    assert accepted(VDAF, of(row))


ROWS = st.lists(st.integers(0, 57), min_size=HEADS, max_size=HEADS)
CHANGES = st.dictionaries(
    st.integers(0, VDAF.circuit.length - 1),
    st.sampled_from([-2, -1, 0, 1, 2, 60, HALF, FIELD64.modulus - 1]),
    max_size=3,
)


@given(row=ROWS, changes=CHANGES)
@settings(max_examples=60)
def test_accepted_is_what_breaks_no_constraint(row: list[int], changes: dict[int, int]) -> None:
    numbers = changed(of(row), changes)
    assert accepted(VDAF, numbers) == (broken(numbers) == set())


@pytest.mark.parametrize(
    ("heads", "largest", "bound"), [(1, 1, 1), (2, 3, 11), (7, 10, 200), (40, 1023, 2**24 - 1)]
)
def test_sums_are_those_of_outer_products(heads: int, largest: int, bound: int) -> None:
    vdaf, rng = prio3_rank_one(heads, largest, bound, b""), np.random.default_rng(heads)
    rows = [np.minimum(rng.integers(0, largest + 1, heads), int((bound / heads) ** 0.5))] * 2
    rows.append(np.zeros(heads, int))
    plain = sum(np.outer(row, row)[np.triu_indices(heads)] for row in rows)
    assert sum_of(vdaf, [vdaf.circuit.encode(row) for row in rows]) == plain.tolist()


@pytest.mark.parametrize("largest", [1, 2, 3, 63, 64, 100, 1023])
def test_every_number_of_a_range_has_bits(largest: int) -> None:
    values = np.arange(largest + 1)
    planes = bits_of(values, largest)
    assert set(planes.ravel().tolist()) <= {0, 1}
    assert (np.array(weights_of(largest)) @ planes).tolist() == values.tolist()
    assert sum(weights_of(largest)) == largest


@pytest.mark.parametrize("row", [[*ROW[:-1], -1], [101, *ROW[1:]], LONG])
def test_a_device_does_not_share_what_is_off_its_range(row: list[int]) -> None:
    with pytest.raises(PrioError, match="off its range or too long") as refused:
        VDAF.circuit.encode(np.array(row))
    assert not any(character.isdigit() for character in str(refused.value))
    with pytest.raises(PrioError, match="6 entries"):
        VDAF.circuit.encode(np.array(row[:-1]))


@pytest.mark.parametrize(
    "parameters", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (300, 1 << 27, 1), (1, 1, 1 << 62)]
)
def test_squares_that_could_wrap_around_are_no_circuit(parameters: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match="less than 2\\^62"):
        RankOne(*parameters)


@pytest.mark.parametrize("other", [(99, BOUND, b"task"), (LARGEST, 20_001, b"task")])
def test_a_report_for_other_parameters_is_refused(other: tuple[int, int, bytes]) -> None:
    elsewhere = prio3_rank_one(HEADS, *other)
    report = elsewhere.shard(elsewhere.circuit.encode(np.zeros(HEADS)), NONCE)
    assert len(report.input_shares[0]) == VDAF.input_share_size(0)
    with pytest.raises(PrioError):
        check(VDAF, report)


def test_soundness_and_size_are_what_the_pages_say() -> None:
    circuit = RankOne(300, 1023, 2**24 - 1)
    assert (circuit.chunk, circuit.calls) == (49, 62)
    assert 169 < soundness_bits(circuit, 3) < 170
    assert prio3_rank_one(300, 1023, 2**24 - 1, b"").input_share_size(0) == 390_824
