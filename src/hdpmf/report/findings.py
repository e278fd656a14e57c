"""The headline: sentences made from the numbers of whatever experiments were run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hdpmf.experiments import Cell, Experiment, paired_test, wishes_in_words
from hdpmf.methods import METHODS
from hdpmf.report.content import Content
from hdpmf.report.lists import list_findings
from hdpmf.report.numbers import counted, four, p_value, plain, words

Place = tuple[str, int, float | None]
"""Data set, K and place on the axis: where methods can be compared."""


def findings(content: Content) -> list[str]:
    """Who is best, what the trivial baselines say, whether privacy pays, and what the epsilons stand on."""
    sentences = []
    for name in content.cells:
        experiment = content.experiments[name]
        done = [cell for cell in content.error_cells(experiment) if cell.status == "done"]
        if done and experiment.errors:
            titled = f"{experiment.title}: " if len(content.cells) > 1 else ""
            sentences += [titled + text for text in (_best(experiment, done), _trivial(done), _own_mean(done)) if text]
    sentences += list_findings(content)
    if not sentences:
        sentences.append("Nothing is complete yet: the same command does what is missing.")
    return [*sentences, *_epsilons(content), *_wishes(content)]


def _is_baseline(cell: Cell) -> bool:
    return cell.method in METHODS and METHODS[cell.method].is_baseline


def _best(experiment: Experiment, cells: Sequence[Cell]) -> str:
    """The lowest error on every data set, and how sure that is."""
    parts = []
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        winners = {place: min(group, key=_error) for place, group in _places(cells, dataset).items()}
        won = Counter(cell.label for cell in winners.values())
        label = won.most_common(1)[0][0]
        best = min((cell for cell in winners.values() if cell.label == label), key=_error)
        rivals = [cell for cell in _places(cells, dataset)[_place(best)] if cell.method != best.method]
        text = f"{best.label} on {best.dataset_title} ({_where(experiment, best)}: {four(_error(best))}"
        if rivals:
            second = min(rivals, key=_error)
            test = paired_test(best.mse.values, second.mse.values)
            text += f" against {four(_error(second))} of {second.label}, {p_value(test.p)}"
        if len(winners) > 1:
            text += f"; lowest in {won[label]} of {counted(len(winners), 'place')}"
        parts.append(f"{text})")
    return f"The lowest MSE has {words(parts)}."


def _trivial(cells: Sequence[Cell]) -> str:
    """Which methods do not beat the best trivial baseline."""
    labels = list(dict.fromkeys(cell.label for cell in cells if _is_baseline(cell)))
    if not labels:
        return "No trivial baseline was run: add user-mean and global-mean to see what needs no recommender."
    baselines = {
        place: min((cell for cell in group if _is_baseline(cell)), key=_error, default=None)
        for place, group in _places(cells).items()
    }
    pairs = [
        (cell, baseline)
        for cell in cells
        if not _is_baseline(cell) and (baseline := baselines[_place(cell)]) is not None
    ]
    if not pairs:
        return ""
    return f"Against the best of {words(labels)}: {_verdicts(pairs)}."


def _own_mean(cells: Sequence[Cell]) -> str:
    """Whether methods with a budget beat the device that sends nothing."""
    silent = {_place(cell): cell for cell in cells if cell.claim is not None and cell.claim.epsilon == 0.0}
    pairs = [
        (cell, silent[_place(cell)])
        for cell in cells
        if cell.claim is not None and cell.claim.epsilon and _place(cell) in silent
    ]
    if not pairs:
        return ""
    return f"Against a device that sends nothing (each user's own mean, epsilon 0): {_verdicts(pairs)}."


def _verdicts(pairs: Iterable[tuple[Cell, Cell]]) -> str:
    """In how many places each method beats its rival, methods with the same fate together."""
    wins: dict[str, list[bool]] = {}
    for cell, rival in pairs:
        wins.setdefault(cell.label, []).append(_error(cell) < _error(rival))
    fates: dict[str, list[str]] = {}
    for label, outcomes in wins.items():
        share = f"in {sum(outcomes)} of {counted(len(outcomes), 'place')}"
        fate = "better everywhere" if all(outcomes) else f"better {share}" if any(outcomes) else "nowhere better"
        fates.setdefault(fate, []).append(label)
    return "; ".join(f"{words(labels)} {'is' if len(labels) == 1 else 'are'} {fate}" for fate, labels in fates.items())


def _epsilons(content: Content) -> list[str]:
    """Which epsilons are nominal, which are proved, and what is not private."""
    groups: dict[str, dict[str, None]] = {}
    for cell in content.all_cells:
        if cell.claim is not None and cell.claim.epsilon != 0.0:
            groups.setdefault(cell.claim.status, {})[cell.label] = None
    texts = {
        "nominal": "nominal: a number that no proof carries to what is sent",
        "proved": "proved, against the observer named below",
        "none": "no privacy at all",
    }
    parts = [f"{words(list(groups[status]))}: {text}" for status, text in texts.items() if status in groups]
    return [f"What epsilon stands on. {'; '.join(parts)}."] if parts else []


def _wishes(content: Content) -> list[str]:
    """Whose wishes the privacy weights are, in which experiment and on which data set where they differ."""
    said: dict[str, list[str]] = {}
    for name in content.cells:
        experiment = content.experiments[name]
        titled = f"{experiment.title}, " if len(content.cells) > 1 else ""
        for dataset in experiment.datasets:
            place = f"{titled}{content.dataset_titles[dataset]}"
            said.setdefault(wishes_in_words(experiment, dataset), []).append(place)
    if not said:
        return []
    if len(said) == 1:
        return [f"Privacy weights: {next(iter(said))}."]
    return [f"Privacy weights. {'; '.join(f'{words(places)}: {text}' for text, places in said.items())}."]


def _places(cells: Iterable[Cell], dataset: str | None = None) -> dict[Place, list[Cell]]:
    groups: dict[Place, list[Cell]] = {}
    for cell in cells:
        if dataset in (None, cell.dataset):
            groups.setdefault(_place(cell), []).append(cell)
    return groups


def _place(cell: Cell) -> Place:
    return cell.dataset, cell.factors, cell.x


def _error(cell: Cell) -> float:
    return cell.mse.mean


def _where(experiment: Experiment, cell: Cell) -> str:
    axis = "" if experiment.vary is None or cell.x is None else f", {experiment.vary.parameter} = {plain(cell.x)}"
    return f"K = {cell.factors}{axis}"
