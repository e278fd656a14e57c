"""Options of methods: default, range and help, and one dataclass for each family.

Estimators inherit these dataclasses, the command line makes its options from them, and `check`
refuses values out of range.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any

from hdpmf.common.base.threads import MAX_THREADS
from hdpmf.errors import ConfigError, PrivacyError

_KEY = "hdpmf"

_FLAGS = {
    "epochs": "--epochs",
    "epsilon": "--epsilon",
    "rng": "--seed",
}
"""Parameters that the command line has a flag for; ``--set NAME=VALUE`` gives the others."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option: everything about it besides its value.

    Attributes:
        kind: The type of its values, as the command line reads it: int, float, str or bool.
        default: A method may have another one.
        least: The smallest number; ``above``: one that it must be larger than.
        optional: None is a value, too.
        error: The error that a wrong value is.
    """

    name: str
    kind: type
    default: Any
    help: str
    choices: Collection[str] = ()
    least: float | None = None
    above: float | None = None
    most: float | None = None
    optional: bool = False
    error: type[ConfigError | PrivacyError] = ConfigError

    @property
    def words(self) -> str:
        """The help, and the values that there are to choose from."""
        return f"{self.help} One of: {', '.join(self.choices)}." if self.choices else self.help

    @staticmethod
    def flag_of(name: str) -> str:
        """Return how the command line calls a parameter: a flag, or ``--set`` and its name."""
        return _FLAGS.get(name, f"--set {name}")

    @property
    def flag(self) -> str:
        """How the command line calls it."""
        return self.flag_of(self.name)

    def arguments(self, value: Any) -> list[str]:
        """Return the words of a command line that give it this value."""
        if self.name in _FLAGS:
            return [self.flag, str(value)]
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return ["--set", f"{self.name}={text}"]

    def check(self, value: Any, called: str | None = None) -> None:
        """Raise the option's error for an invalid value; ``called`` is the caller's name for it."""
        if (value is None and self.optional) or self._fits(value):
            return
        more = ""
        if self.name == "epsilon":
            more = "; a budget of 0 allows nothing to be sent (the user-mean method does without)"
        raise self.error(f"{called or self.name} must be {self._wanted()}, not {value!r}{more}")

    def _fits(self, value: Any) -> bool:
        if self.choices != ():
            return value in self.choices
        if self.kind is bool:
            return isinstance(value, bool)
        if self.kind in (int, float):
            number = isinstance(value, Integral if self.kind is int else Real) and not isinstance(
                value, bool
            )
            return number and math.isfinite(value) and self._in_range(value)
        return True  # texts, files and objects are judged by what reads them

    def _in_range(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
        )

    def _wanted(self) -> str:
        if self.choices != ():
            return f"one of {', '.join(self.choices)}"
        if self.kind is bool:
            return "True or False"
        if self.kind is int:
            return f"a whole number from {self.least or 0:g}" + (
                "" if self.most is None else f" to {self.most:g}"
            )
        most = "" if self.most is None else f" of at most {self.most:g}"
        return f"{'a' if self.above == 0 else '0 or a'} positive number{most}"


def option(default: Any, help: str, kind: type | None = None, **about: Any) -> Any:
    """Make a dataclass field that is an option; the arguments are those of `Option`."""
    about["kind"] = type(default) if kind is None else kind
    return field(default=default, metadata={_KEY: about | {"default": default, "help": help}})


@cache
def options_of(configuration: type, fixed: frozenset[str] = frozenset()) -> Mapping[str, Option]:
    """The options of a configuration, by name, in order, but for those that are fixed."""
    if not is_dataclass(configuration):
        return {}
    return {
        item.name: Option(name=item.name, **_about(item))
        for item in fields(configuration)
        if item.init and item.name not in fixed
    }


def _about(item: Field[Any]) -> dict[str, Any]:
    """Return the arguments of `option` for a field; a plain field has its default only."""
    if item.default is MISSING and _KEY not in item.metadata:
        raise ConfigError(f"the option {item.name!r} has no default; every option needs one")
    plain = {"kind": object, "default": item.default, "help": ""}
    if isinstance(item.default, (bool, int, float, str)):
        plain["kind"] = type(item.default)
    return {**plain, **item.metadata.get(_KEY, {})}


def check(configured: Any) -> None:
    """Raise if an option of a configured object (an estimator, say) is out of its range."""
    for name, known in options_of(configured.__class__).items():
        known.check(getattr(configured, name))


MAX_FACTORS = 512
"""Kernels are compiled for this length: for twice as many it takes minutes."""


def _epsilon() -> Any:
    help = "The largest budget of a rating; its own is its weight times this."
    more: dict[str, Any] = {"error": PrivacyError}
    return option(1.0, help, above=0, **more)


def _rng() -> Any:
    help = "Seed, or a numpy Generator; None for another result every time."
    return option(None, help, object)


def _factors(default: int) -> Any:
    more: dict[str, Any] = {"least": 1, "most": MAX_FACTORS}
    return option(default, "Length of the vectors.", **more)


@dataclass(eq=False, repr=False)
class Threads:
    """Options about computing a model; none of them changes what the method is."""

    _: KW_ONLY
    n_threads: int | None = option(
        None,
        "Threads; the result does not depend on it.",
        int,
        least=1,
        most=MAX_THREADS,
        optional=True,
    )
    rng: Any = _rng()


@dataclass(eq=False, repr=False)
class FactorizationOptions(Threads):
    """Training user vectors and item factors by gradients."""

    n_factors: int = _factors(10)
    learning_rate: float = option(0.01, "Initial learning rate.", above=0)
    reg: float = option(0.01, "Regularisation.", least=0)
    epochs: int = option(100, "Passes over the ratings.", least=1)
    _: KW_ONLY
    on: str = option(
        "cpu",
        "Where factors are trained; auto: on the GPU, if one can be used. There a seed "
        "gives other numbers.",
        choices=("cpu", "gpu", "auto"),
    )
    solver: str = option(
        "batch",
        "batch: Algorithm 1, what a federation can run; sequential: the published "
        "numbers' procedure.",
        choices=("batch", "sequential"),
    )
    scale_steps: bool = option(
        True, "batch: divide a step by the square root of the number of ratings behind it."
    )
    early_stopping: int | None = option(
        None,
        "End when validation has not improved for N epochs, and keep the best.",
        int,
        least=1,
        optional=True,
    )


@dataclass(eq=False, repr=False)
class PrivateFactorizationOptions(FactorizationOptions):
    """The same with noise."""

    epsilon: float = _epsilon()
    _: KW_ONLY
    h: str = option(
        "auto",
        "The recommender's draws: per item, or shared by all; auto: per item in batch, "
        "shared in sequential.",
        choices=("auto", "item", "shared"),
    )
    noise: str = option(
        "epoch",
        "Draw new noise in every epoch, or once.",
        choices=("epoch", "once"),
    )


@dataclass(eq=False, repr=False)
class SampledOptions(PrivateFactorizationOptions):
    """The same with ratings that are sampled."""

    _: KW_ONLY
    threshold: str | float = option(
        "mean",
        "The budget below which ratings are sampled: mean, min, max or a number.",
        object,
    )


@dataclass(eq=False, repr=False)
class HDPMFOptions(PrivateFactorizationOptions):
    """The same with a weight for every rating. The two options make the methods."""

    _: KW_ONLY
    mechanism: str = option(
        "stretch",
        "stretch (the paper), weight (weighted residuals) or paid (all rounds share the budget).",
        choices=("stretch", "weight", "paid"),
    )
    rescale: bool = option(
        True, "stretch: divide predictions by the weight; False is the paper's ablation."
    )


@dataclass(eq=False, repr=False)
class BiasedOptions:
    """Training vectors and biases on bare ratings; constants by validation (docs/designs.md)."""

    n_factors: int = _factors(50)
    learning_rate: float = option(0.01, "Learning rate.", above=0)
    reg: float = option(0.05, "Regularisation.", least=0)
    epochs: int = option(20, "Passes over the ratings.", least=1)
    _: KW_ONLY
    rng: Any = _rng()


@dataclass(eq=False, repr=False)
class DeviceOptions(Threads):
    """What devices fit their owners' vectors to, beside what was released."""

    _: KW_ONLY
    features: Any = option(
        "auto",
        "Public item features: auto (genres and years of the data set, where there are any), "
        "false, or a file.",
        object,
    )


@dataclass(eq=False, repr=False)
class OneRoundOptions(DeviceOptions):
    """One round of what is sent; everything else is fitted on the device."""

    epsilon: float = _epsilon()
    _: KW_ONLY
    max_ratings: int | None = option(
        None,
        "Send at most M ratings of a person, drawn on the device; into sums at most the weight of "
        "M ratings of weight 1. All are used there.",
        int,
        least=1,
        optional=True,
    )
    coding: str = option(
        "auto",
        "How ratings are coded before they are sent; auto: by epsilon.",
        choices=("auto", "soft", "threshold", "linear"),
    )


@dataclass(eq=False, repr=False)
class PairsOptions(DeviceOptions):
    """Sums of rows and of their pairs, within one budget for the whole person."""

    epsilon: float = option(
        8.0,
        "The budget of a person, for everything that is sent about them; delta goes with it.",
        above=0,
        error=PrivacyError,
    )
    delta: float = option(
        1e-5, "The delta of a person's budget.", above=0, most=0.1, error=PrivacyError
    )
    _: KW_ONLY
    heads: int | str = option(
        "auto", "How many of the most popular items have pairs; auto: by public numbers.", object
    )
    stars: bool = option(
        True, "Learn how items are rated, too; without it all of the budget is for lists."
    )
    cap: float | str = option(
        "auto",
        "The largest share of one rating in what is sent of a person; auto: 1/16; 1: no cap.",
        object,
    )


@dataclass(eq=False, repr=False)
class SumOptions(OneRoundOptions):
    """The same by sums."""


LIST_KINDS = ("ease", "ials", "bpr", "popular")
"""Kinds of models for lists, trained on who rated what."""


@dataclass(eq=False, repr=False)
class BitOptions(OneRoundOptions):
    """The same by one bit per rating."""

    _: KW_ONLY
    patterns: int | None = option(
        None,
        "How many factors of who rates what with whom to use; 0 for none. Otherwise the "
        "released bits choose between 8 and none.",
        int,
        least=0,
        most=100,
        optional=True,
    )
    list_model: str = option(
        "ease",
        "The model that orders lists, trained on who rated what; each device puts its own ratings "
        "in.",
        choices=LIST_KINDS,
    )


@dataclass(eq=False, repr=False)
class PopularityOptions:
    """Options of popularity, released once."""

    epsilon: float = _epsilon()
    _: KW_ONLY
    rng: Any = _rng()


@dataclass(eq=False, repr=False)
class ListOptions:
    """A model for lists alone."""

    _: KW_ONLY
    rng: Any = _rng()


@dataclass(eq=False, repr=False)
class NoOptions:
    """A method that leaves nothing to choose."""
