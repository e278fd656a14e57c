"""How many neighbours are enough: chances that a random graph is unlucky, given how many devices collude or drop out.

Colluding devices are counted over the whole cohort; the graph is drawn after they are known (so it matters that the
recommender cannot draw it again and again, see ``SumPolicy.beacon``).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import exp, fsum, lgamma

from hdpmf.errors import SecureSumError
from hdpmf.secure_sum.messages import MAX_NEIGHBOURS
from hdpmf.secure_sum.plan import TWO_THIRDS, smallest_threshold


@dataclass(frozen=True)
class Risks:
    """Upper bounds, over all devices of a cohort, for one drawing of the graph.

    Attributes:
        unmask: Some device has so many colluding neighbours that a lying recommender could unmask its vector.
        split: Somewhere in the ring so many colluding devices stand together that a lying recommender could get two
            sums over parts of the devices instead of one over all.
        abort: Some device loses so many neighbours that the sum is broken off.
    """

    unmask: float
    split: float
    abort: float


def risks(n_devices: int, neighbours: int, threshold: int, *, colluding: int, dropping: int) -> Risks:
    """The chances that something goes wrong.

    Args:
        n_devices: Devices of the cohort.
        neighbours: Of each device.
        threshold: Of the neighbours, how many must survive.
        colluding: Devices that work for the recommender.
        dropping: Devices that drop out, at random.
    """
    degree = min(neighbours, n_devices - 1)
    others = n_devices - 1
    if not 0 <= colluding <= others or not 0 <= dropping <= others or not degree < 2 * threshold <= 2 * degree:
        raise SecureSumError("colluding and dropping must be among the other devices, and threshold above one half")
    unmask = n_devices * _at_least(2 * threshold - degree, others, colluding, degree)
    # Where everyone is everyone's neighbour there is no ring to cut.
    half = degree // 2
    split = 0.0 if degree == others else n_devices * _at_least(threshold - half, others, colluding, half)
    abort = n_devices * _at_least(degree - threshold + 1, others, dropping, degree)
    return Risks(min(unmask, 1.0), min(split, 1.0), min(abort, 1.0))


def enough_neighbours(
    n_devices: int,
    *,
    colluding: float,
    dropping: float,
    fraction: Fraction = TWO_THIRDS,
    privacy: float = 2.0**-40,
    abort: float = 1e-3,
) -> int:
    """The smallest number of neighbours that keeps the risks below ``privacy`` and ``abort``.

    Args:
        n_devices: Devices of the cohort.
        colluding: Fraction of the devices that work for the recommender.
        dropping: Fraction that drops out.
        fraction: Of the neighbours, how many must survive (more than that).
        privacy: For the two risks of a lying recommender, together.
        abort: For the risk that the sum is broken off.
    """
    bad, lost = int(colluding * n_devices), int(dropping * n_devices)
    everyone = min(MAX_NEIGHBOURS, n_devices - 1)
    candidates: list[int] = [*range(4, everyone, 2), everyone]
    for degree in candidates:
        found = risks(n_devices, degree, smallest_threshold(degree, fraction), colluding=bad, dropping=lost)
        if found.unmask + found.split <= privacy and found.abort <= abort:
            return degree
    raise SecureSumError(
        f"no number of neighbours is enough for {n_devices} devices of which {colluding:.0%} collude and "
        f"{dropping:.0%} drop out; more than that fraction of the neighbours must survive: {fraction}"
    )


def _at_least(count: int, population: int, marked: int, drawn: int) -> float:
    """Chance that at least ``count`` of ``drawn`` are marked, drawing without putting back."""
    lowest = max(count, 0, drawn - (population - marked))
    return fsum(
        exp(_log_comb(marked, x) + _log_comb(population - marked, drawn - x) - _log_comb(population, drawn))
        for x in range(lowest, min(marked, drawn) + 1)
    )


def _log_comb(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def table_row(n_devices: int, fraction: Fraction) -> str:
    """A row of the table in docs/secure-sums.md."""
    cells = []
    for colluding in (0.0, 0.01, 0.05, 0.1, 0.2):
        try:
            cells.append(str(enough_neighbours(n_devices, colluding=colluding, dropping=0.05, fraction=fraction)))
        except SecureSumError:
            cells.append("-")
    return f"| {n_devices:,} | {fraction} | {' | '.join(cells)} |"


if __name__ == "__main__":
    for n in (100, 1_000, 6_040, 60_000):
        for each in (TWO_THIRDS, Fraction(3, 4)):
            print(table_row(n, each))
