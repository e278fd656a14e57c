"""Findings about the paper: sentences computed from the results, and the counts behind them."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hdpmf.lab.experiments import Cell
from hdpmf.lab.paper import published
from hdpmf.lab.report.content import (
    METRIC_LABELS,
    Content,
    counted,
    plain,
    words,
)
from hdpmf.lab.report.tables import honest_cost

_COMPARED = ("reproduced", "close", "different", "diverged")
MARKS = (*_COMPARED[:3], "not comparable", "diverged", "failed", "incomplete", "not run")


class Comparison(NamedTuple):
    """A number of Table III that the paper has, too, and how they compare."""

    cell: Cell
    metric: str
    mark: str


def mark_of(cell: Cell, metric: str, number: published.Published) -> str:
    """Compare a cell with the published number."""
    if cell.status == "done":
        return published.verdict(cell.metrics[metric].mean, number)
    if cell.status == "missing":
        return "incomplete" if cell.metrics[metric].values else "not run"
    return cell.status


def marks(content: Content) -> list[Comparison]:
    """Compare every number of Table III that the paper has, too."""
    return [
        Comparison(cell, metric, mark_of(cell, metric, number))
        for metric in METRIC_LABELS
        for cell in content.cells.get("table3", ())
        if (number := published.table3(cell.dataset, cell.method, cell.factors, metric))
    ]


def count_marks(content: Content) -> dict[str, int]:
    """Count the numbers of Table III by mark, in the order of MARKS."""
    counts = Counter(marked.mark for marked in marks(content))
    return {mark: counts[mark] for mark in MARKS if counts[mark]}


def paper_headline(content: Content) -> list[str]:
    """Return up to three short sentences."""
    parts = (_reproduced(content), _silence(content), _proved(content))
    return [text for text in parts if text]


def _reproduced(content: Content) -> str:
    counts = Counter(marked.mark for marked in marks(content))
    known = sum(counts[mark] for mark in _COMPARED)
    if not known:
        return ""
    return (
        f"{counts['reproduced']:,} of {counted(known, 'published number')} reproduce; "
        f"{counts['close']:,} come close, {counts['different'] + counts['diverged']:,} differ."
    )


def silent_duels(content: Content) -> list[tuple[Cell, Cell]]:
    """Pair the device that sends nothing with the paper's best private method, by data set."""
    factors = max(content.factors, default=0)
    cells = [
        cell
        for cell in content.cells.get("table3", ())
        if cell.status == "done" and cell.factors == factors
    ]
    private = [one for one in cells if one.in_paper and one.claim and one.claim.epsilon is not None]
    found = []
    for cell in cells:
        rivals = [rival for rival in private if rival.dataset == cell.dataset]
        if cell.method == "user-mean" and rivals:
            found.append((cell, min(rivals, key=lambda rival: rival.mse.mean)))
    return found


def _silence(content: Content) -> str:
    duels = silent_duels(content)
    if not duels:
        return ""
    better = [cell.dataset_title for cell, best in duels if cell.mse.mean < best.mse.mean]
    if not better:
        return (
            "On every data set some private method of the paper beats a device that sends nothing."
        )
    every = len(better) == len(duels) > 1
    where = f"all {counted(len(duels), 'data set')}" if every else words(better)
    return (
        f"On {where}, a device that sends nothing is more accurate than every private "
        "method of the paper."
    )


def designs_and_rivals(content: Content) -> tuple[list[Cell], list[Cell]]:
    """Return the proved designs and the paper's private methods, at Table III's epsilon."""
    factors = max(content.factors, default=0)
    here = [
        (cell, cell.claim.status)
        for cell in content.cells.get("table3", ())
        if cell.status == "done"
        and cell.factors == factors
        and cell.claim is not None
        and cell.claim.epsilon == content.experiments["table3"].epsilon
    ]
    designs = [cell for cell, status in here if status == "proved"]
    return designs, [cell for cell, status in here if cell.in_paper and status != "proved"]


def _honest_hdpmf(content: Content, rivals: list[Cell]) -> tuple[str, str]:
    """Return the label of HDPMF and what its epsilon honestly costs; empty if unknown."""
    for cell in rivals:
        charged = honest_cost(content, cell)
        if cell.method == "hdpmf" and charged is not None:
            honest = charged.briefly().removesuffix("*")
            return cell.label, f"{honest} at delta {charged.delta:g}"
    return "", ""


def _proved(content: Content) -> str:
    designs, rivals = designs_and_rivals(content)
    errors = {(cell.dataset, cell.label): cell.mse.mean for cell in designs}
    winners = []
    for label in dict.fromkeys(cell.label for cell in designs):
        here = [cell for cell in rivals if (cell.dataset, label) in errors]
        if here and all(errors[cell.dataset, label] < cell.mse.mean for cell in here):
            winners.append(label)
    epsilon = plain(content.experiments["table3"].epsilon) if rivals else ""
    parts = []
    if winners:
        keep, beat = ("keeps", "beats") if len(winners) == 1 else ("keep", "beat")
        parts.append(
            f"{words(winners)} {keep} a proved epsilon of {epsilon} and {beat} the paper's private "
            "methods everywhere"
        )
    label, charged = _honest_hdpmf(content, rivals)
    if charged:
        parts.append(f"{label}'s epsilon of {epsilon} is honestly {charged.partition(' ')[0]}")
    return f"{'; '.join(parts)}." if parts else ""
