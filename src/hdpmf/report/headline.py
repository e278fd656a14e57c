"""A few short sentences about whatever was run, for the top of the page."""

from __future__ import annotations

from collections.abc import Sequence

from hdpmf.experiments import Cell
from hdpmf.report.content import Content
from hdpmf.report.lists import highest, list_experiments, ndcg, table_cells
from hdpmf.report.numbers import two, words
from hdpmf.report.overview import shown_cells


def headline(content: Content) -> list[str]:
    """Who is best, who beats a device that sends nothing, who makes the best lists, and what is proved."""
    found = shown_cells(content)
    cells = [] if found is None else found[1]
    sentences = [_best(cells), _silent(cells), _lists(content), _proved(cells)]
    return [text for text in sentences if text]


def _best(cells: Sequence[Cell]) -> str:
    winners: dict[str, list[str]] = {}
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        here = sorted((cell for cell in cells if cell.dataset == dataset), key=lambda cell: cell.mse.mean)
        text = f"{here[0].dataset_title} (MSE {two(here[0].mse.mean)}; next {here[1].label}, {two(here[1].mse.mean)})"
        winners.setdefault(here[0].label, []).append(text)
    parts = [f"{label} on {words(places)}" for label, places in winners.items()]
    return f"Lowest error: {'; '.join(parts)}." if parts else ""


def _silent(cells: Sequence[Cell]) -> str:
    """Which private methods are worth taking part in."""
    silent = {cell.dataset: cell.mse.mean for cell in cells if cell.claim is not None and cell.claim.epsilon == 0.0}
    outcomes: dict[str, list[bool]] = {}
    for cell in cells:
        if cell.claim is not None and cell.claim.epsilon and cell.dataset in silent:
            outcomes.setdefault(cell.label, []).append(cell.mse.mean < silent[cell.dataset])
    if not outcomes:
        return ""
    better = [label for label, wins in outcomes.items() if all(wins)]
    sometimes = [label for label, wins in outcomes.items() if any(wins) and not all(wins)]
    if not better and not sometimes:
        return "No private method is more accurate than a device that sends nothing."
    parts = [words(better)] if better else []
    parts += [f"on some data sets {words(sometimes)}"] if sometimes else []
    return f"More accurate than a device that sends nothing: {'; '.join(parts)}."


def _lists(content: Content) -> str:
    parts = []
    for experiment in list_experiments(content):
        cells = table_cells(content, experiment)
        for dataset in dict.fromkeys(cell.dataset for cell in cells):
            best = highest(cell for cell in cells if cell.dataset == dataset)
            if best is not None:
                parts.append(f"{best.label} on {best.dataset_title} (NDCG@10 {two(ndcg(best))})")
    return f"Best lists: {words(parts)}." if parts else ""


def _proved(cells: Sequence[Cell]) -> str:
    groups: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell.claim is not None and cell.claim.epsilon:
            groups.setdefault(cell.claim.status, {})[cell.label] = None
    texts = {"proved": "Proved epsilon", "nominal": "Epsilon in name only"}
    parts = [f"{text}: {words(list(groups[status]))}" for status, text in texts.items() if status in groups]
    return f"{'. '.join(parts)}." if parts else ""
