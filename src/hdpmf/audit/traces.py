"""Whether, when and how a device answers: the same whatever its ratings are.

A trace is everything that leaves the audited device in a run of its method, and in a series of messages after it that
no honest recommender sends. Two devices that differ in what the method hides (values; presence, where it is hidden)
must have traces of the same kinds and lengths, refusals and their words included, exactly. Where only sums are seen,
answers that are no part of a sum are the same to the byte.

Times cannot be the same, they can only have the same law. ``times_apart`` compares them by Mann and Whitney's test,
message by message, between runs that take turns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from hdpmf.audit.agents import HONEST, RUN, Cohort, Leaves
from hdpmf.audit.on_devices import HIGH, LOW, DeviceAudit, cohort_of, converse, plan_of, survey_of, terms_of
from hdpmf.methods import method_named
from hdpmf.protocol import Call, Grouping, Message, Opening, Round, encode
from hdpmf.protocol.federation import RUN_BYTES


def worlds(audit: DeviceAudit, seed: int = 0) -> dict[str, np.ndarray]:
    """Ratings that nobody may tell apart by how a device answers."""
    n, rng = audit.canaries, np.random.default_rng(seed)
    values = {"low": np.full(n, LOW), "high": np.full(n, HIGH), "mixed": rng.integers(1, 6, n).astype(float)}
    if audit.promise.presence is None:
        return values
    few = np.where(np.arange(n) == n // 2, HIGH, 0.0)
    return values | {"none": np.zeros(n), "one": few, "half": np.where(rng.random(n) < 0.5, HIGH, 0.0)}


def trace(audit: DeviceAudit, stars: np.ndarray, *, probes: bool = True) -> list[Leaves]:
    """Everything that leaves a device with these ratings."""
    cohort = cohort_of(audit, stars)
    try:
        converse(audit, cohort, np.random.default_rng(audit.seed))
        if probes:
            for run, message in _probes(audit, cohort):
                cohort.probe(encode(message), getattr(message, "number", 0), run=run)
            for part in ("job", "sum"):
                cohort.probe(b"no message", part=part)
        return cohort.left
    finally:
        cohort.close()


def answers_alike(audit: DeviceAudit, items: int = 100) -> bool:
    """Whether kinds and lengths of all answers are the same in all worlds of a small catalogue."""
    small = dataclasses.replace(audit, canaries=items)
    return len({tuple(leaves.shape for leaves in trace(small, stars)) for stars in worlds(small).values()}) == 1


def _probes(audit: DeviceAudit, cohort: Cohort) -> Iterator[tuple[bytes, Message]]:
    """Messages out of turn, out of bounds and out of budget: in the run that is over, and each in a new one."""
    n = audit.canaries
    terms, none, huge = terms_of(audit, cohort), np.zeros(n, np.int64), np.full((n, audit.factors), 2.0**20, np.float32)
    one_round = method_named(audit.method).one_round
    asked: list[Message] = [survey_of(audit, cohort)] if one_round else [plan_of(audit)]
    rounds = [Round(number=number, item_factors=huge, raters=none, h=h) for number in (1, 2) for h in (None, huge[:1])]
    odd: list[Message] = [
        Call(), Opening(noise_budget=audit.epsilon), Opening(noise_budget=1e-9), Opening(noise_budget=None),
        Grouping(scores=none, heads=np.arange(2)), Grouping(scores=none + 64, heads=none[:0]), *rounds,
    ]  # fmt: skip
    others = [replace(terms, epsilon=1e-6), replace(terms, epsilon=1e6), replace(terms, minimum=HONEST)]
    yield from ((RUN, message) for message in (*asked, terms, *odd, *others))
    conversations: list[tuple[Message, ...]] = [(terms, *asked, message) for message in odd]
    conversations += [(message, *asked) for message in others]
    if not one_round:
        conversations += [(terms, *asked, Opening(noise_budget=audit.epsilon), message) for message in rounds]
    for number, messages in enumerate(conversations):  # by now the ratings have spent all
        yield from ((number.to_bytes(RUN_BYTES, "big"), message) for message in messages)


@dataclass(frozen=True, slots=True)
class TimesApart:
    """How well the time of one kind of answer tells two worlds apart.

    Attributes:
        place: Which answer of the trace.
        kind: What it is.
        p_value: Of Mann and Whitney's test.
        auc: Probability that an answer of the second world takes longer than one of the first; one half is no telling.
    """

    place: int
    kind: str
    p_value: float
    auc: float


def times_apart(first: list[list[Leaves]], second: list[list[Leaves]]) -> TimesApart:
    """The answer whose times differ most between the runs of two worlds; its p-value counts for all places."""
    from scipy.stats import mannwhitneyu

    found = []
    for place, leaves in enumerate(first[0]):
        times = [np.array([run[place].seconds for run in runs]) for runs in (first, second)]
        test = mannwhitneyu(times[1], times[0])
        auc = float(test.statistic) / (len(first) * len(second))
        found.append(TimesApart(place, leaves.kind, min(1.0, float(test.pvalue) * len(first[0])), auc))
    return min(found, key=lambda apart: apart.p_value)
