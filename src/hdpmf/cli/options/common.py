"""Options and option groups for all commands, and the small files that options name.

Every ``hdpmf`` call imports this module, tab completion included: import nothing heavy here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from hdpmf.common.methods import METHODS
from hdpmf.errors import ConfigError, StorageError


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
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
            name: hints[name](**{option: given.pop(option) for option in options})
            for name, options in groups.items()
        }
        command(**given, **made)

    expanded.__name__, expanded.__doc__, expanded.__module__ = (
        command.__name__,
        command.__doc__,
        command.__module__,
    )
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


DATASET_NAMES = ("synthetic", "ml-100k", "ml-1m", "douban", "yelp", "yelp-sample")
"""What ``hdpmf.common.data.dataset_names()`` returns (a test keeps them equal)."""


def completion(words: Iterable[str]) -> Callable[[str], list[str]]:
    """Tab completion from some words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


complete_dataset = completion(DATASET_NAMES)

DATA_PANEL, MODEL_PANEL, PRIVACY_PANEL, RUN_PANEL = "Data", "Model", "Privacy", "Run"

data_option: Any = partial(typer.Option, rich_help_panel=DATA_PANEL)

model_option: Any = partial(typer.Option, rich_help_panel=MODEL_PANEL)

privacy_option: Any = partial(typer.Option, rich_help_panel=PRIVACY_PANEL)

run_option: Any = partial(typer.Option, rich_help_panel=RUN_PANEL)

_method: Any = partial(
    typer.Argument, help=f"One of: {', '.join(METHODS)}.", autocompletion=completion(METHODS)
)

Method = Annotated[str, _method(metavar="METHOD")]

MethodOrNone = Annotated[str | None, _method(metavar="[METHOD]")]

DatasetName = Annotated[
    str | None,
    data_option(
        "--data",
        metavar="NAME",
        help=f"A data set: {', '.join(DATASET_NAMES)}.",
        autocompletion=complete_dataset,
    ),
]

Scale = Annotated[
    tuple[float, float] | None,
    data_option(
        "--scale",
        metavar="LOW HIGH",
        help="The public rating scale of the files.",
        show_default="1 5",
    ),
]

Columns = Annotated[
    list[str] | None,
    data_option(
        "--column",
        metavar="OURS=THEIRS",
        help="What the files call a column, as user=customer; repeatable.",
    ),
]

Duplicates = Annotated[
    str | None,
    data_option(
        "--duplicates",
        metavar="error|last|first|mean|max",
        help="Several ratings of one item by one user: which counts (last and first by "
        "time, else by row).",
        show_default="error",
        autocompletion=completion(("error", "last", "first", "mean", "max")),
    ),
]

Seed = Annotated[
    int, run_option("--seed", metavar="SEED", min=0, help="Drives split, weights and training.")
]

Threads = Annotated[
    int | None,
    run_option(
        "--threads",
        metavar="N",
        help="Threads; the result does not depend on it.",
        show_default="all cores",
    ),
]

Json = Annotated[bool, run_option("--json", help="Print one JSON document and nothing else.")]


def read_bytes(path: Path, what: str = "") -> bytes:
    """What a file holds; ``what`` says in an error what was looked for in it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read {f'{what} from ' if what else ''}{path}: {error.strerror}"
        ) from None


def read_text(path: Path, what: str = "") -> str:
    """The same as text."""
    try:
        return read_bytes(path, what).decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(
            f"cannot read {f'{what} from ' if what else ''}{path}: it is not text"
        ) from None


def make_folder(folder: Path) -> None:
    """Before the work, so that a place that cannot be written to costs no time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot make the folder {folder}: {error.strerror}; choose another with --out"
        ) from error
