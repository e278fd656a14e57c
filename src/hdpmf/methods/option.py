"""An option of a method: its default, its range and its help, in one place.

A configuration is a dataclass whose fields are made by `option`. Estimators inherit it, the command line makes its
options from it, and `check` refuses what is out of range, so that no number or sentence stands twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any

from hdpmf.errors import ConfigError, PrivacyError

_KEY = "hdpmf"


@dataclass(frozen=True, slots=True)
class Option:
    """What is known about an option besides its value.

    Attributes:
        name: The parameter of the estimator.
        kind: The type of its values, as the command line reads it: int, float, str or bool.
        default: Its value where nothing is said; a method may have another one.
        help: One sentence.
        flags: On the command line; none where it is for Python only.
        metavar: What the value is called in help.
        choices: The words that it may be.
        least: The smallest number.
        above: The number that it must be larger than.
        most: The largest number.
        optional: Whether None is a value too.
        panel: The part of the help page that it stands in.
        error: Which error a wrong value is.
    """

    name: str
    kind: type
    default: Any
    help: str
    flags: tuple[str, ...] = ()
    metavar: str = ""
    choices: tuple[str, ...] = ()
    least: float | None = None
    above: float | None = None
    most: float | None = None
    optional: bool = False
    panel: str = "Model"
    error: type[ConfigError | PrivacyError] = ConfigError

    @property
    def flag(self) -> str:
        """How people name it: the flag, or the parameter where it has none."""
        return self.flags[0].split("/")[0] if self.flags else self.name

    def check(self, value: Any, called: str | None = None) -> None:
        """Raise the option's error if the value cannot be; ``called`` is what whoever gave it calls the option."""
        if (value is None and self.optional) or self._fits(value):
            return
        more = ""
        if self.name == "epsilon":
            more = "; a budget of 0 allows nothing to be sent (the user-mean method does without)"
        raise self.error(f"{called or self.name} must be {self._wanted()}, not {value!r}{more}")

    def _fits(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if self.kind is bool:
            return isinstance(value, bool)
        if self.kind in (int, float):
            number = isinstance(value, Integral if self.kind is int else Real) and not isinstance(value, bool)
            return number and math.isfinite(value) and self._in_range(value)
        return True  # texts, files and objects are judged by what reads them

    def _in_range(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
        )

    def _wanted(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind is bool:
            return "True or False"
        if self.kind is int:
            return f"a whole number from {self.least or 0:g}" + ("" if self.most is None else f" to {self.most:g}")
        return "a positive number" if self.above == 0 else "0 or a positive number"


def option(default: Any, help: str, kind: type | None = None, **about: Any) -> Any:  # the field's word
    """A dataclass field that is an option; the arguments are those of `Option`."""
    about["kind"] = type(default) if kind is None else kind
    return field(default=default, metadata={_KEY: about | {"default": default, "help": help}})


@cache
def options_of(configuration: type) -> Mapping[str, Option]:
    """The options of a configuration, by name, in order."""
    if not is_dataclass(configuration):
        return {}
    return {item.name: Option(name=item.name, **_about(item)) for item in fields(configuration) if item.init}


def _about(item: Field[Any]) -> dict[str, Any]:
    """What `option` was told about a field; a plain one is known by its default."""
    if item.default is MISSING and _KEY not in item.metadata:
        raise ConfigError(f"the option {item.name!r} has no default; every option needs one")
    plain = {"kind": object, "default": item.default, "help": ""}
    if isinstance(item.default, (bool, int, float, str)):
        plain["kind"] = type(item.default)
    return {**plain, **item.metadata.get(_KEY, {})}


def check(configured: Any) -> None:
    """Raise if an option of a configured object (an estimator, say) is out of its range."""
    for name, known in options_of(configured.__class__).items():
        known.check(getattr(configured, name))
