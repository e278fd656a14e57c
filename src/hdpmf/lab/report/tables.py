"""Tables of a report: errors, epsilons, data sets, hyper-parameters, runs and the environment."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from hdpmf.common.privacy.accounting import DELTA
from hdpmf.lab.experiments import Cell, Experiment, Measured, wishes_in_words
from hdpmf.lab.report.content import (
    LABELS,
    METRIC_LABELS,
    NDCG,
    Content,
    TunedGrid,
    anchor,
    counted,
    density,
    duration,
    four,
    grid_anchor,
    plain,
    words,
)
from hdpmf.lab.report.honest_epsilon import RATERS, cost_range, person_cost, view_words
from hdpmf.lab.report.markup import (
    Child,
    Html,
    claim_chip,
    number,
    number_attribute,
    scroller,
    section,
    table,
    tag,
)

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
        "Mean ± standard deviation over the seeds; bold is the lowest of its data set "
        "and K. Errors count test ratings "
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
        groups.append(
            tag(
                "th",
                label,
                colspan=len(factors),
                scope="colgroup",
                class_="group",
                data_metric=metric,
            )
        )
        heads += [tag("th", f"K = {k}", scope="col", data_metric=metric, data_k=k) for k in factors]
    head = tag(
        "thead", tag("tr", tag("th", "Method", scope="col", rowspan=2), groups), tag("tr", heads)
    )
    bodies = []
    for dataset, title in content.dataset_titles.items():
        here = [cell for cell in cells if cell.dataset == dataset]
        if not here:
            continue
        caption = tag(
            "tr", tag("th", title, colspan=1 + len(heads), scope="rowgroup"), class_="dataset"
        )
        rows = []
        for method in dict.fromkeys(cell.method for cell in here):
            mine = {cell.factors: cell for cell in here if cell.method == method}
            added = bool(experiment.paper_methods) and method not in experiment.paper_methods
            rows.append(_method_row(mine, factors, entry, added=added))
        bodies.append(tag("tbody", caption, rows, data_dataset=dataset))
    body = tag("table", head, bodies, class_="wide accuracy", id=f"{experiment.name}-table")
    return scroller(body, experiment.reference or experiment.title)


def _method_row(mine: dict[int, Cell], factors: list[int], entry: Entry, *, added: bool) -> Html:
    entries: list[Child] = []
    for metric in METRIC_LABELS:
        for k in factors:
            content = entry(mine[k], metric) if k in mine else "–"
            entries.append(tag("td", content, data_metric=metric, data_k=k))
    first = next(iter(mine.values()))
    claim = next((cell.claim for cell in mine.values() if cell.claim is not None), None)
    extra = tag("span", "not in the paper", class_="extra") if added else None
    name = tag(
        "th", tag("span", first.label, class_="name"), " ", claim_chip(claim), extra, scope="row"
    )
    return tag("tr", name, entries, class_="added" if added else None)


def claims_section(content: Content) -> Html:
    """What each method's epsilon is worth."""
    claimed: dict[str, list[Cell]] = {}
    for cell in content.all_cells:
        if cell.claim is not None:
            alike = claimed.setdefault(cell.method, [cell])
            first = alike[0]
            if (cell.experiment, cell.factors, cell.x) == (
                first.experiment,
                first.factors,
                first.x,
            ):
                alike.append(cell)
    rows = []
    for method, label in content.method_labels.items():
        claim = claimed[method][0].claim if method in claimed else None
        if claim is not None:
            epsilon = "–" if claim.epsilon is None else plain(claim.epsilon)
            chip = claim_chip(claim, with_epsilon=False)
            honest, whole = (
                _honest_range(content, claimed[method]),
                _person_costs(content, claimed[method]),
            )
            rows.append((label, epsilon, chip, claim.view, honest, whole, claim.reason))
    return section(
        "epsilon",
        "What each epsilon stands on",
        table(
            (
                "Method",
                "ε",
                "Status",
                "Against an observer of",
                "Honest cost",
                "All of a person's ratings",
                "Why",
            ),
            rows,
            class_="prose claims",
            label="claims",
        ),
        lead="An epsilon is worth what its proof covers. Nominal is the number that its "
        "paper states; it is no "
        "guarantee against someone who sees every message of the training. A rating's "
        "own budget is its privacy "
        "weight times this. The honest cost is what the accountant finds for a rating "
        "of weight 1 against the "
        f"recommender, all rounds together, its item having {RATERS} raters; with a "
        f"star, at delta {DELTA:g}. Where it "
        "is nominal it counts the rating's own gradients only, so the truth is larger. "
        "A range is over the data sets: "
        "PDPMF and DPMF set their noise by the mean and the smallest weight. One "
        "rating is not a person: beside it, "
        "where it is proved, stands what all ratings of the average person of a data "
        "set cost together (as many "
        f"ratings as there are per user, each of the mean weight), pure or at delta {DELTA:g}.",
    )


def _honest_range(content: Content, cells: list[Cell]) -> Child:
    """What the method's epsilon really costs, with what is seen."""
    ends = cost_range(content, cells)
    if ends is None:
        return "not known"
    low, high = ends
    text = (
        low.briefly() if low.briefly() == high.briefly() else f"{low.briefly()} to {high.briefly()}"
    )
    return [
        tag("b", text, title=high.in_numbers(), data_honest=repr(high.epsilon_at_delta)),
        " ",
        tag("span", view_words(high), class_="partial"),
    ]


def _person_costs(content: Content, cells: list[Cell]) -> Child:
    """What all ratings of the average person of each data set cost together."""
    shown: dict[str, Child] = {}
    for cell in cells:
        found = person_cost(content, cell)
        if found is not None and cell.dataset not in shown:
            ratings, charged = found
            words = f"{cell.dataset_title}, {ratings:,} ratings: "
            shown[cell.dataset] = tag(
                "div", words, tag("b", charged.in_numbers(), data_person=repr(charged.pure))
            )
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
    return [f"{facts[key]:,}" for key in ("users", "items", "ratings")] + [
        density(facts["density"])
    ]


_SHORT_NAMES = {"learning_rate": "lr", "reg": "reg"}


def tuning_section(content: Content) -> Html:
    """The cross-validated grids, with the chosen cell."""
    if not content.tuned:
        return section(
            "tuning", "Chosen hyper-parameters", tag("p", "Nothing was tuned here.", class_="empty")
        )
    titles = content.dataset_titles
    boxes = []
    for dataset, title in titles.items():
        here = [tuned for tuned in content.tuned if tuned.place.dataset == dataset]
        if here:
            summary = tag("summary", f"All combinations on {title}")
            boxes.append(
                tag(
                    "details",
                    summary,
                    [_grid(content, tuned) for tuned in here],
                    data_dataset=dataset,
                )
            )
    return section(
        "tuning",
        "Chosen hyper-parameters",
        _choices(content),
        boxes,
        lead="By cross-validation on the training part: the combination with the lowest "
        "mean squared error over the "
        "folds, or, for lists, the highest NDCG@10. One in which any fold ran away is "
        "never chosen.",
    )


def _choices(content: Content) -> Html:
    """The winners: methods down, data sets across."""
    labels, titles = content.method_labels, content.dataset_titles
    rows: dict[tuple[str, int, tuple[float, ...]], dict[str, TunedGrid]] = {}
    for tuned in content.tuned:
        # Experiments with grids of their own get lines of their own.
        tried = tuple(value for row in tuned.grid for value in row.values.values())
        rows.setdefault((tuned.place.method, tuned.place.factors, tried), {})[
            tuned.place.dataset
        ] = tuned
    used = [name for name in titles if any(name in grids for grids in rows.values())]
    body = []
    for (method, factors, _), grids in rows.items():
        cells: list[Child] = [f"{labels.get(method, method)}, K = {factors}"]
        for name in used:
            grid = grids.get(name)
            if grid is None:
                cells.append("–")
            elif grid.best is None:
                cells.append(tag("span", "open", class_="none"))
            else:
                link = f"#{grid_anchor(grid, grid.best)}"
                cells.append(tag("a", _values(grid.best.values), class_="number", href=link))
        body.append((*cells, _tried(next(iter(grids.values())))))
    heads = ("Method", *(titles[name] for name in used), "Tried")
    return table(heads, body, label="chosen hyper-parameters", class_="choices")


def _tried(tuned: TunedGrid) -> str:
    values: dict[str, list[float]] = defaultdict(list)
    for row in tuned.grid:
        for name, value in row.values.items():
            if value not in values[name]:
                values[name].append(value)
    return "; ".join(
        f"{_SHORT_NAMES.get(name, name)} {', '.join(map(plain, all_))}"
        for name, all_ in values.items()
    )


def _values(values: Mapping[str, float]) -> str:
    return " ".join(
        f"{_SHORT_NAMES.get(name, name)} {plain(value)}" for name, value in values.items()
    )


def _grid(content: Content, tuned: TunedGrid) -> Html:
    place = tuned.place
    label = content.method_labels.get(place.method, place.method)
    rows = []
    for row in tuned.grid:
        best = tuned.best is not None and row.values == tuned.best.values
        rows.append(
            (_values(row.values), _grid_number(tuned, row, best=best), "chosen" if best else "")
        )
    measure = "NDCG@10" if _for_lists(tuned) else "MSE"
    users = tag("p", f"used by {', '.join(tuned.experiments)}", class_="partial users")
    return tag(
        "div",
        tag("h4", f"{label}, K = {place.factors}"),
        users,
        table(
            ("Combination", measure, ""), rows, label=f"grid of {label}", numeric=1, class_="grid"
        ),
        class_="gridbox",
    )


def _grid_number(tuned: TunedGrid, row: Measured, *, best: bool) -> Html:
    link = f"#{grid_anchor(tuned, row)}"
    found = row.ndcg if _for_lists(tuned) else row.mse
    if not math.isfinite(found):
        word = "not run" if row.status == "missing" else row.status
        return tag("a", word, href=link, class_="number none")
    value: Child = tag("b", four(found)) if best else four(found)
    return tag("a", value, href=link, class_="number", data_mean=number_attribute(found))


def _for_lists(tuned: TunedGrid) -> bool:
    return tuned.by == NDCG


def runs_section(content: Content) -> Html:
    """Every number's runs."""
    titles = content.dataset_titles
    parts = []
    for name, cells in content.cells.items():
        groups: dict[str, list[Cell]] = defaultdict(list)
        for cell in cells:
            groups[cell.dataset].append(cell)
        for dataset, group in groups.items():
            experiment = content.experiments[name]
            metrics = [*METRIC_LABELS, *([NDCG] if experiment.lists else [])]
            rows = [_run_row(content, cell, experiment.seeds, metrics) for cell in group]
            labels = [LABELS[metric] for metric in metrics]
            heads = ("Cell", *labels, "Chosen", " · ".join(["Seed · run", *labels]))
            head = [tag("th", text, scope="col") for text in heads]
            body = tag("table", tag("thead", tag("tr", head)), tag("tbody", rows), class_="runs")
            summary = tag(
                "summary",
                f"{name}, {titles[dataset]} ",
                tag("span", _count(content, group), class_="partial"),
            )
            parts.append(
                tag("details", summary, scroller(body, f"runs of {name}"), class_="runbox")
            )
    parts += [_cv_box(content, tuned) for tuned in content.tuned]
    return section(
        "runs",
        "Runs",
        parts,
        lead="One line per number: its seeds, the identity of each run in results.sqlite, "
        "and what it measured.",
    )


def _count(content: Content, cells: list[Cell]) -> str:
    ids = {run for cell in cells for run in cell.run_ids}
    done = [content.results[run] for run in ids if run in content.results]
    seconds = sum(float(result.metrics.get("fit_seconds", 0.0)) for result in done)
    return (
        f"{counted(len(cells), 'number')}, {counted(len(done), 'run')}, "
        f"{duration(seconds)} of fitting"
    )


def _run_row(content: Content, cell: Cell, seeds: tuple[int, ...], metrics: Sequence[str]) -> Html:
    place = f"{cell.label}, K = {cell.factors}" + (
        "" if cell.x is None else f", at {plain(cell.x)}"
    )
    chosen = _values(cell.hyperparameters)
    lines = [
        _run_line(content, seed, run, metrics)
        for seed, run in zip(seeds, cell.run_ids, strict=False)
    ]
    listed: Child = tag("ul", lines) if lines else "its hyper-parameters are not chosen yet"
    return tag(
        "tr",
        tag("th", place, scope="row"),
        [tag("td", number(cell, metric)) for metric in metrics],
        tag("td", chosen or "–"),
        tag("td", listed),
        id=anchor(cell),
    )


def _run_line(content: Content, mark: int | str, run: str, metrics: Sequence[str]) -> Html:
    result = content.results.get(run)
    head = [tag("span", str(mark), class_="seed"), tag("code", run)]
    if result is None:
        return tag("li", head, tag("span", "not run", class_="none"))
    if result.status != "done":
        return tag("li", head, tag("span", result.status, class_="none", title=result.message))
    values = [
        tag(
            "span",
            four(result.metric(name)),
            data_metric=name,
            data_value=number_attribute(result.metric(name)),
        )
        for name in metrics
    ]
    return tag("li", head, values)


def _cv_box(content: Content, tuned: TunedGrid) -> Html:
    place = tuned.place
    label = content.method_labels.get(place.method, place.method)
    metrics = [*METRIC_LABELS, *([NDCG] if _for_lists(tuned) else [])]
    rows = []
    for row in tuned.grid:
        lines = [_run_line(content, fold, run, metrics) for fold, run in enumerate(row.run_ids)]
        found = row.ndcg if _for_lists(tuned) else row.mse
        mean = four(found) if math.isfinite(found) else row.status
        rows.append(
            tag(
                "tr",
                tag("th", _values(row.values), scope="row"),
                tag("td", mean),
                tag("td", tag("ul", lines)),
                id=grid_anchor(tuned, row),
            )
        )
    labels = [LABELS[metric] for metric in metrics]
    heads = (
        "Combination",
        labels[-1] if _for_lists(tuned) else "MSE",
        " · ".join(["Fold · run", *labels]),
    )
    head = tag("tr", [tag("th", text, scope="col") for text in heads])
    title = (
        f"cross-validation of {label}, K = {place.factors}, "
        f"{content.dataset_titles[place.dataset]} "
    )
    ids = [run for row in tuned.grid for run in row.run_ids]
    note = tag("span", counted(sum(run in content.results for run in ids), "run"), class_="partial")
    body = tag("table", tag("thead", head), tag("tbody", rows), class_="runs")
    return tag("details", tag("summary", title, note), scroller(body, title), class_="runbox")


def environment_section(content: Content) -> Html:
    """Commands, machine, seeds."""
    commands = [
        (
            tag("code", command.line or "(called from Python)"),
            command.at[:16].replace("T", " ") + " UTC",
            f"{command.jobs} × {command.backend}" if command.jobs else "–",
            "–" if command.runs is None else f"{command.runs:,}",
            duration(command.seconds),
            command.reason,
        )
        for command in content.commands
    ]
    settings = [
        (
            experiment.name,
            ", ".join(map(str, experiment.seeds)),
            str(experiment.params.get("epochs", experiment.epochs)),
            str(experiment.params.get("epsilon", plain(experiment.epsilon))),
            str(experiment.params.get("solver", experiment.solver)),
            f"{experiment.split.kind}, {experiment.tuning.folds} folds"
            + (", quick" if experiment.quick else ""),
            _weights_of(content, experiment),
        )
        for experiment in content.experiments.values()
        if experiment.has_runs
    ]
    last = content.commands[-1].environment if content.commands else {}
    versions = sorted({result.version for result in content.results.values() if result.version})
    facts = [tag("div", tag("dt", key), tag("dd", str(value))) for key, value in last.items()]
    if versions:
        facts.append(tag("div", tag("dt", "hdpmf that ran them"), tag("dd", ", ".join(versions))))
    return section(
        "again",
        "How to run this again",
        table(
            ("Command", "Begun", "Jobs", "Runs", "Wall time", "Ended"), commands, label="commands"
        ),
        tag("h3", "Settings"),
        table(
            ("Experiment", "Seeds", "Epochs", "ε", "Solver", "Split", "Privacy weights"),
            settings,
            label="settings",
        ),
        tag("h3", "Machine and versions"),
        tag("dl", facts, class_="environment"),
        lead="The commands that filled these results, oldest first. Runs that are in the "
        "store are never done twice.",
    )


def _weights_of(content: Content, experiment: Experiment) -> str:
    """Which privacy weights an experiment has, on which data sets where they differ."""
    said: dict[str, list[str]] = {}
    for name in experiment.datasets:
        said.setdefault(wishes_in_words(experiment, name), []).append(content.dataset_titles[name])
    return "; ".join(
        text if len(said) == 1 else f"{text} ({words(names)})" for text, names in said.items()
    )
