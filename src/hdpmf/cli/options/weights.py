"""Options for privacy weights: uniform, the paper's groups, or a file."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from hdpmf.cli.options.common import privacy_option
from hdpmf.cli.options.ratings import RatingsOptions, parse_pairs
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings
    from hdpmf.common.privacy import PrivacySpec, PrivacyWeights

_KINDS = ("paper", "uniform")


@dataclass(frozen=True)
class SpecOptions:
    """The paper's Table II, or changes to it."""

    spec: Annotated[
        list[str] | None,
        privacy_option(
            "Change the paper's Table II by its names (f_uc, f_um, f_ic, f_im, epsilon_uc, "
            "...); repeatable.",
            "KEY=VALUE",
        ),
    ] = None

    @property
    def changes(self) -> dict[str, float]:
        """The differences from Table II."""
        from hdpmf.common.privacy import PrivacySpec

        known = tuple(inspect.signature(PrivacySpec.paper).parameters)
        values = {}
        for key, text in parse_pairs(self.spec or (), "--spec", "f_uc=0.3"):
            if key not in known:
                raise ConfigError(
                    f"--spec has no {key!r}; the paper's names are {', '.join(known)}"
                )
            try:
                values[key] = float(text)
            except ValueError:
                raise ConfigError(f"--spec {key} must be a number, not {text!r}") from None
        return values

    def specification(self) -> PrivacySpec:
        """Return the specification that weights are drawn by."""
        from hdpmf.common.privacy import PrivacySpec

        return PrivacySpec.paper(**self.changes)


@dataclass(frozen=True)
class ExampleOptions(SpecOptions):
    """Weights of imagined people: the paper's groups, or everybody at 1."""

    weights: Annotated[
        str,
        privacy_option(
            "Privacy weights: the paper's groups, or uniform: everybody at 1, which allows "
            "all of epsilon.",
            "paper|uniform",
            words=_KINDS,
        ),
    ] = "paper"

    def __post_init__(self) -> None:
        if self.weights not in _KINDS:
            raise ConfigError(f"--weights takes paper or uniform here, not {self.weights!r}")
        if self.uniform and self.spec:
            raise ConfigError("--weights uniform leaves nothing to specify; drop it, or --spec")

    @property
    def uniform(self) -> bool:
        """True if everybody is at 1."""
        return self.weights == "uniform"


@dataclass(frozen=True)
class WeightOptions(SpecOptions):
    """The privacy weights of the people in one data set."""

    without: ClassVar[tuple[str, ...]] = ()

    weights: Annotated[
        list[str] | None,
        privacy_option(
            "Privacy weights: uniform (everybody at 1), paper (its random groups), or a file "
            "with a column weight beside user, item or both; a file per user and one per item go "
            "together.",
            "uniform|paper|FILE",
            default="uniform for --train, paper for --data",
            words=_KINDS,
        ),
    ] = None
    missing_weight: Annotated[
        float | None,
        privacy_option("Weight of everybody whom the file of --weights does not name.", "W"),
    ] = None
    weights_seed: Annotated[
        int | None,
        privacy_option("Draw the paper's groups by another seed.", "SEED", default="--seed", min=0),
    ] = None

    def __post_init__(self) -> None:
        words = set(self.weights or ()) & set(_KINDS)
        if words and len(self.weights or ()) > 1:
            raise ConfigError("--weights takes uniform, paper, or files: one of these three")
        if self._about_groups and self.weights not in (None, ["paper"]):
            raise ConfigError(
                "--spec and --weights-seed are about --weights paper; drop them, or the other "
                "--weights"
            )
        if self.missing_weight is not None and (self.weights is None or words):
            raise ConfigError(
                "--missing-weight is for those whom a file of --weights does not name"
            )

    @property
    def _about_groups(self) -> bool:
        return bool(self.spec) or self.weights_seed is not None

    def kind(self, source: RatingsOptions) -> str:
        """Return ``uniform``, ``paper`` or ``file``.

        No weights are invented for the user's own data, unless the options ask for that.
        """
        if self.weights is not None:
            return self.weights[0] if self.weights[0] in _KINDS else "file"
        return "paper" if self._about_groups or source.data is not None else "uniform"

    def sentence(self, seed: int, source: RatingsOptions) -> str:
        """Return a description of the weights."""
        kind = self.kind(source)
        chosen = self.weights is not None
        if kind == "file":
            missing = self.missing_weight
            others = "" if missing is None else f", everybody else at {missing:g}"
            return f"Privacy weights: from {' and '.join(self.weights or ())}{others}."
        if kind == "uniform":
            hint = (
                " Wishes of your users: --weights FILE; the paper's random ones: --weights paper."
            )
            words = "everybody at 1, which allows all of epsilon"
        else:
            hint = " Everybody at 1: --weights uniform."
            words = (
                f"the paper's random groups, drawn by seed {self._seed(seed)}; nobody's own wishes"
            )
        return f"Privacy weights: {words}.{'' if chosen else hint}"

    def fields(self, seed: int, source: RatingsOptions) -> dict[str, Any]:
        """Return a description of the weights for JSON."""
        kind = self.kind(source)
        return {
            "weights": kind,
            "weights_files": list(self.weights or ()) if kind == "file" else [],
            "weights_seed": self._seed(seed) if kind == "paper" else None,
            "spec": self.changes,
        }

    def draw(self, ratings: Ratings, seed: int, source: RatingsOptions) -> PrivacyWeights:
        """Return the weights of ratings from this source."""
        from hdpmf.common.privacy import PrivacyWeights

        match self.kind(source):
            case "uniform":
                return PrivacyWeights.uniform(ratings)
            case "paper":
                return self.specification().draw(ratings, self._seed(seed))
            case _:
                files = self.weights or ()
                return PrivacyWeights.from_frame(ratings, *files, missing=self.missing_weight)

    def _seed(self, seed: int) -> int:
        return seed if self.weights_seed is None else self.weights_seed


class TuneWeightOptions(WeightOptions):
    """The same for ``tune``, whose seed draws the groups."""

    without = ("weights_seed",)
