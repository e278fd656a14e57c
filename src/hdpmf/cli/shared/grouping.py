"""Typed groups of options: commands take a few dataclasses instead of thirty parameters.

A group is a frozen dataclass whose fields carry their typer option (``Annotated[int, typer.Option(...)]``) and a
default. `grouped` shows typer one parameter for every field, and gives the command the group. A group whose options are
known only when the program runs has a class method ``parameters`` and takes their values as keywords.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, signature
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer wants it: one parameter for every option."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, dict[str, Parameter]] = {}
    shown: dict[str, Parameter] = {}
    for name, parameter in signature(command).parameters.items():
        if isinstance(hints[name], type) and is_dataclass(hints[name]):
            groups[name] = options = _options(hints[name])
        else:
            options = {name: parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)}
        twice = sorted(shown.keys() & options)
        if twice:
            raise TypeError(f"{command.__name__} has the option {twice[0]!r} twice")
        shown |= options

    def expanded(**given: Any) -> None:
        made = {
            name: hints[name](**{option: given.pop(option) for option in options}) for name, options in groups.items()
        }
        command(**given, **made)

    expanded.__name__, expanded.__doc__, expanded.__module__ = command.__name__, command.__doc__, command.__module__
    expanded.__signature__ = signature(expanded).replace(parameters=list(shown.values()))  # type: ignore[attr-defined]
    expanded.__annotations__ = {name: parameter.annotation for name, parameter in shown.items()}
    return expanded


def _options(group: Any) -> dict[str, Parameter]:
    if hasattr(group, "parameters"):
        return {parameter.name: parameter for parameter in group.parameters()}
    hints = get_type_hints(group, include_extras=True)
    return {
        field.name: Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    }
