"""Cost of sums by two servers: processor time per report for the device, the leader and the helper,
and bytes.

    python benchmarks/prio.py             rows of heads and vectors of items, seconds
    python benchmarks/prio.py --numba     with compiled loops, as servers have them
    python benchmarks/prio.py --largest   what the largest entry of a vector costs
    python benchmarks/prio.py --json

One core. Times are processor time, the median over reports, so that a busy machine changes them
little; compiling is not counted. A server's time is that from the bytes of a report to its share
added to the sum; the helper also decides. HPKE and TLS are not in it. Sums are checked against
plain ones in every row.
"""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from math import isqrt
from typing import Any

import numpy as np

from hdpmf.common.aggregation.two_servers.prio import (
    NONCE_SIZE,
    SEED_SIZE,
    Prio3,
    compile_kernels,
    prio3_bounded_vector,
    prio3_rank_one,
)

CAP = 16  # one entry is at most one part in so many of a row's squared length
TARGETS = {"device_ms": 4.0, "leader_ms": 3.0, "helper_ms": 3.0, "upload_bytes": 400_000}
"""For rows of 300 heads, with Numba."""
Draw = Callable[[np.random.Generator], tuple[tuple[np.ndarray, ...], np.ndarray]]


def row(rng: np.random.Generator, entries: int, largest: int, signed: bool) -> np.ndarray:
    """Every twentieth entry, of about the squared length that the cap allows."""
    rated = rng.random(entries) < 0.05
    most = min(largest, isqrt(CAP * largest**2 // max(1, int(rated.sum()))))
    lowest = -most if signed else 0
    return rng.integers(lowest, most + 1, entries) * rated


def vectors(entries: int, largest: int, signed: bool) -> Draw:
    """The same for vectors of bounded squares."""

    def draw(rng: np.random.Generator) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        values = row(rng, entries, largest, signed)
        return (values,), values

    return draw


def products(heads: int, largest: int) -> Draw:
    """The same for rows, whose products are summed."""

    def draw(rng: np.random.Generator) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        values = row(rng, heads, largest, False)
        return (values,), np.outer(values, values)[np.triu_indices(heads)]

    return draw


def measure(name: str, vdaf: Prio3, draw: Draw, reports: int) -> dict[str, Any]:
    """One row of the table."""
    rng, key = np.random.default_rng(0), secrets.token_bytes(SEED_SIZE)
    field, circuit = vdaf.field, vdaf.circuit
    totals = [np.zeros(circuit.output_length, field.dtype) for _ in range(2)]
    plain, laps = np.zeros(circuit.output_length, np.int64), []
    for _ in range(reports + 1):  # the first one compiles
        given, adds = draw(rng)
        plain += adds
        nonce = secrets.token_bytes(NONCE_SIZE)
        clock = [time.thread_time()]
        report = vdaf.shard(circuit.encode(*given), nonce)  # type: ignore[attr-defined]
        clock.append(time.thread_time())
        leader, leaders_part = vdaf.prepare(
            key, 0, nonce, report.public_share, report.input_shares[0]
        )
        clock.append(time.thread_time())
        helper, helpers_part = vdaf.prepare(
            key, 1, nonce, report.public_share, report.input_shares[1]
        )
        message = vdaf.verify([leaders_part, helpers_part])
        totals[1] = field.add(totals[1], vdaf.finish(helper, message))
        clock.append(time.thread_time())
        totals[0] = field.add(totals[0], vdaf.finish(leader, message))
        clock.append(time.thread_time())
        device, leader_first, helper_all, leader_last = np.diff(clock)
        laps.append((device, leader_first + leader_last, helper_all))
    if vdaf.unshard([field.encode(total) for total in totals]) != plain.tolist():
        raise SystemExit(f"{name}: the sums are wrong")
    times = (1e3 * statistics.median(lap) for lap in zip(*laps[1:], strict=True))
    return {
        "name": name,
        **dict(zip(("device_ms", "leader_ms", "helper_ms"), times, strict=True)),
        "upload_bytes": len(report.public_share) + sum(map(len, report.input_shares)),
        "to_helper_bytes": len(leaders_part)
        + len(report.public_share)
        + len(report.input_shares[1]),
    }


def vector_of(items: int, largest: int, signed: bool) -> tuple[str, Prio3, Draw]:
    """A vector of bounded squares."""
    kind = f"-{largest} to {largest}" if signed else f"0 to {largest}"
    vdaf = prio3_bounded_vector(items, largest, CAP * largest**2, signed, b"bench")
    return f"vector, {items} entries, {kind}", vdaf, vectors(items, largest, signed)


def everyday() -> Iterator[tuple[str, Prio3, Draw]]:
    """What tasks ask for."""
    for heads in (100, 200, 300):
        vdaf = prio3_rank_one(heads, 1023, 2**24 - 1, b"bench")
        yield f"rank one, {heads} heads, 10 bits", vdaf, products(heads, 1023)
    for items in (3706, 20_000):
        yield vector_of(items, 255, False)
        yield vector_of(2 * items + 1, 255, True)  # presence, values and the own mean


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reports", type=int, default=30)
    parser.add_argument("--numba", action="store_true")
    parser.add_argument("--largest", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.numba:
        compile_kernels()
    largest = (vector_of(3706, most, False) for most in (24, 80, 120, 255, 960))
    rows = [measure(*way, given.reports) for way in (largest if given.largest else everyday())]
    missed = []
    if given.numba and not given.largest:
        missed = [name for name, most in TARGETS.items() if rows[2][name] > most]
    if given.json:
        print(json.dumps({"rows": rows, "missed": missed}))
        return
    print("per report, on one core, " + ("with Numba" if given.numba else "with NumPy alone"))
    print(
        f"{'':42} {'device ms':>9} {'leader ms':>9} {'helper ms':>9} {'upload KB':>9} "
        f"{'to helper KB':>12}"
    )
    for found in rows:
        times = " ".join(f"{found[name]:9.2f}" for name in ("device_ms", "leader_ms", "helper_ms"))
        print(
            f"{found['name']:42} {times} {found['upload_bytes'] / 1e3:9.1f} "
            f"{found['to_helper_bytes'] / 1e3:12.1f}"
        )
    if given.numba and not given.largest:
        verdict = "missed: " + ", ".join(missed) if missed else "all met"
        print(f"targets of 300 heads, 4 ms, 3 ms, 3 ms and 400 KB: {verdict}")


if __name__ == "__main__":
    main()
