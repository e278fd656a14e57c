"""Findings about the paper: sentences computed from the results, and the counts behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hdpmf.common.methods import METHODS
from hdpmf.lab.experiments import Cell
from hdpmf.lab.paper import GRIDS, published
from hdpmf.lab.paper.published import Reversal, paper_pairs, reversals
from hdpmf.lab.report.content import (
    METRIC_LABELS,
    Content,
    counted,
    four,
    highest,
    ndcg,
    p_value,
    plain,
    table_place,
    words,
)
from hdpmf.lab.report.tables import RATERS, honest_cost

MARKS = (
    "reproduced",
    "close",
    "different",
    "not comparable",
    "diverged",
    "failed",
    "incomplete",
    "not run",
)


class Comparison(NamedTuple):
    """A number of Table III with the paper's, and how they compare."""

    cell: Cell
    metric: str
    published: published.Published
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
        Comparison(cell, metric, number, mark_of(cell, metric, number))
        for metric in METRIC_LABELS
        for cell in content.cells.get("table3", ())
        if (number := published.table3(cell.dataset, cell.method, cell.factors, metric))
    ]


def count_marks(content: Content) -> dict[str, int]:
    """Count the numbers of Table III by mark, in the order of MARKS."""
    counts = Counter(marked.mark for marked in marks(content))
    return {mark: counts[mark] for mark in MARKS if counts[mark]}


def paper_findings(content: Content) -> list[str]:
    """Return four sentences, and one about lists."""
    return [
        _reproduced(content),
        _order(content),
        _trivial(content),
        _proved_designs(content),
        *_best_lists(content),
    ]


def _reproduced(content: Content) -> str:
    known = [
        marked
        for marked in marks(content)
        if marked.mark in ("reproduced", "close", "different", "diverged")
    ]
    if not known:
        return (
            "None of the published numbers of Table III can be compared yet: its runs on the "
            "paper's data sets are not in these results."
        )
    by_mark = Counter(marked.mark for marked in known)
    titles = list(dict.fromkeys(marked.cell.dataset_title for marked in known))
    text = (
        f"Of the {counted(len(known), 'published number')} of Table III that can be "
        f"compared here ({words(titles)}), "
        f"{by_mark['reproduced']:,} reproduce within the paper's deviation or 5 %"
    )
    if by_mark["close"]:
        text += f", {by_mark['close']:,} come within 10 %"
    rest = [marked for marked in known if marked.mark in ("different", "diverged")]
    if not rest:
        return text + (
            ", and none differs by more."
            if by_mark["close"]
            else ", and none differs by more than that."
        )
    verb = "differs" if len(rest) == 1 else "differ"
    return text + f", and {len(rest):,} {verb} by more: {_grouped(rest)}."


def _grouped(rest: Sequence[Comparison]) -> str:
    """List the numbers that differ, by method."""
    by_label: dict[str, dict[str, list[Comparison]]] = {}
    for marked in rest:
        by_label.setdefault(marked.cell.label, {}).setdefault(marked.cell.dataset_title, []).append(
            marked
        )
    parts = []
    for label, datasets in by_label.items():
        details = []
        for title, numbers in datasets.items():
            first = numbers[0]
            ours = first.cell.metrics[first.metric].mean
            shown = "diverged" if first.mark == "diverged" else four(ours)
            more = "" if len(numbers) == 1 else f"{len(numbers)} numbers, among them "
            details.append(
                f"{title} ({more}{METRIC_LABELS[first.metric]} {shown} against "
                f"{four(first.published.mean)} at K = {first.cell.factors})"
            )
        parts.append(f"{label} on {words(details)}")
    return "; ".join(parts)


def _order(content: Content) -> str:
    pairs = [(ahead, behind) for metric, ahead, behind in paper_pairs(content) if metric == "mse"]
    if not pairs:
        return (
            "Whether the paper's order of methods holds cannot be said yet: too few of its methods "
            "have been run on its data sets."
        )
    turned = [pair for pair in reversals(content) if pair.metric == "mse"]
    if not turned:
        titles = list(dict.fromkeys(ahead.dataset_title for ahead, _ in pairs))
        return f"The paper's order of methods by MSE holds on {words(titles)}."
    groups: dict[tuple[str, str], list[Reversal]] = {}
    for pair in turned:
        groups.setdefault((pair.better.label, pair.worse.label), []).append(pair)
    # HDPMF against PDPMF is what the paper is about, so it comes first.
    ranked = sorted(groups.items(), key=lambda item: (item[0] != ("PDPMF", "HDPMF"), -len(item[1])))
    parts = []
    for (better, worse), turned_pairs in ranked[:2]:
        datasets = dict.fromkeys(pair.better.dataset_title for pair in turned_pairs)
        details = [f"{title} ({_values(turned_pairs, title)})" for title in datasets]
        parts.append(f"{better} is ahead of {worse} on {words(details)}")
    experiment = content.experiments["table3"]
    grid = "the grid of this run"
    if experiment.tuning.grids.items() >= GRIDS.items():
        grid = "the paper's own grid"
    more = (
        ""
        if len(ranked) <= 2
        else f", and {counted(len(ranked) - 2, 'further pair')} of methods changed places"
    )
    return (
        "The paper's order of methods does not hold everywhere: by MSE, with hyper-parameters "
        f"chosen over {grid}, {'; '.join(parts)}{more}."
    )


def _values(turned_pairs: Sequence[Reversal], title: str) -> str:
    here = [pair for pair in turned_pairs if pair.better.dataset_title == title]
    return "; ".join(
        f"K = {pair.better.factors}: {four(pair.better.mse.mean)} against "
        f"{four(pair.worse.mse.mean)}, "
        f"{p_value(pair.test.p)}" + (", which may be chance" if pair.test.p > 0.1 else "")
        for pair in here
    )


def silent_duels(content: Content) -> list[tuple[Cell, Cell]]:
    """Pair the device that sends nothing with the paper's best private method, by data set."""
    cells = [cell for cell in content.cells.get("table3", ()) if cell.status == "done"]
    found = []
    for cell in cells:
        rivals = [
            rival
            for rival in cells
            if (rival.dataset, rival.factors) == (cell.dataset, cell.factors)
            and rival.in_paper
            and rival.claim is not None
            and rival.claim.epsilon is not None
        ]
        if cell.method == "user-mean" and cell.factors == max(content.factors) and rivals:
            found.append((cell, min(rivals, key=lambda rival: rival.mse.mean)))
    return found


def _trivial(content: Content) -> str:
    better: list[str] = []
    worse: list[str] = []
    for cell, best in silent_duels(content):
        detail = (
            f"{cell.dataset_title} ({four(cell.mse.mean)} against {four(best.mse.mean)} of "
            f"{best.label})"
        )
        (better if cell.mse.mean < best.mse.mean else worse).append(detail)
    if not better and not worse:
        return (
            "How a device does that sends nothing at all, each user's own mean at epsilon "
            "0, has not been run here."
        )
    scope = f"by MSE at K = {max(content.factors)}"
    if not better:
        return (
            f"A device that sends nothing at all, each user's own mean at epsilon 0, is {scope} "
            f"behind the best private method of the paper on {words(worse)}."
        )
    text = (
        "A device that sends nothing at all, each user's own mean at epsilon 0, beats every "
        f"private method of the paper {scope} on {words(better)}"
    )
    return text + (f", but not on {words(worse)}." if worse else ".")


def designs_and_rivals(content: Content) -> tuple[list[Cell], list[Cell]]:
    """Return the proved designs and the paper's private methods, at Table III's epsilon."""
    cells = [
        cell
        for cell in content.cells.get("table3", ())
        if cell.status == "done" and cell.claim is not None
    ]
    factors = max(content.factors, default=0)
    epsilon = content.experiments["table3"].epsilon if cells else 1.0
    here = [
        cell
        for cell in cells
        if cell.factors == factors and cell.claim and cell.claim.epsilon == epsilon
    ]
    designs = [cell for cell in here if cell.claim is not None and cell.claim.status == "proved"]
    return designs, [cell for cell in here if cell.in_paper and cell not in designs]


def _proved_designs(content: Content) -> str:
    """Compare proved designs with the paper's private methods and their honest epsilon."""
    designs, rivals = designs_and_rivals(content)
    if not designs or not rivals:
        return (
            "How the designs with a proof compare with the paper's methods has not been run here."
        )
    # Designs that win and lose in the same places are named together, those that win most first.
    alike: dict[str, list[str]] = {}
    wins: Counter[str] = Counter()
    for method in dict.fromkeys(cell.method for cell in designs):
        mine = {cell.dataset: cell for cell in designs if cell.method == method}
        label = next(iter(mine.values())).label
        text = _beaten(mine, rivals)
        alike.setdefault(text, []).append(f"“{label}”" if "," in label else label)
        wins[text] = sum(
            cell.dataset in mine and mine[cell.dataset].mse.mean < cell.mse.mean for cell in rivals
        )
    ranked = sorted(alike.items(), key=lambda item: -wins[item[0]])
    parts = [
        f"{words(labels)} {'beats' if len(labels) == 1 else 'each beat'} {text}"
        for text, labels in ranked
    ]
    epsilon = content.experiments["table3"].epsilon
    factors = designs[0].factors
    text = (
        f"Of the designs with a proof, by MSE at epsilon {plain(epsilon)} and K = "
        f"{factors}, {'; '.join(parts)}"
    )
    paper = next((cell for cell in rivals if cell.method == "hdpmf"), None)
    charged = None if paper is None else honest_cost(content, paper)
    if paper is not None and charged is not None:
        text += (
            f". The same epsilon of {paper.label} honestly costs a rating "
            f"{charged.briefly().removesuffix('*')} at delta {charged.delta:g}, against a "
            f"recommender that sees the messages about an item with {RATERS} raters"
        )
    return text + "."


def _beaten(mine: dict[str, Cell], rivals: Sequence[Cell]) -> str:
    """List the paper's methods that a design beats, by data set."""
    where: dict[tuple[str, ...], list[str]] = {}
    for method in dict.fromkeys(cell.method for cell in rivals):
        theirs = [cell for cell in rivals if cell.method == method and cell.dataset in mine]
        won = tuple(
            cell.dataset_title for cell in theirs if mine[cell.dataset].mse.mean < cell.mse.mean
        )
        if theirs:
            datasets = won if len(won) < len(theirs) else ("all of " * (len(won) > 1) + words(won),)
            where.setdefault(datasets, []).append(theirs[0].label)
    parts = [
        f"{words(labels)} on {words(datasets)}" for datasets, labels in where.items() if datasets
    ]
    if where.get(()):
        parts.append(f"{words(where[()])} nowhere")
    return ", ".join(parts)


def _best_lists(content: Content) -> Iterator[str]:
    """Name the best lists on each data set, with and without a proof, and the trivial ones."""
    for experiment in content.with_lists:
        cells = content.table_cells(experiment)
        parts = []
        for dataset in dict.fromkeys(cell.dataset for cell in cells):
            here = [
                cell
                for cell in cells
                if (cell.dataset, cell.factors) == (dataset, experiment.factors[0])
            ]
            best = highest(here)
            if best is None:
                continue
            proved = [cell for cell in here if cell.claim and cell.claim.status == "proved"]
            hiding = [cell for cell in proved if METHODS[cell.method].claim().presence is not None]
            popular = [cell for cell in here if cell.method == "most-popular"]
            shown = {
                best.method: f"{best.dataset_title}: {best.label} {four(ndcg(best))}",
            }
            for kind, group in (
                ("best of those with a proof", proved),
                ("best of those that hide presence", hiding),
                ("most popular", popular),
            ):
                cell = highest(group)
                if cell is not None:
                    name = "" if group is popular else f"{cell.label} "
                    shown.setdefault(cell.method, f"{kind}: {name}{four(ndcg(cell))}")
            parts.append("; ".join(shown.values()))
        if parts:
            place = table_place(experiment).replace(", ", " at ").replace(" = ", " ")
            yield f"Best lists (NDCG@10{place}). {'. '.join(parts)}."


def paper_headline(content: Content) -> list[str]:
    """Return three short sentences for the top of the page."""
    return [
        text
        for text in (
            _reproduced_in_short(content),
            _silence_in_short(content),
            _proved_in_short(content),
        )
        if text
    ]


def _reproduced_in_short(content: Content) -> str:
    counts = Counter(marked.mark for marked in marks(content))
    known = sum(counts[mark] for mark in ("reproduced", "close", "different", "diverged"))
    if not known:
        return ""
    text = f"{counts['reproduced']:,} of {counted(known, 'published number')} reproduce"
    return (
        text
        + f"; {counts['close']:,} come close, {counts['different'] + counts['diverged']:,} differ."
    )


def _silence_in_short(content: Content) -> str:
    duels = silent_duels(content)
    if not duels:
        return ""
    better = [cell.dataset_title for cell, best in duels if cell.mse.mean < best.mse.mean]
    if not better:
        return (
            "On every data set some private method of the paper beats a device that sends nothing."
        )
    where = (
        f"all {counted(len(duels), 'data set')}" if len(better) == len(duels) > 1 else words(better)
    )
    return (
        f"On {where}, a device that sends nothing is more accurate than every private "
        "method of the paper."
    )


def _proved_in_short(content: Content) -> str:
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
        honest = (
            f"{paper.label}'s epsilon of {plain(epsilon)} is honestly "
            f"{charged.briefly().removesuffix('*')}"
        )
        text = f"{text}; {honest}" if text else honest
    return f"{text}." if text else ""
