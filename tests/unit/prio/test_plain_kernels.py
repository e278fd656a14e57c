"""The kernels in NumPy, which a device has, against the compiled ones of servers: to the bit."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from hdpmf.common.aggregation.two_servers.prio import (
    FIELD64,
    compiled,
    plain,
)
from hdpmf.common.aggregation.two_servers.prio.arithmetic import wide_mul


def elements(*shape: int, seed: int = 1) -> np.ndarray:
    """Random elements, many of them near 0, the modulus and the edges of words."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(int(np.prod(shape))):
        edge = int(rng.choice([0, 1 << 32, 1 << 63, FIELD64.modulus - 1, FIELD64.modulus // 2]))
        near = edge + int(rng.integers(-3, 4))
        anywhere = int.from_bytes(rng.bytes(16), "little")
        found.append(near if rng.random() < 0.5 else anywhere)
    return FIELD64.vector(found).reshape(shape)


def test_a_wide_product_has_all_its_bits() -> None:
    words = np.array([0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 0x9E3779B97F4A7C15], np.uint64)
    low, high = wide_mul(words[:, None], words)
    for i, a in enumerate(words.tolist()):
        for j, b in enumerate(words.tolist()):
            assert (int(high[i, j]) << 64) + int(low[i, j]) == a * b


@pytest.mark.parametrize("name", ["add_vectors", "sub_vectors", "mul_vectors"])
def test_element_by_element(name: str) -> None:
    a, b = elements(600), elements(600, seed=2)
    assert same(name, a, b)


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 100])
def test_powers(count: int) -> None:
    assert same("powers", elements(1), count)


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (8, 1), (33, 5)])
def test_sums_of_rows(shape: tuple[int, int]) -> None:
    assert same("combine_rows", elements(shape[0]), elements(*shape))
    assert same("sum_of_products", elements(2 * shape[0], shape[1]))


@pytest.mark.parametrize(("length", "size"), [(2, 2), (4, 4), (4, 16), (8, 64)])
def test_transforms(length: int, size: int) -> None:
    reversal = np.array([int(f"{i:0{length.bit_length() - 1}b}"[::-1], 2) for i in range(length)])
    assert same("transform", elements(3, length), reversal, elements(size // 2))


@pytest.mark.parametrize("length", [1, 2, 3, 8, 30])
def test_a_polynomial_at_a_point(length: int) -> None:
    assert same("lagrange", elements(1), elements(length), elements(length, seed=2))


@pytest.mark.parametrize("items", [28, 29, 34])
def test_sums_over_parts(items: int) -> None:
    slots = 7
    calls = -(-items // slots)
    vector = elements(4 * items + calls)
    weights, seeds = elements(1 + calls), elements(3 * slots, seed=2)
    assert same("inputs_of_parts", weights, seeds, vector, items, slots)


@pytest.mark.parametrize("half", [1, 4, 16])
def test_constraints_of_digits(half: int) -> None:
    slots = 7
    points, factors = elements(2 * slots, 9), elements(2 * slots + 1)
    assert same("sum_of_digits", points, factors, elements(2 + half))


@pytest.mark.parametrize("heads", [1, 2, 3, 30])
def test_the_products_of_a_row(heads: int) -> None:
    row, products = elements(heads), elements(heads * (heads + 1) // 2, seed=2)
    assert same("quadratic", row, products)
    pairs = [(j, k) for j in range(heads) for k in range(j, heads)]
    expected = sum(
        (2 if j < k else 1) * int(row[j]) * int(row[k]) * int(product)
        for (j, k), product in zip(pairs, products, strict=True)
    )
    assert int(plain.quadratic(row, products)[0]) == expected % FIELD64.modulus


@pytest.mark.parametrize(("blocks", "words"), [(1, 21), (1, 63), (3, 21), (4, 84)])
def test_the_hash(blocks: int, words: int) -> None:
    message = np.random.default_rng(blocks).integers(0, 2**64, 21 * blocks, np.uint64)
    ours, theirs = np.empty(words, np.uint64), np.empty(words, np.uint64)
    plain.sponge(message, ours)
    compiled.sponge(message, theirs)
    assert ours.tobytes() == theirs.tobytes()


def same(name: str, *arguments: object) -> bool:
    ours, theirs = getattr(plain, name)(*arguments), getattr(compiled, name)(*arguments)
    return (
        ours.dtype == theirs.dtype
        and ours.shape == theirs.shape
        and ours.tobytes() == theirs.tobytes()
    )


REPORT = """
import hashlib, sys
import numpy as np
from hdpmf.common.aggregation.two_servers.prio import compile_kernels
from hdpmf.common.aggregation.two_servers.prio import (
    prio3_bounded_vector, prio3_rank_one
)
if "with" in sys.argv:
    compile_kernels()
rng = np.random.default_rng(3)
pairs = prio3_rank_one(20, 100, 20_000, b"task")
values = prio3_bounded_vector(90, 40, 25_600, True, b"task")
digest = hashlib.sha256()
for prio, vector in (
    (pairs, pairs.circuit.encode(rng.integers(0, 30, 20))),
    (values, values.circuit.encode(rng.integers(-16, 17, 90))),
):
    shares = prio.shard(vector, bytes(16), rng.bytes(prio.random_size))
    ready = [
        prio.prepare(bytes(32), i, bytes(16), shares.public_share, share)
        for i, share in enumerate(shares.input_shares)
    ]
    message = prio.verify([part for _, part in ready])
    sums = [prio.field.encode(prio.finish(state, message)) for state, _ in ready]
    for data in (*shares.input_shares, *(part for _, part in ready), message, *sums):
        digest.update(data)
    assert prio.unshard(sums) == prio.field.integers(prio.circuit.truncate(vector))
print(digest.hexdigest(), sys.modules.get("numba") is None)
"""


@pytest.mark.slow
def test_a_report_is_the_same_without_numba() -> None:
    """The very bytes that leave, and what servers compute with them."""
    said = [
        subprocess.run(
            [sys.executable, "-c", REPORT, how],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout.split()
        for how in ("with", "without")
    ]
    assert [without for _, without in said] == ["False", "True"]
    assert said[0][0] == said[1][0]
    assert len(said[0][0]) == hashlib.sha256().digest_size * 2
