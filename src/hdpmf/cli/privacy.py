"""``hdpmf privacy``: explain what a method or a released data set protects, from whom, and at
what cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hdpmf.cli.options.common import Json, Method, with_option_groups
from hdpmf.cli.options.methods import MethodOptions
from hdpmf.cli.options.weights import ExampleOptions
from hdpmf.cli.output import claim_fields, claim_sentence, print_json, print_lines, print_paragraph
from hdpmf.common.methods import method_named
from hdpmf.common.methods.builtin import HDP_BIT
from hdpmf.common.methods.descriptions import MEANING, OBSERVERS, SURE, observer, percent

if TYPE_CHECKING:
    from hdpmf.common.privacy.accounting import Cost, Setting
    from hdpmf.common.privacy.accounting.costs import Person
    from hdpmf.lab.plots import Guess
    from hdpmf.untrusted.recommender.release import Release


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
    from hdpmf.lab.plots import Guess

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

    What a rating's value, its presence and all ratings of a user together (``whole``) cost, for
    every observer.
    """
    method = method_named(setting.method)
    form = method.form(setting.labels)
    print_lines(
        title(setting) + ("" if numbers.releases == 1 else f", done {numbers.releases} times"), ""
    )
    for paragraph in (
        f"What leaves the device. {form.sent}",
        f"What stays open. {form.stays_open}",
        "One star or five? An observer knows everything but one rating, of an item "
        f"with {numbers.raters} raters. It "
        "would guess 50:50 whether that was one star or five. Then it looks. How often "
        "is it right? A coin is right "
        "50 % of the time; a full bar is certainty. Beside it, the epsilon of that "
        "rating and of all the user's "
        "ratings together.",
    ):
        print_paragraph(paragraph)
        print_lines("")
    for view in dict.fromkeys(line.view for line in values):
        here, rated, together = (
            [line for line in table if line.view == view] for table in (values, presence, whole)
        )
        _print_view(observer(view, method.has_h), here, together, numbers.ratings)
        if rated[-1].cost.status == "proved" and method.family != "local":
            shares = "; ".join(f"{line.person.name} {line.cost.briefly()}" for line in rated)
            print_paragraph(f"Whether the item was rated at all, epsilon: {shares}.", indent="  ")
        if (
            together[0].cost.status == "proved"
            and math.isfinite(together[0].cost.pure)
            and method.family != "local"
        ):
            persons = "; ".join(f"{line.person.name} {line.cost.in_numbers()}" for line in together)
            sent = (
                ""
                if setting.max_ratings is None
                else f", of which {setting.max_ratings} at most are sent"
            )
            print_paragraph(
                f"All {numbers.ratings} ratings of a person together{sent}: {persons}.", indent="  "
            )
        print_lines("")
    for status in MEANING:
        if any(line.cost.status == status for line in values):
            print_paragraph(MEANING[status])
    if any("*" in line.cost.briefly() for line in (*values, *whole)):
        print_lines(f"* but for a chance of {values[0].cost.delta:g} (delta).")
    pages = dict.fromkeys(line.cost.reference for line in values if line.cost.reference)
    if pages:
        print_lines(f"Why: {', '.join(pages)} beside the code of hdpmf.common.privacy.")


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
        print_lines(
            "  "
            + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def _said(cost: Cost) -> str:
    if cost.status == "no guarantee":
        return "no bound"
    if cost.guess >= SURE:
        return "practically always"
    # A bound counts for the guarantee; what one channel gives away already, all of them give away
    # at least.
    sign = {"proved": "at most", "nominal": "at least" if cost.guess_is_exact else "up to"}[
        cost.status
    ]
    return f"{sign} {percent(cost.guess)}"


def _bar(cost: Cost) -> str:
    filled = round((cost.guess - 0.5) * 2 * _BAR)
    return "█" * filled + "·" * (_BAR - filled)


_VIEWS = ("messages", "sums-h-known", "sums-h-hidden", "two-servers", "final")


class ExplainOptions(MethodOptions):
    """What changes the cost of a method."""

    only = ("epsilon", "n_factors", "noise", "h", "threshold", "design", "labels", "max_ratings")


@dataclass(frozen=True)
class NumberOptions:
    """What the page counts with."""

    raters: Annotated[
        int, typer.Option("--raters", metavar="N", min=1, help="How many users rated the item.")
    ] = 100
    ratings: Annotated[
        int, typer.Option("--ratings", metavar="N", min=1, help="How many ratings the user has.")
    ] = 50
    releases: Annotated[
        int, typer.Option("--releases", metavar="N", min=1, help="How often all of it is repeated.")
    ] = 1
    delta: Annotated[
        float, typer.Option("--delta", metavar="D", help="Chance that is left out of account.")
    ] = 1e-5


@with_option_groups
def explain(
    method: Method,
    options: ExplainOptions,
    numbers: NumberOptions,
    wanted: ExampleOptions,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds", metavar="T", help="Rounds of training.", show_default="100; hdpmf-paid: 10"
        ),
    ] = None,
    view: Annotated[
        list[str] | None,
        typer.Option(
            "--view", metavar="VIEW", help=f"Only this observer: {', '.join(_VIEWS)}; repeatable."
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Save the picture as PNG.")
    ] = None,
    json: Json = False,
) -> None:
    """Say in plain words and numbers what METHOD protects, from whom, for three kinds of users."""
    known = method_named(method)
    chosen = {
        name: options.value(method, name) for name in ExplainOptions.only if name in known.options
    }
    for name, value in chosen.items():
        known.options[name].check(value)
    form = known.form(chosen.get("labels", False))

    from hdpmf.common.privacy.accounting import Setting, cost
    from hdpmf.common.privacy.accounting.costs import Person, example_people, noise_budget

    if rounds is None:
        rounds = known.default("epochs") if known.trains else form.rounds or 1
    wishes = wanted.wishes()
    epsilon = chosen.get("epsilon", 1.0)
    budget = noise_budget(method, wishes, epsilon, chosen.get("threshold", "mean"))
    if wanted.uniform:
        budget = None
    about: dict[str, Any] = {
        name: chosen[name]
        for name in ("noise", "design", "labels", "max_ratings")
        if name in chosen
    }
    if "n_factors" in chosen:
        about["factors"] = chosen["n_factors"]
    if chosen.get("h") == "shared":
        about["h"] = "shared"
    setting = Setting(method, epsilon=epsilon, rounds=rounds, noise_budget=budget, **about)
    persons = (Person("every user", 1.0),) if wanted.uniform else example_people(wishes)
    views = _views(method, view)

    def lines(times: int | None = None, **what: Any) -> list[Line]:
        """For every observer and person: the cost of one rating, or of so many of the same
        weight.
        """
        counted = {
            "n_raters": numbers.raters,
            "releases": numbers.releases,
            "delta": numbers.delta,
            **what,
        }
        return [
            Line(
                person,
                seer,
                cost(
                    setting,
                    seer,
                    weight=person.weight if times is None else [person.weight] * times,
                    **counted,
                ),
            )
            for seer in views
            for person in persons
        ]

    values, presence = lines(), lines(neighbours="presence")
    whole, item = lines(numbers.ratings, unit="user"), lines(numbers.raters, unit="item")
    if plot is not None:
        from hdpmf.common.base.files import atomic_write
        from hdpmf.lab.plots import guess_png

        atomic_write(plot, guess_png(guesses(values), title(setting)))
    if json:
        print_json(
            {
                "method": method,
                "epsilon": epsilon,
                "rounds": rounds,
                "factors": setting.factors,
                **asdict(numbers),
                "noise_budget": budget,
                "leaves_the_device": form.sent,
                "not_protected": form.stays_open,
                "costs": [
                    {"user": line.person.name, "weight": line.person.weight, **line.cost.fields()}
                    for line in (*values, *presence, *item, *whole)
                ],
                "plot": None if plot is None else str(plot),
            }
        )
        return
    print_page(setting, values, presence, whole, numbers)
    if plot is not None:
        print_lines("", f"Picture: {plot}")


def _views(method: str, wanted: Sequence[str] | None) -> list[str]:
    """The observers to speak of; where there is no h, knowing it makes no difference.

    Of two servers only where a method runs with them, or where somebody asks.
    """
    from hdpmf.common.privacy.accounting.setting import view_of

    views: list[str] = list(dict.fromkeys(view_of(name) for name in wanted or _VIEWS))
    known = method_named(method)
    if not wanted and "two-servers" not in known.views:
        views.remove("two-servers")
    if not known.has_h and "sums-h-known" in views:
        views = [view for view in views if view != "sums-h-hidden"]
    return views


def release(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A released data set, as hdpmf release writes it."),
    ],
    json: Json = False,
) -> None:
    """Say what is in a released data set: what anybody who has FILE sees, what stays hidden,
    where it is from.
    """
    from hdpmf.untrusted.recommender.release import Release

    found = Release.load(file)
    numbers = _numbers(found)
    if json:
        print_json(
            {
                "file": str(file),
                **numbers,
                **claim_fields(found.claim),
                "provenance": found.provenance(),
            }
        )
        return
    source = found.provenance()
    print_lines(
        f"{file}: {numbers['bits']:,} bits of {numbers['people']:,} people about "
        f"{numbers['items']:,} items",
        f"From: {source['origin'] or 'unknown'}, by {source['made_by']}; noise {source['noise']}",
        f"Terms: {source['terms'] or 'not stated'}",
        f"SHA-256 of the content: {source['sha256']}",
        "",
    )
    print_paragraph(
        "In plain sight. Which items each person rated: "
        f"{numbers['bits_per_person_median']:,} of the median person, "
        f"{numbers['bits_per_person_most']:,} of the one with most. Which privacy "
        "weight each rating has. People have "
        "numbers here and no names, but whoever knows a few items that somebody rated "
        "can find that person's others."
    )
    print_lines("")
    print_paragraph(
        "Hidden. How each item was rated: a bit says it, but a coin has decided how "
        "often it lies. Whoever guesses "
        "between the lowest and the highest rating is right at most so often (a coin: 50 %):"
    )
    print_lines(
        *(
            f"  weight {row['weight']:.2f}, epsilon {row['epsilon']:.3g}: {percent(row['guess'])}"
            for row in numbers["ratings"]
        ),
        "",
    )
    whole = numbers["epsilon_per_person"]
    print_paragraph(
        f"Of one person. All ratings together have epsilon {whole['median']:.3g} for "
        "the median person and "
        f"{whole['most']:.3g} for the one with most."
    )
    print_lines(
        "",
        claim_sentence(found.claim),
        "Whatever is trained on it reveals no more: it is post-processing.",
    )


def _numbers(release: Release) -> dict[str, Any]:
    import numpy as np

    from hdpmf.common.privacy.accounting import Setting, cost
    from hdpmf.common.privacy.coding import WEIGHT_UNITS

    units, presence, survey = release.bits.units, release.presence, release.survey
    counts = np.bincount(presence.users, minlength=presence.n_users)
    totals = np.bincount(presence.users, units, presence.n_users) * survey.epsilon / WEIGHT_UNITS
    setting = Setting(
        HDP_BIT.name, epsilon=survey.epsilon, coding=survey.coding, scale=release.scale
    )
    rows, some = [], presence.n_users > 0
    for unit in (
        np.unique(np.quantile(units, (0.0, 0.5, 1.0), method="nearest")).tolist() if some else ()
    ):
        weight = unit / WEIGHT_UNITS
        paid = cost(setting, "messages", weight=weight)
        rows.append({"weight": weight, "epsilon": paid.pure, "guess": paid.guess})
    return {
        "bits": len(units),
        "people": presence.n_users,
        "items": len(release.items),
        "bits_per_person_median": int(np.median(counts)) if some else 0,
        "bits_per_person_most": int(counts.max(initial=0)),
        "ratings": rows,
        "epsilon_per_person": {
            "median": float(np.median(totals)) if some else 0.0,
            "most": float(totals.max(initial=0.0)),
        },
        "max_ratings": release.max_ratings,
    }


app = typer.Typer(help="What is private, from whom, and what it costs.", no_args_is_help=True)


app.command()(explain)

app.command()(release)
