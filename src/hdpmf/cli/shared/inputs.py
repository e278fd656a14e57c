"""From options to ratings and weights."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdpmf.errors import ConfigError, RatingsError
from hdpmf.methods import METHODS, method_named

if TYPE_CHECKING:
    from hdpmf.privacy import PrivacyWeights
    from hdpmf.ratings import Ratings, RatingScale

_HOLD_OUT = 10


@dataclass(frozen=True, slots=True)
class Source:
    """Where ratings come from: a file, or a data set by name."""

    file: Path | None
    dataset: str | None
    scale: tuple[float, float] | None = None
    columns: Sequence[str] | None = None
    step: float | None = None

    def __post_init__(self) -> None:
        if (self.file is None) == (self.dataset is None):
            raise ConfigError("say where the ratings are: either --train FILE or --data NAME")
        if self.dataset is not None and (self.scale is not None or self.columns or self.step is not None):
            raise ConfigError("--scale, --step and --column describe files; a data set of --data knows its own")

    def load(self) -> Ratings:
        """All of them."""
        from hdpmf.ratings import Ratings, load_dataset

        if self.dataset is not None:
            return load_dataset(self.dataset)
        return Ratings.read(self._file(), scale=self._scale(), columns=self._columns())

    def split(self, test: Path | None, hold_out: int | None, ready_split: bool, seed: int) -> tuple[Ratings, Ratings]:
        """Training and test, in one of three ways: a second file, a ready-made split, or ratings held out."""
        from hdpmf.ratings import load_split, read_split

        ways = [test is not None, ready_split, hold_out is not None]
        if sum(ways) > 1:
            raise ConfigError("choose one of --test FILE, --hold-out N and --ready-split")
        if test is not None:
            if self.file is None:
                raise ConfigError("--test belongs to --train FILE; with --data use --hold-out or --ready-split")
            train, held = read_split(self.file, test, scale=self._scale(), columns=self._columns())
        elif ready_split:
            if self.dataset is None:
                raise ConfigError("--ready-split needs --data NAME; for files give --test FILE")
            train, held = load_split(self.dataset)
        elif self.file is not None and hold_out is None:
            raise ConfigError("give --test FILE beside --train, or hold ratings out of it with --hold-out N")
        else:
            train, held = self.load().hold_out(_HOLD_OUT if hold_out is None else hold_out, rng=seed)
        if len(held) == 0:
            raise RatingsError("there is nothing to test on: no user has a second rating that could be held out")
        return train, held

    def _file(self) -> Path:
        if self.file is None:
            raise ConfigError("say where the ratings are: --train FILE")
        return self.file

    def _scale(self) -> RatingScale:
        from hdpmf.ratings import RatingScale

        plain = RatingScale.of(self.scale)
        return RatingScale(plain.low, plain.high, self.step)

    def _columns(self) -> dict[str, str] | None:
        return dict(_pairs(self.columns, "--column", "user=customer")) if self.columns else None


@dataclass(frozen=True, slots=True)
class Settings:
    """How to train: what the options of ``train`` and ``evaluate`` have in common."""

    method: str
    factors: int
    lr: float | None
    reg: float
    epochs: int
    epsilon: float
    solver: str
    h: str
    noise: str
    threshold: str
    seed: int
    threads: int | None
    spec: Sequence[str] | None = None
    uniform_weights: bool = False
    weights_seed: int | None = None
    on: str = "cpu"

    def __post_init__(self) -> None:
        method_named(self.method)
        for option, value in (("--seed", self.seed), ("--weights-seed", self.weights_seed)):
            if value is not None and value < 0:
                raise ConfigError(f"{option} must be 0 or more, not {value}")
        if self.uniform_weights and (self.spec or self.weights_seed is not None):
            raise ConfigError("--uniform-weights leaves nothing to draw; drop it, or --spec and --weights-seed")

    @property
    def learning_rate(self) -> float:
        """The rate given, or the one that suits the method and solver."""
        if self.lr is not None:
            return self.lr
        known = METHODS[self.method]
        return float(known.default("learning_rate", solver=self.solver)) if "learning_rate" in known.options else 0.0

    def model_params(self) -> dict[str, Any]:
        """For ``make_model``."""
        asked = {
            "n_factors": self.factors,
            "learning_rate": self.learning_rate,
            "reg": self.reg,
            "epochs": self.epochs,
            "epsilon": self.epsilon,
            "solver": self.solver,
            "h": self.h,
            "noise": self.noise,
            "threshold": _threshold(self.threshold),
            "n_threads": self.threads,
            "on": self.on,
            "rng": self.seed,
        }
        return METHODS[self.method].own(**asked)

    def draw_weights(self, ratings: Ratings) -> PrivacyWeights:
        """The privacy weights that the options describe."""
        from hdpmf.privacy import PrivacySpec, PrivacyWeights

        if self.uniform_weights:
            return PrivacyWeights.uniform(ratings)
        spec = PrivacySpec.paper(**_spec_values(self.spec or ()))
        return spec.draw(ratings, self.seed if self.weights_seed is None else self.weights_seed)

    def record(self) -> dict[str, Any]:
        """What goes into the JSON beside the results, so that a run can be repeated."""
        asked = {
            "solver": self.solver,
            "seed": self.seed,
            "factors": self.factors,
            "lr": self.learning_rate,
            "reg": self.reg,
            "epochs": self.epochs,
            "h": self.h,
            "noise": self.noise,
            "on": self.on,
            "weights": "uniform" if self.uniform_weights else "drawn",
            "weights_seed": self.seed if self.weights_seed is None else self.weights_seed,
            "spec": _spec_values(self.spec or ()),
        }
        # A method may have made up its mind, whatever was asked for.
        return asked | {name: value for name, value in METHODS[self.method].fixed.items() if name in asked}


def _spec_values(pairs: Sequence[str]) -> dict[str, float]:
    from hdpmf.privacy import PrivacySpec

    known = tuple(inspect.signature(PrivacySpec.paper).parameters)
    values = {}
    for key, text in _pairs(pairs, "--spec", "f_uc=0.3"):
        if key not in known:
            raise ConfigError(f"--spec has no {key!r}; the paper's names are {', '.join(known)}")
        try:
            values[key] = float(text)
        except ValueError:
            raise ConfigError(f"--spec {key} must be a number, not {text!r}") from None
    return values


def _pairs(given: Sequence[str], option: str, example: str) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in given]
    for key, sign, value in pairs:
        if not (key and sign and value):
            raise ConfigError(f"{option} takes NAME=VALUE, as {option} {example}")
    keys = [key for key, _, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ConfigError(f"{option} gives the same name twice")
    return [(key, value) for key, _, value in pairs]


def _threshold(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
