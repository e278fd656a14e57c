"""Findings about the paper: sentences computed from the results, and the counts behind them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
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


def paper_findings(content: Content) -> list[str]:
    """Return four sentences, and one about lists."""
    return [
        _reproduced(content),
        _order(content),
        _trivial(content),
        _proved_designs(content),
        *_best_lists(content),
    ]


def paper_headline(content: Content) -> list[str]:
    """Return up to three short sentences for the top of the page."""
    parts = (_reproduced_in_short(content), _silence_in_short(content), _proved_in_short(content))
    return [text for text in parts if text]


def _reproduced(content: Content) -> str:
    known = [marked for marked in marks(content) if marked.mark in _COMPARED]
    if not known:
        return (
            "None of the published numbers of Table III can be compared yet: its runs on the "
            "paper's data sets are not in these results."
        )
    by_mark = Counter(marked.mark for marked in known)
    text = (
        f"Of the {counted(len(known), 'published number')} of Table III that can be compared here "
        f"({_titles(marked.cell for marked in known)}), {by_mark['reproduced']:,} reproduce within "
        f"the paper's deviation or 5 %, {by_mark['close']:,} come within 10 %, and "
        f"{by_mark['different'] + by_mark['diverged']:,} differ by more"
    )
    rest: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for marked in known:
        if marked.mark in ("different", "diverged"):
            rest[marked.cell.label][marked.cell.dataset_title] += 1
    details = [
        f"{label} on {words([f'{title} ({n})' for title, n in where.items()])}"
        for label, where in rest.items()
    ]
    return f"{text}: {'; '.join(details)}." if details else f"{text}."


def _reproduced_in_short(content: Content) -> str:
    counts = Counter(marked.mark for marked in marks(content))
    known = sum(counts[mark] for mark in _COMPARED)
    if not known:
        return ""
    return (
        f"{counts['reproduced']:,} of {counted(known, 'published number')} reproduce; "
        f"{counts['close']:,} come close, {counts['different'] + counts['diverged']:,} differ."
    )


def _titles(cells: Iterable[Cell]) -> str:
    return words(list(dict.fromkeys(cell.dataset_title for cell in cells)))


def _order(content: Content) -> str:
    pairs = [ahead for metric, ahead, _ in paper_pairs(content) if metric == "mse"]
    if not pairs:
        return (
            "Whether the paper's order of methods holds cannot be said yet: too few of its methods "
            "have been run on its data sets."
        )
    groups: dict[tuple[str, str], list[Reversal]] = defaultdict(list)
    for pair in reversals(content):
        if pair.metric == "mse":
            groups[pair.better.label, pair.worse.label].append(pair)
    if not groups:
        return f"The paper's order of methods by warm MSE holds on {_titles(pairs)}."
    # HDPMF against PDPMF is what the paper is about, so it comes first.
    ranked = sorted(groups.items(), key=lambda item: (item[0] != ("PDPMF", "HDPMF"), -len(item[1])))
    parts = [
        f"{better} is ahead of {worse} on {words([*map(_place, turned)])}"
        for (better, worse), turned in ranked[:2]
    ]
    if len(ranked) > 2:
        parts.append(f"{counted(len(ranked) - 2, 'further pair')} of methods changed places")
    papers = content.experiments["table3"].tuning.grids.items() >= GRIDS.items()
    grid = "the paper's own grid" if papers else "the grid of this run"
    return (
        "The paper's order of methods does not hold everywhere: by warm MSE, with hyper-parameters "
        f"chosen over {grid}, "
        f"{'; '.join(parts)}."
    )


def _place(pair: Reversal) -> str:
    chance = ", which may be chance" if pair.test.p > 0.1 else ""
    return (
        f"{pair.better.dataset_title} (K = {pair.better.factors}: {four(pair.better.mse.mean)} "
        f"against {four(pair.worse.mse.mean)}, {p_value(pair.test.p)}{chance})"
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


def _trivial(content: Content) -> str:
    duels = silent_duels(content)
    if not duels:
        return (
            "How a device does that sends nothing at all, each user's own mean at epsilon "
            "0, has not been run here."
        )
    details = {
        cell.dataset_title: f"{cell.dataset_title} ({four(cell.mse.mean)} against "
        f"{four(best.mse.mean)} of {best.label})"
        for cell, best in duels
    }
    better = [
        details.pop(cell.dataset_title) for cell, best in duels if cell.mse.mean < best.mse.mean
    ]
    worse = words(list(details.values()))
    text = "A device that sends nothing at all, each user's own mean at epsilon 0,"
    scope = f"by warm MSE at K = {max(content.factors)}"
    if not better:
        return f"{text} is {scope} behind the best private method of the paper on {worse}."
    text += f" beats every private method of the paper {scope} on {words(better)}"
    return text + (f", but not on {worse}." if worse else ".")


def _silence_in_short(content: Content) -> str:
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


def _proved_designs(content: Content) -> str:
    """Compare proved designs with the paper's private methods and their honest epsilon."""
    designs, rivals = designs_and_rivals(content)
    if not designs or not rivals:
        return (
            "How the designs with a proof compare with the paper's methods has not been run here."
        )
    # Designs that win and lose in the same places are named together, those that win most first.
    alike: dict[str, list[str]] = defaultdict(list)
    wins: dict[str, int] = {}
    for method in dict.fromkeys(cell.method for cell in designs):
        mine = {cell.dataset: cell for cell in designs if cell.method == method}
        label = next(iter(mine.values())).label
        won = [
            rival
            for rival in rivals
            if rival.dataset in mine and mine[rival.dataset].mse.mean < rival.mse.mean
        ]
        text = _beaten(won, rivals)
        alike[text].append(f"“{label}”" if "," in label else label)
        wins[text] = len(won)
    parts = [
        f"{words(labels)} {'beats' if len(labels) == 1 else 'each beat'} {text}"
        for text, labels in sorted(alike.items(), key=lambda item: -wins[item[0]])
    ]
    epsilon = content.experiments["table3"].epsilon
    text = (
        f"Of the designs with a proof, by warm MSE at epsilon {plain(epsilon)} and K = "
        f"{designs[0].factors}, {'; '.join(parts)}"
    )
    label, charged = _honest_hdpmf(content, rivals)
    if charged:
        text += (
            f". The same epsilon of {label} honestly costs a rating {charged}, against a "
            f"recommender that sees the messages about an item with {RATERS} raters"
        )
    return text + "."


def _beaten(won: list[Cell], rivals: list[Cell]) -> str:
    """List the paper's methods that a design beats, by data set."""
    where: dict[str, list[str]] = defaultdict(list)
    for label in dict.fromkeys(rival.label for rival in rivals):
        mine = [rival for rival in won if rival.label == label]
        every = len(mine) == sum(rival.label == label for rival in rivals) > 1
        place = f"on {'all of ' if every else ''}{_titles(mine)}" if mine else "nowhere"
        where[place].append(label)
    nowhere = where.pop("nowhere", [])
    parts = [f"{words(labels)} {place}" for place, labels in where.items()]
    return ", ".join([*parts, *([f"{words(nowhere)} nowhere"] if nowhere else [])])


def _honest_hdpmf(content: Content, rivals: list[Cell]) -> tuple[str, str]:
    """Return the label of HDPMF and what its epsilon honestly costs; empty if unknown."""
    for cell in rivals:
        charged = honest_cost(content, cell)
        if cell.method == "hdpmf" and charged is not None:
            honest = charged.briefly().removesuffix("*")
            return cell.label, f"{honest} at delta {charged.delta:g}"
    return "", ""


def _proved_in_short(content: Content) -> str:
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


def _best_lists(content: Content) -> Iterator[str]:
    """Name the best lists on each data set, with and without a proof, and the trivial ones."""
    for experiment in content.with_lists:
        parts = []
        for dataset in experiment.datasets:
            place = dataset, experiment.factors[0]
            table = content.table_cells(experiment)
            here = [cell for cell in table if (cell.dataset, cell.factors) == place]
            proved = [cell for cell in here if cell.claim and cell.claim.status == "proved"]
            hiding = [cell for cell in proved if METHODS[cell.method].claim().presence is not None]
            popular = [cell for cell in here if cell.method == "most-popular"]
            shown: dict[str, str] = {}
            for kind, group in (
                (content.dataset_titles[dataset], here),
                ("best of those with a proof", proved),
                ("best of those that hide presence", hiding),
                ("most popular", popular),
            ):
                cell = highest(group)
                if cell is not None:
                    name = "" if group is popular else f"{cell.label} "
                    shown.setdefault(cell.method, f"{kind}: {name}{four(ndcg(cell))}")
            if shown:
                parts.append("; ".join(shown.values()))
        if parts:
            at = table_place(experiment).replace(", ", " at ").replace(" = ", " ")
            yield f"Best lists (NDCG@10{at}). {'. '.join(parts)}."
