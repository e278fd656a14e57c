"""``hdpmf privacy explain``: one page about what a method protects, from whom, in numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.shared import options
from hdpmf.cli.shared.output import hdpmf_version, print_json, print_lines
from hdpmf.errors import ConfigError
from hdpmf.methods import METHODS, method_named
from hdpmf.methods.words import MEANING, OBSERVERS, observer

if TYPE_CHECKING:
    from hdpmf.privacy.accounting import Cost, Setting
    from hdpmf.privacy.accounting.people import Person


_VIEWS = ("messages", "sums-h-known", "sums-h-hidden", "final")
_WIDTH = 100
_BAR = 30
_SURE = 0.9995


@dataclass(frozen=True, slots=True)
class Line:
    """What one observer can do to one person."""

    person: Person
    view: str
    cost: Cost


def explain(
    method: Annotated[str, typer.Argument(metavar="METHOD", help=f"One of: {', '.join(METHODS)}.")],
    epsilon: options.Epsilon = 1.0,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", metavar="T", help="Rounds of training.", show_default="100; hdpmf-paid: 10"),
    ] = None,
    factors: options.Factors = 10,
    view: Annotated[
        list[str] | None,
        typer.Option("--view", metavar="VIEW", help=f"Only this observer: {', '.join(_VIEWS)}; repeatable."),
    ] = None,
    raters: Annotated[int, typer.Option("--raters", metavar="N", help="How many users rated the item.")] = 100,
    ratings: Annotated[int, typer.Option("--ratings", metavar="N", help="How many ratings the user has.")] = 50,
    releases: Annotated[int, typer.Option("--releases", metavar="N", help="How often all of it is repeated.")] = 1,
    delta: Annotated[float, typer.Option("--delta", metavar="D", help="Chance that is left out of account.")] = 1e-5,
    noise: options.Noise = "epoch",
    h: options.NoiseShare = "auto",
    threshold: options.Threshold = "mean",
    design: Annotated[str, typer.Option("--design", metavar="A|S", help="hdp-sum: which design.")] = "A",
    labels: Annotated[bool, typer.Option("--labels", help="hdp-sum: with taste labels.")] = False,
    spec: options.Spec = None,
    uniform_weights: options.UniformWeights = False,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Save the picture as PNG.")] = None,
    json: options.Json = False,
) -> None:
    """Say in plain words and numbers what METHOD protects, from whom, for three kinds of users."""
    if method not in METHODS:
        raise ConfigError(f"unknown method {method!r}; choose from {', '.join(METHODS)}")
    if uniform_weights and spec:
        raise ConfigError("--uniform-weights leaves nothing to specify; drop it, or --spec")
    for option, number in (("--ratings", ratings), ("--releases", releases), ("--raters", raters)):
        if number < 1:
            raise ConfigError(f"{option} must be at least 1, not {number}")

    from hdpmf.cli.shared.inputs import _spec_values, _threshold
    from hdpmf.privacy import PrivacySpec
    from hdpmf.privacy.accounting import Setting, cost
    from hdpmf.privacy.accounting.people import Person, noise_budget, people

    if h not in ("auto", "item", "shared"):
        raise ConfigError(f"h must be one of auto, item, shared, not {h!r}")
    known = method_named(method)
    if rounds is None:
        rounds = known.default("epochs") if known.trains else known.form(labels).rounds or 1
    form = known.form(labels)
    wishes = PrivacySpec.paper(**_spec_values(spec or ()))
    budget = noise_budget(method, wishes, epsilon, _threshold(threshold))
    if uniform_weights:
        budget = None
    setting = Setting(
        method, epsilon, factors, rounds, noise, "shared" if h == "shared" else "item", budget,
        design=design, labels=labels,
    )  # fmt: skip
    persons = (Person("every user", 1.0),) if uniform_weights else people(wishes)
    views = _views(method, view)

    def line(person: Person, seer: str, **about: Any) -> Line:
        return Line(person, seer, cost(setting, seer, n_raters=raters, releases=releases, delta=delta, **about))

    values = [line(person, seer, weight=person.weight) for seer in views for person in persons]
    presence = [line(person, seer, weight=person.weight, neighbours="presence") for seer in views for person in persons]
    whole = [line(person, seer, weight=[person.weight] * ratings, unit="user") for seer in views for person in persons]
    item = [line(person, seer, weight=[person.weight] * raters, unit="item") for seer in views for person in persons]
    if plot is not None:
        from hdpmf.cli.privacy.plot import guess_png
        from hdpmf.files import atomic_write

        atomic_write(plot, guess_png(values, _title(setting)))
    if json:
        print_json(
            {
                "method": method,
                "epsilon": epsilon,
                "rounds": rounds,
                "factors": factors,
                "raters": raters,
                "ratings": ratings,
                "releases": releases,
                "delta": delta,
                "noise_budget": budget,
                "leaves_the_device": form.sent,
                "not_protected": form.stays_open,
                "costs": [
                    {"user": one.person.name, "weight": one.person.weight, **one.cost.fields()}
                    for one in (*values, *presence, *item, *whole)
                ],
                "plot": None if plot is None else str(plot),
                "hdpmf_version": hdpmf_version(),
            }
        )
        return
    _print_page(setting, (values, presence, whole), (raters, ratings, releases))
    if plot is not None:
        print_lines("", f"Picture: {plot}")


def _views(method: str, wanted: Sequence[str] | None) -> list[str]:
    """The observers to speak of; where there is no h, knowing it makes no difference."""
    from hdpmf.privacy.accounting.setting import view_of

    views = list(dict.fromkeys(view_of(one) for one in wanted or _VIEWS))
    if not method_named(method).has_h and "sums-h-known" in views:
        views = [one for one in views if one != "sums-h-hidden"]
    return list(views)


def _title(setting: Setting) -> str:
    method = method_named(setting.method)
    training = f", {setting.rounds} rounds, {setting.factors} factors" if method.trains else ""
    budget = f"epsilon {setting.epsilon:g}" if "epsilon" in method.options else ""
    rest = f"{budget}{training}".removeprefix(", ")
    return f"{setting.method}: {rest}" if rest else setting.method


def _print_page(
    setting: Setting, tables: tuple[Sequence[Line], Sequence[Line], Sequence[Line]], numbers: tuple[int, int, int]
) -> None:
    values, presence, whole = tables
    raters, ratings, releases = numbers
    often = "" if releases == 1 else f", done {releases} times"
    print_lines(_title(setting) + often, "")
    form = method_named(setting.method).form(setting.labels)
    _paragraph("What leaves the device.", form.sent)
    _paragraph("What stays open.", form.stays_open)
    _paragraph(
        "One star or five?",
        f"An observer knows everything but one rating, of an item with {raters} raters. It would guess 50:50 whether "
        "that was one star or five. Then it looks. How often is it right? A coin is right 50 % of the time; a full bar "
        "is certainty. Beside it, the epsilon of that rating and of all the user's ratings together.",
    )
    rated = {one.view: one.cost for one in presence}
    for seer in dict.fromkeys(one.view for one in values):
        here = [one for one in values if one.view == seer]
        together = [one for one in whole if one.view == seer]
        _print_view(setting.method, seer, here, together, ratings)
        if rated[seer].status == "proved" and method_named(setting.method).family != "local":
            shares = "; ".join(f"{one.person.name} {one.cost.briefly()}" for one in presence if one.view == seer)
            _note(f"Whether the item was rated at all, epsilon: {shares}.")
        print_lines("")
    for status in MEANING:
        if any(one.cost.status == status for one in values):
            print_lines(*textwrap.wrap(MEANING[status], _WIDTH))
    if any("*" in one.cost.briefly() for one in (*values, *whole)):
        print_lines(f"* but for a chance of {values[0].cost.delta:g} (delta).")
    pages = dict.fromkeys(one.cost.reference for one in values if one.cost.reference)
    if pages:
        print_lines(f"Why: {', '.join(pages)} beside the code of hdpmf.privacy.")


def _print_view(method: str, seer: str, here: Sequence[Line], together: Sequence[Line], ratings: int) -> None:
    name = observer(seer, method_named(method).has_h)
    print_lines(f"{OBSERVERS[name]} ({name}). {here[0].cost.status.upper()}")
    _note(here[0].cost.reason)
    head = ("", "weight", "", "is right", "epsilon: one rating", f"all {ratings}")
    rows = [
        (
            one.person.name,
            f"{one.person.weight:.2f}",
            _bar(one.cost),
            _said(one.cost),
            one.cost.briefly(),
            every.cost.briefly(),
        )
        for one, every in zip(here, together, strict=True)
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        print_lines("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _said(cost: Cost) -> str:
    if cost.status == "no guarantee":
        return "no bound"
    if cost.guess >= _SURE:
        return "practically always"
    # A bound counts for the guarantee; what one channel gives away already, all of them give away at least.
    sign = {"proved": "at most", "nominal": "at least" if cost.guess_is_exact else "up to"}[cost.status]
    return f"{sign} {percent(cost.guess)}"


def percent(part: float) -> str:
    """A probability for people; certainty is only said where it is."""
    if part >= _SURE:
        return "> 99.9 %"
    return f"{100 * part:.0f} %" if part < 0.95 else f"{100 * part:.1f} %"


def _bar(cost: Cost) -> str:
    filled = round((cost.guess - 0.5) * 2 * _BAR)
    return "█" * filled + "·" * (_BAR - filled)


def _paragraph(head: str, text: str) -> None:
    print_lines(*textwrap.wrap(f"{head} {text}", _WIDTH), "")


def _note(text: str) -> None:
    print_lines(*textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  "))
