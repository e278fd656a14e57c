"""The options of methods, from their descriptions in `hdpmf.common.methods`, and of federated runs.

Each is None unless it is typed, so that a method's own defaults hold. An option that the method
does not have is an error that names those it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from hdpmf.cli.options.common import RUN_PANEL, model_option, privacy_option
from hdpmf.cli.options.common import option as make_option
from hdpmf.common.methods import METHODS, RUN_EPSILON, Option, federated, method_named
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.untrusted.service.settings import RunSettings


_PREFIX = "method_"  # a plugin's method may have a parameter that a command has, too

_NUMBER = "NUMBER"  # ends the metavar of an option that takes a word or a number


@dataclass(frozen=True, init=False)
class MethodOptions:
    """Methods' options as typed, by the names of the estimators' parameters.

    Subclasses show some of them: ``only`` those, or all ``without`` those. ``defaults`` are those
    that differ from the estimators'.
    """

    only: ClassVar[tuple[str, ...]] = ()
    without: ClassVar[tuple[str, ...]] = ()
    defaults: ClassVar[Mapping[str, Any]] = {}
    given: Mapping[str, Any]

    def __init__(self, **typed: Any) -> None:
        given = {
            name.removeprefix(_PREFIX): value for name, value in typed.items() if value is not None
        }
        object.__setattr__(self, "given", given)

    @classmethod
    def parameters(cls) -> list[Parameter]:
        """Return a parameter for every option, for typer."""
        visible = {
            name: option
            for name, option in known_options().items()
            if name not in cls.without and (name in cls.only or not cls.only)
        }
        # Help shows the options of the method before those about where it runs.
        return [
            _parameter(_PREFIX + name, _type(option), _flags(name, option, cls.defaults))
            for name, option in sorted(visible.items(), key=lambda item: item[1].panel == RUN_PANEL)
        ]

    def chosen(self, method: str) -> dict[str, Any]:
        """Return the options given, as arguments of the method.

        Raises:
            ConfigError: The method does not have one of the options, or a value is out of range.
        """
        known = method_named(method)
        options = {name: known.require(name, known_options()[name].flag) for name in self.given}
        chosen = {name: _value(option, self.given[name]) for name, option in options.items()}
        for name, option in options.items():
            option.check(chosen[name], option.flag)
        return chosen

    def value(self, method: str, name: str, otherwise: Any = None) -> Any:
        """Return an option's value: given, or the method's default, or ``otherwise``."""
        known = method_named(method)
        chosen = self.chosen(method)
        if name in chosen:
            return chosen[name]
        if name in known.options:
            return known.default(name, **chosen)
        return known.fixed.get(name, otherwise)


@dataclass(frozen=True, init=False)
class ModelOptions(MethodOptions):
    """All options of a model, and a file with item features."""

    items: Path | None

    def __init__(self, items: Path | None = None, **typed: Any) -> None:
        super().__init__(**typed)
        object.__setattr__(self, "items", items)

    @classmethod
    def parameters(cls) -> list[Parameter]:
        """Return a parameter for every option, for typer."""
        items = make_option(
            "Public item features: CSV, TSV or Parquet with item ids and any columns of "
            "numbers or words." + _methods_with("features"),
            "FILE",
            "--items",
            rich_help_panel=known_options()["features"].panel,
        )
        return [_parameter("items", Path, items), *super().parameters()]

    def chosen(self, method: str) -> dict[str, Any]:
        """Return the options given, as arguments of the method; ``--items`` is its ``features``."""
        if self.items is None:
            return super().chosen(method)
        method_named(method).require("features", "--items")
        if self.given.get("features") is False:
            raise ConfigError("--items and --no-features contradict each other; drop one of them")
        return super().chosen(method) | {"features": str(self.items)}


@cache
def known_options() -> dict[str, Option]:
    """Return every option of some method that has a flag."""
    known: dict[str, Option] = {}
    for method in METHODS.values():
        for name, option in method.options.items():
            if option.flags:
                known.setdefault(name, option)
    return known


def parameter_fields(method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's parameters for JSON, under the names of their flags."""
    return {
        option.flag.removeprefix("--").replace("-", "_"): value
        if isinstance(value, (bool, int, float, str, type(None)))
        else str(value)
        for name, value in parameters.items()
        if (option := method_named(method).options.get(name, known_options().get(name))) is not None
        and option.flags
    }


COST_OPTIONS = (
    "epsilon",
    "n_factors",
    "noise",
    "h",
    "threshold",
    "design",
    "labels",
    "max_ratings",
)
"""The options that change the cost of a method, by parameter name; beside them, rounds."""


def explain_arguments(method: str, parameters: Mapping[str, Any]) -> list[str]:
    """Return the arguments of `hdpmf privacy explain` for a method with these parameters."""
    known = method_named(method)
    arguments = [method]
    for name in COST_OPTIONS:
        if name in known.options and name in parameters:
            value, option = parameters[name], known.options[name]
            if value is not None and value != known.default(name):
                arguments += [option.flag] if value is True else [option.flag, str(value)]
    epochs = parameters.get("epochs")
    if epochs is not None and "epochs" in known.options and epochs != known.default("epochs"):
        arguments += ["--rounds", str(epochs)]
    return arguments


def _parameter(name: str, kind: type, option: Any) -> Parameter:
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _type(option: Option) -> type:
    if option.kind is object:
        return bool if "/" in option.flags[0] else str
    return option.kind


def _flags(name: str, option: Option, defaults: Mapping[str, Any]) -> Any:
    return make_option(
        option.help + _methods_with(name),
        option.metavar or None,
        *option.flags,
        default=str(defaults[name]) if name in defaults else _default(name),
        words=option.choices or (),
        rich_help_panel=option.panel,
    )


def _value(option: Option, typed: Any) -> Any:
    if option.metavar.endswith(_NUMBER):
        try:
            return float(typed)
        except ValueError:
            return typed
    return typed


def _methods_with(name: str) -> str:
    """Name the methods that have an option, or those that do not, if these are fewer."""
    has = [method.name for method in METHODS.values() if name in method.options]
    others = [
        method.name
        for method in METHODS.values()
        if method.name not in has and not method.is_baseline
    ]
    if not others:
        return ""
    return f" Not: {', '.join(others)}." if len(others) < len(has) else f" Only: {', '.join(has)}."


def _default(name: str) -> str | bool:
    defaults = {
        method.name: method.default(name) for method in METHODS.values() if name in method.options
    }
    if any(method.rates for method in METHODS.values()) and name == "learning_rate":
        return "by method and solver"
    (usual, _), *_others = Counter(defaults.values()).most_common()
    if usual is None or usual is False:
        return False
    exceptions = "".join(
        f"; {method}: {value}" for method, value in defaults.items() if value != usual
    )
    return f"{usual}{exceptions}"


DEFAULT_SHARE = 0.75
"""The share of users that must be in every round by default."""

SUMS = {"masks": "sums", "two-servers": "two-servers"}
"""The values of ``--sums``, and the view that each gives."""

FederatedMethod = Annotated[
    str, model_option(f"One of: {', '.join(federated())}.", "METHOD", "--method", words=federated())
]

Minimum = Annotated[
    int | None,
    privacy_option(
        "Users, at least, in every round; in a secure sum a device counts for --credit of them.",
        "N",
        "--minimum",
        default="three quarters",
    ),
]


class FederatedOptions(MethodOptions):
    """The options of methods that a federated run has."""

    defaults: ClassVar[Mapping[str, Any]] = {"epsilon": RUN_EPSILON}
    only = (
        "n_factors",
        "learning_rate",
        "reg",
        "epsilon",
        "threshold",
        "coding",
        "design",
        "labels",
        "patterns",
        "list_model",
        "prior",
    )


def _by_messages() -> str:
    return ", ".join(name for name in federated() if METHODS[name].views[0] == "messages")


@dataclass(frozen=True)
class RunOptions:
    """Rounds, and the view of the recommender."""

    rounds: Annotated[
        int | None,
        model_option(
            "Rounds of training.",
            "T",
            default="100; 10 for hdpmf-paid; the one-round designs have 1, or 2 with --labels",
        ),
    ] = None
    secure_sum: Annotated[
        bool | None,
        privacy_option(
            "The recommender sees only sums over devices, with real masking, or every message.",
            None,
            "--secure-sum/--messages",
            default=f"sums, but for {_by_messages()}",
        ),
    ] = None
    sums: Annotated[
        str | None,
        privacy_option(
            "How sums are made: two-servers (two servers of different organisations; "
            "recommended between machines) or masks (among devices, all online together).",
            "HOW",
            default="two-servers where a pair of servers is pinned, else masks",
            words=SUMS,
        ),
    ] = None
    colluding: Annotated[
        float,
        privacy_option(
            "Part of the roster that may know each other's noise; the rest of --minimum makes it.",
            "PART",
        ),
    ] = 0.05
    credit: Annotated[
        int,
        privacy_option("Users, at most, that one device counts for in a secure sum.", "N", min=1),
    ] = 1

    def view(self, method: str, *, two_servers: bool = False) -> str:
        """Return the view of the recommender.

        With ``two_servers`` a pair of servers is pinned, which is used by default.

        Raises:
            ConfigError: The options contradict each other.
        """
        if self.sums is None:
            if self.secure_sum is not None:
                return "sums" if self.secure_sum else "messages"
            views = method_named(method).views
            if two_servers and "two-servers" in views:
                return "two-servers"
            return next(iter(views), "messages")
        if self.sums not in SUMS:
            raise ConfigError(f"--sums must be {' or '.join(SUMS)}, not {self.sums!r}")
        if self.secure_sum is False or (self.secure_sum and self.sums != "masks"):
            other = "--secure-sum" if self.secure_sum else "--messages"
            raise ConfigError(f"--sums {self.sums} contradicts {other}")
        return SUMS[self.sums]

    def settings(
        self,
        method: str,
        options: FederatedOptions,
        users: int,
        minimum: int | None = None,
        usual_rounds: int | None = None,
        *,
        two_servers: bool = False,
        **more: Any,
    ) -> RunSettings:
        """Return the settings of a run; defaults suit the method.

        ``users`` can be asked (in secure sums: devices), ``minimum`` of them at least in every
        round. ``usual_rounds`` is for methods without a number of their own.
        """
        from hdpmf.untrusted.service.settings import RunSettings

        if method not in federated():
            raise ConfigError(
                f"a federation cannot run {method!r}; choose from {', '.join(federated())}"
            )
        known = method_named(method)
        view = self.view(method, two_servers=two_servers)
        given = options.chosen(method)
        if "n_factors" in given:
            given["factors"] = given.pop("n_factors")
        if known.trains:
            given.setdefault("learning_rate", known.default("learning_rate"))
        prior = _shipped(given.pop("prior", None))
        labels = given.pop("labels", False)
        rounds: Any = self.rounds
        if rounds is None and known.trains:
            rounds = known.defaults.get("epochs", usual_rounds or known.default("epochs"))
        elif rounds is None:
            rounds = known.form(labels).rounds or 1
        if minimum is None:
            minimum = max(2 if view == "two-servers" else 1, int(DEFAULT_SHARE * users))
        return RunSettings(
            method=method,
            view=view,  # type: ignore[arg-type]  # checked there
            minimum=minimum,
            rounds=rounds,
            max_colluding=self.colluding,
            credit=self.credit,
            labels=_label_score(prior) if labels else None,
            prior=prior,
            **given,
            **more,
        )


def _shipped(prior: str | None) -> str | None:
    """Return a prior's name if devices have it: only those that come with this software."""
    from hdpmf.common.model.priors import SHIPPED

    if prior is not None and prior not in SHIPPED:
        raise ConfigError(f"devices have no prior {prior!r}; choose from {', '.join(SHIPPED)}")
    return prior


def _label_score(prior: str | None) -> dict[str, float]:
    """Return the public score that devices draw labels by."""
    from hdpmf.common.model.priors import load_prior

    found = load_prior(prior)
    if found is None or found.labels is None:
        raise ConfigError(
            "taste labels are drawn by a public score that comes with a prior: give --prior"
        )
    return dict(found.labels.score)
