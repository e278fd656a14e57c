"""A run: one fit and its score, described completely, with an identity that never changes.

The identity is a hash of everything that determines the result: data, split, method, parameters, privacy wishes,
seed, the version of the procedure, and the source of a method that is not ours. What does not determine it (threads,
machine, place of the files) is no part of it. So the same run in two experiments is one run, and a command that was
stopped knows what it has done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any, Literal

import msgspec

from hdpmf.methods import METHODS
from hdpmf.methods.source import source_digest
from hdpmf.models import Estimator, make_model

RESULTS_VERSION = 1
"""Part of every identity. Raise it when a change to the library makes all old results wrong: all runs are done anew.
Where only one method's are wrong, raise the `version` of that method."""

Scalar = bool | int | float | str | None
SplitKind = Literal["hold-out", "leave-one-out", "last", "ratio", "time", "user-time", "ready-made", "whole"]


class Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ratings by name; a file of the user's is known by its content.

    Attributes:
        name: A registered data set, or what the user calls the file.
        sha256: Checksum of the user's file.
        scale: Its rating scale, where it is not one to five.
        columns: What it calls its columns.
        world: Options of the synthetic world.
        duplicates: What becomes of several ratings of a pair.
        implicit: Whether the file has choices and no ratings.
    """

    name: str
    sha256: str | None = None
    scale: tuple[float, float] | None = None
    columns: dict[str, str] = {}
    world: dict[str, int] = {}
    duplicates: Literal["error", "last", "first", "mean", "max"] = "error"
    implicit: bool = False


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which ratings train and which test.

    Attributes:
        kind: How the data set is cut; ``whole`` keeps all of it for training, to be cross-validated.
        per_user: Test ratings per user of ``hold-out`` and ``last``.
        seed: Of the cut; always 0 for a ready-made one, and for one by time.
        fraction: Share of each user's training ratings that is kept.
        folds: For cross-validation, into how many folds the training part is cut again; 0 for none.
        fold: Which of them validates; the test part of the cut is then left alone.
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
        changes: What differs from the paper's Table II, by its names.
        seed: Of the paper's draw.
        weights: ``paper``, ``uniform`` (everybody at 1), or checksums of the user's files of weights.
        missing: The weight of whoever such a file does not name.
    """

    changes: dict[str, float] = {}
    seed: int = 0
    weights: tuple[str, ...] = ("paper",)
    missing: float | None = None


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """One fit and its score.

    Attributes:
        data: The ratings.
        part: Which of them train and test.
        method: A name in ``METHODS``.
        params: The model's parameters, only those it takes.
        privacy: The privacy wishes; None for a method that takes no epsilon and so does not look at them.
        seed: Of the training; 0 for a method without randomness.
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
        of_method: list[int | str] = [] if method is None else [method.version] if method.version else []
        source = "" if method is None else source_digest(method.estimator)
        if source:
            of_method.append(source)
        version = [RESULTS_VERSION, *of_method] if of_method else RESULTS_VERSION
        content = msgspec.json.encode([version, _plain(self)], order="sorted")
        return hashlib.sha256(content).hexdigest()[:32]

    @property
    def stage(self) -> Literal["tuning", "evaluation"]:
        """Whether it measures on a fold or on the test set."""
        return "tuning" if self.part.folds else "evaluation"


def make_run(
    data: Data,
    part: Part,
    method: str,
    params: Mapping[str, Scalar],
    privacy: Privacy,
    seed: int,
) -> Run:
    """A run without what cannot change its result, so that equal runs have equal identities.

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
    """The model that a run fits, on one thread."""
    return make_model(run.method, **run.params, **METHODS[run.method].own(n_threads=1, rng=run.seed))


def _plain(value: Any) -> Any:
    """Structs without what has its default value, so that a field added later leaves old identities alone."""
    if not isinstance(value, msgspec.Struct):
        return value
    own = ((name, getattr(value, name), default) for name, default in _defaults(type(value)))
    return {name: _plain(given) for name, given, default in own if given != default}


@cache
def _defaults(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (field.name, field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory())
        for field in msgspec.structs.fields(kind)
    )
