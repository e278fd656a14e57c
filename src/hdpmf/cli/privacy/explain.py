"""``hdpmf privacy explain``: one page about what a method protects, from whom, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hdpmf.cli.privacy.page import Line, guesses, print_page, title
from hdpmf.cli.shared.grouping import grouped
from hdpmf.cli.shared.method_options import MethodOptions
from hdpmf.cli.shared.options import Json, Method
from hdpmf.cli.shared.output import print_json, print_lines
from hdpmf.cli.shared.weights import ExampleOptions
from hdpmf.methods import method_named

_VIEWS = ("messages", "sums-h-known", "sums-h-hidden", "two-servers", "final")


class ExplainedOptions(MethodOptions):
    """What changes the cost of a method."""

    only = ("epsilon", "n_factors", "noise", "h", "threshold", "design", "labels", "max_ratings")


@dataclass(frozen=True)
class NumberOptions:
    """What the page counts with."""

    raters: Annotated[int, typer.Option("--raters", metavar="N", min=1, help="How many users rated the item.")] = 100
    ratings: Annotated[int, typer.Option("--ratings", metavar="N", min=1, help="How many ratings the user has.")] = 50
    releases: Annotated[
        int, typer.Option("--releases", metavar="N", min=1, help="How often all of it is repeated.")
    ] = 1
    delta: Annotated[float, typer.Option("--delta", metavar="D", help="Chance that is left out of account.")] = 1e-5


@grouped
def explain(
    method: Method,
    options: ExplainedOptions,
    numbers: NumberOptions,
    wanted: ExampleOptions,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", metavar="T", help="Rounds of training.", show_default="100; hdpmf-paid: 10"),
    ] = None,
    view: Annotated[
        list[str] | None,
        typer.Option("--view", metavar="VIEW", help=f"Only this observer: {', '.join(_VIEWS)}; repeatable."),
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Save the picture as PNG.")] = None,
    json: Json = False,
) -> None:
    """Say in plain words and numbers what METHOD protects, from whom, for three kinds of users."""
    known = method_named(method)
    chosen = {name: options.value(method, name) for name in ExplainedOptions.only if name in known.options}
    for name, value in chosen.items():
        known.options[name].check(value)
    form = known.form(chosen.get("labels", False))

    from hdpmf.privacy.accounting import Setting, cost
    from hdpmf.privacy.accounting.people import Person, noise_budget, people

    if rounds is None:
        rounds = known.default("epochs") if known.trains else form.rounds or 1
    wishes = wanted.wishes()
    epsilon = chosen.get("epsilon", 1.0)
    budget = noise_budget(method, wishes, epsilon, chosen.get("threshold", "mean"))
    if wanted.uniform:
        budget = None
    about: dict[str, Any] = {
        name: chosen[name] for name in ("noise", "design", "labels", "max_ratings") if name in chosen
    }
    if "n_factors" in chosen:
        about["factors"] = chosen["n_factors"]
    if chosen.get("h") == "shared":
        about["h"] = "shared"
    setting = Setting(method, epsilon=epsilon, rounds=rounds, noise_budget=budget, **about)
    persons = (Person("every user", 1.0),) if wanted.uniform else people(wishes)
    views = _views(method, view)

    def lines(times: int | None = None, **what: Any) -> list[Line]:
        """For every observer and person: the cost of one rating, or of so many of the same weight."""
        counted = {"n_raters": numbers.raters, "releases": numbers.releases, "delta": numbers.delta, **what}
        return [
            Line(
                person,
                seer,
                cost(setting, seer, weight=person.weight if times is None else [person.weight] * times, **counted),
            )
            for seer in views
            for person in persons
        ]

    values, presence = lines(), lines(neighbours="presence")
    whole, item = lines(numbers.ratings, unit="user"), lines(numbers.raters, unit="item")
    if plot is not None:
        from hdpmf.files import atomic_write
        from hdpmf.plots.guesses import guess_png

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
    from hdpmf.privacy.accounting.setting import view_of

    views: list[str] = list(dict.fromkeys(view_of(name) for name in wanted or _VIEWS))
    known = method_named(method)
    if not wanted and "two-servers" not in known.views:
        views.remove("two-servers")
    if not known.has_h and "sums-h-known" in views:
        views = [view for view in views if view != "sums-h-hidden"]
    return views
