"""Every benchmark of the CPU library in one run: ``make bench`` (or ``python benchmarks/run.py
[--json FILE]``).

Machines are noisy, so what counts are the ratios within a run. Needs the bench extra and the real
ML-1M (``HDPMF_DATA``, or ../shared/data).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path

from rich.console import Console
from rich.table import Table

import epochs
import lists_peers
import scaling
import startup

CONSOLE = Console()


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def show_epochs(found: dict[str, float]) -> None:
    """Our epochs and the peers', as ratios."""
    n = found["ratings"]
    table = _table(
        f"One epoch on ML-1M ({n:,.0f} ratings, K=10, 2 threads)",
        "",
        "ms",
        "ns/rating",
        "batch is",
        "seq. is",
    )
    peers = ("Surprise SVD", "libmf", "textbook loop")
    for name in (
        "batch",
        "batch, 1 thread",
        "batch, passes only",
        "sequential",
        "sequential, 1 thread",
        *peers,
    ):
        seconds = found[name]
        ratios = [
            f"{seconds / found[own]:,.1f}x faster" if name in peers else ""
            for own in ("batch", "sequential")
        ]
        table.add_row(name, f"{seconds * 1e3:,.2f}", f"{seconds / n * 1e9:,.1f}", *ratios)
    CONSOLE.print(table)
    CONSOLE.print(f"copying memory: {found['copy bandwidth, GB/s']:.1f} GB/s on one core\n")


def show_scaling(found: dict[str, dict[str, dict[str, float]]]) -> None:
    """Four times the ratings: how much longer, and how much memory."""
    table = _table(
        "HDPMF.fit on synthetic worlds (2 threads)",
        "solver",
        "ratings",
        "epoch ms",
        "ns/rating",
        "bytes/rating",
    )
    for solver, sizes in found.items():
        for size, one in sizes.items():
            per_rating = one["epoch"] / one["ratings"] * 1e9
            table.add_row(
                solver,
                size,
                f"{one['epoch'] * 1e3:,.1f}",
                f"{per_rating:.1f}",
                f"{one['bytes_per_rating']:.1f}",
            )
        small, large = sizes["2.5M"], sizes["10M"]
        table.add_row(solver, "10M / 2.5M", f"x {large['epoch'] / small['epoch']:.2f}", "", "")
    CONSOLE.print(table)


def show_startup(found: dict[str, float]) -> None:
    """Waiting times."""
    table = _table("Waiting (median of fresh processes)", "", "seconds")
    for name, seconds in found.items():
        table.add_row(name, f"{seconds:.2f}")
    CONSOLE.print(table)


def main() -> None:
    """Run and print everything; with --json also write the numbers to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    if shared.is_dir():
        os.environ.setdefault("HDPMF_DATA", str(shared))
    CONSOLE.print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n"
    )
    results = {"startup": startup.run()}
    show_startup(results["startup"])
    results["epochs"] = epochs.run()
    show_epochs(results["epochs"])
    results["scaling"] = scaling.run()  # type: ignore[assignment]
    show_scaling(results["scaling"])  # type: ignore[arg-type]
    results["lists"] = []  # type: ignore[assignment]
    for contest in lists_peers.run():
        lists_peers.show(contest)
        results["lists"].append(contest)  # type: ignore[attr-defined]
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
