"""What is shown about lists: which experiments, at which point of the axis a table stands, who has the best."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hdpmf.experiments import Cell, Experiment
from hdpmf.methods import METHODS
from hdpmf.report.content import Content
from hdpmf.report.numbers import NDCG, four, plain


def list_experiments(content: Content) -> list[Experiment]:
    """The experiments that show lists."""
    return [experiment for experiment in content.experiments.values() if experiment.lists]


def table_point(experiment: Experiment) -> float | None:
    """Where on the axis the table stands: at the experiment's own epsilon, or else in the middle."""
    if experiment.vary is None:
        return None
    xs = [float(x) for x in experiment.vary.values]
    own = float(experiment.epsilon)
    return own if experiment.vary.parameter == "epsilon" and own in xs else xs[len(xs) // 2]


def table_cells(content: Content, experiment: Experiment) -> list[Cell]:
    """The cells of the table."""
    x = table_point(experiment)
    return [cell for cell in content.cells.get(experiment.name, ()) if cell.x == x]


def is_level(experiment: Experiment, cell: Cell) -> bool:
    """Whether what the figure varies is nothing to this method, so that its curve would be a level line."""
    vary = experiment.vary
    if vary is None or vary.parameter != "epsilon" or cell.method not in METHODS:
        return False
    return "epsilon" not in METHODS[cell.method].options


def ndcg(cell: Cell) -> float:
    """Mean NDCG@10; NaN where there is none."""
    return cell.summary(NDCG).mean


def highest(cells: Iterable[Cell]) -> Cell | None:
    """The cell with the best lists."""
    return max((cell for cell in cells if math.isfinite(ndcg(cell))), key=ndcg, default=None)


def list_findings(content: Content) -> list[str]:
    """Who makes the best lists on each data set, with and without a proof, and what the trivial lists have."""
    sentences = []
    for experiment in list_experiments(content):
        parts = []
        cells = [cell for cell in table_cells(content, experiment) if cell.factors == experiment.factors[0]]
        for dataset in dict.fromkeys(cell.dataset for cell in cells):
            here = [cell for cell in cells if cell.dataset == dataset]
            best = highest(here)
            if best is None:
                continue
            text = f"{best.dataset_title}: {_named(best)}"
            hidden = [cell for cell in here if _hides_presence(cell)]
            others = {
                "best of those with a proof": highest(cell for cell in here if _proved(cell)),
                "best of those that hide presence": highest(hidden),
                "most popular": next((cell for cell in here if cell.method == "most-popular"), None),
            }
            named = {best.method}
            for words, cell in others.items():
                if cell is not None and cell.method not in named and math.isfinite(ndcg(cell)):
                    named.add(cell.method)
                    text += f"; {words}: {four(ndcg(cell)) if words == 'most popular' else _named(cell)}"
            parts.append(text)
        x = table_point(experiment)
        where = "" if x is None or experiment.vary is None else f" at {experiment.vary.parameter} {plain(x)}"
        if parts:
            sentences.append(f"Best lists (NDCG@10{where}). {'. '.join(parts)}.")
    return sentences


def _named(cell: Cell) -> str:
    return f"{cell.label} {four(ndcg(cell))}"


def _proved(cell: Cell) -> bool:
    return cell.claim is not None and cell.claim.status == "proved"


def _hides_presence(cell: Cell) -> bool:
    return _proved(cell) and cell.method in METHODS and METHODS[cell.method].claim().presence is not None
