"""The page that ``hdpmf privacy explain`` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hdpmf.cli.shared.output import print_lines, print_paragraph
from hdpmf.methods import method_named
from hdpmf.methods.words import MEANING, OBSERVERS, SURE, observer, percent

if TYPE_CHECKING:
    from hdpmf.cli.privacy.explain import NumberOptions
    from hdpmf.plots.guesses import Guess
    from hdpmf.privacy.accounting import Cost, Setting
    from hdpmf.privacy.accounting.people import Person

_BAR = 30


@dataclass(frozen=True, slots=True)
class Line:
    """What one observer can do to one person."""

    person: Person
    view: str
    cost: Cost


def title(setting: Setting) -> str:
    """What the page is about."""
    method = method_named(setting.method)
    training = f", {setting.rounds} rounds, {setting.factors} factors" if method.trains else ""
    budget = f"epsilon {setting.epsilon:g}" if "epsilon" in method.options else ""
    rest = f"{budget}{training}".removeprefix(", ")
    return f"{setting.method}: {rest}" if rest else setting.method


def guesses(lines: Sequence[Line]) -> dict[str, list[Guess]]:
    """What the picture shows, by observer."""
    from hdpmf.plots.guesses import Guess

    shown: dict[str, list[Guess]] = {}
    for line in lines:
        paid = line.cost
        said = "no bound" if paid.status == "no guarantee" else percent(paid.guess)
        seer = OBSERVERS[observer(line.view, method_named(paid.method).has_h)]
        shown.setdefault(seer, []).append(Guess(line.person.name, paid.guess, paid.status, said))
    return shown


def print_page(
    setting: Setting,
    values: Sequence[Line],
    presence: Sequence[Line],
    whole: Sequence[Line],
    numbers: NumberOptions,
) -> None:
    """Everything, in words and numbers.

    What a rating's value, its presence and all ratings of a user together (``whole``) cost, for every observer.
    """
    method = method_named(setting.method)
    form = method.form(setting.labels)
    print_lines(title(setting) + ("" if numbers.releases == 1 else f", done {numbers.releases} times"), "")
    for paragraph in (
        f"What leaves the device. {form.sent}",
        f"What stays open. {form.stays_open}",
        f"One star or five? An observer knows everything but one rating, of an item with {numbers.raters} raters. It "
        "would guess 50:50 whether that was one star or five. Then it looks. How often is it right? A coin is right "
        "50 % of the time; a full bar is certainty. Beside it, the epsilon of that rating and of all the user's "
        "ratings together.",
    ):
        print_paragraph(paragraph)
        print_lines("")
    for view in dict.fromkeys(line.view for line in values):
        here, rated, together = ([line for line in table if line.view == view] for table in (values, presence, whole))
        _print_view(observer(view, method.has_h), here, together, numbers.ratings)
        if rated[-1].cost.status == "proved" and method.family != "local":
            shares = "; ".join(f"{line.person.name} {line.cost.briefly()}" for line in rated)
            print_paragraph(f"Whether the item was rated at all, epsilon: {shares}.", indent="  ")
        if together[0].cost.status == "proved" and math.isfinite(together[0].cost.pure) and method.family != "local":
            persons = "; ".join(f"{line.person.name} {line.cost.in_numbers()}" for line in together)
            sent = "" if setting.max_ratings is None else f", of which {setting.max_ratings} at most are sent"
            print_paragraph(f"All {numbers.ratings} ratings of a person together{sent}: {persons}.", indent="  ")
        print_lines("")
    for status in MEANING:
        if any(line.cost.status == status for line in values):
            print_paragraph(MEANING[status])
    if any("*" in line.cost.briefly() for line in (*values, *whole)):
        print_lines(f"* but for a chance of {values[0].cost.delta:g} (delta).")
    pages = dict.fromkeys(line.cost.reference for line in values if line.cost.reference)
    if pages:
        print_lines(f"Why: {', '.join(pages)} beside the code of hdpmf.privacy.")


def _print_view(name: str, here: Sequence[Line], together: Sequence[Line], ratings: int) -> None:
    print_lines(f"{OBSERVERS[name]} ({name}). {here[0].cost.status.upper()}")
    print_paragraph(here[0].cost.reason, indent="  ")
    head = ("", "weight", "", "is right", "epsilon: one rating", f"all {ratings}")
    rows = [
        (
            line.person.name,
            f"{line.person.weight:.2f}",
            _bar(line.cost),
            _said(line.cost),
            line.cost.briefly(),
            every.cost.briefly(),
        )
        for line, every in zip(here, together, strict=True)
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        print_lines("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _said(cost: Cost) -> str:
    if cost.status == "no guarantee":
        return "no bound"
    if cost.guess >= SURE:
        return "practically always"
    # A bound counts for the guarantee; what one channel gives away already, all of them give away at least.
    sign = {"proved": "at most", "nominal": "at least" if cost.guess_is_exact else "up to"}[cost.status]
    return f"{sign} {percent(cost.guess)}"


def _bar(cost: Cost) -> str:
    filled = round((cost.guess - 0.5) * 2 * _BAR)
    return "█" * filled + "·" * (_BAR - filled)
