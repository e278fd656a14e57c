"""Which runs go together and which go first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from hdpmf.experiments.runs import Run
from hdpmf.ratings import dataset_info, dataset_names

_TASK_SECONDS = 1.0
"""Short runs are done together until they are worth a trip to another process."""


def estimated_seconds(run: Run) -> float:
    """About how long a run takes on one core.

    Only ratios matter: the display corrects by what it sees. The constants come from the sequential solver on one
    core; a data set of unknown size counts as a small one.
    """
    counts = dataset_info(run.data.name).counts if run.data.name in dataset_names() else None
    n_ratings, n_items = (counts.ratings, counts.items) if counts else (100_000, 2_000)
    if run.data.world:
        n_ratings = run.data.world.get("n_ratings", n_ratings)
    epochs = run.params.get("epochs")
    if not isinstance(epochs, int):
        return 0.005 + 5e-8 * n_ratings  # no training loop
    if run.part.folds:
        n_ratings = n_ratings * (run.part.folds - 1) // run.part.folds
    factors = run.params.get("n_factors")
    width = factors if isinstance(factors, int) else 10
    per_rating = (1.6e-8 + 1.2e-9 * width) * (1.0 if run.method != "mf" else 0.7)
    return 0.01 + epochs * (per_rating * n_ratings * run.part.fraction + 6e-8 * n_items)


def tasks_of(runs: Iterable[Run]) -> Iterator[Sequence[Run]]:
    """Runs in the order they should start, in groups that one worker does in a row.

    Longest first, so that no worker is left with a long run at the end; within equally long ones those of the same
    cut together, so that a worker can keep it.
    """
    ordered = sorted(runs, key=lambda run: (-round(estimated_seconds(run), 1), _cut(run), run.id))
    for _, same in groupby(ordered, key=_cut):
        group: list[Run] = []
        seconds = 0.0
        for run in same:
            cost = estimated_seconds(run)
            if group and seconds + cost > _TASK_SECONDS:
                yield group
                group, seconds = [], 0.0
            group.append(run)
            seconds += cost
        yield group


def _cut(run: Run) -> bytes:
    return msgspec.json.encode([run.data, run.part], order="sorted")
