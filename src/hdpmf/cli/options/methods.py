"""The options of methods, made from their descriptions in `hdpmf.common.methods`.

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
from typing import Annotated, Any, ClassVar

from hdpmf.cli.options.common import RUN_PANEL
from hdpmf.cli.options.common import option as make_option
from hdpmf.common.methods import METHODS, Option, method_named
from hdpmf.errors import ConfigError

_PREFIX = "method_"  # a plugin's method may have a parameter that a command has, too
_NUMBER = "NUMBER"  # ends the metavar of an option that takes a word or a number


@dataclass(frozen=True, init=False)
class MethodOptions:
    """Methods' options as typed, by the names of the estimators' parameters.

    Subclasses show some of them: ``only`` those, or all ``without`` those.
    """

    only: ClassVar[tuple[str, ...]] = ()
    without: ClassVar[tuple[str, ...]] = ()
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
            _parameter(_PREFIX + name, _type(option), _flags(name, option))
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
            raise ConfigError("--no-features leaves nothing to do with --items; drop one of them")
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


def _parameter(name: str, kind: type, option: Any) -> Parameter:
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _type(option: Option) -> type:
    if option.kind is object:
        return bool if "/" in option.flags[0] else str
    return option.kind


def _flags(name: str, option: Option) -> Any:
    return make_option(
        option.help + _methods_with(name),
        option.metavar or None,
        *option.flags,
        default=_default(name),
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
