"""How many holders are enough, for the table in docs/secure-sums.md: ``python
tests/unit/masks/sizing.py``.
"""

from __future__ import annotations

from fractions import Fraction

from hdpmf.common.aggregation.masks.messages import MAX_NEIGHBOURS
from hdpmf.common.aggregation.masks.plan import NEGLIGIBLE, TWO_THIRDS, risks, smallest_threshold
from hdpmf.errors import SecureSumError


def enough_neighbours(
    n_devices: int,
    *,
    colluding: float,
    dropping: float,
    fraction: Fraction = TWO_THIRDS,
    privacy: float = NEGLIGIBLE,
    abort: float = 1e-3,
) -> int:
    """The smallest number of holders that keeps the risks below ``privacy`` and ``abort``.

    Args:
        n_devices: Devices of the cohort.
        colluding: Fraction of the devices that work for the recommender.
        dropping: Fraction that drops out.
        fraction: Of the holders, how many must survive (more than that).
        privacy: For the two risks of a lying recommender, together.
        abort: For the risk that the sum is broken off.
    """
    bad, lost = int(colluding * n_devices), int(dropping * n_devices)
    everyone = min(MAX_NEIGHBOURS, n_devices - 1)
    candidates: list[int] = [*range(4, everyone, 2), everyone]
    for degree in candidates:
        chances = risks(
            n_devices, degree, smallest_threshold(degree, fraction), colluding=bad, dropping=lost
        )
        if chances.unmask + chances.split <= privacy and chances.abort <= abort:
            return degree
    raise SecureSumError(
        f"no number of neighbours is enough for {n_devices} devices of which "
        f"{colluding:.0%} collude and "
        f"{dropping:.0%} drop out; more than that fraction of the neighbours must "
        f"survive: {fraction}"
    )


def table_row(n_devices: int, fraction: Fraction) -> str:
    """A row of the table in docs/secure-sums.md."""
    cells = []
    for colluding in (0.0, 0.01, 0.05, 0.1, 0.2):
        try:
            cells.append(
                str(
                    enough_neighbours(
                        n_devices, colluding=colluding, dropping=0.05, fraction=fraction
                    )
                )
            )
        except SecureSumError:
            cells.append("-")
    return f"| {n_devices:,} | {fraction} | {' | '.join(cells)} |"


if __name__ == "__main__":
    for n in (100, 1_000, 6_040, 60_000):
        for each in (TWO_THIRDS, Fraction(3, 4)):
            print(table_row(n, each))
