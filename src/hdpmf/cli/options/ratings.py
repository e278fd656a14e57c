"""Options for ratings: a file or a data set, its split, and privacy weights."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from hdpmf.cli.options.common import (
    Columns,
    DatasetName,
    Duplicates,
    MissingValues,
    Scale,
    data_option,
    privacy_option,
)
from hdpmf.common.methods import METHODS
from hdpmf.errors import ConfigError, RatingsError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings, RatingScale
    from hdpmf.common.data.checks import Duplicates as Merging
    from hdpmf.common.privacy import PrivacySpec, PrivacyWeights
    from hdpmf.common.privacy.accounting.costs import Person
    from hdpmf.common.privacy.spec import Sharers


_HOLD_OUT = 10

MERGING = ("error", "last", "first", "last-row", "first-row", "mean", "max")

SPLITS = ("hold-out", "last", "ratio", "time", "user-time")
"""The kinds of ``hdpmf.common.data.splits.cut`` (a test keeps them equal)."""


@dataclass(frozen=True)
class RatingsOptions:
    """The source of ratings or implicit feedback: a file, or a data set by name."""

    without: ClassVar[tuple[str, ...]] = ()

    train: Annotated[
        Path | None, data_option("Training ratings: CSV, TSV, '::' or Parquet, also .gz.", "FILE")
    ] = None
    data: DatasetName = None
    scale: Scale = None
    column: Columns = None
    duplicates: Duplicates = None
    step: Annotated[
        float | None,
        data_option(
            "Distance between neighbouring ratings of that scale (0.5 for half stars).",
            "STEP",
            default="any number will do",
        ),
    ] = None
    core: Annotated[
        int | None,
        data_option("Keep only users and items with at least K ratings, repeatedly.", "K", min=1),
    ] = None
    missing: MissingValues = "error"
    implicit: Annotated[
        bool, data_option("The file says who chose what (clicks, purchases), without ratings.")
    ] = False

    def __post_init__(self) -> None:
        if (self.train is None) == (self.data is None):
            raise ConfigError("give the ratings: --train FILE or --data NAME")
        scaled = (self.scale, self.step) != (None, None)
        described = self.duplicates or self.column or self.implicit or self.missing != "error"
        if self.data is not None and (scaled or described):
            raise ConfigError(
                "--scale, --step, --column, --duplicates, --missing and --implicit describe files; "
                "a data set of --data knows its own"
            )
        if self.implicit and scaled:
            raise ConfigError(
                "implicit feedback has no rating scale; drop --scale and --step, or --implicit"
            )

    @property
    def merging(self) -> Merging:
        """The treatment of several ratings of a pair."""
        if self.duplicates not in (None, *MERGING):
            raise ConfigError(f"--duplicates takes {', '.join(MERGING)}, not {self.duplicates!r}")
        return cast("Merging", self.duplicates or "error")

    @property
    def reading(self) -> dict[str, Any]:
        """Arguments of `Ratings.read`."""
        return {
            "scale": None if self.implicit else self._full_scale(),
            "columns": self.columns,
            "duplicates": self.merging,
            "missing": self.missing,
            "implicit": self.implicit,
        }

    @property
    def columns(self) -> dict[str, str] | None:
        """The file's names for columns, by ours."""
        return parse_columns(self.column)

    def load(self) -> Ratings:
        """Return all ratings."""
        from hdpmf.common.data import Ratings, load_dataset

        if self.data is not None:
            ratings = load_dataset(self.data)
        elif self.train is not None:
            ratings = Ratings.read(self.train, **self.reading)
        else:
            raise ConfigError("give the ratings: --train FILE")
        return ratings if self.core is None else ratings.k_core(self.core)

    def _full_scale(self) -> RatingScale:
        from hdpmf.common.data import RatingScale

        plain = RatingScale.of(self.scale)
        return RatingScale(plain.low, plain.high, self.step)


class ExplicitRatingsOptions(RatingsOptions):
    """The source of ratings, for commands that cannot use implicit feedback."""

    without = ("implicit",)


class PlainRatingsOptions(RatingsOptions):
    """The source of ratings, for commands that pass the file on."""

    without = ("implicit", "step", "core", "missing")


@dataclass(frozen=True)
class SplitOptions:
    """The split: a second file, a ready-made split, or ratings held out at random or by time."""

    test: Annotated[Path | None, data_option("Test ratings, in the same form.", "FILE")] = None
    hold_out: Annotated[
        int | None,
        data_option(
            "Test on N ratings of each user, chosen by the seed.", "N", default="10 with --data"
        ),
    ] = None
    ready_split: Annotated[
        bool, data_option("Use the split that the data set comes with (ml-100k: ua.base, ua.test).")
    ] = False
    how: Annotated[
        str | None,
        data_option(
            "Test on: hold-out:N of each user's ratings, at random; last:N of each user's, by "
            "time; ratio:F of all ratings, at random; time:F, the last of all; user-time:F, the "
            "last of each user's.",
            "KIND[:N]",
            "--split",
            words=SPLITS,
        ),
    ] = None

    @property
    def by_time(self) -> bool:
        """Tell whether the last ratings are tested on."""
        from hdpmf.common.data.splits import BY_TIME

        return self.how is not None and self.how.partition(":")[0] in BY_TIME

    def split(self, source: RatingsOptions, seed: int) -> tuple[Ratings, Ratings]:
        """Return the ratings to learn from, and those to test on."""
        chosen = (self.test, self.hold_out, self.how, self.ready_split or None)
        if sum(choice is not None for choice in chosen) > 1:
            raise ConfigError(
                "choose one of --test FILE, --hold-out N, --split KIND and --ready-split"
            )
        train, held_out = self._parts(source, seed)
        if len(held_out) == 0:
            raise RatingsError(
                "there is nothing to test on: no user has a second rating that could be held out"
            )
        return train, held_out

    def _parts(self, source: RatingsOptions, seed: int) -> tuple[Ratings, Ratings]:
        from hdpmf.common.data import load_split, read_split

        if source.core is not None and (self.test is not None or self.ready_split):
            raise ConfigError(
                "--core is about one table of ratings; it does not go with --test and --ready-split"
            )
        if self.test is not None:
            if source.train is None:
                raise ConfigError(
                    "--test belongs to --train FILE; with --data use --hold-out, --split or "
                    "--ready-split"
                )
            return read_split(source.train, self.test, **source.reading)
        if self.ready_split:
            if source.data is None:
                raise ConfigError("--ready-split needs --data NAME; for files give --test FILE")
            return load_split(source.data)
        if self.how is not None:
            return _split_by(source.load(), self.how, seed)
        if source.train is not None and self.hold_out is None:
            raise ConfigError(
                "give --test FILE beside --train, or hold ratings out with --hold-out N or "
                "--split KIND"
            )
        per_user = _HOLD_OUT if self.hold_out is None else self.hold_out
        return source.load().hold_out(per_user, rng=seed)


def _split_by(ratings: Ratings, how: str, seed: int) -> tuple[Ratings, Ratings]:
    from hdpmf.common.data.splits import cut

    kind, _, text = how.partition(":")
    if kind not in SPLITS:
        raise ConfigError(
            f"--split takes {', '.join(SPLITS)}, with a number as in last:1 or time:0.2, "
            f"not {how!r}"
        )
    counted = kind in ("hold-out", "last")
    try:
        number = None if not text else int(text) if counted else float(text)
    except ValueError:
        wanted = f"a whole number, as {kind}:10" if counted else f"a fraction, as {kind}:0.2"
        raise ConfigError(f"--split {kind} takes {wanted}, not {text!r}") from None
    return cut(ratings, kind, number, seed)


def parse_columns(given: Sequence[str] | None) -> dict[str, str] | None:
    """Return the names of columns that ``--column`` gives."""
    return dict(parse_pairs(given, "--column", "user=customer")) if given else None


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
    """Weights of imagined people: the paper's groups, everybody at 1, or those of a file."""

    weights: Annotated[
        str,
        privacy_option(
            "Privacy weights: the paper's groups, uniform (everybody at 1, which allows all of "
            "epsilon), or a file with a column weight beside user, item or both.",
            "paper|uniform|FILE",
            words=_KINDS,
        ),
    ] = "paper"

    def __post_init__(self) -> None:
        if self.weights not in _KINDS and not Path(self.weights).is_file():
            raise ConfigError(
                f"--weights takes paper, uniform or a file; there is no file {self.weights!r}"
            )
        if self.weights != "paper" and self.spec:
            raise ConfigError(
                f"--weights {self.weights} leaves nothing to specify; drop it, or --spec"
            )

    @property
    def uniform(self) -> bool:
        """True if everybody is at 1."""
        return self.weights == "uniform"

    def people(self) -> Sequence[Person]:
        """Return the strictest, the median and the most liberal user; one where all are alike."""
        from hdpmf.common.privacy.accounting.costs import Person, example_people, people_weighing
        from hdpmf.common.privacy.weight_tables import WeightTable

        if self.uniform:
            return [Person("every user", 1.0)]
        if self.weights == "paper":
            return example_people(self.specification())
        table = WeightTable.of(self.weights)
        return people_weighing(table.weights, table.per)


@dataclass(frozen=True)
class WeightOptions(SpecOptions):
    """The privacy weights of the people in one data set."""

    without: ClassVar[tuple[str, ...]] = ()

    weights: Annotated[
        list[str] | None,
        privacy_option(
            "Privacy weights: uniform (everybody at 1), paper (its random groups), or a file "
            "with a column weight beside user, item or both, and level if wished; a file per user "
            "and one per item go together.",
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
    share_levels: Annotated[
        str | None,
        privacy_option(
            "Who shares, for methods with levels: a part of all people, drawn at random, or a user "
            "group of --weights paper; what they rated is seen, or their ratings are open.",
            "SHARE|GROUP[:seen|:open]",
            default="nobody",
        ),
    ] = None

    def __post_init__(self) -> None:
        sharers = self.sharers
        if (
            sharers is not None
            and isinstance(sharers.who, str)
            and self.weights not in (None, ["paper"])
        ):
            raise ConfigError(
                f"{sharers.who} is a group of --weights paper; with other weights --share-levels "
                "takes a part of all people"
            )
        words = set(self.weights or ()) & set(_KINDS)
        if words and len(self.weights or ()) > 1:
            raise ConfigError("--weights takes uniform, paper, or files: one of these three")
        settled = bool(self.spec) or self.weights_seed is not None
        if settled and self.weights not in (None, ["paper"]):
            raise ConfigError(
                "--spec and --weights-seed are about --weights paper; drop them, or the other "
                "--weights"
            )
        if self.missing_weight is not None and (self.weights is None or words):
            raise ConfigError(
                "--missing-weight is for those whom a file of --weights does not name"
            )

    @property
    def sharers(self) -> Sharers | None:
        """The people who share."""
        from hdpmf.common.privacy.spec import Sharers

        text = self.share_levels
        return None if text is None else Sharers.parse(text, "--share-levels")

    @property
    def _about_groups(self) -> bool:
        sharers = self.sharers
        named = sharers is not None and isinstance(sharers.who, str)
        return bool(self.spec) or self.weights_seed is not None or named

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
            return (
                f"Privacy weights: from {' and '.join(self.weights or ())}{others}."
                f"{self._sharing()}"
            )
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
        return f"Privacy weights: {words}.{'' if chosen else hint}{self._sharing()}"

    def _sharing(self) -> str:
        sharers = self.sharers
        return "" if sharers is None else f" Levels: {sharers.in_words()}; the others hide all."

    def fields(self, seed: int, source: RatingsOptions) -> dict[str, Any]:
        """Return a description of the weights for JSON."""
        kind = self.kind(source)
        return {
            "weights": kind,
            "weights_files": list(self.weights or ()) if kind == "file" else [],
            "weights_seed": self._seed(seed) if kind == "paper" else None,
            "spec": self.changes,
            "share_levels": self.sharers and str(self.sharers),
        }

    def draw(
        self, ratings: Ratings, seed: int, source: RatingsOptions, method: str
    ) -> PrivacyWeights:
        """Return the weights of ratings from this source, for a method.

        Raises:
            ConfigError: There are levels, and the method knows none.
        """
        weights = self._drawn(ratings, seed, source)
        if weights.has_levels or self.sharers is not None:
            known = [name for name, each in METHODS.items() if each.levels]
            if method not in known:
                raise ConfigError(
                    f"{method} treats all ratings alike: it knows no levels. Drop --share-levels, "
                    f"or the column 'level' of --weights, or use {' or '.join(known)}"
                )
        return weights

    def _drawn(self, ratings: Ratings, seed: int, source: RatingsOptions) -> PrivacyWeights:
        from hdpmf.common.privacy import PrivacyWeights

        sharers = self.sharers
        match self.kind(source):
            case "uniform":
                weights = PrivacyWeights.uniform(ratings)
            case "paper":
                spec = self.specification()
                spec = spec if sharers is None else sharers.in_spec(spec)
                weights = spec.draw(ratings, self._seed(seed))
            case _:
                files = self.weights or ()
                weights = PrivacyWeights.from_frame(ratings, *files, missing=self.missing_weight)
        return weights if sharers is None else sharers.drawn(weights, self._seed(seed))

    def _seed(self, seed: int) -> int:
        return seed if self.weights_seed is None else self.weights_seed


class TuneWeightOptions(WeightOptions):
    """The same for ``tune``, whose seed draws the groups."""

    without = ("weights_seed", "share_levels")
