"""A run: one fit and its score, described completely, with an identity that never changes.

The identity is a hash of everything that determines the result: data, split, method, parameters,
privacy wishes, seed, the version of the procedure, and the source of a method that is not ours.
What does not determine it (threads, machine, place of the files) is no part of it. So the same run
in two experiments is one run, and a command that was stopped knows what it has done.
"""

import hashlib
import inspect
import sys
from collections.abc import Mapping
from functools import cache, cached_property
from importlib import import_module
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import msgspec

from hdpmf.common.data.checks import Duplicates
from hdpmf.common.data.columns import Missing
from hdpmf.common.methods import METHODS
from hdpmf.common.privacy import PrivacySpec
from hdpmf.models import Estimator, make_model

_OURS = "hdpmf."


@cache
def source_digest(estimator: str | type) -> str:
    """Return the SHA-256 of an estimator's source file and its neighbours that it imports.

    Empty for our own, whose methods have versions. Where there is no source to be read, a word that
    never comes again: then no result can be taken for a later one's.
    """
    module, name = (
        estimator.split(":")
        if isinstance(estimator, str)
        else (estimator.__module__, estimator.__qualname__)
    )
    if module.startswith(_OURS):
        return ""
    digest = hashlib.sha256(name.encode())
    file = getattr(sys.modules.get(module) or import_module(module), "__file__", None)
    try:
        if file is None:  # a notebook's cell
            digest.update(inspect.getsource(estimator).encode())  # type: ignore[arg-type]  # no file: it is a class
        else:
            for path in _with_neighbours(Path(file)):
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
    except (OSError, TypeError, SyntaxError, ValueError):
        return uuid4().hex
    return digest.hexdigest()


def _with_neighbours(file: Path) -> list[Path]:
    """Return a file and all files of its folder or package that it imports, also indirectly."""
    root = file.parent
    while (root / "__init__.py").exists():
        root = root.parent
    finder = ModuleFinder([str(file.parent), str(root)])
    if root == file.parent:
        finder.load_file(str(file))
    else:
        finder.import_hook(".".join(file.relative_to(root).with_suffix("").parts))
    found = (getattr(module, "__file__", None) for module in finder.modules.values())
    return sorted(Path(path) for path in found if path)


RESULTS_VERSION = 1
"""Part of every identity. Raise it if a change to the library makes all old results wrong, so that
all runs are repeated; if only one method's are wrong, raise the `version` of that method."""

Scalar = bool | int | float | str | None

World = bool | int | float | tuple[float, ...]
"""An option of a synthetic world."""

SplitKind = Literal["hold-out", "leave-one-out", "last", "ratio", "time", "user-time", "ready-made"]


class Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A data set by name; a user's own file by its checksum.

    Attributes:
        name: A registered data set, or the user's name for the file.
        scale: The rating scale, if it is not one to five.
        duplicates: The rule for several ratings of a pair.
        implicit: True if the file has choices and no ratings.
        missing: The rule for rows in which something is missing.
    """

    name: str
    sha256: str | None = None
    scale: tuple[float, ...] | None = None
    columns: dict[str, str] = {}
    world: dict[str, World] = {}
    duplicates: Duplicates = "error"
    implicit: bool = False
    missing: Missing = "error"


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The split into training and test ratings.

    Attributes:
        kind: The kind of split.
        per_user: Test ratings per user of ``hold-out`` and ``last``.
        seed: Seed of the split; always 0 for a predefined one, and for one by time.
        fraction: Share of each user's training ratings that is kept.
        folds: Folds of cross-validation on the training part; 0 for none.
        fold: The fold that validates; the test part of the split is not used then.
        share: Share of the ratings that ``ratio``, ``time`` and ``user-time`` test on.
    """

    kind: SplitKind
    per_user: int = 10
    seed: int = 0
    fraction: float = 1.0
    folds: int = 0
    fold: int = 0
    share: float = 0.0


class Privacy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The privacy wishes.

    Attributes:
        changes: Differences from the paper's Table II, by its names.
        weights: ``paper``, ``uniform`` (everybody at 1), or checksums of the user's files of
            weights.
        missing: The weight of everybody whom such a file does not name.
    """

    changes: dict[str, float] = {}
    seed: int = 0
    weights: tuple[str, ...] = ("paper",)
    missing: float | None = None

    @property
    def spec(self) -> PrivacySpec:
        """The specification that weights are drawn by."""
        return PrivacySpec.paper(**self.changes)


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """One fit and its score.

    Attributes:
        privacy: None for a method that takes no epsilon.
        seed: Seed of the training; 0 for a method without randomness.
    """

    data: Data
    part: Part
    method: str
    params: dict[str, Scalar]
    privacy: Privacy | None = None
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The identity: 32 hexadecimal digits."""
        method = METHODS.get(self.method)
        of_method: list[int | str] = (
            [] if method is None else [method.version] if method.version else []
        )
        source = "" if method is None else source_digest(method.estimator)
        if source:
            of_method.append(source)
        version = [RESULTS_VERSION, *of_method] if of_method else RESULTS_VERSION
        content = msgspec.json.encode([version, _plain(self)], order="sorted")
        return hashlib.sha256(content).hexdigest()[:32]

    @property
    def stage(self) -> Literal["tuning", "evaluation"]:
        """``tuning`` if it is measured on a fold, else ``evaluation``."""
        return "tuning" if self.part.folds else "evaluation"


def make_run(
    data: Data, part: Part, method: str, params: Mapping[str, Scalar], privacy: Privacy, seed: int
) -> Run:
    """Make a run without what cannot change its result, so that equal runs have equal ids.

    Raises:
        ConfigError: A parameter is no option of the method.
    """
    options = METHODS[method].options
    for name in params:
        METHODS[method].require(name)
    if part.kind == "ready-made" and not part.folds and part.fraction == 1.0:
        part = msgspec.structs.replace(part, seed=0, per_user=10)
    return Run(
        data=data,
        part=part,
        method=method,
        params=dict(params),
        privacy=privacy if "epsilon" in options else None,
        seed=seed if "rng" in options else 0,
    )


def model_of(run: Run) -> Estimator:
    """Return the model that a run fits, on one thread."""
    return make_model(
        run.method, **run.params, **METHODS[run.method].own(n_threads=1, rng=run.seed)
    )


def _plain(value: Any) -> Any:
    """Omit default values of structs, so that a field added later leaves old ids alone."""
    if not isinstance(value, msgspec.Struct):
        return value
    own = ((name, getattr(value, name), default) for name, default in _defaults(type(value)))
    return {name: _plain(given) for name, given, default in own if given != default}


@cache
def _defaults(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (
            field.name,
            field.default
            if field.default_factory is msgspec.NODEFAULT
            else field.default_factory(),
        )
        for field in msgspec.structs.fields(kind)
    )
