"""``hdpmf privacy statement`` and ``hdpmf privacy compare``: evidence to hand over."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hdpmf.cli.options import Seed, argument, command, option, privacy_option, run_option
from hdpmf.cli.output import Block, Paragraph, Result, Table, command_text
from hdpmf.cli.rating_options import ExplicitRatingsOptions, SplitOptions, WeightOptions
from hdpmf.common.methods import METHODS, method_named
from hdpmf.errors import ConfigError, PrivacyError

if TYPE_CHECKING:
    from hdpmf.common.privacy.accounting.costs import People
    from hdpmf.common.privacy.statement import PrivacyStatement
    from hdpmf.models import Estimator


@dataclass(frozen=True)
class StatementOptions:
    """What a statement counts, and what it leaves out."""

    weights: Annotated[
        list[Path] | None,
        privacy_option(
            "Of a model: the file of privacy weights that it was trained with, where weights were "
            "of single ratings; repeatable.",
            "FILE",
        ),
    ] = None
    missing_weight: Annotated[
        float | None, privacy_option("Weight of everybody whom that file does not name.", "W")
    ] = None
    tried: Annotated[
        int,
        privacy_option(
            "Trainings on the same ratings before this one, as tuning does: each pays again.",
            "N",
            min=0,
        ),
    ] = 0
    budget: Annotated[
        float | None,
        privacy_option("Of a model: what a rating of weight 1 may spend in its whole life.", "E"),
    ] = None
    delta: Annotated[float, privacy_option("Of numbers with a star.", "D")] = 1e-5
    public: Annotated[
        bool, privacy_option("Leave out what is exact about private ratings and wishes.")
    ] = False


@command
def statement(
    path: Annotated[
        Path,
        argument(
            "A saved model, a recommender's folder, or one of its runs (FOLDER/runs/ID).",
            "MODEL|FOLDER|RUN",
        ),
    ],
    options: StatementOptions,
    out: Annotated[
        list[Path] | None,
        option("Write it there: .html or .json; repeatable.", "FILE", "--out", "-o"),
    ] = None,
) -> Result:
    """Write a privacy statement: who sees what, at which cost, and what is not protected.

    Every number is computed from what was spent and rounded up. Without --out a summary is printed.
    """
    from hdpmf.common.base.files import atomic_write
    from hdpmf.common.privacy.statement import render

    made = _statement_of(path, options)
    pages = {file: render(made, file) for file in out or ()}  # all of them, before one is written
    for file, page in pages.items():
        atomic_write(file, page)
    fields = {**msgspec.to_builtins(made), "out": [str(file) for file in pages]}
    return Result(fields, _text(made, list(pages)))


def _text(made: PrivacyStatement, files: list[Path]) -> Iterator[Block]:
    for warning in made.warnings:
        yield Paragraph(f"Warning. {warning}")
    if not files:
        yield from _summary(made)
    if made.confidential:
        yield "CONFIDENTIAL: it is exact about private ratings; --public leaves that out."
    for file in files:
        yield f"privacy statement of {made.name}: {file}"


def _summary(made: PrivacyStatement) -> Iterator[Block]:
    yield Table(
        ("who", "value", "presence"),
        [(party.who, party.value.words, party.presence.words) for party in made.parties],
        title=f"{made.name}, {made.title}: what one rating of weight 1 costs",
    )
    rows = made.people.rows
    if rows:
        yield Table(
            ("person", "ratings", "values", "presence"),
            [
                (row.place, f"{row.ratings:,}", row.value.epsilon, row.presence.epsilon)
                for row in rows
            ],
            numeric=("ratings",),
            title="all ratings of a person together",
        )
    yield from map(Paragraph, made.budget)
    yield "The whole document: --out statement.html"


def _statement_of(path: Path, options: StatementOptions) -> PrivacyStatement:
    if (path / "config.toml").is_file():
        return _of_recommender(path, None, options)
    if (path / "settings.json").is_file() and (path.parent.parent / "config.toml").is_file():
        return _of_recommender(path.resolve().parent.parent, path.resolve().name, options)
    if (path / "recommender" / "model.json").is_file() or (path / "model.json").is_file():
        return _of_model(path, options)
    raise ConfigError(
        f"{path} is not a saved model, a recommender's folder or a run in one (FOLDER/runs/ID)"
    )


def _of_model(path: Path, options: StatementOptions) -> PrivacyStatement:
    from hdpmf.models import load_model
    from hdpmf.models.privacy_statement import statement_of_model, weights_of

    whole = (path / "devices").is_dir()
    if options.weights and not whole:
        raise ConfigError(f"{path} has no users, so --weights does not apply")
    model = load_model(path, public_only=not whole)
    return statement_of_model(
        model,
        path.resolve().name,
        command_text(),
        folder=path if (path / "recommender").is_dir() else path.parent,
        weights=weights_of(model, options.weights, options.missing_weight)
        if options.weights
        else None,
        public=options.public,
        tried=options.tried,
        budget=options.budget,
        delta=options.delta,
    )


def _of_recommender(path: Path, run: str | None, options: StatementOptions) -> PrivacyStatement:
    from hdpmf.private.device.policy import Policy
    from hdpmf.untrusted.service.folder import ServiceFolder
    from hdpmf.untrusted.service.privacy_statement import statement_of_recommender

    for given, flag in ((options.weights, "--weights"), (options.budget, "--budget")):
        if given is not None:
            raise ConfigError(f"{flag} is for models: a recommender knows no weights and budgets")
    folder = ServiceFolder(path)
    return statement_of_recommender(
        folder,
        command_text(),
        run=None if run is None else bytes.fromhex(run),
        tried=options.tried,
        lifetime=Policy().epsilon,
        person_limit=Policy().max_total or math.inf,
        delta=options.delta,
    )


_PEOPLE = {"median": 0.5, "most": 1.0}


@dataclass(frozen=True)
class PersonOptions:
    """The cost per person that designs are compared at."""

    person: Annotated[
        float,
        privacy_option("Epsilon of all ratings of one person together, at --delta.", "E", min=0.0),
    ]
    who: Annotated[
        str,
        privacy_option(
            "Who has that epsilon: the median person, or the one with most, so that nobody has "
            "more.",
            "median|most",
            words=_PEOPLE,
        ),
    ] = "median"
    delta: Annotated[float, privacy_option("Of that epsilon.", "D")] = 1e-5

    def __post_init__(self) -> None:
        if self.who not in _PEOPLE:
            raise ConfigError(f"--who takes {' or '.join(_PEOPLE)}, not {self.who!r}")
        if not self.person > 0:
            raise PrivacyError("--person must be above 0")


@command
def compare(
    methods: Annotated[
        list[str], argument(f"Designs to compare, of: {', '.join(METHODS)}.", "METHOD...", METHODS)
    ],
    options: PersonOptions,
    source: ExplicitRatingsOptions,
    cut: SplitOptions,
    wishes: WeightOptions,
    ranking: Annotated[bool, run_option("Measure lists of ten, too.", None, "--ranking")] = False,
    seed: Seed = 0,
) -> Result:
    """Compare designs at equal epsilon per person, with their accuracy on your data.

    Each design's own epsilon is found by its accountant, and rounded down. Both trivial baselines
    are in the table.
    """
    from hdpmf.common.privacy.accounting.costs import People
    from hdpmf.models import compare as measured

    training, held_out = cut.split(source, seed)
    weights = wishes.draw(training, seed, source)
    people = People(training, weights)
    names = list(
        dict.fromkeys((*(method_named(name).name for name in methods), "user-mean", "global-mean"))
    )
    designs = {METHODS[name].label: _design(name, options, people, seed) for name in names}
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
    columns = ["method", "epsilon per rating", "of a person: values", "presence", "MSE", "MAE"]
    columns += ["NDCG@10"] if ranking else []
    who = "median person" if options.who == "median" else "person with most"
    table = Table(
        (*columns, "claim"),
        [_compared_cells(row, ranking) for row in rows],
        numeric=tuple(columns[1:]),
        title=f"{training.name}: all ratings of the {who} together at epsilon "
        f"{options.person:g}, delta {options.delta:g}; {len(held_out):,} ratings to test on",
    )
    text: list[Block] = [table]
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
        "person": options.person,
        "who": options.who,
        "delta": options.delta,
        "data": training.name,
        "n_train": len(training),
        "n_test": len(held_out),
        "designs": rows,
        **wishes.fields(seed, source),
        "seed": seed,
    }
    return Result(fields, text)


_MEASURED = ("mse", "mae", "ndcg_at_10")


def _design(
    name: str, options: PersonOptions, people: People, seed: int
) -> tuple[Estimator, dict[str, Any]]:
    """Return a design at the wanted cost per person, and what it costs."""
    from hdpmf.common.privacy.accounting import Setting
    from hdpmf.models import make_model

    method = method_named(name)
    person = people.at(_PEOPLE[options.who])
    scale = people.ratings.scale
    chosen: dict[str, Any] = {"rng": seed} if "rng" in method.options else {}
    setting = replace(Setting.from_params(name, make_model(name).get_params()), scale=scale)
    if "epsilon" in method.options:
        chosen["epsilon"] = people.epsilon_for(
            setting, method.headline, person, options.person, delta=options.delta
        )
    model = make_model(name, **chosen)
    used = replace(Setting.from_params(name, model.get_params()), scale=scale)
    value, presence = (
        people.cost(used, method.headline, person, neighbours=about, delta=options.delta)
        for about in ("value", "presence")
    )
    return model, {
        "method": name,
        "epsilon": chosen.get("epsilon"),
        "status": method.claim().status,
        "against": method.claim().against,
        "value": _finite(value.epsilon_at_delta),
        "presence": _finite(presence.epsilon_at_delta),
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
        epsilon(row["value"]),
        epsilon(row["presence"]),
        measure(row["mse"]),
        measure(row["mae"]),
        *([measure(row["ndcg_at_10"])] if ranking else []),
        worth.get(row["status"], row["status"].upper()),
    ]
