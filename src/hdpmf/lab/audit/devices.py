"""The distinguishing game on what leaves real devices: one run, and every rating of a device a
canary.

The attacker is the recommender, and it chooses what it sends as sharply as devices allow.

* hdp-sum: the item's entries of the sum. hdp-bit: the bit. The score is the exact log-likelihood
  ratio.
* hdpmf-paid: all rows of V are equal, so that the stand-in vector has the largest sum of sizes that
  it may have.
* The paper's methods claim something for one draw of the noise, seen by somebody who does not know
  h. The recommender leaves out the first round and asks for the second with a learning rate that
  throws the user's vector (of one coordinate) to the end of the unit ball: then the claim is
  exactly what the noise gives. Knowing h is a part of its own; more rounds, and the user's vector,
  are what ``run_audit`` looks at.

Beside the bound the size of the noise is measured, which can be done where no attack gets near the
claim (ten rounds of ten factors: a hundred numbers that each tell a hundredth): the attacker knows
what it asked for, so what is left of the numbers is noise. Its mean size is compared with that of
the law in the proof; five standard deviations below are "too little noise" (by chance: 3 in 10
million).

In the view ``messages`` devices are told that they alone make the noise (of one rater, of one
share), so that the message has all of it; with a share of it, as in every real run, it is the part
``share``.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from hdpmf.common.methods import METHODS, Claim, View, method_named
from hdpmf.common.privacy.coding import bit_probability, make_coding, sum_channels, weight_units
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
    Call,
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
from hdpmf.common.protocol.grid import GRADIENT_STEP, from_grid
from hdpmf.common.protocol.layout import (
    counts_layout,
    gradients_layout,
    popularity_layout,
    survey_layout,
)
from hdpmf.errors import ConfigError
from hdpmf.lab.audit.cohort import (
    HONEST,
    MINIMUM,
    ROSTER,
    RUN,
    SCALE,
    Cohort,
    DeviceAnswer,
    audited_policy,
    item_table,
)
from hdpmf.lab.audit.game import STANDS, verdict
from hdpmf.lab.audit.scores import (
    CONFIDENCE,
    CanaryBits,
    CanaryNumbers,
    ObservedCanaries,
    one_run_bound,
    one_run_ceiling,
)

LOW, HIGH = SCALE.low, SCALE.high

TOO_LITTLE = "too little noise"

DEVIATIONS = 5.0
"""So many standard deviations below the law's mean noise is too little."""

ENDS = np.array([LOW, HIGH], np.float32)


@dataclass(frozen=True, slots=True)
class DeviceAudit:
    """What is put to the test.

    Attributes:
        method: A method that runs between machines and has noise.
        view: What the recommender sees: ``sums`` or ``messages``.
        adjacency: What the coins are about: the ``value`` of a rating, lowest or highest, or its
            ``presence``, highest or none.
        labels: By taste labels (hdp-sum).
        canaries: Ratings of the audited device, and items.
        epsilon: Of the run.
        weight: Privacy weight of all ratings, for methods whose claim is proved.
        rounds: Of hdpmf-paid.
        factors: Of hdpmf-paid.
        noise_factor: 1 audits devices as they are. Less plants a fault: a control.
        confidence: Of the bound.
        seed: Of the coins and of h. Noise comes from the operating system: no two audits are the
            same.
    """

    method: str
    view: View
    adjacency: str = "value"
    labels: bool = False
    canaries: int = 2_000
    epsilon: float = 1.0
    weight: float = 1.0
    rounds: int = 1
    factors: int = 1
    noise_factor: float = 1.0
    confidence: float = CONFIDENCE
    seed: int = 0

    def __post_init__(self) -> None:
        method = method_named(self.method)
        if (self.method, self.view) not in device_pairs():
            raise ConfigError(
                f"devices make no noise to audit for {self.method} under the view {self.view}; "
                "choose from " + ", ".join(f"{name} ({view})" for name, view in device_pairs())
            )
        if self.labels and method.labelled is None:
            raise ConfigError(f"{self.method} has no taste labels")
        if self.adjacency not in ("value", "presence"):
            raise ConfigError(
                f"cannot audit the adjacency {self.adjacency!r}; choose from value, presence"
            )
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
        """What the method claims for this view."""
        return method_named(self.method).claim(self.view, labels=self.labels)

    @property
    def claimed(self) -> float:
        """Epsilon of a rating where the recommender sees all of the noise."""
        factor = self.promise.presence if self.adjacency == "presence" else self.promise.value
        # Nominal claims, and messages with all of the noise in them: what the noise is made for.
        return self.epsilon * self.weight * (1.0 if factor is None else factor)


@dataclass(frozen=True, slots=True)
class DeviceAuditResult:
    """What came out.

    Attributes:
        audit: What was put to the test.
        status: Of the claim: ``proved``, ``nominal`` or ``none``.
        epsilon_claimed: What the noise is made for.
        epsilon_lower_bound: What is proved by the guesses.
        verdict: ``claim broken``, ``too little noise`` or ``not contradicted``.
        noise: Mean size of the noise that was seen, over that of the proof's law.
        noise_deviation: Standard deviation of that, if the law is right.
        right: Right guesses.
        guesses: Of so many.
        ceiling: The largest bound that so many canaries can prove.
        parts: Bounds of others: ``h`` knows h; ``share`` sees messages with one device's share of
            the noise.
        seconds: Time taken.
    """

    audit: DeviceAudit
    status: str
    epsilon_claimed: float
    epsilon_lower_bound: float
    verdict: str
    noise: float
    noise_deviation: float
    right: int
    guesses: int
    ceiling: float
    parts: dict[str, float]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def device_pairs() -> list[tuple[str, View]]:
    """Every method with noise that devices talk about with a recommender, with every view that it
    has there.

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
    """An audit of each pair, of presence where it is claimed to be hidden, and of taste labels."""
    audits = []
    for name, view in device_pairs():
        for labels in (False, True) if METHODS[name].labelled is not None else (False,):
            audits.append(DeviceAudit(name, view, labels=labels, **chosen))
            if METHODS[name].claim(view, labels=labels).presence is not None:
                audits.append(DeviceAudit(name, view, "presence", labels=labels, **chosen))
    return audits


def judge(claimed: float | None, bound: float, noise: float, deviation: float) -> str:
    """What a lower bound and the size of the noise (1 as it should be) say about a claim."""
    found = verdict(claimed, bound)
    return TOO_LITTLE if found == STANDS and noise < 1.0 - DEVIATIONS * deviation else found


def audit_devices(audit: DeviceAudit) -> DeviceAuditResult:
    """Play the game."""
    begin = time.perf_counter()
    rng = np.random.default_rng(audit.seed)
    truth = rng.random(audit.canaries) < 0.5
    observed = play(audit, truth, rng)
    bound = one_run_bound(observed.scores(), truth, audit.confidence)
    others = {} if observed.knowing_h is None else {"h": observed.knowing_h}
    if audit.view == "messages" and method_named(audit.method).trains:
        others["share"] = play(audit, truth, rng, share=True).scores()
    noise, deviation = observed.noise(truth)
    return DeviceAuditResult(
        audit=audit,
        status=audit.promise.status,
        epsilon_claimed=audit.claimed,
        epsilon_lower_bound=bound.epsilon,
        verdict=judge(audit.claimed, bound.epsilon, noise, deviation),
        noise=noise,
        noise_deviation=deviation,
        right=bound.right,
        guesses=bound.guesses,
        ceiling=one_run_ceiling(audit.canaries, audit.confidence),
        parts={
            name: one_run_bound(scores, truth, audit.confidence).epsilon
            for name, scores in others.items()
        },
        seconds=time.perf_counter() - begin,
    )


def stars_of(audit: DeviceAudit, truth: np.ndarray) -> np.ndarray:
    """The audited device's ratings, one per item; 0 for none."""
    return np.where(truth, HIGH, 0.0 if audit.adjacency == "presence" else LOW)


def cohort_of(audit: DeviceAudit, stars: np.ndarray) -> Cohort:
    """Devices for an audit. Where only raters make noise, the others have rated everything, with
    the lowest value.
    """
    others = np.full(audit.canaries, LOW if method_named(audit.method).has_h else 0.0)
    return Cohort(
        item_table(audit.canaries), stars, others, audited_policy(audit.epsilon),
        sums=audit.view == "sums", weight=audit.weight, noise_factor=audit.noise_factor,
    )  # fmt: skip


def play(
    audit: DeviceAudit, truth: np.ndarray, rng: np.random.Generator, *, share: bool = False
) -> ObservedCanaries:
    """What the recommender gets from a device with these canaries."""
    cohort = cohort_of(audit, stars_of(audit, truth))
    try:
        return converse(audit, cohort, rng, share=share)
    finally:
        cohort.close()


def converse(
    audit: DeviceAudit, cohort: Cohort, rng: np.random.Generator, *, share: bool = False
) -> ObservedCanaries:
    """Have the conversation of the audit's method with these devices."""
    sharing = HONEST if audit.view == "sums" or share else 1
    cohort.told(Accepted, terms_of(audit, cohort, sharing))
    if method_named(audit.method).one_round:
        return _play_survey(audit, cohort)
    return _play_training(audit, cohort, sharing, rng)


def terms_of(audit: DeviceAudit, cohort: Cohort, sharing: int = HONEST) -> Terms:
    """What a run is about."""
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
    """What a one-round design asks."""
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
    survey, n = survey_of(audit, cohort), audit.canaries
    coding, units = (
        make_coding(survey.coding, SCALE, audit.epsilon),
        weight_units(np.full(2, audit.weight)),
    )
    if survey.design == "L":
        sent, plus = cohort.told(BitContribution, survey), np.full(n, -1)
        plus[sent.items] = sent.plus
        low, high = bit_probability(coding.encode(ENDS), units, coding, audit.epsilon).tolist()
        return ObservedCanaries([CanaryBits(plus, (low, high))])
    cohort.told(Ready, survey)
    channels = sum_channels(survey.design, coding, audit.epsilon, labels=audit.labels)
    low, high = (units * coding.encode(ENDS)).tolist()
    hidden = audit.adjacency == "presence"
    scored, weighed = (
        (0.0 if hidden else low, high),
        (0.0 if hidden else float(units[0]), float(units[0])),
    )
    observed = ObservedCanaries()
    if channels.popularity is not None:
        seen = cohort.sum(0, popularity_layout(survey, MINIMUM))
        observed.about.append(
            CanaryNumbers(seen[:, None], weighed, float(channels.popularity.scale))
        )
        cohort.told(Ready, Grouping(scores=np.zeros(n, np.int64), heads=np.zeros(0, np.int64)), 1)
    seen = cohort.sum(1 if audit.labels else 0, survey_layout(survey, MINIMUM))
    observed.about.append(CanaryNumbers(seen[:n, None], scored, float(channels.score.scale)))
    observed.about.append(
        CanaryNumbers(seen[n : 2 * n, None], weighed, float(channels.weight.scale))
    )
    return observed


def plan_of(audit: DeviceAudit) -> Plan:
    """What a training asks."""
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
    n, k, plan = audit.canaries, audit.factors, plan_of(audit)
    mechanism, rounds = mechanism_of(method_named(audit.method)), plan.epochs
    cohort.told(BudgetReport if mechanism.needs_budgets else Accepted, plan)
    opening = Opening(noise_budget=audit.epsilon)
    if audit.view == "sums":
        cohort.told(Ready, opening)
        cohort.sum(0, counts_layout(plan, MINIMUM))
    else:
        cohort.told(ItemCounts, opening)
    # A gradient is 2 W (u.v - R) u. Here u is v, the unit vector with equal coordinates, so that
    # those of the others, who rated 1, are 0.
    factors, raters = np.full((n, k), 1.0 / np.sqrt(k), np.float32), np.full(n, sharing)

    def gradients(number: int, h: np.ndarray | None) -> np.ndarray:
        message = Round(number=number, item_factors=factors, raters=raters, h=h)
        if audit.view == "messages":
            return np.asarray(cohort.told(Gradients, message, number).sums, np.float64)
        cohort.told(Ready, message, number)
        units = cohort.sum(number, gradients_layout(plan, MINIMUM))
        return from_grid(units).astype(np.float64).reshape(n, k)

    low, high = (2.0 * audit.weight * (1.0 - end) / np.sqrt(k) for end in (LOW, HIGH))
    if mechanism.needs_h:
        h = np.maximum(rng.standard_exponential((n, k), dtype=np.float32), np.float32(H_FLOOR))
        sums, scale = gradients(2, h), laplace_scale(k, SCALE.width, audit.epsilon)
        knowing = ((sums - low) ** 2 - (sums - high) ** 2) / (4.0 * scale**2 * h)
        observed = ObservedCanaries([CanaryNumbers(sums, (low, high), scale)], knowing.sum(axis=1))
    else:
        scale = (
            float(dense_laplace_scale(k, SCALE.width, audit.epsilon, rounds, GRADIENT_STEP))
            * GRADIENT_STEP
        )
        seen = [gradients(number, None) for number in range(1, rounds + 1)]
        observed = ObservedCanaries([CanaryNumbers(sums, (low, high), scale) for sums in seen])
    cohort.told(
        Accepted, Round(number=rounds + 1, item_factors=factors, raters=raters, h=None), rounds + 1
    )
    return observed


def worlds(audit: DeviceAudit, seed: int = 0) -> dict[str, np.ndarray]:
    """Ratings that nobody may tell apart by how a device answers."""
    n, rng = audit.canaries, np.random.default_rng(seed)
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
    return (
        len(
            {
                tuple(leaves.shape for leaves in trace(small, stars))
                for stars in worlds(small).values()
            }
        )
        == 1
    )


def _probes(audit: DeviceAudit, cohort: Cohort) -> Iterator[tuple[bytes, Message]]:
    """Messages out of turn, out of bounds and out of budget: in the run that is over, and each
    in a new one.
    """
    n = audit.canaries
    terms, none, huge = (
        terms_of(audit, cohort),
        np.zeros(n, np.int64),
        np.full((n, audit.factors), 2.0**20, np.float32),
    )
    one_round = method_named(audit.method).one_round
    asked: list[Message] = [survey_of(audit, cohort)] if one_round else [plan_of(audit)]
    rounds = [
        Round(number=number, item_factors=huge, raters=none, h=h)
        for number in (1, 2)
        for h in (None, huge[:1])
    ]
    odd: list[Message] = [
        Call(),
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


@dataclass(frozen=True, slots=True)
class TimesApart:
    """How well the time of one kind of answer tells two worlds apart.

    Attributes:
        place: Which answer of the trace.
        kind: What it is.
        p_value: Of Mann and Whitney's test.
        auc: Probability that an answer of the second world takes longer than one of the first; one
            half is no telling.
    """

    place: int
    kind: str
    p_value: float
    auc: float


def times_apart(first: list[list[DeviceAnswer]], second: list[list[DeviceAnswer]]) -> TimesApart:
    """The answer whose times differ most between the runs of two worlds; its p-value counts for
    all places.
    """
    from scipy.stats import mannwhitneyu

    found = []
    for place, leaves in enumerate(first[0]):
        times = [np.array([run[place].seconds for run in runs]) for runs in (first, second)]
        test = mannwhitneyu(times[1], times[0])
        auc = float(test.statistic) / (len(first) * len(second))
        found.append(
            TimesApart(place, leaves.kind, min(1.0, float(test.pvalue) * len(first[0])), auc)
        )
    return min(found, key=lambda apart: apart.p_value)
