"""``hdpmf privacy explain``: what a method or a saved model protects, and from whom."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options import (
    COST_OPTIONS,
    MethodOptions,
    argument,
    command,
    option,
)
from hdpmf.cli.output import Block, Paragraph, Result, claim_fields, claim_sentence
from hdpmf.cli.rating_options import ExampleOptions
from hdpmf.common.methods import METHODS, method_named
from hdpmf.common.methods.registry import (
    MEANING,
    OBSERVERS,
    SURE,
    at_least,
    at_most,
    observer,
)
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.methods.method import PrivacyClaim
    from hdpmf.common.privacy.accounting import Cost, Setting
    from hdpmf.common.privacy.accounting.costs import Person

_VIEWS = ("messages", "sums-h-known", "sums-h-hidden", "two-servers", "final")
_BAR = 30
_BOUNDS = ("proved", "author's claim")
"""Statuses of costs that are bounds on everything, if they hold."""


class ExplainOptions(MethodOptions):
    """The options that change the cost of a method."""

    only = COST_OPTIONS


@dataclass(frozen=True)
class NumberOptions:
    """The numbers of the example."""

    raters: Annotated[
        int | None,
        option("Users who rated the item.", "N", min=1, default="100; of a model, its median"),
    ] = None
    ratings: Annotated[
        int | None, option("Ratings of the user.", "N", min=1, default="50; of a model, its median")
    ] = None
    delta: Annotated[float, option("Chance that is left out of account.", "D")] = 1e-5

    def example(self, raters: int = 100, ratings: int = 50) -> Numbers:
        """Return the numbers to count with, those not given filled in."""
        return Numbers(self.raters or raters, self.ratings or ratings, self.delta)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers that an example is counted with."""

    raters: int
    ratings: int
    delta: float


@dataclass(frozen=True, slots=True)
class Line:
    """The cost for one person against one observer."""

    person: Person
    view: str
    cost: Cost


@command
def explain(
    subject: Annotated[
        str,
        argument(
            f"The folder of a saved model, or a method: {', '.join(METHODS)}.",
            "METHOD|MODEL",
            METHODS,
        ),
    ],
    options: ExplainOptions,
    given: NumberOptions,
    example: ExampleOptions,
    rounds: Annotated[
        int | None, option("Rounds of training.", "T", default="100; hdpmf-paid: 10")
    ] = None,
    view: Annotated[
        list[str] | None, option(f"Only this observer: {', '.join(_VIEWS)}; repeatable.", "VIEW")
    ] = None,
) -> Result:
    """Explain what a method or a saved model protects, from whom, for three kinds of users."""
    from hdpmf.common.privacy.accounting import cost

    claim = None
    if subject not in METHODS and Path(subject).is_dir():
        if options.any or rounds is not None:
            raise ConfigError("a saved model has settings of its own; drop the method's options")
        setting, persons, numbers, claim = _explained_model(Path(subject), example, given)
    else:
        setting = _setting(subject, options, example, rounds)
        persons, numbers = example.people(), given.example()
    method = setting.method
    views = _views(method, view)

    def lines(times: int | None = None, **more: Any) -> list[Line]:
        """Return the cost of one rating, or of so many of the same weight, for everybody."""
        counted = {"n_raters": numbers.raters, "delta": numbers.delta, **more}
        return [
            Line(
                person,
                seen,
                cost(
                    setting,
                    seen,
                    weight=person.weight if times is None else [person.weight] * times,
                    **counted,
                ),
            )
            for seen in views
            for person in persons
        ]

    values = lines()
    presence = lines(neighbours="presence")
    whole = lines(numbers.ratings, unit="user")
    item = lines(numbers.raters, unit="item")

    def text() -> Iterator[Block]:
        yield from _page(setting, values, presence, whole, numbers)
        if claim is not None:
            yield from ("", Paragraph(f"This model. {claim_sentence(claim)}"))

    form = method_named(method).form
    fields = {
        "method": method,
        "epsilon": setting.epsilon,
        "rounds": setting.rounds,
        "factors": setting.factors,
        **asdict(numbers),
        "noise_budget": setting.noise_budget,
        "model": None if claim is None else {"folder": subject, **claim_fields(claim)},
        "leaves_the_device": form.sent,
        "not_protected": form.stays_open,
        "costs": [
            {"user": line.person.name, "weight": line.person.weight, **line.cost.fields()}
            for line in (*values, *presence, *item, *whole)
        ],
    }
    return Result(fields, text())


def _setting(
    method: str, options: ExplainOptions, example: ExampleOptions, rounds: int | None
) -> Setting:
    from hdpmf.common.privacy import PrivacySpec
    from hdpmf.common.privacy.accounting import Setting
    from hdpmf.common.privacy.accounting.costs import noise_budget

    known = method_named(method)
    chosen = {
        name: options.value(method, name) for name in ExplainOptions.only if name in known.options
    }
    for name, value in chosen.items():
        known.options[name].check(value)
    if rounds is None:
        form = known.form
        rounds = known.default("epochs") if known.trains else form.rounds or 1
    epsilon = chosen.get("epsilon", 1.0)
    budget = None  # the most that it can be
    if example.weights == "paper":
        budget = noise_budget(method, PrivacySpec(), epsilon, chosen.get("threshold", "mean"))
    about: dict[str, Any] = {
        name: chosen[name] for name in ("noise", "max_ratings") if name in chosen
    }
    if "n_factors" in chosen:
        about["factors"] = chosen["n_factors"]
    if chosen.get("h") == "shared":
        about["h"] = "shared"
    return Setting(method, epsilon=epsilon, rounds=rounds, noise_budget=budget, **about)


def _explained_model(
    folder: Path, example: ExampleOptions, given: NumberOptions
) -> tuple[Setting, Sequence[Person], Numbers, PrivacyClaim]:
    """Return how a model was trained, three of its users, its usual numbers, and its claim."""
    import numpy as np

    from hdpmf.common.privacy.accounting.costs import people_weighing
    from hdpmf.models import load_model
    from hdpmf.models.privacy_statement import setting_of

    model = load_model(folder, public_only=not (folder / "devices").is_dir())
    record, gamma = model.devices_.fit_record, model.devices_.gamma
    counts = np.diff(record.start)
    present = counts > 0
    if not present.any():
        return setting_of(model), example.people(), given.example(), model.privacy
    owners = np.repeat(np.arange(len(counts)), counts)
    totals = np.bincount(owners, record.beta[owners] * gamma[record.rated], len(counts))
    raters = np.bincount(record.rated)
    numbers = given.example(int(np.median(raters[raters > 0])), int(np.median(counts[present])))
    persons: Sequence[Person] = people_weighing(totals[present] / counts[present])
    if example.weights != "paper":
        persons = example.people()
    return setting_of(model), persons, numbers, model.privacy


def _views(method: str, wanted: Sequence[str] | None) -> list[str]:
    """Return the observers to explain.

    Two servers only for methods that run with them, or if named; where there is no h, one that
    knows it is enough.
    """
    from hdpmf.common.privacy.accounting.setting import view_of

    views: list[str] = list(dict.fromkeys(view_of(name) for name in wanted or _VIEWS))
    known = method_named(method)
    if not wanted and "two-servers" not in known.views:
        views.remove("two-servers")
    if not known.has_h and "sums-h-known" in views:
        views = [view for view in views if view != "sums-h-hidden"]
    return views


def _title(setting: Setting) -> str:
    method = method_named(setting.method)
    parts = []
    if "epsilon" in method.options:
        parts.append(f"epsilon {setting.epsilon:g}")
    if method.trains:
        parts += [f"{setting.rounds} rounds", f"{setting.factors} factors"]
    return f"{setting.method}: {', '.join(parts)}" if parts else setting.method


def _page(
    setting: Setting,
    values: Sequence[Line],
    presence: Sequence[Line],
    whole: Sequence[Line],
    numbers: Numbers,
) -> Iterator[Block]:
    """Explain the costs in words and numbers."""
    method = method_named(setting.method)
    form = method.form
    yield _title(setting)
    yield ""
    for paragraph in (
        f"What the device sends. {form.sent}",
        f"What is not protected. {form.stays_open}",
        f"One star or five? An observer knows everything but one rating, of an item with "
        f"{numbers.raters} raters. It would guess 50:50 whether that was one star or five. Then it "
        "looks. How often is it right? A coin is right 50 % of the time; a full bar is certainty. "
        "Beside it, the epsilon of that rating and of all the user's ratings together.",
    ):
        yield from (Paragraph(paragraph), "")
    for view in dict.fromkeys(line.view for line in values):
        here, rated, together = (
            [line for line in table if line.view == view] for table in (values, presence, whole)
        )
        yield from _observer_lines(observer(view, method.has_h), here, together, numbers.ratings)
        local = method.family == "local"
        if rated[-1].cost.status in _BOUNDS and not local:
            shares = "; ".join(f"{line.person.name} {line.cost.briefly()}" for line in rated)
            yield Paragraph(f"Whether the item was rated at all, epsilon: {shares}.", "  ")
        bounded = together[0].cost.status in _BOUNDS and math.isfinite(together[0].cost.pure)
        if bounded and not local:
            costs = "; ".join(f"{line.person.name} {line.cost.in_numbers()}" for line in together)
            most = setting.max_ratings
            sent = "" if most is None else f", of which {most} at most are sent"
            if most is not None and method.family == "sums":
                sent = f", sent with the weight of {most} of weight 1 at most"
            yield Paragraph(
                f"All {numbers.ratings} ratings of a person together{sent}: {costs}.", "  "
            )
        yield ""
    for status, meaning in MEANING.items():
        if any(line.cost.status == status for line in values):
            yield Paragraph(meaning)
    if any("*" in line.cost.briefly() for line in (*values, *whole)):
        yield f"* but for a chance of {values[0].cost.delta:g} (delta)."
    pages = dict.fromkeys(line.cost.reference for line in values if line.cost.reference)
    if pages:
        yield f"Why: {', '.join(pages)} beside the code of hdpmf.common.privacy."


def _observer_lines(
    name: str, here: Sequence[Line], together: Sequence[Line], ratings: int
) -> Iterator[Block]:
    yield f"{OBSERVERS[name]} ({name}). {here[0].cost.status.upper()}"
    yield Paragraph(here[0].cost.reason, "  ")
    head = ("", "weight", "", "is right", "epsilon: one rating", f"all {ratings}")
    rows = [
        (
            line.person.name,
            f"{line.person.weight:.2f}",
            _bar(line.cost),
            _guess_words(line.cost),
            line.cost.briefly(),
            every.cost.briefly(),
        )
        for line, every in zip(here, together, strict=True)
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  " + "  ".join(cells).rstrip()


def _guess_words(cost: Cost) -> str:
    if cost.status == "no guarantee":
        return "no bound"
    if cost.guess >= SURE:
        return "practically always"
    # A bound counts for the guarantee; what one channel gives away, all of them give away at least.
    if cost.status in _BOUNDS:
        return f"at most {at_most(cost.guess)}"
    if cost.guess_is_exact:
        return f"at least {at_least(cost.guess)}"
    return f"up to {at_most(cost.guess)}"


def _bar(cost: Cost) -> str:
    filled = round((cost.guess - 0.5) * 2 * _BAR)
    return "█" * filled + "·" * (_BAR - filled)
