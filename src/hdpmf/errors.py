"""Every error that hdpmf raises on purpose.

The tree::

    HdpmfError                 anything below; catch this to catch us
    ├── RatingsError           ratings that cannot be used (NaN, off the scale, duplicates, empty)
    ├── DatasetError           a data set that is absent, unreachable, or not what it should be
    ├── PrivacyError           weights outside (0, 1], budgets that are not positive, ratios that
    │                          do not sum to 1, noise that is not what was agreed
    ├── ConfigError            an option with a value that makes no sense
    ├── NotConfirmedError      somebody answered no to a question, so nothing was done
    ├── NotFittedError         a model used before ``fit``
    ├── DivergedError          training ran away to infinity; the learning rate is too large
    ├── UnknownIdError         a user the model has never seen, where no fallback makes sense
    ├── ProtocolError          a message that is malformed, out of turn, or asks for too much
    ├── PrioError              a share, proof or message of the two servers was refused
    │   └── DapError           the same, with the problem type that DAP tells the other side
    ├── FederationError        a run between machines stopped (too few devices); it can be resumed
    │   ├── RunOverError       the same for good: its sum will never be there
    │   └── TransportError     the other side could not be reached, or refused
    │       └── TooLongError   an answer with more bytes than this side reads
    ├── ModelFileError         a saved model that is missing, damaged or from a newer version
    ├── StorageError           the disk refused (full, read-only); nothing was half-written
    └── MissingExtraError      an optional dependency is needed; the message has the install command

Each class carries the exit code that the command line ends with. Messages say what was wrong,
where, and what to do; they never contain a rating, a privacy weight or a user vector. Hints in
them are worded for the reader: Python, the command line, or an experiment's TOML.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal


class HdpmfError(Exception):
    """Base of every error that hdpmf raises on purpose."""

    exit_code = 1


class RatingsError(HdpmfError):
    """Ratings that cannot be used as they are."""

    exit_code = 3


class DatasetError(HdpmfError):
    """A data set is absent, unreachable, or not what it should be."""

    exit_code = 4


class PrivacyError(HdpmfError):
    """A privacy weight, ratio, budget or draw of noise is outside what it may be."""

    exit_code = 5


class ConfigError(HdpmfError):
    """An option has a value that makes no sense."""

    exit_code = 2


class NotConfirmedError(HdpmfError):
    """Somebody answered no to a question; nothing was done."""

    exit_code = 14


class NotFittedError(HdpmfError):
    """A model was used before ``fit``."""

    exit_code = 2


class DivergedError(HdpmfError):
    """Training ran away to infinity."""

    exit_code = 10


class UnknownIdError(HdpmfError):
    """A user or item that the model has never seen, where no fallback makes sense."""

    exit_code = 3


class ProtocolError(HdpmfError):
    """A message is malformed, out of turn, or asks for more than it may."""

    exit_code = 6


class PrioError(HdpmfError):
    """A share, a proof or a message between the two servers was refused; it does not count."""

    exit_code = 13


class DapError(PrioError):
    """A message of DAP was refused, or could not be opened.

    Attributes:
        kind: DAP's problem type, for the answer to who sent it
            (``hdpmf.common.aggregation.two_servers.dap.Problem``).
    """

    def __init__(self, message: str, kind: str = "invalidMessage") -> None:
        super().__init__(message)
        self.kind = kind


class FederationError(HdpmfError):
    """A run between machines stopped, mostly for too few devices; it can be resumed.

    Attributes:
        cause: What was wrong, without the remedy.
        remedy: What to do, where the message says it in a sentence of its own.
    """

    exit_code = 12

    def __init__(self, cause: str, remedy: str = "") -> None:
        super().__init__(f"{cause}. {remedy}" if remedy else cause)
        self.cause = cause
        self.remedy = remedy


class RunOverError(FederationError):
    """A run between machines can never end; it is given up."""


class TransportError(FederationError):
    """The other side could not be reached, or refused the connection.

    Attributes:
        received: Bytes of an answer that had come by then.
    """

    received: int = 0


class TooLongError(TransportError):
    """An answer of the other side is longer than it may be; asking again does not help."""


class ModelFileError(HdpmfError):
    """A saved model is missing, corrupted, truncated or from a newer version."""

    exit_code = 7


class StorageError(HdpmfError):
    """The disk refused; nothing was half-written."""

    exit_code = 8


class MissingExtraError(HdpmfError):
    """An optional dependency is needed for this."""

    exit_code = 9


@contextmanager
def needs(package: str, extra: str = "federation") -> Iterator[None]:
    """Imports inside: if ``package`` is not installed, the error says what to do."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise MissingExtraError(f"this needs {package}: pip install 'hdpmf[{extra}]'") from error


def made_by_older(what: object) -> str:
    """Return the message for something that a version before 1.0 made."""
    return f"{what} was made by hdpmf before 1.0, which this version does not read; make it again"


def made_by_newer(what: object) -> str:
    """Return the message for something that a later version made."""
    return (
        f"{what} was made by a newer hdpmf; upgrade with: pip install -U hdpmf (nothing "
        "in it was touched)"
    )


Language = Literal["python", "shell", "toml"]

_HINTS: dict[str, dict[Language, str]] = {
    "columns": {
        "python": 'Ratings.of(data, columns={{"{0}": ...}})',
        "shell": "--column {0}=NAME",
        "toml": 'columns = {{{0} = "..."}}',
    },
    "scale": {
        "python": "Ratings.of(data, scale=(low, high))",
        "shell": "--scale LOW HIGH",
        "toml": "scale = [low, high]",
    },
    "step": {
        "python": "Ratings.of(data, scale=(low, high)) without a step",
        "shell": "--scale LOW HIGH without --step",
        "toml": "scale = [low, high]",
    },
    "missing": {
        "python": "missing=W",
        "shell": "PrivacyWeights.from_frame(..., missing=W) in Python",
        "toml": "missing_weight = W",
    },
    "drop": {
        "python": 'Ratings.of(data, missing="drop")',
        "shell": 'Ratings.read(FILE, missing="drop") in Python',
        "toml": 'missing = "drop"',
    },
    "implicit": {
        "python": "Ratings.of(data, implicit=True)",
        "shell": "--implicit",
        "toml": "implicit = true",
    },
    "overwrite": {"python": "replace=True", "shell": "--force", "toml": "replace=True"},
    "rows": {
        "python": 'Ratings.of(data, duplicates="last-row")',
        "shell": "--duplicates last-row",
        "toml": 'duplicates = "last-row"',
    },
    "duplicates": {
        "python": 'Ratings.of(data, duplicates="last") (or mean)',
        "shell": "--duplicates last (or mean)",
        "toml": 'duplicates = "last" (or mean)',
    },
    "file": {
        "python": "read it with Ratings.read",
        "shell": "give it with --train",
        "toml": 'name it as file = "..." under [data.NAME]',
    },
}


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=5)


_LANGUAGE: ContextVar[Language] = ContextVar("language", default="python")
_NOTIFY: ContextVar[Callable[[str], object]] = ContextVar("notify", default=_warn)


@contextmanager
def message_language(
    language: Language, notify: Callable[[str], object] | None = None
) -> Iterator[None]:
    """Word messages for this language; pass notes to ``notify`` instead of warnings."""
    before = _LANGUAGE.set(language)
    listener = _NOTIFY.set(_NOTIFY.get() if notify is None else notify)
    try:
        yield
    finally:
        _LANGUAGE.reset(before)
        _NOTIFY.reset(listener)


def hint(option: str, about: str = "") -> str:
    """Return how to give an option in the reader's language; ``about`` is its column."""
    return _HINTS[option][_LANGUAGE.get()].format(about)


def notify(text: str) -> None:
    """Report something that was decided for the user: a warning, or a note on a command line."""
    _NOTIFY.get()(text)
