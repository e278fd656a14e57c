"""The paper's report: findings, page, CSV files and LaTeX tables beside the published numbers."""

import re
from collections import Counter
from dataclasses import asdict
from os import PathLike
from typing import NamedTuple

from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.experiments.summary import paired_test
from hdpmf.lab.paper import NAMES, published
from hdpmf.lab.paper.published import duels, paper_pairs, privacy_groups, reversals
from hdpmf.lab.report.content import (
    METRIC_LABELS,
    Content,
    counted,
    plain,
    read_content,
    words,
)
from hdpmf.lab.report.exports import (
    LOWEST,
    Emphasis,
    accuracy_latex,
    csv_files,
    error_tables,
    latex,
    list_files,
    lowest_bold,
    to_csv,
)
from hdpmf.lab.report.page import (
    AGAIN,
    CLAIMS,
    FIGURES,
    HONEST,
    LISTS,
    RUNS,
    TUNING,
    Page,
    ReportFiles,
    Section,
    write_files,
)
from hdpmf.lab.report.tables import honest_cost

_BOLD = (
    "Bold number means HDPMF outperforms PDPMF on the average. $^{***}$ means HDPMF outperforms "
    "PDPMF at 99\\% confidence level in a two-sided paired t-test, $^{**}$ means 95\\%, $^{*}$ "
    "means 90\\%."
)

_PUBLIC = (
    "HDP-Sum and HDP-Bit use the public genres and years of MovieLens' films; "
    "without them: table\\_no\\_features."
)


def paper_csv(content: Content) -> dict[str, bytes]:
    """Return all experiments, with the paper's numbers in Table III, and Tables I and II."""
    tests = duels(content.cells.get("table3", []))

    def beside(cell: Cell) -> dict[str, object]:
        row: dict[str, object] = {}
        for metric in METRIC_LABELS:
            number = published.table3(cell.dataset, cell.method, cell.factors, metric)
            for field in ("mean", "std", "stars"):
                row[f"paper_{metric}_{field}"] = number and getattr(number, field)
            row[f"{metric}_mark"] = number and mark_of(cell, metric, number)
            duel = tests.get((metric, cell.dataset, cell.factors))
            duel = duel if cell.method == "hdpmf" else None
            row[f"{metric}_p_hdpmf_pdpmf"] = duel and duel.test.t_p
            row[f"{metric}_stars"] = duel and duel.test.stars
        return row

    files = csv_files(content, {"table3": beside})
    if files.pop("datasets.csv", None) is not None:
        files["table1.csv"] = _table1_csv(content)
    files["table2.csv"] = to_csv([asdict(row) for row in privacy_groups()])
    return files


def _table1_csv(content: Content) -> bytes:
    printed = published.table1()
    fields = ("users", "items", "ratings", "density")
    rows = []
    for name, facts in content.datasets.items():
        paper = printed.get(name)
        row = {"dataset": name, "title": facts["title"]} | {key: facts[key] for key in fields}
        row |= {f"paper_{key}": paper and paper[key] for key in fields}
        rows.append(row | {"paper_slips": paper and "; ".join(paper["slips"])})
    return to_csv(rows)


def paper_latex(content: Content) -> dict[str, bytes]:
    """Return the tables in the paper's layout."""
    facts = {"groups": privacy_groups(), "names": _split_names}
    files = {"table2.tex": latex("privacy.tex", "hdpmf.lab.paper", **facts)}
    if content.datasets:
        files["table1.tex"] = latex("datasets.tex", content=content)
    for experiment in error_tables(content):
        cells = content.cells[experiment.name]
        note = _PUBLIC if experiment.name == "table3" else ""
        # Only a table with both has something to say about the one against the other.
        both = bool(duels(cells))
        emphasis = _ahead(cells) if both else lowest_bold(cells, {})
        rule = _BOLD if both else LOWEST
        files |= accuracy_latex(experiment, cells, emphasis, rule, note)
    return files | list_files(content)


def _ahead(cells: list[Cell]) -> Emphasis:
    """Emphasize HDPMF where it is ahead of PDPMF."""
    rivals = {(cell.dataset, cell.factors): cell for cell in cells if cell.method == "pdpmf"}

    def emphasis(cell: Cell, metric: str) -> tuple[bool, int]:
        rival = rivals.get((cell.dataset, cell.factors)) if cell.method == "hdpmf" else None
        if rival is None or {cell.status, rival.status} != {"done"}:
            return False, 0
        ours, theirs = cell.metrics[metric], rival.metrics[metric]
        return ours.mean < theirs.mean, paired_test(ours.values, theirs.values).stars

    return emphasis


_TABLE3 = Section("Table III", "Table III: accuracy at the default privacy wishes", "table3.html")
_ORDER = Section("Order of methods", "Does the paper's order of methods hold?", "order.html")
_FACTS = Section("Tables I and II", "Tables I and II: data sets and privacy wishes", "facts.html")

TITLE = "HDPMF: the paper's evaluation, run again"


def write_paper_report(
    results: str | PathLike[str], out: str | PathLike[str]
) -> tuple[ReportFiles, dict[str, int]]:
    """Write the paper's report on a results folder (see `hdpmf.lab.report.write_report`).

    Returns:
        The written report, and how many numbers of Table III got each mark.
    """
    content = read_content(results, NAMES)
    page = paper_page(content)
    written = write_files(out, content, page, paper_csv(content), paper_latex(content))
    return written, count_marks(content)


def paper_page(content: Content) -> Page:
    """Return the page about the paper."""
    return Page(
        kind="hdpmf reproduction report",
        title=TITLE,
        sections={
            "table3": _TABLE3,
            "lists": LISTS,
            "epsilon": CLAIMS,
            "honest": HONEST,
            "order": _ORDER,
            "figures": FIGURES,
            "facts": _FACTS,
            "tuning": TUNING,
            "again": AGAIN,
            "runs": RUNS,
        },
        figures=charts(content),
        facts={
            "counts_by_mark": count_marks(content),
            "duels": duels(content.cells.get("table3", [])),
            "mark_of": mark_of,
            "published_number": published.table3,
            "reversals": reversals(content),
            "comparable": any(paper_pairs(content)),
            "printed": published.table1(),
            "printed_shares": published.table2(),
            "groups": privacy_groups(),
            "names": _split_names,
        },
        headline=paper_headline(content),
        package="hdpmf.lab.paper",
    )


def _split_names(formula: str) -> list[str]:
    return re.findall(r"\w+|\W+", formula)


def charts(content: Content) -> list[Experiment]:
    """Return the experiments with figures of errors; Table III and lists have their sections."""
    experiments = content.experiments.values()
    return [one for one in experiments if one.errors and one.name != "table3"]


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
