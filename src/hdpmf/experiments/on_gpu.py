"""Doing runs on a GPU: all that go together at once, over ratings that are there already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from typing import Any, cast

import msgspec

from hdpmf.errors import HdpmfError
from hdpmf.experiments.execute import claim_of, finished, measured, parts_of, weights_of
from hdpmf.experiments.runs import Run, model_of
from hdpmf.experiments.store import Result, now
from hdpmf.gpu.availability import explain
from hdpmf.methods import METHODS
from hdpmf.models.factorization import Factorization
from hdpmf.models.together import Fit, fit_together
from hdpmf.privacy import PrivacyWeights
from hdpmf.ratings import Ratings


def can_go_together(run: Run) -> bool:
    """Whether the run trains factors, which is what a GPU does many of at once, and the GPU can do it."""
    if not issubclass(METHODS[run.method].model, Factorization):
        return False
    model = model_of(run)
    return isinstance(model, Factorization) and model._mechanism().sends_fitted_vectors


def do_together(runs: Iterable[Run], files: Mapping[str, str], n_jobs: int, listed: frozenset[str]) -> Iterator[Result]:
    """Fit runs that ``can_go_together`` on the GPU, one data set after another; measure them on ``n_jobs`` threads."""
    ordered = sorted(runs, key=_data)
    with ThreadPoolExecutor(n_jobs) as measuring:
        for _, same in groupby(ordered, key=_data):
            yield from _do_data(list(same), files, measuring, listed)


def _do_data(
    runs: Sequence[Run], files: Mapping[str, str], measuring: ThreadPoolExecutor, listed: frozenset[str]
) -> Iterator[Result]:
    started, host = now(), {"gpu": explain()}
    # Kept by what they are made from: what trains together must share its ratings, not have equal ones.
    parts: dict[bytes, tuple[Ratings, Ratings]] = {}
    weights: dict[bytes, PrivacyWeights | None] = {}
    prepared: list[tuple[Run, Any, Fit, Ratings]] = []
    for run in runs:
        part = msgspec.json.encode(run.part)
        wishes = msgspec.json.encode([run.part, run.privacy])
        claim = None
        try:
            if part not in parts:
                parts[part] = parts_of(run, files)
            train, test = parts[part]
            model = cast(Factorization, model_of(run))
            claim = claim_of(model)
            if wishes not in weights:
                weights[wishes] = weights_of(run, train, files)
            prepared.append((run, claim, Fit(model, train, weights[wishes]), test))
        except HdpmfError as error:
            yield finished(run, started, claim, error=error, host=host)

    def measure(number: int, seconds: float) -> Result:
        run, claim, fit, test = prepared[number]
        try:
            metrics = measured(fit.model, fit.train, test, seconds, run.id in listed)
        except HdpmfError as error:
            return finished(run, started, claim, error=error, host=host)
        return finished(run, started, claim, metrics, host=host)

    waiting: list[Future[Result]] = []
    for fitted in fit_together([fit for _, _, fit, _ in prepared]):
        if fitted.error is not None:
            run, claim, _, _ = prepared[fitted.number]
            yield finished(run, started, claim, error=fitted.error, host=host)
        else:
            waiting.append(measuring.submit(measure, fitted.number, fitted.seconds))
        # Training launches from this thread, which measuring threads would keep waiting; so they take turns.
        while fitted.last and waiting:
            yield waiting.pop(0).result()


def _data(run: Run) -> bytes:
    return msgspec.json.encode(run.data, order="sorted")
