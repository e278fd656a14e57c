"""The decorator that makes commands, options that several commands share, and methods' parameters.

Every ``hdpmf`` call imports this module, tab completion included: import nothing heavy here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer
from typer.models import OptionInfo

from hdpmf.cli.output import Result, emit, json_output, note
from hdpmf.common.base.files import storage_errors
from hdpmf.common.methods import METHODS, Option, method_named
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.protocol.servers import Servers

DATASET_NAMES = ("synthetic", "ml-100k", "ml-1m", "douban", "yelp", "yelp-sample")
"""The data sets that are ours (a test keeps them so); packages add some."""


class _Datasets:
    """All data sets by name, which are looked up when they are asked for."""

    def __iter__(self) -> Iterator[str]:
        from hdpmf.common.data import dataset_names

        return iter(dataset_names())


DATASETS = _Datasets()

DATA_PANEL = "Data"
MODEL_PANEL = "Model"
PRIVACY_PANEL = "Privacy"
RUN_PANEL = "Run"


def option(
    text: str,
    metavar: str | None = None,
    *flags: str,
    default: str | bool = True,
    words: Iterable[str] = (),
    **more: Any,
) -> Any:
    """Describe an option, for the annotation of a parameter.

    ``default`` is the default in words, ``words`` are values for tab completion, ``more`` are
    arguments of ``typer.Option``. Without ``flags`` there is one with the parameter's name.
    """
    if isinstance(default, str):  # typer would write [default: (10)]
        text, default = f"{text} (default: {default})", False
    return typer.Option(
        *flags,
        metavar=metavar,
        help=text,
        show_default=default,
        autocompletion=_completion(words) if words else None,
        **more,
    )


data_option = partial(option, rich_help_panel=DATA_PANEL)
model_option = partial(option, rich_help_panel=MODEL_PANEL)
privacy_option = partial(option, rich_help_panel=PRIVACY_PANEL)
run_option = partial(option, rich_help_panel=RUN_PANEL)


def argument(text: str, metavar: str, words: Iterable[str] = (), **more: Any) -> Any:
    """Describe an argument, for the annotation of a parameter."""
    completion = _completion(words) if words else None
    return typer.Argument(metavar=metavar, help=text, autocompletion=completion, **more)


def _completion(words: Iterable[str]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def command(function: Callable[..., Result | None]) -> Callable[..., None]:
    """Make a typer command: expand option groups, add ``--json``, and print the result.

    An option group is a frozen dataclass whose fields carry their typer option
    (``Annotated[int, typer.Option(...)]``) and a default. Typer sees one parameter for every
    field but those in the class variable ``without``; the function gets the group. A group whose
    options are known only at run time has a class method ``parameters`` and takes their values as
    keywords.

    The function returns its result, or has printed results itself by `emit`.
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, dict[str, Parameter]] = {}
    parameters: dict[str, Parameter] = {}
    for name, parameter in signature(function).parameters.items():
        if isinstance(hints[name], type) and is_dataclass(hints[name]):
            groups[name] = options = _group_parameters(hints[name])
        else:
            plain = parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
            options = {name: plain}
        twice = sorted(parameters.keys() & options)
        if twice:
            raise TypeError(f"{function.__name__} has the option {twice[0]!r} twice")
        parameters |= options
    parameters["json"] = Parameter(
        "json",
        Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[bool, run_option("Print one JSON document and nothing else.")],
    )
    parameters = {name: _with_flag(each) for name, each in parameters.items()}

    def run(**given: Any) -> None:
        with json_output(given.pop("json")):
            values = {
                name: hints[name](**{option: given.pop(option) for option in options})
                for name, options in groups.items()
            }
            result = function(**given, **values)
            if result is None:
                return
            emit(result)
        if result.exit_code:
            raise typer.Exit(result.exit_code)

    run.__name__ = function.__name__
    run.__doc__ = function.__doc__
    run.__module__ = function.__module__
    run.__annotations__ = {name: each.annotation for name, each in parameters.items()}
    run.__signature__ = signature(run).replace(  # type: ignore[attr-defined]
        parameters=list(parameters.values())
    )
    return run


def _with_flag(parameter: Parameter) -> Parameter:
    """Return the parameter with the flag of its own name, if its option has none.

    Typer would add ``--no-...`` to flags without a value.
    """
    hint = parameter.annotation
    for info in getattr(hint, "__metadata__", ()):
        # In an annotation, typer has the first flag as the "default".
        if isinstance(info, OptionInfo) and info.default is ... and not info.param_decls:
            named = copy(info)
            named.param_decls = (f"--{parameter.name.replace('_', '-')}",)
            return parameter.replace(annotation=Annotated[hint.__origin__, named])
    return parameter


def _group_parameters(group: Any) -> dict[str, Parameter]:
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
        if field.name not in getattr(group, "without", ())
    }


Method = Annotated[str, argument(f"One of: {', '.join(METHODS)}.", "METHOD", METHODS)]
DatasetName = Annotated[
    str | None,
    data_option(f"A data set: {', '.join(DATASET_NAMES)}.", "NAME", "--data", words=DATASETS),
]
Scale = Annotated[
    tuple[float, float] | None, data_option("The public rating scale.", "LOW HIGH", default="1 5")
]
Columns = Annotated[
    list[str] | None,
    data_option("The files' name for a column, as user=customer; repeatable.", "OURS=THEIRS"),
]
MERGING = ("error", "last", "last-row", "mean")
"""The rules of ``hdpmf.common.data.checks.Duplicates`` (a test keeps them equal)."""

Duplicates = Annotated[
    str | None,
    data_option(
        "Which of several ratings of one item by one user counts; last goes by time.",
        "|".join(MERGING),
        default="error",
        words=MERGING,
    ),
]
Seed = Annotated[int, run_option("Drives split, weights and training.", "SEED", min=0)]
Yes = Annotated[bool, option("Do not ask.", None, "--yes", "-y")]
ModelFolder = Annotated[Path, argument("A model that hdpmf train saved.", "FOLDER")]
RecommenderFolder = Annotated[Path, argument("The recommender's folder.", "FOLDER")]

Listen = Annotated[str, option("Address and port to listen on.", "[HOST:]PORT")]


def host_and_port(text: str) -> tuple[str, int]:
    """Return what ``[HOST:]PORT`` says; without a host this machine alone is meant."""
    host, _, port = text.rpartition(":")
    if not (port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(f"{text!r} is no address to listen on; write it as PORT or HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


BehindProxy = Annotated[
    bool,
    option(
        "TLS ends at a proxy in front of it, with a public certificate. Without this: for trials.",
        None,
        "--behind-proxy",
    ),
]

SameHost = Annotated[
    bool, option("For trials: allow both servers on one machine, which then sees everything.")
]


def warn_about_servers(servers: Servers) -> None:
    """Say it loudly if both servers are on one machine."""
    from hdpmf.common.protocol.servers import plain_host

    if plain_host(servers.leader.url) == plain_host(servers.helper.url):
        note(
            "WARNING: both servers are on one machine, and its operator sees every rating. This "
            "is for trials only."
        )


def read_bytes(path: Path, what: str = "") -> bytes:
    """Return the content of a file; ``what`` names it in an error."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {_source(path, what)}: {error.strerror}") from None


def read_text(path: Path, what: str = "") -> str:
    """Return the content of a text file; ``what`` names it in an error."""
    try:
        return read_bytes(path, what).decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"cannot read {_source(path, what)}: it is not text") from None


def _source(path: Path, what: str) -> str:
    return f"{what} from {path}" if what else str(path)


def make_folder(folder: Path) -> None:
    """Make the folder of ``--out`` before the work begins, so that a failure costs no time."""
    with storage_errors(f"cannot make the folder {folder}", "; choose another with --out"):
        folder.mkdir(parents=True, exist_ok=True)


def parse_pairs(given: Sequence[str], option: str, example: str) -> list[tuple[str, str]]:
    """Return the names and values of a repeatable NAME=VALUE option."""
    parts = [text.partition("=") for text in given]
    for key, sign, value in parts:
        if not (key and sign and value):
            raise ConfigError(f"{option} takes NAME=VALUE, as {option} {example}")
    keys = [key for key, _, _ in parts]
    if len(set(keys)) < len(keys):
        raise ConfigError(f"{option} gives the same name twice")
    return [(key, value) for key, _, value in parts]


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

_TRUTH = dict.fromkeys(("true", "yes", "on"), True) | dict.fromkeys(("false", "no", "off"), False)

_KINDS = {int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True, init=False)
class MethodOptions:
    """Methods' parameters as typed, by their names in Python.

    A few have a flag, ``--set`` has all. Each is None unless it is typed, so that a method's own
    defaults hold. A command that takes some of them lists these in ``only``.
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
