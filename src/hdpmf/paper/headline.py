"""Three short sentences about the paper, made from the numbers."""

from __future__ import annotations

from collections import Counter

from hdpmf.paper.findings import designs_and_rivals, marks, silent_duels
from hdpmf.report.content import Content
from hdpmf.report.honest import honest_cost
from hdpmf.report.numbers import counted, plain, words


def headline(content: Content) -> list[str]:
    """What came of the paper's numbers, of doing without a recommender, and of the designs with a proof."""
    return [text for text in (_reproduction(content), _silent(content), _proved(content)) if text]


def _reproduction(content: Content) -> str:
    counts = Counter(marked.mark for marked in marks(content))
    known = sum(counts[mark] for mark in ("reproduced", "close", "different", "diverged"))
    if not known:
        return ""
    text = f"{counts['reproduced']:,} of {counted(known, 'published number')} reproduce"
    return text + f"; {counts['close']:,} come close, {counts['different'] + counts['diverged']:,} differ."


def _silent(content: Content) -> str:
    duels = silent_duels(content)
    if not duels:
        return ""
    better = [cell.dataset_title for cell, best in duels if cell.mse.mean < best.mse.mean]
    if not better:
        return "On every data set some private method of the paper beats a device that sends nothing."
    where = f"all {counted(len(duels), 'data set')}" if len(better) == len(duels) > 1 else words(better)
    return f"On {where}, a device that sends nothing is more accurate than every private method of the paper."


def _proved(content: Content) -> str:
    designs, rivals = designs_and_rivals(content)
    errors = {(cell.dataset, cell.method): cell.mse.mean for cell in designs}
    winners = []
    for method in dict.fromkeys(cell.method for cell in designs):
        mine = [cell for cell in rivals if (cell.dataset, method) in errors]
        if mine and all(errors[cell.dataset, method] < cell.mse.mean for cell in mine):
            winners.append(next(cell.label for cell in designs if cell.method == method))
    epsilon = content.experiments["table3"].epsilon if rivals else 0.0
    text = ""
    if winners:
        keep, beat = ("keeps", "beats") if len(winners) == 1 else ("keep", "beat")
        proved = f"{keep} a proved epsilon of {plain(epsilon)}"
        text = f"{words(winners)} {proved} and {beat} the paper's private methods everywhere"
    paper = next((cell for cell in rivals if cell.method == "hdpmf"), None)
    charged = None if paper is None else honest_cost(content, paper)
    if paper is not None and charged is not None:
        honest = f"{paper.label}'s epsilon of {plain(epsilon)} is honestly {charged.briefly().removesuffix('*')}"
        text = f"{text}; {honest}" if text else honest
    return f"{text}." if text else ""
