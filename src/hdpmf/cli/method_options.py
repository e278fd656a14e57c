"""The parameters of methods: a flag for each of the few that everybody sets, ``--set`` for all.

Each is None unless it is typed, so that a method's own defaults hold. A parameter that the method
does not have is an error that names those it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, ClassVar

from hdpmf.cli.options import data_option, model_option, privacy_option
from hdpmf.cli.rating_options import parse_pairs
from hdpmf.common.methods import Option, method_named
from hdpmf.errors import ConfigError

_FLAGS: dict[str, tuple[type, Any]] = {
    "epochs": (int, model_option("Passes over the ratings.", "N", "--epochs")),
    "epsilon": (
        float,
        privacy_option(
            "The largest budget of a rating; its own is its weight times this.", "E", "--epsilon"
        ),
    ),
}
"""The parameters with a flag of their own."""

_SET = model_option(
    "Set a parameter of METHOD by its name in Python; repeatable. hdpmf methods METHOD lists them.",
    "NAME=VALUE",
    "--set",
)

_TRUTH = {"true": True, "yes": True, "false": False, "no": False}

_KINDS = {int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True, init=False)
class MethodOptions:
    """Methods' parameters as typed, by their names in Python.

    A command that takes some of them lists these in ``only``.
    """

    only: ClassVar[Sequence[str]] = ()
    given: Mapping[str, Any]
    texts: Mapping[str, str]

    def __init__(self, settings: Sequence[str] | None = None, **typed: Any) -> None:
        given = {name: value for name, value in typed.items() if value is not None}
        texts = dict(parse_pairs(settings or (), "--set", "coding=linear"))
        if "rng" in texts:
            raise ConfigError("--seed gives the seed, not --set rng=...")
        twice = next((name for name in texts if name in given), None)
        if twice is not None:
            raise ConfigError(f"{Option.flag_of(twice)} and --set {twice}=... say the same twice")
        object.__setattr__(self, "given", given)
        object.__setattr__(self, "texts", texts)

    @classmethod
    def parameters(cls) -> list[Parameter]:
        """Return a parameter for every option, for typer."""
        flags = [name for name in _FLAGS if name in cls.only or not cls.only]
        shown = [_parameter(name, *_FLAGS[name]) for name in flags]
        if cls.only and set(cls.only) <= set(flags):
            return shown
        return [*shown, _parameter("settings", list[str], _SET)]

    @property
    def any(self) -> bool:
        """True if a parameter was typed."""
        return bool(self.given or self.texts)

    def chosen(self, method: str) -> dict[str, Any]:
        """Return the parameters given, as arguments of the method.

        Raises:
            ConfigError: The method or the command does not have one, or a value is out of range.
        """
        chosen: dict[str, Any] = {}
        for name in (*self.given, *self.texts):
            option = method_named(method).require(name, Option.flag_of(name))
            if self.only and name not in self.only:
                raise ConfigError(
                    f"{option.flag} is not for this command; it takes {', '.join(self.only)}"
                )
            text = self.texts.get(name)
            chosen[name] = self.given[name] if text is None else _read(option, text)
            option.check(chosen[name], option.flag)
        return chosen

    def value(self, method: str, name: str, otherwise: Any = None) -> Any:
        """Return a parameter's value: given, or the method's default, or ``otherwise``."""
        known = method_named(method)
        chosen = self.chosen(method)
        if name in chosen:
            return chosen[name]
        if name in known.options:
            return known.default(name, **chosen)
        return known.fixed.get(name, otherwise)


def _read(option: Option, text: str) -> Any:
    """Return the value that the text of ``--set`` stands for."""
    try:
        if option.kind is bool:
            return _TRUTH[text.lower()]
        if option.kind is not object:
            return option.kind(text)
    except (KeyError, ValueError):
        raise option.error(
            f"{option.flag} takes {_KINDS.get(option.kind, 'a text')}, not {text!r}"
        ) from None
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    try:
        return float(text)
    except ValueError:
        return text


@dataclass(frozen=True, init=False)
class ModelOptions(MethodOptions):
    """All parameters of a model, and a file with item features."""

    items: Path | None

    def __init__(self, items: Path | None = None, **typed: Any) -> None:
        super().__init__(**typed)
        object.__setattr__(self, "items", items)

    @classmethod
    def parameters(cls) -> list[Parameter]:
        """Return a parameter for every option, for typer."""
        items = data_option(
            "Public item features: CSV, TSV or Parquet with item ids and any columns of "
            "numbers or words.",
            "FILE",
        )
        return [_parameter("items", Path, items), *super().parameters()]

    def chosen(self, method: str) -> dict[str, Any]:
        """Return the parameters given; ``--items`` is the method's ``features``."""
        chosen = super().chosen(method)
        if self.items is None:
            return chosen
        method_named(method).require("features", "--items")
        if "features" in chosen:
            raise ConfigError("--items and --set features=... say the same twice; drop one of them")
        return chosen | {"features": str(self.items)}


def parameter_fields(method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's parameters for JSON, under the names of their flags."""
    known = method_named(method)
    return {
        Option.flag_of(name).removeprefix("--set ").removeprefix("--"): value
        if isinstance(value, (bool, int, float, str, type(None)))
        else str(value)
        for name, value in parameters.items()
        if name in known.options or name in known.fixed
    }


COST_OPTIONS = (
    "epsilon",
    "n_factors",
    "noise",
    "h",
    "threshold",
    "max_ratings",
)
"""The parameters that change the cost of a method; beside them, rounds."""


def explain_arguments(method: str, parameters: Mapping[str, Any]) -> list[str]:
    """Return the arguments of `hdpmf privacy explain` for a method with these parameters."""
    known = method_named(method)
    arguments = [method]
    for name in COST_OPTIONS:
        value = parameters.get(name)
        if name in known.options and value is not None and value != known.default(name):
            arguments += known.options[name].arguments(value)
    epochs = parameters.get("epochs")
    if epochs is not None and "epochs" in known.options and epochs != known.default("epochs"):
        arguments += ["--rounds", str(epochs)]
    return arguments


def _parameter(name: str, kind: Any, option: Any) -> Parameter:
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )
