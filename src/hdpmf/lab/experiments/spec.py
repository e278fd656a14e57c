"""Experiments as data: what a TOML file says, checked field by field.

An experiment crosses data sets, methods, numbers of factors and seeds, and may vary one thing more.
Everything has the paper's value by default, so that a file says only what is different::

    name = "stronger-privacy"
    title = "HDPMF against PDPMF at smaller budgets"
    datasets = ["ml-100k"]
    methods = ["hdpmf", "pdpmf", "user-mean"]

    [vary]
    parameter = "epsilon"
    values = [0.1, 0.3, 1.0]
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from hdpmf.common.base.names import did_you_mean
from hdpmf.common.data import dataset_info
from hdpmf.common.data.checks import Duplicates
from hdpmf.common.data.columns import Missing
from hdpmf.common.methods import METHODS
from hdpmf.errors import ConfigError
from hdpmf.lab.experiments.runs import Scalar, World

Name = Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9_.-]*$", max_length=60)]
Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Seed = Annotated[int, Meta(ge=0, lt=2**31)]
Grid = dict[str, Annotated[tuple[int | float, ...], Meta(min_length=1)]]

PRIVACY_NAMES = (
    *("f_uc", "f_um", "f_ic", "f_im"),
    *("epsilon_uc", "epsilon_um", "epsilon_ul", "epsilon_ic", "epsilon_im", "epsilon_il"),
)
"""The names of the paper's Table II, as `PrivacySpec.paper` takes them."""

USUAL_GRID: Grid = {"learning_rate": (0.05, 0.01, 0.005, 0.001), "reg": (0.01, 0.001)}
"""The grid if neither experiment nor method has one: right for the sequential solver."""


def default_grids() -> dict[str, Grid]:
    """Return the usual grid, and the methods' own."""
    own = {name: dict(method.tuning) for name, method in METHODS.items() if method.tuning}
    return {"default": USUAL_GRID, **own}


def default_likes() -> dict[str, str]:
    """Return the methods that take over another's choice, as they say themselves."""
    return {name: method.tuned_like for name, method in METHODS.items() if method.tuned_like}


class Split(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The split of a data set into training and test, drawn for every seed where it is random.

    Attributes:
        kind: ``hold-out``, ``leave-one-out``, ``last`` (each user's last ones), ``ratio`` (a
            fraction of all), ``time`` (the last of all) or ``user-time`` (of each user's).
        per_user: Test ratings per user of ``hold-out`` and ``last``.
        fraction: Share of test ratings of ``ratio``, ``time`` and ``user-time``.
        ready_made: Take the one split that a data set comes with (ML-100K's ua.base and ua.test)
            for all seeds; data sets without one are held out of as ever.
    """

    kind: Literal["hold-out", "leave-one-out", "last", "ratio", "time", "user-time"] = "hold-out"
    per_user: Count = 10
    fraction: Annotated[float, Meta(gt=0, lt=1)] = 0.2
    ready_made: bool = False


class Tuning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The choice of hyper-parameters: cross-validation on the training part of each seed's split.

    So no seed's choice sees a test rating of that seed.

    Attributes:
        by: The lowest ``mse``, or the highest ``ndcg_at_10`` (see `hdpmf.models.ranking_metrics`).
        split: The paper's procedure instead: one choice for all seeds, on the training part of this
            one split, which has test ratings of the seeds that split otherwise.
        seed: With ``split``: the seed of it, its folds, privacy weights and training.
        grids: Values to try, by method; ``default`` is for gradient methods that have none of their
            own. A grid of a single cell is taken without cross-validation.
        like: Methods that take over another's choice, because their training is the same.
    """

    by: Literal["mse", "ndcg_at_10"] = "mse"
    folds: Annotated[int, Meta(ge=2)] = 5
    seed: Seed = 0
    grids: dict[str, Grid] = msgspec.field(default_factory=default_grids)
    like: dict[str, str] = msgspec.field(default_factory=default_likes)
    split: Split | None = None


class Vary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameter that a figure varies.

    Attributes:
        parameter: ``epsilon``, a name of Table II (``f_uc``, ``epsilon_uc``, ...), ``fraction`` (of
            each user's training ratings), or any parameter of the models.
        values: Values in the order of the axis.
        label: Label of the axis.
    """

    parameter: str
    values: Annotated[tuple[int | float, ...], Meta(min_length=1)]
    label: str = ""


class DataOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a data set: a user's own file, or a synthetic world under a name of one's own.

    Attributes:
        file: A file of ratings, relative to the TOML file.
        scale: Lowest and highest rating, and the step between ratings; one to five by default.
        columns: Names of the columns, as ``{user = "customer"}``.
        world: Options of a synthetic world, as `hdpmf.synthetic_world` takes them.
        duplicates: The rule for several ratings of one item by one user.
        missing: The rule for rows without a user, an item, a rating or a time: ``error`` or
            ``drop``.
        implicit: True if the file has choices (clicks, purchases) and no ratings; then only lists
            are measured.
        weights: Privacy weights: ``uniform`` (everybody at 1), ``paper`` (its random groups), or a
            file or several with people's own, relative to the TOML file. Without it: ``uniform``
            for a file of the user's, unless the experiment changes or varies Table II, else
            ``paper``.
        missing_weight: The weight of everybody whom such a file does not name.
    """

    file: str | None = None
    scale: Annotated[tuple[float, ...], Meta(min_length=2, max_length=3)] | None = None
    columns: dict[str, str] = {}
    world: dict[str, World] = {}
    duplicates: Duplicates = "error"
    implicit: bool = False
    weights: str | tuple[str, ...] | None = None
    missing_weight: Annotated[float, Meta(gt=0, le=1)] | None = None
    missing: Missing = "error"

    @property
    def weight_files(self) -> tuple[str, ...]:
        """The files with people's own weights."""
        given = (self.weights,) if isinstance(self.weights, str) else self.weights or ()
        return () if given in (("paper",), ("uniform",)) else given


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One experiment.

    Attributes:
        name: A short name, for files and commands.
        measure: ``errors`` of predicted ratings, ``lists`` (quality of lists of ten items), or
            ``both``.
        reference: Its place in a paper.
        datasets: Registered data sets, or names under ``data``. ``yelp`` means ``yelp-sample`` if
            the official file is absent.
        methods: Names, or ``all`` for every method that does what is measured.
        without: Methods left out of ``all``.
        paper_methods: Methods of the paper; a report marks the others as added.
        factors: Values of K.
        seeds: One evaluation for each.
        epochs: Passes over the ratings.
        epsilon: The largest budget.
        solver: ``sequential`` (the published procedure) or ``batch`` (Algorithm 1).
        params: Further parameters for every model that has them.
        privacy: Differences from Table II, by its names.
        data: The user's own data sets.
        quick: True for a reduced version, whose numbers are first impressions.
    """

    name: Name
    title: str
    datasets: Annotated[tuple[Name, ...], Meta(min_length=1)]
    methods: tuple[str, ...] | Literal["all"] = "all"
    measure: Literal["errors", "lists", "both"] = "errors"
    reference: str = ""
    without: tuple[str, ...] = ()
    paper_methods: tuple[str, ...] = ()
    factors: Annotated[tuple[Count, ...], Meta(min_length=1)] = (10,)
    seeds: Annotated[tuple[Seed, ...], Meta(min_length=1)] = (0, 1, 2, 3, 4)
    epochs: Count = 100
    epsilon: Positive = 1.0
    solver: Literal["sequential", "batch"] = "sequential"
    params: dict[str, Scalar] = {}
    privacy: dict[str, float] = {}
    split: Split = Split()
    tuning: Tuning = Tuning()
    vary: Vary | None = None
    data: dict[Name, DataOptions] = {}
    quick: bool = False

    @property
    def xs(self) -> tuple[int | float | None, ...]:
        """The values on the axis; a single None where nothing varies."""
        return (None,) if self.vary is None else self.vary.values

    @property
    def varied(self) -> str:
        """The parameter on the axis; empty where nothing varies."""
        return "" if self.vary is None else self.vary.parameter

    @property
    def lists(self) -> bool:
        """True if lists of ten are measured."""
        return self.measure != "errors"

    @property
    def errors(self) -> bool:
        """True if errors of predicted ratings are shown."""
        return self.measure != "lists"


def read_experiment(path: str | os.PathLike[str]) -> Experiment:
    """Read an experiment from a TOML file.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or says something that makes no sense.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the experiment {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not a text file in UTF-8; an experiment is a TOML file"
        ) from error
    return parse_experiment(text, str(path))


def parse_experiment(text: str, origin: str) -> Experiment:
    """Parse an experiment; ``origin`` names it in messages."""
    try:
        stated = tomllib.loads(text)
        experiment = msgspec.convert(stated, Experiment)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{origin} is not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{origin}: {_in_words(error)}") from error
    for problem in chain(_split_problems(experiment, stated), _problems(experiment)):
        raise ConfigError(f"{origin}: {problem}")
    return experiment


_AMOUNTS = {"hold-out": ("per_user",), "last": ("per_user",), "leave-one-out": ()}
"""How much a kind of split tests on: the others take a fraction."""

_PARTS: dict[str, type[msgspec.Struct]] = {
    "split": Split,
    "tuning": Tuning,
    "vary": Vary,
    "data": DataOptions,
}
"""The tables of a file, by their names."""


def _in_words(error: msgspec.ValidationError) -> str:
    """Describe an error; for an unknown field, with those that there are in its table."""
    found = re.fullmatch(r"Object contains unknown field `(.*?)`(?: - at `(.*)`)?", str(error))
    if found is None:
        wrong = re.fullmatch(r"Invalid enum value (.*) - at `\$\.(.*)`", str(error))
        if wrong:
            *tables, name = re.findall(r"\w+", wrong[2])
            hints = get_type_hints(_PARTS.get("".join(tables[-1:]), Experiment))
            kinds = ", ".join(kind for kind in get_args(hints[name]) if isinstance(kind, str))
            return f"{wrong[2]} is {f'one of {kinds}' if kinds else 'a list'}, not {wrong[1]}"
        where = "docs/experiments.md and hdpmf.lab.experiments.spec explain the fields"
        return f"{error}; {where}"
    names = [name for name in re.findall(r"\w+", found[2] or "") if name in _PARTS]
    fields = (_PARTS[names[-1]] if names else Experiment).__struct_fields__
    table = f" in [{names[-1]}]" if names else ""
    near = did_you_mean(found[1], fields)
    return f"unknown field {found[1]!r}{table}; {near}there are {', '.join(fields)}"


def _problems(experiment: Experiment) -> Iterator[str]:
    """Yield what types cannot see: methods, options and privacy parameters that cannot be.

    Raises:
        ConfigError: A method is unknown, or no option takes a value.
        PrivacyError: Ratios or weights are impossible.
    """
    from hdpmf.lab.experiments.expansion import method_names, privacy_spec

    methods = method_names(experiment)
    vary = experiment.vary
    usual = set(experiment.tuning.grids.get("default", {})) - {"learning_rate", "reg"}
    shared = usual | set(experiment.params)
    if vary is not None:
        if vary.parameter not in (*PRIVACY_NAMES, "fraction"):
            shared.add(vary.parameter)
        if len(set(vary.values)) != len(vary.values):
            yield "vary.values has a value twice"
        if vary.parameter == "fraction" and not all(0 < x <= 1 for x in vary.values):
            yield "fractions must be above 0 and at most 1"
    yield from _unknown_options("", methods, shared)
    for method, grid in experiment.tuning.grids.items():
        if method in methods:
            yield from _unknown_options(f"tuning.grids.{method}: ", (method,), set(grid))
    for name, value in experiment.params.items():
        for method in methods:
            if name in METHODS[method].options:
                METHODS[method].options[name].check(value)
    yield from _privacy_problems(experiment)
    for x in experiment.xs:
        privacy_spec(experiment, x)


def _split_problems(experiment: Experiment, stated: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is stated about splits and would have no effect."""
    tuning = stated.get("tuning", {})
    if "seed" in tuning and "split" not in tuning:
        yield "tuning.seed belongs to tuning.split; without it each seed is tuned by itself"
    for where, split in (("split", stated.get("split")), ("tuning.split", tuning.get("split"))):
        kind, others = (split or {}).get("kind", "hold-out"), {*(split or {})} - {"ready_made"}
        for name in sorted(others - {"kind", *_AMOUNTS.get(kind, ("fraction",))}):
            yield f"{where}.{name} has no effect on the kind {kind!r}; drop it"
        if split and split.get("ready_made"):
            for name in sorted(others):
                yield (
                    f"{where}.ready_made takes the split that a data set comes with, whatever "
                    f"{where}.{name} says; drop one of them"
                )
            if not any(has_ready_made(experiment, name) for name in experiment.datasets):
                yield f"{where}.ready_made: none of these data sets comes with a split; drop it"


def has_ready_made(experiment: Experiment, name: str) -> bool:
    """Return whether a data set comes with a split."""
    own = experiment.data.get(name, DataOptions())
    return own.file is None and not own.world and dataset_info(name).split


def _unknown_options(where: str, methods: Sequence[str], names: set[str]) -> Iterator[str]:
    options = {name for method in methods for name in METHODS[method].options}
    whose = f"{methods[0]} has no option" if len(methods) == 1 else "no method here has an option"
    for name in sorted(names - options):
        yield f"{where}{whose} {name!r}; there are {', '.join(sorted(options)) or 'none'}"


def _privacy_problems(experiment: Experiment) -> Iterator[str]:
    for name in sorted(set(experiment.privacy) - set(PRIVACY_NAMES)):
        yield f"privacy.{name} is unknown; Table II has {', '.join(PRIVACY_NAMES)}"
    specified = experiment.privacy or experiment.varied in PRIVACY_NAMES
    for name, own in experiment.data.items():
        if own.implicit and experiment.measure != "lists":
            yield f'data.{name} has no ratings to be wrong about; measure = "lists"'
        if specified and own.weights not in (None, "paper"):
            yield (f"Table II is changed, but data.{name}.weights says otherwise; drop one of them")
        if own.missing_weight is not None and not own.weight_files:
            yield (f"data.{name}.missing_weight is for those whom a file of weights does not name")
