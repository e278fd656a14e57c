"""The page's tables: errors by method, what each epsilon stands on, the data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from hdpmf.experiments import Cell, Experiment
from hdpmf.privacy.accounting import DELTA
from hdpmf.report.content import Content
from hdpmf.report.honest import RATERS, cost_range, person_cost, view_words
from hdpmf.report.markup import Child, Html, tag
from hdpmf.report.numbers import METRIC_LABELS, density, plain
from hdpmf.report.pieces import claim_chip, number, scroller, section, table

Entry = Callable[[Cell, str], Child]
"""What a table shows of a cell for a measure of error."""


def tables_section(content: Content, experiments: Iterable[Experiment]) -> Html:
    """The errors of every method, a table for each of these experiments."""
    parts: list[Child] = []
    for experiment in experiments:
        cells = content.error_cells(experiment)
        parts += [
            tag("h3", experiment.title, tag("span", experiment.name, class_="tagname")),
            accuracy_table(content, experiment, partial(_plain_entry, lowest(cells))),
        ]
    lead = (
        "Mean ± standard deviation over the seeds; bold is the lowest of its data set and K. Errors count test ratings "
        "whose user and item were in training. Every number leads to its runs."
    )
    return section("tables", "Errors by method", parts, lead=lead)


def lowest(cells: Iterable[Cell]) -> set[tuple[str, str, str, int]]:
    """Where the method of a cell has the lowest error of all: measure, data set, method and K."""
    best: dict[tuple[str, str, int], Cell] = {}
    for cell in cells:
        for metric in METRIC_LABELS if cell.status == "done" else ():
            place = (metric, cell.dataset, cell.factors)
            if place not in best or cell.metrics[metric].mean < best[place].metrics[metric].mean:
                best[place] = cell
    return {(metric, dataset, cell.method, k) for (metric, dataset, k), cell in best.items()}


def _plain_entry(best: set[tuple[str, str, str, int]], cell: Cell, metric: str) -> Html:
    strong = (metric, cell.dataset, cell.method, cell.factors) in best
    return tag("div", number(cell, metric, strong=strong))


def accuracy_table(content: Content, experiment: Experiment, entry: Entry) -> Html:
    """Methods down, measures and K across, data sets one below the other."""
    cells = content.error_cells(experiment)
    factors = list(dict.fromkeys(cell.factors for cell in cells))
    groups, heads = [], []
    for metric, label in METRIC_LABELS.items():
        groups.append(tag("th", label, colspan=len(factors), scope="colgroup", class_="group", data_metric=metric))
        heads += [tag("th", f"K = {k}", scope="col", data_metric=metric, data_k=k) for k in factors]
    head = tag("thead", tag("tr", tag("th", "Method", scope="col", rowspan=2), groups), tag("tr", heads))
    bodies = []
    for dataset, title in content.dataset_titles.items():
        here = [cell for cell in cells if cell.dataset == dataset]
        if not here:
            continue
        caption = tag("tr", tag("th", title, colspan=1 + len(heads), scope="rowgroup"), class_="dataset")
        rows = []
        for method in dict.fromkeys(cell.method for cell in here):
            mine = {cell.factors: cell for cell in here if cell.method == method}
            added = bool(experiment.paper_methods) and method not in experiment.paper_methods
            rows.append(_row(mine, factors, entry, added=added))
        bodies.append(tag("tbody", caption, rows, data_dataset=dataset))
    body = tag("table", head, bodies, class_="wide accuracy", id=f"{experiment.name}-table")
    return scroller(body, experiment.reference or experiment.title)


def _row(mine: dict[int, Cell], factors: list[int], entry: Entry, *, added: bool) -> Html:
    entries: list[Child] = []
    for metric in METRIC_LABELS:
        for k in factors:
            content = entry(mine[k], metric) if k in mine else "–"
            entries.append(tag("td", content, data_metric=metric, data_k=k))
    first = next(iter(mine.values()))
    claim = next((cell.claim for cell in mine.values() if cell.claim is not None), None)
    extra = tag("span", "not in the paper", class_="extra") if added else None
    name = tag("th", tag("span", first.label, class_="name"), " ", claim_chip(claim), extra, scope="row")
    return tag("tr", name, entries, class_="added" if added else None)


def claims_section(content: Content) -> Html:
    """What each method's epsilon is worth."""
    claimed: dict[str, list[Cell]] = {}
    for cell in content.all_cells:
        if cell.claim is not None:
            alike = claimed.setdefault(cell.method, [cell])
            first = alike[0]
            if (cell.experiment, cell.factors, cell.x) == (first.experiment, first.factors, first.x):
                alike.append(cell)
    rows = []
    for method, label in content.method_labels.items():
        claim = claimed[method][0].claim if method in claimed else None
        if claim is not None:
            epsilon = "–" if claim.epsilon is None else plain(claim.epsilon)
            chip = claim_chip(claim, with_epsilon=False)
            honest, whole = _honest(content, claimed[method]), _persons(content, claimed[method])
            rows.append((label, epsilon, chip, claim.view, honest, whole, claim.reason))
    return section(
        "epsilon", "What each epsilon stands on",
        table(
            ("Method", "ε", "Status", "Against an observer of", "Honest cost", "All of a person's ratings", "Why"),
            rows, class_="prose claims", label="claims",
        ),
        lead="An epsilon is worth what its proof covers. Nominal is the number that its paper states; it is no "
        "guarantee against someone who sees every message of the training. A rating's own budget is its privacy "
        "weight times this. The honest cost is what the accountant finds for a rating of weight 1 against the "
        f"recommender, all rounds together, its item having {RATERS} raters; with a star, at delta {DELTA:g}. Where it "
        "is nominal it counts the rating's own gradients only, so the truth is larger. A range is over the data sets: "
        "PDPMF and DPMF set their noise by the mean and the smallest weight. One rating is not a person: beside it, "
        "where it is proved, stands what all ratings of the average person of a data set cost together (as many "
        f"ratings as there are per user, each of the mean weight), pure or at delta {DELTA:g}.",
    )  # fmt: skip


def _honest(content: Content, cells: list[Cell]) -> Child:
    """What the method's epsilon really costs, with what is seen."""
    ends = cost_range(content, cells)
    if ends is None:
        return "not known"
    low, high = ends
    text = low.briefly() if low.briefly() == high.briefly() else f"{low.briefly()} to {high.briefly()}"
    return [
        tag("b", text, title=high.in_numbers(), data_honest=repr(high.epsilon_at_delta)),
        " ",
        tag("span", view_words(high), class_="partial"),
    ]


def _persons(content: Content, cells: list[Cell]) -> Child:
    """What all ratings of the average person of each data set cost together."""
    shown: dict[str, Child] = {}
    for cell in cells:
        found = person_cost(content, cell)
        if found is not None and cell.dataset not in shown:
            ratings, charged = found
            words = f"{cell.dataset_title}, {ratings:,} ratings: "
            shown[cell.dataset] = tag("div", words, tag("b", charged.in_numbers(), data_person=repr(charged.pure)))
    return list(shown.values()) if shown else "–"


def datasets_section(content: Content) -> Html:
    """The counts of the data sets."""
    rows = [(title_of(content, name), *counts(facts)) for name, facts in content.datasets.items()]
    heads = ("Data set", "Users", "Items", "Ratings", "Density")
    return section("datasets", "Data sets", table(heads, rows, class_="facts", label="data sets"))


def title_of(content: Content, dataset: str) -> str:
    """The display name of a data set that is in the store."""
    return content.dataset_titles.get(dataset, str(content.datasets[dataset].get("title", dataset)))


def counts(facts: Mapping[str, Any]) -> list[str]:
    """Users, items, ratings and density of a data set."""
    return [f"{facts[key]:,}" for key in ("users", "items", "ratings")] + [density(facts["density"])]
