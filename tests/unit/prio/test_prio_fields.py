"""The field against Python's own whole numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest
from Crypto.Hash import TurboSHAKE128
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from hdpmf.common.aggregation.two_servers.prio import FIELD64, Field, arithmetic, compiled
from hdpmf.common.aggregation.two_servers.prio.field import derive_seed, turboshake128
from hdpmf.errors import PrioError
from tests.unit.prio.circuits import FIELD128

BOTH = [FIELD64, FIELD128]
# A jump that depends on something, on x86 and on ARM.
CONDITIONAL_JUMP = re.compile(r"^\s+(?:j(?!mp\b)[a-z]+|b\.\w+|cbn?z|tbn?z)\s", re.MULTILINE)


def edges(field: Field) -> list[int]:
    """Numbers around which carries, borrows and reductions happen, and some others."""
    steps = [1 << shift for shift in range(0, 8 * field.size, 16)]
    near = [number + off for number in (0, *steps, field.modulus) for off in (-2, -1, 0, 1, 2)]
    some = np.random.default_rng(1).integers(0, 2**62, 20)
    return sorted(
        {
            number % field.modulus
            for number in (*near, *(int(x) * 0x9E3779B97F4A7C15F39CC060 for x in some))
        }
    )


@pytest.mark.parametrize("field", BOTH, ids=lambda field: field.name)
def test_arithmetic_is_that_of_whole_numbers_modulo_the_prime(field: Field):
    left, right = zip(*((a, b) for a in edges(field) for b in edges(field)), strict=True)
    a, b = field.vector(left), field.vector(right)
    for ours, theirs in (
        (field.add, [x + y for x, y in zip(left, right, strict=True)]),
        (field.sub, [x - y for x, y in zip(left, right, strict=True)]),
        (field.mul, [x * y for x, y in zip(left, right, strict=True)]),
    ):
        assert field.encode(ours(a, b)) == field.encode(field.vector(theirs))


@pytest.mark.parametrize("field", BOTH, ids=lambda field: field.name)
@pytest.mark.parametrize("known", [4, 7, 10, 13, 16])
def test_a_polynomial_is_known_by_its_first_values(field: Field, known: int):
    coefficients = [3, -1, 4, field.modulus - 5, *range(12)][:known]
    root = pow(7, (field.modulus - 1) // 16, field.modulus)

    def at(point: int) -> int:
        return sum(c * pow(point, k, field.modulus) for k, c in enumerate(coefficients))

    values = field.vector([at(pow(root, i, field.modulus)) for i in range(16)])
    given = values[:known]
    found = field.dot(field.weights(field.vector([12345]), 16, known), given)
    assert field.encode(found) == field.encode(field.vector([at(12345)]))
    for step, count in ((2, 7), (4, 3), (8, 1), (4, 2)):
        expected = values[step::step][:count]
        assert field.encode(field.every(given, 16, step, count)) == field.encode(expected)
    if known == 4:
        assert field.encode(field.extend(values[::4].reshape(1, -1), 16)) == field.encode(values)


@pytest.mark.parametrize("field", BOTH, ids=lambda field: field.name)
def test_powers_and_signed_numbers(field: Field):
    assert field.integers(field.powers(field.vector([3]), 20)) == [3**i for i in range(1, 21)]
    numbers = np.array([0, 1, -1, 2**62, -(2**62)])
    assert field.integers(field.secret(numbers)) == numbers.tolist()


@pytest.mark.parametrize("field", BOTH, ids=lambda field: field.name)
def test_words_that_are_no_elements_are_left_out_and_refused(field: Field):
    numbers = [0, field.modulus - 1, field.modulus, 2 ** (8 * field.size) - 1, 5]
    words = np.frombuffer(
        b"".join(number.to_bytes(field.size, "little") for number in numbers), np.uint64
    )
    assert field.integers(field.elements_of(words)) == [0, -1, 5]
    with pytest.raises(PrioError, match="not below the modulus"):
        field.decode(words.tobytes(), len(numbers))


def test_rejected_words_are_replaced_by_the_next(monkeypatch: pytest.MonkeyPatch):
    stream = np.array([1, 2**64 - 1, 2, 2**64 - 2, 2**64 - 3, 3, 4], np.uint64)
    monkeypatch.setattr(
        "hdpmf.common.aggregation.two_servers.prio.field.xof_lanes",
        lambda tag, seed, binder, count: stream[:count],
    )
    assert FIELD64.integers(FIELD64.expand(b"", b"", b"", 3)) == [1, 2, 3]


@pytest.mark.parametrize("field", BOTH, ids=lambda field: field.name)
@given(encoded=st.binary(max_size=64), count=st.integers(0, 4))
@settings(max_examples=50)
def test_any_bytes_are_elements_or_an_error(field: Field, encoded: bytes, count: int):
    try:
        vector = field.decode(encoded, count)
    except PrioError:
        return
    assert field.encode(vector) == encoded
    assert len(vector) == count


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_arithmetic_never_jumps_by_value(name: str):
    assert conditional_jumps(getattr(arithmetic, name)) == 0


@pytest.mark.parametrize("step", [1, 3])
def test_a_sum_of_products_that_is_reduced_once_is_the_sum(step: int):
    """Also of the largest elements, whose products leave three words."""
    largest = arithmetic.MODULUS - 1
    numbers = [largest] * 200 + [0, 1, 2**32 - 1, 2**32, 2**63]
    strided = [largest - i if i % 2 else largest for i in range(1 + step * len(numbers))]
    found = compiled.strided_dot(
        np.array(numbers, np.uint64), np.array(strided, np.uint64), 1, step
    )
    expected = sum(a * strided[1 + i * step] for i, a in enumerate(numbers)) % arithmetic.MODULUS
    assert int(found) == expected


def test_a_jump_would_be_noticed():
    def add_with_a_branch(a, b):
        steps = np.uint64(0)
        while a > b:
            a, steps = a // np.uint64(3) + b, steps + a
        return steps

    assert conditional_jumps(add_with_a_branch) > 0


def conditional_jumps(function) -> int:
    """In the machine code of an operation, without Python's wrapper around it."""
    compiled = njit(function)
    compiled(np.uint64(5), np.uint64(5))
    (assembly,) = compiled.inspect_asm().values()
    bodies = re.findall(
        r"^_ZN(?!7cpython|cfunc)[^\n]*:\n(.*?)^\s+\.size", assembly, re.DOTALL | re.MULTILINE
    )
    assert bodies
    return len(CONDITIONAL_JUMP.findall(bodies[0]))


def test_the_answer_of_the_rfc():
    # RFC 9861, section 5: TurboSHAKE128(M = empty, D = 1F, 32 bytes)
    expected = "1e415f1c5983aff2169217277d17bb538cd945a397ddec541f1ce41af2c1b74c"
    assert turboshake128((b"",), 0x1F, 4).tobytes().hex() == expected


@pytest.mark.parametrize("size", [0, 1, 7, 8, 166, 167, 168, 169, 335, 336, 1000])
def test_any_length_in_and_out(size: int):
    message = bytes(i * i % 251 for i in range(size))
    for count in (1, 21, 22, 63):
        theirs = TurboSHAKE128.new(data=message, domain=1).read(8 * count)
        assert turboshake128((message,), 1, count).tobytes() == theirs


def test_tag_seed_and_binder_are_kept_apart():
    theirs = TurboSHAKE128.new(data=b"\x03\0tag\x04seedbinder", domain=1).read(13)
    assert derive_seed(b"tag", b"seed", (b"bin", b"der"), 13) == theirs
    assert derive_seed(b"tags", b"eed", (b"bin", b"der"), 13) != theirs
