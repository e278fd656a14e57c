"""``hdpmf privacy``: what methods protect, statements to hand over, designs at equal cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hdpmf.cli.options import (
    COST_OPTIONS,
    MethodOptions,
    Seed,
    argument,
    command,
    option,
    privacy_option,
    run_option,
)
from hdpmf.cli.output import Block, Paragraph, Result, Table, command_text
from hdpmf.cli.rating_options import ExplicitRatingsOptions, SplitOptions, WeightOptions
from hdpmf.common.methods import METHODS, method_named
from hdpmf.common.methods.registry import (
    MEANING,
    OBSERVERS,
    SURE,
    at_least,
    at_most,
    observer,
)
from hdpmf.errors import ConfigError, PrivacyError

if TYPE_CHECKING:
    from hdpmf.common.privacy.accounting import Cost, Setting
    from hdpmf.common.privacy.accounting.costs import People, Person
    from hdpmf.common.privacy.statement import PrivacyStatement
    from hdpmf.models import Estimator

_VIEWS = ("messages", "sums-h-known", "sums-h-hidden", "two-servers", "final")
_WEIGHTS = ("paper", "uniform")
_BOUNDS = ("proved", "author's claim")
"""Statuses of costs that are bounds on everything, if they hold."""


class ExplainOptions(MethodOptions):
    """The options that change the cost of a method."""

    only = COST_OPTIONS


@dataclass(frozen=True)
class Example:
    """Imagined people: the paper's groups, or everybody at 1; and the numbers to count with."""

    weights: Annotated[
        str,
        privacy_option(
            "Privacy weights: the paper's groups, or everybody at 1, which allows all of epsilon.",
            "|".join(_WEIGHTS),
            words=_WEIGHTS,
        ),
    ] = "paper"
    raters: Annotated[int, option("Users who rated the item.", "N", min=1)] = 100
    ratings: Annotated[int, option("Ratings of the user.", "N", min=1)] = 50

    def __post_init__(self) -> None:
        if self.weights not in _WEIGHTS:
            raise ConfigError(f"--weights takes {' or '.join(_WEIGHTS)}, not {self.weights!r}")

    def people(self) -> Sequence[Person]:
        """Return the strictest, the median and the most liberal user; one where all are alike."""
        from hdpmf.common.privacy import PrivacySpec
        from hdpmf.common.privacy.accounting.costs import Person, example_people

        return (
            example_people(PrivacySpec())
            if self.weights == "paper"
            else [Person("every user", 1.0)]
        )


@dataclass(frozen=True, slots=True)
class Line:
    """The cost for one person against one observer."""

    person: Person
    view: str
    cost: Cost


@command
def explain(
    method: Annotated[str, argument(f"A method: {', '.join(METHODS)}.", "METHOD", METHODS)],
    options: ExplainOptions,
    example: Example,
    rounds: Annotated[
        int | None, option("Rounds of training.", "T", default="100; hdpmf-paid: 10")
    ] = None,
    view: Annotated[
        list[str] | None, option(f"Only this observer: {', '.join(_VIEWS)}; repeatable.", "VIEW")
    ] = None,
) -> Result:
    """Explain what a method protects, from whom, for three kinds of users."""
    from hdpmf.common.privacy.accounting import cost

    setting = _setting(method, options, example, rounds)
    views = _views(setting.method, view)

    def lines(times: int | None = None, **more: Any) -> list[Line]:
        """Return the cost of one rating, or of so many of the same weight, for everybody."""
        return [
            Line(
                person,
                seen,
                cost(
                    setting,
                    seen,
                    weight=person.weight if times is None else [person.weight] * times,
                    n_raters=example.raters,
                    **more,
                ),
            )
            for seen in views
            for person in example.people()
        ]

    values = lines()
    presence = lines(neighbours="presence")
    whole = [
        lines(example.ratings, unit="user", neighbours=about)
        for about in ("value", "presence", "exchange")
    ]
    form = method_named(setting.method).form
    fields = {
        "method": setting.method,
        "epsilon": setting.epsilon,
        "rounds": setting.rounds,
        "factors": setting.factors,
        **asdict(example),
        "noise_budget": setting.noise_budget,
        "leaves_the_device": form.sent,
        "not_protected": form.stays_open,
        "costs": [
            {"user": line.person.name, "weight": line.person.weight, **line.cost.fields()}
            for line in (*values, *presence, *(line for each in whole for line in each))
        ],
    }
    return Result(fields, _page(setting, values, presence, whole, example))


def _setting(method: str, options: ExplainOptions, example: Example, rounds: int | None) -> Setting:
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
    whole: Sequence[Sequence[Line]],
    numbers: Example,
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
        "looks. How often is it right? A coin is right 50 % of the time. "
        "Beside it, the epsilon of that rating and of all the user's ratings together.",
    ):
        yield from (Paragraph(paragraph), "")
    for view in dict.fromkeys(line.view for line in values):
        here, rated, together, none, other = (
            [line for line in table if line.view == view] for table in (values, presence, *whole)
        )
        yield from _observer_lines(observer(view, method.has_h), here, together, numbers.ratings)
        local = method.family == "local"
        if rated[-1].cost.status in _BOUNDS and not local:
            shares = "; ".join(f"{line.person.name} {line.cost.briefly()}" for line in rated)
            yield Paragraph(f"Whether the item was rated at all, epsilon: {shares}.", "  ")
        if together[0].cost.status in _BOUNDS and not local:
            most = setting.max_ratings
            sent = "" if most is None else f", of which {most} at most are sent"
            if most is not None and method.family == "sums":
                sent = f", sent with the weight of {most} of weight 1 at most"
            yield f"  The person, all {numbers.ratings} ratings together{sent}; at most:"
            yield from _person_lines(none, other)
        yield ""
    for status, meaning in MEANING.items():
        if any(line.cost.status == status for line in values):
            yield Paragraph(meaning)
    if any("*" in line.cost.briefly() for line in (*values, *whole[0], *whole[1])):
        yield f"* but for a chance of {values[0].cost.delta:g} (delta)."
    pages = dict.fromkeys(line.cost.reference for line in values if line.cost.reference)
    if pages:
        yield f"Why: {', '.join(pages)} beside the code of hdpmf.common.privacy."


def _observer_lines(
    name: str, here: Sequence[Line], together: Sequence[Line], ratings: int
) -> Iterator[Block]:
    yield f"{OBSERVERS[name]} ({name}). {here[0].cost.status.upper()}"
    yield Paragraph(here[0].cost.reason, "  ")
    head = ("", "weight", "is right", "epsilon: one rating", f"all {ratings}")
    rows = [
        (
            line.person.name,
            f"{line.person.weight:.2f}",
            _guess_words(line.cost),
            line.cost.briefly(),
            every.cost.briefly(),
        )
        for line, every in zip(here, together, strict=True)
    ]
    yield from _aligned([head, *rows])


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  " + "  ".join(cells).rstrip()


def _person_lines(none: Sequence[Line], other: Sequence[Line]) -> Iterator[Block]:
    """Tell a history against none, and against another one: epsilon, a guess, who can be sure."""
    if none[0].cost.status == "no guarantee":
        yield "  no bound: whether a person has rated anything is in plain sight."
        return
    risk = ("right", "99 % sure in")
    rows = {
        line.person.name: (*_risk(line.cost), *_risk(another.cost))
        for line, another in zip(none, other, strict=True)
    }
    if len(set(rows.values())) == 1:
        rows = {"every user": rows.popitem()[1]}
    head = ("", "history or none", *risk, "this or another", *risk)
    yield from _aligned([head, *((name, *cells) for name, cells in rows.items())])


def _risk(cost: Cost) -> tuple[str, str, str]:
    from hdpmf.common.privacy.accounting.person import share

    return cost.briefly(), at_most(cost.guess), share(cost.sure)


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


@command
def statement(
    path: Annotated[Path, argument("A saved model, or a recommender's folder.", "MODEL|FOLDER")],
    public: Annotated[
        bool, privacy_option("Leave out what is exact about private ratings and wishes.")
    ] = False,
    out: Annotated[Path | None, option("Write it there, as HTML.", "FILE", "--out", "-o")] = None,
) -> Result:
    """Write a privacy statement: who sees what, at which cost, and what is not protected.

    Every number is computed from what was spent and rounded up. Without --out a summary is printed.
    """
    made = _statement_of(path, public)
    if out is not None:
        from hdpmf.common.base.files import atomic_write
        from hdpmf.common.privacy.statement import render

        atomic_write(out, render(made))
    fields = {**msgspec.to_builtins(made), "out": None if out is None else str(out)}
    return Result(fields, _text(made, out))


def _text(made: PrivacyStatement, out: Path | None) -> Iterator[Block]:
    for warning in made.warnings:
        yield Paragraph(f"Warning. {warning}")
    if out is None:
        yield from _summary(made)
    if made.confidential:
        yield "CONFIDENTIAL: it is exact about private ratings; --public leaves that out."
    if out is not None:
        yield f"privacy statement of {made.name}: {out}"


def _summary(made: PrivacyStatement) -> Iterator[Block]:
    yield Table(
        ("who", "value", "presence"),
        [(party.who, party.value.words, party.presence.words) for party in made.parties],
        title=f"{made.name}, {made.title}: what one rating of weight 1 costs",
    )
    rows = made.people.rows
    if rows:
        yield Table(
            ("person", "ratings", "values", "history or none", "this or another"),
            [
                (
                    row.place,
                    f"{row.ratings:,}",
                    *(each.epsilon for each in (row.value, row.presence, row.exchange)),
                )
                for row in rows
            ],
            numeric=("ratings",),
            title="all ratings of a person together",
        )
        yield Paragraph(f"The last of them: {rows[-1].risk}")
    yield from map(Paragraph, made.budget)
    yield "The whole document: --out statement.html"


def _statement_of(path: Path, public: bool) -> PrivacyStatement:
    if (path / "config.toml").is_file():
        from hdpmf.untrusted.service.folder import ServiceFolder
        from hdpmf.untrusted.service.outcome import statement_of_recommender

        return statement_of_recommender(ServiceFolder(path), command_text())
    if not any((path / part / "model.json").is_file() for part in ("recommender", "")):
        raise ConfigError(f"{path} is neither a saved model nor a recommender's folder")
    from hdpmf.models import load_model
    from hdpmf.models.privacy_statement import statement_of_model

    return statement_of_model(
        load_model(path, public_only=not (path / "devices").is_dir()),
        path.resolve().name,
        command_text(),
        folder=path if (path / "recommender").is_dir() else path.parent,
        public=public,
    )


@command
def compare(
    methods: Annotated[
        list[str], argument(f"Designs to compare, of: {', '.join(METHODS)}.", "METHOD...", METHODS)
    ],
    person: Annotated[
        float,
        privacy_option(
            "Epsilon of the median person, at delta 1e-5: their history against none, or all its "
            "values at once where a method does not hide who rated what.",
            "E",
            min=0,
        ),
    ],
    source: ExplicitRatingsOptions,
    cut: SplitOptions,
    wishes: WeightOptions,
    max_ratings: Annotated[
        int | None,
        privacy_option(
            "Most ratings of a person that are sent, for designs with such a limit.", "M", min=1
        ),
    ] = None,
    ranking: Annotated[bool, run_option("Measure lists of ten, too.", None, "--ranking")] = False,
    seed: Seed = 0,
) -> Result:
    """Compare designs at equal epsilon per person, with their accuracy on your data.

    Each design's own epsilon is found by its accountant, and rounded down. Both trivial baselines
    are in the table.
    """
    from hdpmf.common.privacy.accounting.costs import People
    from hdpmf.models import compare as measured

    if not person > 0:
        raise PrivacyError("--person must be above 0")
    training, held_out = cut.split(source, seed)
    weights = wishes.draw(training, seed, source)
    people = People(training, weights)
    names = list(
        dict.fromkeys((*(method_named(name).name for name in methods), "user-mean", "global-mean"))
    )
    limited = [name for name in names if "max_ratings" in METHODS[name].options]
    if max_ratings is not None and not limited:
        raise ConfigError("--max-ratings: none of these designs has such a limit")
    limits = {} if max_ratings is None else dict.fromkeys(limited, max_ratings)
    designs = {
        METHODS[name].label: _design(name, person, people, limits.get(name), seed) for name in names
    }
    found = measured(
        [model for model, _ in designs.values()],
        (training, held_out),
        weights=weights,
        lists=ranking,
        progress=True,
    )
    rows = [
        {**designs[row["model"]][1], **{name: row.get(name) for name in _MEASURED}} for row in found
    ]
    columns = ["method", "epsilon", *_OF_A_PERSON, "MSE", "MAE"]
    columns += ["NDCG@10"] if ranking else []
    table = Table(
        (*columns, "claim"),
        [_compared_cells(row, ranking) for row in rows],
        numeric=tuple(columns[1:]),
        title=f"{training.name}: the median person at epsilon {person:g}, delta 1e-5; "
        f"{len(held_out):,} ratings to test on",
    )
    text: list[Block] = [
        table,
        "epsilon: the design's own, of a rating or, for hdp-pairs, of a person. The others are of "
        "the median person: history against none, against another one, all values at once; of the "
        "heaviest: history against none. right: of guesses between two histories, at most.",
    ]
    if any(row["status"] == "nominal" for row in rows):
        text.append(
            "NOMINAL: the accountant counts one channel of several, so that the true cost may be "
            "higher. It is no guarantee."
        )
    text += [
        wishes.sentence(seed, source),
        "Privacy: simulated noise, to compare designs with. More: hdpmf privacy explain METHOD "
        "--epsilon E",
    ]
    fields = {
        "person": person,
        "max_ratings": max_ratings,
        "data": training.name,
        "n_train": len(training),
        "n_test": len(held_out),
        "designs": rows,
        **wishes.fields(seed, source),
        "seed": seed,
    }
    return Result(fields, text)


_MEASURED = ("mse", "mae", "ndcg_at_10")

_OF_A_PERSON = ("or none", "or another", "right", "values", "heaviest")


def _design(
    name: str, most: float, people: People, limit: int | None, seed: int
) -> tuple[Estimator, dict[str, Any]]:
    """Return a design at the wanted cost per person, and what it costs."""
    from hdpmf.common.privacy.accounting import Setting
    from hdpmf.models import make_model

    method = method_named(name)
    person = people.at(0.5)
    chosen: dict[str, Any] = {"rng": seed} if "rng" in method.options else {}
    chosen |= {} if limit is None else {"max_ratings": limit}

    def setting() -> Setting:
        params = make_model(name, **chosen).get_params()
        ratings = people.ratings
        return replace(
            Setting.from_params(name, params), scale=ratings.scale, implicit=ratings.implicit
        )

    if "epsilon" in method.options:
        chosen["epsilon"] = (
            most
            if method.unit == "person"
            else people.epsilon_for(setting(), method.headline, person, most)
        )
    used = setting()
    value, presence, exchange = (
        people.cost(used, method.headline, person, neighbours=about)
        for about in ("value", "presence", "exchange")
    )
    heaviest = people.cost(used, method.headline, people.at(1.0), neighbours="presence")
    model = make_model(name, **chosen)
    return model, {
        "method": name,
        "epsilon": chosen.get("epsilon"),
        "status": method.claim().status,
        "against": method.claim().against,
        "value": _finite(value.epsilon_at_delta),
        "presence": _finite(presence.epsilon_at_delta),
        "exchange": _finite(exchange.epsilon_at_delta),
        "guess": exchange.guess,
        "sure": exchange.sure,
        "heaviest": _finite(heaviest.epsilon_at_delta),
        "ratings_of_person": people.n_ratings(person),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _compared_cells(row: dict[str, Any], ranking: bool) -> list[str]:
    from hdpmf.common.privacy.accounting.costs import rounded_up

    def epsilon(value: float | None) -> str:
        return "no bound" if value is None else rounded_up(value)

    def measure(value: float | None) -> str:
        return "" if value is None else f"{value:.4f}"

    worth = {"proved": f"proved: {row['against']}", "nominal": "NOMINAL", "none": "not private"}
    return [
        METHODS[row["method"]].label,
        "" if row["epsilon"] is None else f"{row['epsilon']:g}",
        epsilon(row["presence"]),
        epsilon(row["exchange"]),
        at_most(row["guess"]),
        epsilon(row["value"]),
        epsilon(row["heaviest"]),
        measure(row["mse"]),
        measure(row["mae"]),
        *([measure(row["ndcg_at_10"])] if ranking else []),
        worth.get(row["status"], row["status"].upper()),
    ]
