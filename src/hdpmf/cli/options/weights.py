"""Options for privacy weights: uniform, the paper's groups, or a file."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.options.common import completion, privacy_option
from hdpmf.cli.options.ratings import RatingsOptions, pairs
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings
    from hdpmf.common.privacy import PrivacySpec, PrivacyWeights


@dataclass(frozen=True)
class SpecOptions:
    """What people wish: the paper's Table II, or changes to it."""

    spec: Annotated[
        list[str] | None,
        privacy_option(
            "--spec",
            metavar="KEY=VALUE",
            help="Change the paper's Table II by its names (f_uc, f_um, f_ic, f_im, epsilon_uc, "
            "...); repeatable.",
        ),
    ] = None

    @property
    def changes(self) -> dict[str, float]:
        """What differs from Table II."""
        from hdpmf.common.privacy import PrivacySpec

        known = tuple(inspect.signature(PrivacySpec.paper).parameters)
        values = {}
        for key, text in pairs(self.spec or (), "--spec", "f_uc=0.3"):
            if key not in known:
                raise ConfigError(
                    f"--spec has no {key!r}; the paper's names are {', '.join(known)}"
                )
            try:
                values[key] = float(text)
            except ValueError:
                raise ConfigError(f"--spec {key} must be a number, not {text!r}") from None
        return values

    def wishes(self) -> PrivacySpec:
        """The specification."""
        from hdpmf.common.privacy import PrivacySpec

        return PrivacySpec.paper(**self.changes)


@dataclass(frozen=True)
class ExampleOptions(SpecOptions):
    """The wishes of people that there are not: the paper's groups, or everybody allows
    everything.
    """

    weights: Annotated[
        str,
        privacy_option(
            "--weights",
            metavar="paper|uniform",
            help="What people wish: the paper's groups, or uniform: everybody at 1, which "
            "allows all of epsilon.",
            autocompletion=completion(("paper", "uniform")),
        ),
    ] = "paper"

    def __post_init__(self) -> None:
        if self.weights not in ("paper", "uniform"):
            raise ConfigError(f"--weights takes paper or uniform here, not {self.weights!r}")
        if self.uniform and self.spec:
            raise ConfigError("--weights uniform leaves nothing to specify; drop it, or --spec")

    @property
    def uniform(self) -> bool:
        """Whether everybody is at 1."""
        return self.weights == "uniform"


@dataclass(frozen=True)
class WeightSourceOptions(SpecOptions):
    """The wishes of the people in one data set."""

    weights: Annotated[
        list[str] | None,
        privacy_option(
            "--weights",
            metavar="uniform|paper|FILE",
            help="Privacy weights: uniform (everybody at 1), paper (its random groups), or a "
            "file with a column weight "
            "beside user, item or both; a file per user and one per item go together.",
            show_default="uniform for --train, paper for --data",
            autocompletion=completion(("paper", "uniform")),
        ),
    ] = None
    missing_weight: Annotated[
        float | None,
        privacy_option(
            "--missing-weight",
            metavar="W",
            help="Weight of whoever the file of --weights does not name.",
        ),
    ] = None

    def __post_init__(self) -> None:
        words = set(self.weights or ()) & {"paper", "uniform"}
        if words and len(self.weights or ()) > 1:
            raise ConfigError("--weights takes uniform, paper, or files: one of these three")
        if (self.spec or self.drawn_by is not None) and self.weights not in (None, ["paper"]):
            raise ConfigError(
                "--spec and --weights-seed are about --weights paper; drop them, or the other "
                "--weights"
            )
        if self.missing_weight is not None and (self.weights is None or words):
            raise ConfigError(
                "--missing-weight is for those whom a file of --weights does not name"
            )

    def kind(self, source: RatingsOptions) -> str:
        """``uniform``, ``paper`` or ``file``: no wishes are invented for one's own data unless
        one asks for that.
        """
        if self.weights is not None:
            return self.weights[0] if self.weights[0] in ("paper", "uniform") else "file"
        asked = self.spec or self.drawn_by is not None
        return "paper" if asked or source.data is not None else "uniform"

    @property
    def drawn_by(self) -> int | None:
        """The seed of the paper's groups, where one was given."""
        return None

    def seed(self, seed: int) -> int:
        """The seed that weights are drawn by."""
        return seed if self.drawn_by is None else self.drawn_by

    def sentence(self, seed: int, source: RatingsOptions) -> str:
        """What the weights are, for people."""
        kind, chosen = self.kind(source), self.weights is not None
        if kind == "file":
            others = (
                ""
                if self.missing_weight is None
                else f", everybody else at {self.missing_weight:g}"
            )
            return f"Privacy weights: from {' and '.join(self.weights or ())}{others}."
        if kind == "uniform":
            hint = (
                ""
                if chosen
                else " Wishes of your users: --weights FILE; the paper's random ones: --weights "
                "paper."
            )
            return f"Privacy weights: everybody at 1, which allows all of epsilon.{hint}"
        hint = "" if chosen else " Everybody at 1: --weights uniform."
        return (
            f"Privacy weights: the paper's random groups, drawn by seed {self.seed(seed)}; "
            f"nobody's own wishes.{hint}"
        )

    def record(self, seed: int, source: RatingsOptions) -> dict[str, Any]:
        """For JSON."""
        kind = self.kind(source)
        return {
            "weights": kind,
            "weights_files": list(self.weights or ()) if kind == "file" else [],
            "weights_seed": self.seed(seed) if kind == "paper" else None,
            "spec": self.changes,
        }


@dataclass(frozen=True)
class WeightOptions(WeightSourceOptions):
    """The same, drawn here."""

    weights_seed: Annotated[
        int | None,
        privacy_option(
            "--weights-seed",
            metavar="SEED",
            min=0,
            help="Draw the paper's groups by another seed.",
            show_default="--seed",
        ),
    ] = None

    @property
    def drawn_by(self) -> int | None:
        """The seed of the paper's groups, where one was given."""
        return self.weights_seed

    def draw(self, ratings: Ratings, seed: int, source: RatingsOptions) -> PrivacyWeights:
        """The weights that the options describe, of ratings that came from there."""
        from hdpmf.common.privacy import PrivacyWeights

        match self.kind(source):
            case "uniform":
                return PrivacyWeights.uniform(ratings)
            case "paper":
                return self.wishes().draw(ratings, self.seed(seed))
            case _:
                return PrivacyWeights.from_frame(
                    ratings, *(self.weights or ()), missing=self.missing_weight
                )
