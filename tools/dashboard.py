"""Draw the panels of deploy/grafana-dashboard.json from a Prometheus, without Grafana.

    python tools/dashboard.py http://127.0.0.1:9090 out/dashboard.png
    python tools/dashboard.py http://127.0.0.1:9090 out/dashboard.png --minutes 2 --window 10s

The expressions are the dashboard's own, and the numbers Prometheus' answers; only the drawing is
ours. ``--window`` replaces the ranges in brackets, for a run that is shorter than those.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import urllib.parse
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

DASHBOARD = Path(__file__).parents[1] / "deploy" / "grafana-dashboard.json"
COLUMNS = 3
STEPS = 120
MOST_LABELS = 6

Series = tuple[str, list[float], list[float]]


def panels() -> list[dict[str, Any]]:
    """The dashboard's panels, each with the title of its row."""
    found, row = [], ""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        else:
            found.append(panel | {"row": row})
    return found


def ask(url: str, expression: str, begin: float, end: float) -> list[dict[str, Any]]:
    """The series of an expression between two times."""
    step = max((end - begin) / STEPS, 0.5)
    query = urllib.parse.urlencode(
        {"query": expression, "start": begin, "end": end, "step": f"{step:.3f}"}
    )
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{query}", timeout=30) as answer:  # noqa: S310
        found = json.load(answer)
    if found["status"] != "success":
        raise SystemExit(f"Prometheus refuses {expression!r}: {found}")
    return list(found["data"]["result"])


def series_of(
    url: str, panel: dict[str, Any], begin: float, end: float, window: str | None = None
) -> list[Series]:
    """The named series of a panel: seconds since the beginning, and values."""
    found = []
    for target in panel["targets"]:
        expression = target["expr"]
        if window is not None:
            expression = re.sub(r"\[\d+[mhd]\]", f"[{window}]", expression)
        for each in ask(url, expression, begin, end):
            name = re.sub(r"{{(\w+)}}", r"{\1}", target["legendFormat"])
            name = name.format_map(defaultdict(str, each["metric"]))
            values = [(float(at) - begin, float(value)) for at, value in each["values"]]
            found.append((name.strip(), [at for at, _ in values], [value for _, value in values]))
    return found


def shown(value: float, unit: str) -> str:
    """A number as a person reads it."""
    if unit == "s":
        for size, word in ((86_400, "days"), (3_600, "h"), (60, "min")):
            if abs(value) >= 2 * size:
                return f"{value / size:,.0f} {word}"
        return f"{value:.3g} s"
    if unit in ("bytes", "Bps"):
        for size, word in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
            if abs(value) >= size:
                return f"{value / size:.1f} {word}"
    return f"{value:,.4g}"


def draw(
    url: str, to: Path, begin: float, end: float, window: str | None = None
) -> dict[str, list[Series]]:
    """Draw all panels into a file; return the series by the panels' titles."""
    every = panels()
    drawn = {panel["title"]: series_of(url, panel, begin, end, window) for panel in every}
    rows = -(-len(every) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(17, 2.7 * rows), layout="constrained")
    for axis in axes.flat[len(every) :]:
        axis.set_axis_off()
    for axis, panel in zip(axes.flat, every, strict=False):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        found = drawn[panel["title"]]
        axis.set_title(f"{panel['row']}: {panel['title']}"[:70], loc="left", fontsize=9)
        if panel["type"] == "stat":
            lines = [f"{shown(values[-1], unit)}   {name}" for name, _, values in found]
            axis.text(0, 0.95, "\n".join(lines) or "no data", va="top", fontsize=9)
            axis.set_axis_off()
            continue
        for name, times, values in found:
            axis.plot(times, values, label=name, linewidth=1.2)
        axis.yaxis.set_major_formatter(lambda value, _, unit=unit: shown(value, unit))
        axis.tick_params(labelsize=7)
        axis.set_xlim(0, end - begin)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        if found:
            busiest = sorted(found, key=lambda each: -max(each[2], default=0.0))[:MOST_LABELS]
            names = {name for name, *_ in busiest}
            handles = [line for line in axis.get_lines() if line.get_label() in names]
            axis.legend(handles=handles, fontsize=6, loc="upper left", framealpha=0.6)
        else:
            axis.text(0.4, 0.5, "no data", transform=axis.transAxes, fontsize=9)
    to.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(to, dpi=80)
    plt.close(figure)
    return drawn


def main() -> None:
    """Draw the last hour, or another time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("to", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--window", help="instead of the ranges in brackets, as 10s")
    given = parser.parse_args()
    now = time.time()
    draw(given.url, given.to, now - 60 * given.minutes, now, given.window)


if __name__ == "__main__":
    main()
