"""Canaries on real devices: the observer is their recommender, which sends the sharpest messages.

* hdp-sum: the item's entries of the sum. hdp-bit: the bit. The score is the exact log-likelihood
  ratio.
* hdpmf-paid: all rows of V are equal, so that the stand-in vector has the largest sum of sizes that
  it may have.
* The paper's methods claim something for one draw of the noise, seen by somebody who does not know
  h. The recommender leaves out the first round and asks for the second with a learning rate that
  throws the user's vector (of one coordinate) to the end of the unit ball: then the claim is
  exactly what the noise gives. Knowing h is a part of its own; more rounds, and the user's vector,
  are what ``run_audit`` looks at.

In the view ``messages`` devices are told that they alone make the noise (of one rater, of one
share), so that the message has all of it; with a share of it, as in every real run, it is the part
``share``.

Traces are everything that leaves the audited device in a run of its method, and in a series of
messages after it that no honest recommender sends. Two devices that differ in what the method hides
(values; presence, where it is hidden) must have traces of the same kinds and lengths, refusals and
their words included, exactly. Where only sums are seen, answers that are no part of a sum are the
same to the byte.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from hdpmf.common.methods import METHODS, Claim, View, method_named
from hdpmf.common.privacy.coding import bit_probability, make_coding, weight_units
from hdpmf.common.privacy.mechanisms import (
    H_FLOOR,
    dense_laplace_scale,
    laplace_scale,
    mechanism_of,
)
from hdpmf.common.protocol import (
    Accepted,
    BitContribution,
    BudgetReport,
    Gradients,
    Grouping,
    ItemCounts,
    Message,
    Opening,
    Plan,
    Ready,
    Round,
    Survey,
    Terms,
    encode,
)
from hdpmf.common.protocol.federation import RUN_BYTES
from hdpmf.common.protocol.layout import (
    counts_layout,
    gradients_layout,
    popularity_layout,
    survey_layout,
)
from hdpmf.common.protocol.messages import GRADIENT_STEP, from_grid
from hdpmf.errors import ConfigError
from hdpmf.lab.audit.canaries import (
    ENDS,
    SCALE,
    CanaryAudit,
    CanaryBits,
    CanaryNumbers,
    ObservedCanaries,
    canary_stars,
    observed_sums,
)
from hdpmf.lab.audit.cohort import (
    HONEST,
    MINIMUM,
    ROSTER,
    RUN,
    Cohort,
    DeviceAnswer,
    audited_policy,
    item_table,
)

LOW = SCALE.low
HIGH = SCALE.high


@dataclass(frozen=True, slots=True)
class DeviceAudit(CanaryAudit):
    """An audit of real devices by their recommender.

    Attributes:
        method: A method that runs between machines and has noise.
        view: ``sums`` or ``messages``: what the recommender sees.
    """

    method: str
    view: View
    rounds: int = 1
    factors: int = 1

    def __post_init__(self) -> None:
        CanaryAudit.__post_init__(self)  # super() does not work in a class with slots
        method = method_named(self.method)
        if (self.method, self.view) not in device_pairs():
            raise ConfigError(
                f"devices make no noise to audit for {self.method} under the view {self.view}; "
                "choose from " + ", ".join(f"{name} ({view})" for name, view in device_pairs())
            )
        if self.labels and method.labelled is None:
            raise ConfigError(f"{self.method} has no taste labels")
        if self.adjacency == "presence" and self.promise.presence is None:
            raise ConfigError(f"{self.method} does not claim to hide which items were rated")
        if self.weight != 1.0 and method.has_h:
            raise ConfigError(f"{self.method} is audited on devices with weight 1")
        if (self.rounds, self.factors) != (1, 1) and self.method != "hdpmf-paid":
            raise ConfigError(
                "rounds and factors are hdpmf-paid's; others are audited in one round"
            )

    @property
    def promise(self) -> Claim:
        """The method's claim for this view."""
        return method_named(self.method).claim(self.view, labels=self.labels)

    def observe(self, truth: np.ndarray, rng: np.random.Generator) -> ObservedCanaries:
        """Return what the recommender sees of a device with these canaries."""
        observed = self._observe(truth, rng, share=False)
        if self.view == "messages" and method_named(self.method).trains:
            observed.others["share"] = self._observe(truth, rng, share=True).scores()
        return observed

    def _observe(
        self, truth: np.ndarray, rng: np.random.Generator, *, share: bool
    ) -> ObservedCanaries:
        cohort = cohort_of(self, canary_stars(self.adjacency, truth))
        try:
            return converse(self, cohort, rng, share=share)
        finally:
            cohort.close()


def device_pairs() -> list[tuple[str, View]]:
    """Return every method with noise on devices, with each of its views.

    Not two servers: devices send these reports, and the noise is not theirs.
    """
    return [
        (name, view)
        for name, method in METHODS.items()
        if method.mechanism != "none"
        for view in method.views
        if view != "two-servers"
    ]


def device_cells(**chosen: Any) -> list[DeviceAudit]:
    """Return audits of each pair, of presence where it is hidden, and of taste labels."""
    audits = []
    for name, view in device_pairs():
        for labels in (False, True) if METHODS[name].labelled is not None else (False,):
            audits.append(DeviceAudit(name, view, labels=labels, **chosen))
            if METHODS[name].claim(view, labels=labels).presence is not None:
                audits.append(
                    DeviceAudit(name, view, adjacency="presence", labels=labels, **chosen)
                )
    return audits


def cohort_of(audit: DeviceAudit, stars: np.ndarray) -> Cohort:
    """Make devices for an audit. Where only raters make noise, the others rated everything."""
    others = np.full(audit.canaries, LOW if method_named(audit.method).has_h else 0.0)
    return Cohort(
        item_table(audit.canaries), stars, others, audited_policy(audit.epsilon),
        sums=audit.view == "sums", weight=audit.weight, noise_factor=audit.noise_factor,
    )  # fmt: skip


def converse(
    audit: DeviceAudit, cohort: Cohort, rng: np.random.Generator, *, share: bool = False
) -> ObservedCanaries:
    """Run the protocol of the audit's method with these devices."""
    sharing = HONEST if audit.view == "sums" or share else 1
    cohort.ask(Accepted, terms_of(audit, cohort, sharing))
    if method_named(audit.method).one_round:
        return _play_survey(audit, cohort)
    return _play_training(audit, cohort, sharing, rng)


def terms_of(audit: DeviceAudit, cohort: Cohort, sharing: int = HONEST) -> Terms:
    """Return the terms of a run."""
    return Terms(
        method=audit.method,
        view=audit.view,
        epsilon=audit.epsilon,
        rounds=_rounds(audit),
        labels=audit.labels,
        catalogue=cohort.fingerprint,
        users=ROSTER,
        minimum=MINIMUM,
        sharing=sharing,
    )


def survey_of(audit: DeviceAudit, cohort: Cohort) -> Survey:
    """Return the survey of a one-round design."""
    design: Any = method_named(audit.method).designs[0]
    return Survey(
        design=design,
        coding="threshold" if design == "L" else "soft",
        epsilon=audit.epsilon,
        n_items=audit.canaries,
        catalogue=cohort.fingerprint,
        contributors=HONEST,
        scale_low=LOW,
        scale_high=HIGH,
        scale_step=SCALE.step,
        labels=audit.labels,
    )


def _play_survey(audit: DeviceAudit, cohort: Cohort) -> ObservedCanaries:
    survey = survey_of(audit, cohort)
    n = audit.canaries
    if survey.design == "L":
        sent = cohort.ask(BitContribution, survey)
        plus = np.full(n, -1)
        plus[sent.items] = sent.plus
        coding = make_coding(survey.coding, SCALE, audit.epsilon)
        units = weight_units(np.full(2, audit.weight))
        low, high = bit_probability(coding.encode(ENDS), units, coding, audit.epsilon).tolist()
        return ObservedCanaries([CanaryBits(plus, (low, high))])
    cohort.ask(Ready, survey)
    popularity = None
    if audit.labels:
        popularity = cohort.sum(0, popularity_layout(survey, MINIMUM))
        cohort.ask(Ready, Grouping(scores=np.zeros(n, np.int64), heads=np.zeros(0, np.int64)), 1)
    sums = cohort.sum(1 if audit.labels else 0, survey_layout(survey, MINIMUM))
    return observed_sums(audit, survey, sums, popularity)


def plan_of(audit: DeviceAudit) -> Plan:
    """Return the plan of a training."""
    mechanism: Any = method_named(audit.method).mechanism
    return Plan(
        n_items=audit.canaries,
        n_factors=audit.factors,
        epochs=_rounds(audit),
        learning_rate=1.0,
        reg=0.0,
        mechanism=mechanism,
        epsilon=audit.epsilon,
        scale_low=LOW,
        scale_high=HIGH,
        scale_steps=False,
        fresh_noise=True,
    )


def _rounds(audit: DeviceAudit) -> int:
    method = method_named(audit.method)
    return method.form(audit.labels).rounds or (2 if method.has_h else audit.rounds)


def _play_training(
    audit: DeviceAudit, cohort: Cohort, sharing: int, rng: np.random.Generator
) -> ObservedCanaries:
    n = audit.canaries
    k = audit.factors
    plan = plan_of(audit)
    rounds = plan.epochs
    mechanism = mechanism_of(method_named(audit.method))
    cohort.ask(BudgetReport if mechanism.needs_budgets else Accepted, plan)
    opening = Opening(noise_budget=audit.epsilon)
    if audit.view == "sums":
        cohort.ask(Ready, opening)
        cohort.sum(0, counts_layout(plan, MINIMUM))
    else:
        cohort.ask(ItemCounts, opening)
    # A gradient is 2 W (u.v - R) u. Here u is v, the unit vector with equal coordinates, so that
    # those of the others, who rated 1, are 0.
    factors = np.full((n, k), 1.0 / np.sqrt(k), np.float32)
    raters = np.full(n, sharing)

    def gradients(number: int, h: np.ndarray | None) -> np.ndarray:
        message = Round(number=number, item_factors=factors, raters=raters, h=h)
        if audit.view == "messages":
            return np.asarray(cohort.ask(Gradients, message, number).sums, np.float64)
        cohort.ask(Ready, message, number)
        units = cohort.sum(number, gradients_layout(plan, MINIMUM))
        return from_grid(units).astype(np.float64).reshape(n, k)

    low, high = (2.0 * audit.weight * (1.0 - end) / np.sqrt(k) for end in (LOW, HIGH))
    if mechanism.needs_h:
        h = np.maximum(rng.standard_exponential((n, k), dtype=np.float32), np.float32(H_FLOOR))
        scale = laplace_scale(k, SCALE.width, audit.epsilon)
        sums = gradients(2, h)
        knowing = ((sums - low) ** 2 - (sums - high) ** 2) / (4.0 * scale**2 * h)
        observed = ObservedCanaries(
            [CanaryNumbers(sums, (low, high), scale)], {"h": knowing.sum(axis=1)}
        )
    else:
        units = dense_laplace_scale(k, SCALE.width, audit.epsilon, rounds, GRADIENT_STEP)
        scale = float(units) * GRADIENT_STEP
        seen = [gradients(number, None) for number in range(1, rounds + 1)]
        observed = ObservedCanaries([CanaryNumbers(sums, (low, high), scale) for sums in seen])
    last = Round(number=rounds + 1, item_factors=factors, raters=raters, h=None)
    cohort.publish(last, plan)
    return observed


def worlds(audit: DeviceAudit, seed: int = 0) -> dict[str, np.ndarray]:
    """Return ratings that must not be distinguishable by how a device answers."""
    n = audit.canaries
    rng = np.random.default_rng(seed)
    values = {
        "low": np.full(n, LOW),
        "high": np.full(n, HIGH),
        "mixed": rng.integers(1, 6, n).astype(float),
    }
    if audit.promise.presence is None:
        return values
    few = np.where(np.arange(n) == n // 2, HIGH, 0.0)
    return values | {
        "none": np.zeros(n),
        "one": few,
        "half": np.where(rng.random(n) < 0.5, HIGH, 0.0),
    }


def trace(audit: DeviceAudit, stars: np.ndarray, *, probes: bool = True) -> list[DeviceAnswer]:
    """Return everything that leaves a device with these ratings."""
    cohort = cohort_of(audit, stars)
    try:
        converse(audit, cohort, np.random.default_rng(audit.seed))
        if probes:
            for run, message in _probes(audit, cohort):
                cohort.probe(encode(message), getattr(message, "number", 0), run=run)
            for part in ("job", "sum"):
                cohort.probe(b"no message", part=part)
        return cohort.answers
    finally:
        cohort.close()


def answers_alike(audit: DeviceAudit, items: int = 100) -> bool:
    """Return whether kinds and lengths of all answers are equal in all worlds."""
    small = dataclasses.replace(audit, canaries=items)
    traces = [trace(small, stars) for stars in worlds(small).values()]
    return len({tuple(answer.shape for answer in answers) for answers in traces}) == 1


def _probes(audit: DeviceAudit, cohort: Cohort) -> Iterator[tuple[bytes, Message]]:
    """Yield messages out of turn, bounds and budget: in the run that is over, and in new ones."""
    n = audit.canaries
    terms = terms_of(audit, cohort)
    none = np.zeros(n, np.int64)
    huge = np.full((n, audit.factors), 2.0**20, np.float32)
    one_round = method_named(audit.method).one_round
    asked: list[Message] = [survey_of(audit, cohort)] if one_round else [plan_of(audit)]
    rounds = [
        Round(number=number, item_factors=huge, raters=none, h=h)
        for number in (1, 2)
        for h in (None, huge[:1])
    ]
    odd: list[Message] = [
        Opening(noise_budget=audit.epsilon),
        Opening(noise_budget=1e-9),
        Opening(noise_budget=None),
        Grouping(scores=none, heads=np.arange(2)),
        Grouping(scores=none + 64, heads=none[:0]),
        *rounds,
    ]
    others = [
        replace(terms, epsilon=1e-6),
        replace(terms, epsilon=1e6),
        replace(terms, minimum=HONEST),
    ]
    yield from ((RUN, message) for message in (*asked, terms, *odd, *others))
    conversations: list[tuple[Message, ...]] = [(terms, *asked, message) for message in odd]
    conversations += [(message, *asked) for message in others]
    if not one_round:
        conversations += [
            (terms, *asked, Opening(noise_budget=audit.epsilon), message) for message in rounds
        ]
    for number, messages in enumerate(conversations):  # by now the ratings have spent all
        yield from ((number.to_bytes(RUN_BYTES, "big"), message) for message in messages)
