"""From options to privacy weights."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from hdpmf.cli.shared.options import privacy_option
from hdpmf.cli.shared.ratings import pairs
from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    from hdpmf.privacy import PrivacySpec, PrivacyWeights
    from hdpmf.ratings import Ratings


@dataclass(frozen=True)
class SpecOptions:
    """What people wish: the paper's Table II, or changes to it."""

    spec: Annotated[
        list[str] | None,
        privacy_option(
            "--spec",
            metavar="KEY=VALUE",
            help="Change the paper's Table II by its names (f_uc, f_um, f_ic, f_im, epsilon_uc, ...); repeatable.",
        ),
    ] = None

    @property
    def changes(self) -> dict[str, float]:
        """What differs from Table II."""
        from hdpmf.privacy import PrivacySpec

        known = tuple(inspect.signature(PrivacySpec.paper).parameters)
        values = {}
        for key, text in pairs(self.spec or (), "--spec", "f_uc=0.3"):
            if key not in known:
                raise ConfigError(f"--spec has no {key!r}; the paper's names are {', '.join(known)}")
            try:
                values[key] = float(text)
            except ValueError:
                raise ConfigError(f"--spec {key} must be a number, not {text!r}") from None
        return values

    def wishes(self) -> PrivacySpec:
        """The specification."""
        from hdpmf.privacy import PrivacySpec

        return PrivacySpec.paper(**self.changes)


@dataclass(frozen=True)
class UniformOptions(SpecOptions):
    """The same, or everybody allows everything."""

    uniform_weights: Annotated[
        bool, privacy_option("--uniform-weights", help="Every privacy weight is 1: everybody allows all of epsilon.")
    ] = False

    def __post_init__(self) -> None:
        if self.uniform_weights and self.spec:
            raise ConfigError("--uniform-weights leaves nothing to specify; drop it, or --spec")


@dataclass(frozen=True)
class WeightOptions(UniformOptions):
    """The weights of one data set."""

    weights_seed: Annotated[
        int | None,
        privacy_option(
            "--weights-seed", metavar="SEED", min=0, help="Draw the weights by another seed.", show_default="--seed"
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.uniform_weights and (self.spec or self.weights_seed is not None):
            raise ConfigError("--uniform-weights leaves nothing to draw; drop it, or --spec and --weights-seed")

    def draw(self, ratings: Ratings, seed: int) -> PrivacyWeights:
        """The weights that the options describe."""
        from hdpmf.privacy import PrivacyWeights

        if self.uniform_weights:
            return PrivacyWeights.uniform(ratings)
        return self.wishes().draw(ratings, self.seed(seed))

    def seed(self, seed: int) -> int:
        """The seed that weights are drawn by."""
        return seed if self.weights_seed is None else self.weights_seed

    def record(self, seed: int) -> dict[str, Any]:
        """For JSON."""
        return {
            "weights": "uniform" if self.uniform_weights else "drawn",
            "weights_seed": self.seed(seed),
            "spec": self.changes,
        }
