"""Findings: sentences computed from the results of whatever experiments were run."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hdpmf.common.methods import METHODS
from hdpmf.lab.experiments import Cell, Experiment
from hdpmf.lab.experiments.expansion import wishes_in_words
from hdpmf.lab.experiments.store import GROUP_METRICS
from hdpmf.lab.experiments.summary import pair_tests, paired_test
from hdpmf.lab.report.content import (
    NDCG,
    Content,
    Section,
    counted,
    four,
    highest,
    list_experiments,
    ndcg,
    p_value,
    plain,
    table_cells,
    table_point,
    two,
    words,
)
from hdpmf.lab.report.overview import shown_cells
from hdpmf.models.validation import PairTest

Point = tuple[str, int, float | None]
"""Data set, K and place on the axis: where methods can be compared."""


def findings(content: Content) -> list[str]:
    """Return sentences about the best methods, baselines, privacy, and what epsilons stand on."""
    sentences = []
    for name in content.cells:
        experiment = content.experiments[name]
        done = [cell for cell in content.error_cells(experiment) if cell.status == "done"]
        if done and experiment.errors:
            titled = f"{experiment.title}: " if len(content.cells) > 1 else ""
            sentences += [
                titled + text
                for text in (
                    _lowest_errors(experiment, done),
                    _against_baselines(done),
                    _against_own_mean(done),
                )
                if text
            ]
    sentences += list_findings(content)
    if not sentences:
        sentences.append("Nothing is complete yet: the same command does what is missing.")
    return [*sentences, *_epsilons(content), *_wishes(content)]


def _is_baseline(cell: Cell) -> bool:
    return cell.method in METHODS and METHODS[cell.method].is_baseline


def _lowest_errors(experiment: Experiment, cells: Sequence[Cell]) -> str:
    """Name the lowest error on every data set, with its p value."""
    parts = []
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        winners = {
            point: min(group, key=_error) for point, group in _by_point(cells, dataset).items()
        }
        won = Counter(cell.label for cell in winners.values())
        label = won.most_common(1)[0][0]
        best = min((cell for cell in winners.values() if cell.label == label), key=_error)
        rivals = [
            cell for cell in _by_point(cells, dataset)[_point(best)] if cell.method != best.method
        ]
        text = (
            f"{best.label} on {best.dataset_title} ({_where(experiment, best)}: "
            f"{four(_error(best))}"
        )
        if rivals:
            second = min(rivals, key=_error)
            test = paired_test(best.mse.values, second.mse.values)
            text += f" against {four(_error(second))} of {second.label}, {p_value(test.p)}"
        if len(winners) > 1:
            text += f"; lowest in {won[label]} of {counted(len(winners), 'place')}"
        parts.append(f"{text})")
    return f"The lowest MSE has {words(parts)}."


def _against_baselines(cells: Sequence[Cell]) -> str:
    """Compare methods with the best trivial baseline."""
    labels = list(dict.fromkeys(cell.label for cell in cells if _is_baseline(cell)))
    if not labels:
        return (
            "No trivial baseline was run: add user-mean and global-mean to see what needs "
            "no recommender."
        )
    baselines = {
        point: min((cell for cell in group if _is_baseline(cell)), key=_error, default=None)
        for point, group in _by_point(cells).items()
    }
    pairs = [
        (cell, baseline)
        for cell in cells
        if not _is_baseline(cell) and (baseline := baselines[_point(cell)]) is not None
    ]
    if not pairs:
        return ""
    return f"Against the best of {words(labels)}: {_verdicts(pairs)}."


def _against_own_mean(cells: Sequence[Cell]) -> str:
    """Compare private methods with a device that sends nothing."""
    silent = {
        _point(cell): cell for cell in cells if cell.claim is not None and cell.claim.epsilon == 0.0
    }
    pairs = [
        (cell, silent[_point(cell)])
        for cell in cells
        if cell.claim is not None and cell.claim.epsilon and _point(cell) in silent
    ]
    if not pairs:
        return ""
    return (
        "Against a device that sends nothing (each user's own mean, epsilon 0): "
        f"{_verdicts(pairs)}."
    )


def _verdicts(pairs: Iterable[tuple[Cell, Cell]]) -> str:
    """Count where each method beats its rival; methods with equal counts share a part."""
    wins: dict[str, list[bool]] = {}
    for cell, rival in pairs:
        wins.setdefault(cell.label, []).append(_error(cell) < _error(rival))
    fates: dict[str, list[str]] = {}
    for label, outcomes in wins.items():
        share = f"in {sum(outcomes)} of {counted(len(outcomes), 'place')}"
        fate = f"better {share}"
        if all(outcomes):
            fate = "better everywhere"
        elif not any(outcomes):
            fate = "nowhere better"
        fates.setdefault(fate, []).append(label)
    return "; ".join(
        f"{words(labels)} {'is' if len(labels) == 1 else 'are'} {fate}"
        for fate, labels in fates.items()
    )


def _epsilons(content: Content) -> list[str]:
    """Name the methods with a proved epsilon, a nominal one, or none."""
    groups: dict[str, dict[str, None]] = {}
    for cell in content.all_cells:
        if cell.claim is not None and cell.claim.epsilon != 0.0:
            groups.setdefault(cell.claim.status, {})[cell.label] = None
    texts = {
        "nominal": "nominal: a number that no proof carries to what is sent",
        "author's claim": "what the author of the method claims; nobody here has checked it",
        "proved": "proved, against the observer named below",
        "none": "no privacy at all",
    }
    parts = [
        f"{words(list(groups[status]))}: {text}"
        for status, text in texts.items()
        if status in groups
    ]
    return [f"What epsilon stands on. {'; '.join(parts)}."] if parts else []


def _wishes(content: Content) -> list[str]:
    """Name the source of the privacy weights, by experiment and data set where it differs."""
    said: dict[str, list[str]] = {}
    for name in content.cells:
        experiment = content.experiments[name]
        titled = f"{experiment.title}, " if len(content.cells) > 1 else ""
        for dataset in experiment.datasets:
            title = f"{titled}{content.dataset_titles[dataset]}"
            said.setdefault(wishes_in_words(experiment, dataset), []).append(title)
    if not said:
        return []
    if len(said) == 1:
        return [f"Privacy weights: {next(iter(said))}."]
    return [
        "Privacy weights. "
        f"{'; '.join(f'{words(titles)}: {text}' for text, titles in said.items())}."
    ]


def _by_point(cells: Iterable[Cell], dataset: str | None = None) -> dict[Point, list[Cell]]:
    groups: dict[Point, list[Cell]] = {}
    for cell in cells:
        if dataset in (None, cell.dataset):
            groups.setdefault(_point(cell), []).append(cell)
    return groups


def _point(cell: Cell) -> Point:
    return cell.dataset, cell.factors, cell.x


def _error(cell: Cell) -> float:
    return cell.mse.mean


def _where(experiment: Experiment, cell: Cell) -> str:
    if experiment.vary is None or cell.x is None:
        return f"K = {cell.factors}"
    return f"K = {cell.factors}, {experiment.vary.parameter} = {plain(cell.x)}"


def headline(content: Content) -> list[str]:
    """Return a few short sentences for the top of the page."""
    found = shown_cells(content)
    cells = [] if found is None else found[1]
    sentences = [
        _lowest_error(cells),
        _better_than_silence(cells),
        _best_lists(content),
        _proved_epsilons(cells),
    ]
    return [text for text in sentences if text]


def _lowest_error(cells: Sequence[Cell]) -> str:
    winners: dict[str, list[str]] = {}
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        here = sorted(
            (cell for cell in cells if cell.dataset == dataset), key=lambda cell: cell.mse.mean
        )
        text = (
            f"{here[0].dataset_title} (MSE {two(here[0].mse.mean)}; next {here[1].label}, "
            f"{two(here[1].mse.mean)})"
        )
        winners.setdefault(here[0].label, []).append(text)
    parts = [f"{label} on {words(datasets)}" for label, datasets in winners.items()]
    return f"Lowest error: {'; '.join(parts)}." if parts else ""


def _better_than_silence(cells: Sequence[Cell]) -> str:
    """Name the private methods that beat a device that sends nothing."""
    silent = {
        cell.dataset: cell.mse.mean
        for cell in cells
        if cell.claim is not None and cell.claim.epsilon == 0.0
    }
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


def _best_lists(content: Content) -> str:
    parts = []
    for experiment in list_experiments(content):
        cells = table_cells(content, experiment)
        for dataset in dict.fromkeys(cell.dataset for cell in cells):
            best = highest(cell for cell in cells if cell.dataset == dataset)
            if best is not None:
                parts.append(f"{best.label} on {best.dataset_title} (NDCG@10 {two(ndcg(best))})")
    return f"Best lists: {words(parts)}." if parts else ""


def _proved_epsilons(cells: Sequence[Cell]) -> str:
    groups: dict[str, dict[str, None]] = {}
    for cell in cells:
        if cell.claim is not None and cell.claim.epsilon:
            groups.setdefault(cell.claim.status, {})[cell.label] = None
    texts = {
        "proved": "Proved epsilon",
        "author's claim": "Epsilon as its author claims",
        "nominal": "Epsilon in name only",
    }
    parts = [
        f"{text}: {words(list(groups[status]))}"
        for status, text in texts.items()
        if status in groups
    ]
    return f"{'. '.join(parts)}." if parts else ""


@dataclass(frozen=True, slots=True)
class Differences:
    """Tests of all pairs of methods at one place, and the errors of groups of people there.

    Attributes:
        seeds: How many numbers of each method there are.
        groups: Cells whose errors by activity were measured.
    """

    title: str
    metric: str
    seeds: int
    tests: list[PairTest]
    groups: list[Cell]


def differences(content: Content) -> list[Differences]:
    """Return the tests of every table, by data set and K; errors first, then lists."""
    found = []
    for experiment in content.experiments.values():
        cells = table_cells(content, experiment)
        measures = (["mse"] if experiment.errors else []) + ([NDCG] if experiment.lists else [])
        for metric, dataset, k in itertools.product(
            measures, experiment.datasets, experiment.factors
        ):
            here = [cell for cell in cells if (cell.dataset, cell.factors) == (dataset, k)]
            tests = pair_tests(here, metric)
            grouped = [cell for cell in here if metric == "mse" and "mse_gap" in cell.metrics]
            if tests or grouped:
                title = f"{experiment.title}, {content.dataset_titles[dataset]}, K = {k}"
                seeds = len(experiment.seeds)
                found.append(Differences(title, metric, seeds, tests, grouped))
    return found


def differences_section(content: Content) -> Section | None:
    """Return which differences are more than chance, and whose errors are larger."""
    found = differences(content)
    if not found:
        return None
    facts = {"places": found, "group_metrics": GROUP_METRICS}
    return Section("Differences", "Differences that are more than chance", "tests.html", facts)


def list_findings(content: Content) -> list[str]:
    """Name the best lists on each data set, with and without a proof, and the trivial ones."""
    sentences = []
    for experiment in list_experiments(content):
        parts = []
        cells = [
            cell
            for cell in table_cells(content, experiment)
            if cell.factors == experiment.factors[0]
        ]
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
                "most popular": next(
                    (cell for cell in here if cell.method == "most-popular"), None
                ),
            }
            named = {best.method}
            for kind, cell in others.items():
                if cell is not None and cell.method not in named and math.isfinite(ndcg(cell)):
                    named.add(cell.method)
                    text += (
                        f"; {kind}: {four(ndcg(cell)) if kind == 'most popular' else _named(cell)}"
                    )
            parts.append(text)
        x = table_point(experiment)
        where = ""
        if x is not None and experiment.vary is not None:
            where = f" at {experiment.vary.parameter} {plain(x)}"
        if parts:
            sentences.append(f"Best lists (NDCG@10{where}). {'. '.join(parts)}.")
    return sentences


def _named(cell: Cell) -> str:
    return f"{cell.label} {four(ndcg(cell))}"


def _proved(cell: Cell) -> bool:
    return cell.claim is not None and cell.claim.status == "proved"


def _hides_presence(cell: Cell) -> bool:
    return (
        _proved(cell)
        and cell.method in METHODS
        and METHODS[cell.method].claim().presence is not None
    )
