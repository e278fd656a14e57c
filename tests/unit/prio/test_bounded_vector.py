"""Vector, bounded squares: sums are plain sums, and every lie is refused."""

from __future__ import annotations

from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.common.aggregation.two_servers.prio import (
    FIELD64,
    BoundedVector,
    prio3_bounded_vector,
    soundness_bits,
)
from hdpmf.errors import ConfigError, PrioError
from tests.unit.prio.prio_servers import HALF, NONCE, accepted, check, sum_of

PRIME = FIELD64.modulus
ROOT = pow(7, (PRIME - 1) // 4, PRIME)  # whose square is -1
ENTRIES = 8
SMALL = {
    "popularity": prio3_bounded_vector(ENTRIES, 24, 2000, False, b"task"),
    "values": prio3_bounded_vector(ENTRIES, 40, 5000, True, b"task"),
}
ROW = [24, 0, 2, 0, 19, 1, 3, 0]


def roots(rest: int, largest: int) -> list[int]:
    """Numbers whose squares add up to this one."""
    found = []
    while rest:
        found.append(min(isqrt(rest), largest))
        rest -= found[-1] ** 2
    return found


def of(circuit: BoundedVector, values: list[int], further: list[int] | None = None) -> list[int]:
    """A vector for any whole numbers: what is off the range of digits is in the lower one."""
    if further is None:
        rest = (circuit.bound - sum(value**2 for value in values)) % PRIME
        further = roots(rest, circuit.reach)
    every = values + [0] * (ENTRIES - len(values)) + further
    every += [0] * (circuit.items - len(every))
    lowest, half = (-circuit.reach, circuit.half) if circuit.signed else (0, 0)
    upper = [
        min(max((value - lowest) // circuit.degree, 0), 2 * circuit.half) - half for value in every
    ]
    lower = [value - circuit.degree * high for value, high in zip(every, upper, strict=True)]
    return [*lower, *upper, *subtotals(circuit, every)]


def subtotals(circuit: BoundedVector, every: list[int]) -> list[int]:
    starts = range(0, circuit.items, circuit.slots)
    return [sum(value**2 for value in every[start : start + circuit.slots]) for start in starts]


def broken(circuit: BoundedVector, numbers: list[int]) -> set[str]:
    """The constraints that a vector breaks, in Python's whole numbers."""
    lower, upper = numbers[: circuit.items], numbers[circuit.items : 2 * circuit.items]
    claims = numbers[2 * circuit.items :]
    allowed = {
        digit % PRIME
        for digit in range(
            -circuit.half if circuit.signed else 0,
            (1 if circuit.signed else 2) * circuit.half + 1,
        )
    }
    every = [low + circuit.degree * high for low, high in zip(lower, upper, strict=True)]
    found = {
        "digits": any(digit % PRIME not in allowed for digit in (*lower, *upper)),
        "squares": any(
            (claim - true) % PRIME
            for claim, true in zip(claims, subtotals(circuit, every), strict=True)
        ),
        "bound": (sum(claims) - circuit.bound) % PRIME != 0,
    }
    return {name for name, wrong in found.items() if wrong}


def changed(numbers: list[int], places: dict[int, int]) -> list[int]:
    return [number + places.get(place, 0) for place, number in enumerate(numbers)]


def lies_about(circuit: BoundedVector) -> dict[str, list[int]]:
    """Vectors that break one constraint each, which is the first word of their names."""
    n, largest, step = circuit.items, circuit.reach, circuit.degree
    first = 2 * n
    full = [largest] * (circuit.bound // largest**2)
    long = [*full, isqrt(circuit.bound - largest**2 * len(full)) + 1]
    over = sum(value**2 for value in long) - circuit.bound
    every = [largest] * ENTRIES
    truth, cost = of(circuit, ROW), ENTRIES * largest**2 - circuit.bound
    above = of(circuit, [largest + 1])
    rest = circuit.bound - (largest + 1) ** 2
    return {
        "digits of an entry above the largest": above,
        "digits of upper places alone": changed(above, {0: -step, n: 1}),
        "digits of an entry below the lowest": of(
            circuit, [-largest - 1 if circuit.signed else -1]
        ),
        "digits of halves": of(circuit, [HALF] * 4),
        "digits of a very large entry": of(circuit, [10**6, 10**6 * ROOT]),
        "digits of a root of less than nothing": of(
            circuit, long, [ROOT * value for value in roots(over, largest)]
        ),
        "digits of a further entry": of(circuit, [], [largest + 1, *roots(rest, largest)]),
        "digits of nothing": changed(truth, {1: -step, n + 1: 1}),
        "digits of nothing, halves": changed(truth, {1: -step * HALF, n + 1: HALF}),
        "digits of nothing, large ones": changed(truth, {1: -step * 10**6, n + 1: 10**6}),
        "squares that cancel": changed(truth, {first: 1, first + 1: -1}),
        "squares that wrap around": changed(truth, {first: 7 - PRIME, first + 2: PRIME - 7}),
        "squares of a shorter row": changed(of(circuit, long, []), {first: -over}),
        "squares of less than the largest row": changed(of(circuit, every, []), {first: -cost}),
        "squares of nothing": changed(of(circuit, [], []), {first: circuit.bound}),
        "bound that is not reached": of(circuit, ROW, []),
        "bound and one more": of(circuit, full, [1, *of(circuit, full)[ENTRIES:n]][: circuit.fill]),
        "bound and a row that is too long": of(circuit, long, []),
        "bound and the largest row": of(circuit, every, []),
        "bound and nothing": of(circuit, [], []),
    }


LIES = [(name, lie) for name, vdaf in SMALL.items() for lie in lies_about(vdaf.circuit)]


@pytest.mark.parametrize(("name", "lie"), LIES)
def test_a_lie_against_one_constraint_is_refused(name: str, lie: str) -> None:
    vdaf = SMALL[name]
    numbers = lies_about(vdaf.circuit)[lie]
    assert broken(vdaf.circuit, numbers) == {lie.split()[0]}
    assert not accepted(vdaf, numbers)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("row", [ROW, [0], [24, 24, 24], [1] * 8, [24, 24, 24, 16, 4]])
def test_the_truth_is_accepted(name: str, row: list[int]) -> None:
    """Also of just the bound's length (the last row, of popularity)."""
    vdaf = SMALL[name]
    assert vdaf.circuit.calls > 2
    padded = row + [0] * (ENTRIES - len(row))
    assert FIELD64.integers(vdaf.circuit.encode(np.array(padded))) == of(vdaf.circuit, row)
    assert accepted(vdaf, of(vdaf.circuit, row))


@pytest.mark.parametrize("name", SMALL)
@given(data=st.data())
@settings(max_examples=40)
def test_accepted_is_what_breaks_no_constraint(name: str, data: st.DataObject) -> None:
    vdaf = SMALL[name]
    lowest = -24 if vdaf.circuit.signed else 0
    row = data.draw(st.lists(st.integers(lowest, 24), max_size=3))
    places = st.integers(0, vdaf.circuit.length - 1)
    deltas = st.sampled_from([-9, -1, 0, 1, 5, HALF, PRIME - 1])
    changes = data.draw(st.dictionaries(places, deltas, max_size=2))
    numbers = changed(of(vdaf.circuit, row), changes)
    assert accepted(vdaf, numbers) == (broken(vdaf.circuit, numbers) == set())


@pytest.mark.parametrize(
    ("entries", "largest", "bound", "signed"),
    [
        (1, 4, 3, False),
        (3, 2, 9, True),
        (50, 80, 102_400, False),
        (50, 40, 25_600, True),
        (700, 288, 16 * 288**2, False),
        (9, 960, 16 * 960**2, False),
        (9, 255, (1 << 20) - 1, True),
        (1, 1, 1, True),
    ],
)
def test_sums_are_plain_sums(entries: int, largest: int, bound: int, signed: bool) -> None:
    vdaf = prio3_bounded_vector(entries, largest, bound, signed, b"")
    rng, most = np.random.default_rng(entries), min(largest, isqrt(bound // entries))
    lowest = -most if signed else 0
    rows = [*rng.integers(lowest, most + 1, (3, entries)), np.zeros(entries, int)]
    assert sum_of(vdaf, [vdaf.circuit.encode(row) for row in rows]) == sum(rows).tolist()


@pytest.mark.parametrize("name", SMALL)
def test_every_entry_and_every_rest_of_the_bound_is_accepted(name: str) -> None:
    """An honest device is never refused: what is left of the bound always has enough entries."""
    circuit = SMALL[name].circuit
    lowest = -circuit.reach if circuit.signed else 0
    for value in range(lowest, circuit.reach + 1):
        numbers = FIELD64.integers(circuit.encode(np.array([value] + [0] * (ENTRIES - 1))))
        assert broken(circuit, numbers) == set()
        assert numbers[0] + circuit.degree * numbers[circuit.items] == value
    for bound in range(1, 1200):
        other = BoundedVector(1, 24, bound, False)
        assert broken(other, FIELD64.integers(other.encode(np.zeros(1)))) == set()


@pytest.mark.parametrize("name", SMALL)
def test_a_device_does_not_share_what_is_off_its_range(name: str) -> None:
    circuit = SMALL[name].circuit
    long = isqrt(circuit.bound // ENTRIES) + 1
    rows = [circuit.reach + 1, 0], [-circuit.reach - 1, 0], [-1] * (not circuit.signed)
    for row in (*filter(None, rows), [long] * ENTRIES):
        with pytest.raises(PrioError, match="off its range or too long") as refused:
            circuit.encode(np.array((row + [0] * ENTRIES)[:ENTRIES]))
        assert not any(character.isdigit() for character in str(refused.value))
    with pytest.raises(PrioError, match="8 entries"):
        circuit.encode(np.zeros(ENTRIES + 1))


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ((0, 24, 2000, False), "an entry"),
        ((8, 0, 2000, False), "from 1 to 1088"),
        ((8, 1089, 2000, False), "from 1 to 1088"),
        ((8, 545, 2000, True), "from 1 to 544"),
        ((8, 24, 0, False), "at least 1"),
        ((1 << 40, 544, 2000, True), r"less than 2\^52"),
        ((8, 24, 1 << 52, False), r"less than 2\^52"),
    ],
)
def test_what_cannot_be_checked_is_no_circuit(parameters, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        BoundedVector(*parameters)


@pytest.mark.parametrize("other", [(24, 1999, False), (12, 2000, True)])
def test_a_report_for_other_parameters_is_refused(other: tuple[int, int, bool]) -> None:
    vdaf = SMALL["popularity"]
    elsewhere = prio3_bounded_vector(ENTRIES, *other, b"task")
    with pytest.raises(PrioError):
        check(vdaf, elsewhere.shard(elsewhere.circuit.encode(np.zeros(ENTRIES)), NONCE))


def test_soundness_and_size_are_what_the_pages_say() -> None:
    vdaf = prio3_bounded_vector(3706, 80, 102_400, False, b"")
    assert (vdaf.circuit.reach, vdaf.circuit.degree, vdaf.circuit.fill) == (80, 9, 22)
    assert 164 < soundness_bits(vdaf.circuit, 3) < 165
    assert vdaf.input_share_size(0) == 72_456
    assert prio3_bounded_vector(20_000, 80, 102_400, False, b"").input_share_size(0) == 349_784
    both = BoundedVector(2 * 3706 + 1, 255, 2 * ((1 << 20) - 1), True)
    assert (both.reach, both.degree) == (264, 23)
    assert 161 < soundness_bits(both, 3) < 162
