"""Options for ratings: a file or a data set, and its split into training and test ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from hdpmf.cli.options.common import (
    Columns,
    DatasetName,
    Duplicates,
    Scale,
    completion,
    data_option,
)
from hdpmf.errors import ConfigError, RatingsError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings, RatingScale
    from hdpmf.common.data.checks import Duplicates as Merging

_HOLD_OUT = 10
_MERGING = ("error", "last", "first", "mean", "max")
_SPLITS = ("hold-out", "last", "ratio", "time", "user-time")
"""The kinds of ``hdpmf.common.data.splits.cut`` (a test keeps them equal)."""


@dataclass(frozen=True)
class RatingsOptions:
    """Where ratings come from: a file, or a data set by name."""

    train: Annotated[
        Path | None,
        data_option(
            "--train", metavar="FILE", help="Training ratings: CSV, TSV, '::' or Parquet, also .gz."
        ),
    ] = None
    data: DatasetName = None
    scale: Scale = None
    column: Columns = None
    duplicates: Duplicates = None

    def __post_init__(self) -> None:
        if (self.train is None) == (self.data is None):
            raise ConfigError("say where the ratings are: either --train FILE or --data NAME")
        described = (self.scale, self.distance, self.duplicates) != (
            None,
            None,
            None,
        ) or self.column
        if self.data is not None and (described or self.choices):
            raise ConfigError(
                "--scale, --step, --column, --duplicates and --implicit describe files; a data "
                "set of --data knows its "
                "own"
            )
        if self.choices and (self.scale, self.distance) != (None, None):
            raise ConfigError(
                "implicit feedback has no rating scale; drop --scale and --step, or --implicit"
            )

    @property
    def distance(self) -> float | None:
        """Between neighbouring ratings, where it was given."""
        return None

    @property
    def choices(self) -> bool:
        """Whether the file has implicit feedback."""
        return False

    @property
    def least(self) -> int | None:
        """How many ratings each user and item must have."""
        return None

    @property
    def merging(self) -> Merging:
        """What becomes of several ratings of a pair."""
        if self.duplicates not in (None, *_MERGING):
            raise ConfigError(f"--duplicates takes {', '.join(_MERGING)}, not {self.duplicates!r}")
        return cast("Merging", self.duplicates or "error")

    @property
    def reading(self) -> dict[str, Any]:
        """How a file is read: arguments of `Ratings.read`."""
        return {
            "scale": None if self.choices else self.full_scale(),
            "columns": self.columns,
            "duplicates": self.merging,
            "implicit": self.choices,
        }

    @property
    def file(self) -> Path:
        """The file with the ratings."""
        if self.train is None:
            raise ConfigError("say where the ratings are: --train FILE")
        return self.train

    @property
    def columns(self) -> dict[str, str] | None:
        """What the file calls its columns."""
        return dict(pairs(self.column, "--column", "user=customer")) if self.column else None

    def load(self) -> Ratings:
        """All of them."""
        from hdpmf.common.data import Ratings, load_dataset

        ratings = (
            load_dataset(self.data)
            if self.data is not None
            else Ratings.read(self.file, **self.reading)
        )
        return ratings if self.least is None else ratings.k_core(self.least)

    def full_scale(self) -> RatingScale:
        """The scale with the distance between its values."""
        from hdpmf.common.data import RatingScale

        plain = RatingScale.of(self.scale)
        return RatingScale(plain.low, plain.high, self.distance)


@dataclass(frozen=True)
class SteppedRatingsOptions(RatingsOptions):
    """The same, with the distance between ratings of a file."""

    step: Annotated[
        float | None,
        data_option(
            "--step",
            metavar="STEP",
            help="Distance between neighbouring ratings of that scale (0.5 for half stars).",
            show_default="any number will do",
        ),
    ] = None
    core: Annotated[
        int | None,
        data_option(
            "--core",
            metavar="K",
            min=1,
            help="Keep only users and items that have K ratings or more of what is kept.",
        ),
    ] = None

    @property
    def distance(self) -> float | None:
        """Between neighbouring ratings, where it was given."""
        return self.step

    @property
    def least(self) -> int | None:
        """How many ratings each user and item must have."""
        return self.core


@dataclass(frozen=True)
class FeedbackOptions(SteppedRatingsOptions):
    """The same, or implicit feedback, for commands that have something to do with it."""

    implicit: Annotated[
        bool,
        data_option(
            "--implicit", help="The file says who chose what (clicks, purchases), and no ratings."
        ),
    ] = False

    @property
    def choices(self) -> bool:
        """Whether the file has implicit feedback."""
        return self.implicit


@dataclass(frozen=True)
class SplitOptions:
    """Training and test ratings: a second file, a ready-made split, or ratings held out, at
    random or by time.
    """

    test: Annotated[
        Path | None, data_option("--test", metavar="FILE", help="Test ratings, in the same form.")
    ] = None
    hold_out: Annotated[
        int | None,
        data_option(
            "--hold-out",
            metavar="N",
            help="Test on N ratings of each user, chosen by the seed.",
            show_default="10",
        ),
    ] = None
    ready_split: Annotated[
        bool,
        data_option(
            "--ready-split",
            help="Use the split that the data set comes with (ml-100k: ua.base, ua.test).",
        ),
    ] = False

    how: Annotated[
        str | None,
        data_option(
            "--split",
            metavar="KIND[:N]",
            help="Test on: hold-out:N of each user's ratings, at random; last:N of each user's, "
            "by time; ratio:F of "
            "all ratings, at random; time:F, the last of all; user-time:F, the last of "
            "each user's.",
            autocompletion=completion(_SPLITS),
        ),
    ] = None

    def split(self, source: RatingsOptions, seed: int) -> tuple[Ratings, Ratings]:
        """The ratings to learn from, and those to test on."""
        from hdpmf.common.data import load_split, read_split

        if (self.test is not None) + self.ready_split + (self.hold_out is not None) + (
            self.how is not None
        ) > 1:
            raise ConfigError(
                "choose one of --test FILE, --hold-out N, --split KIND and --ready-split"
            )
        if source.least is not None and (self.test is not None or self.ready_split):
            raise ConfigError(
                "--core is about one table of ratings; it does not go with --test and --ready-split"
            )
        if self.test is not None:
            if source.train is None:
                raise ConfigError(
                    "--test belongs to --train FILE; with --data use --hold-out, --split or "
                    "--ready-split"
                )
            train, held = read_split(source.train, self.test, **source.reading)
        elif self.ready_split:
            if source.data is None:
                raise ConfigError("--ready-split needs --data NAME; for files give --test FILE")
            train, held = load_split(source.data)
        elif self.how is not None:
            train, held = _cut(source.load(), self.how, seed)
        elif source.train is not None and self.hold_out is None:
            raise ConfigError(
                "give --test FILE beside --train, or hold ratings out with --hold-out N or "
                "--split KIND"
            )
        else:
            train, held = source.load().hold_out(
                _HOLD_OUT if self.hold_out is None else self.hold_out, rng=seed
            )
        if len(held) == 0:
            raise RatingsError(
                "there is nothing to test on: no user has a second rating that could be held out"
            )
        return train, held


def _cut(ratings: Ratings, how: str, seed: int) -> tuple[Ratings, Ratings]:
    """What ``--split`` asks for."""
    from hdpmf.common.data.splits import cut

    kind, _, text = how.partition(":")
    if kind not in _SPLITS:
        raise ConfigError(
            f"--split takes {', '.join(_SPLITS)}, with a number as in last:1 or time:0.2, "
            f"not {how!r}"
        )
    counted = kind in ("hold-out", "last")
    try:
        number = None if not text else int(text) if counted else float(text)
    except ValueError:
        wanted = f"a whole number, as {kind}:10" if counted else f"a fraction, as {kind}:0.2"
        raise ConfigError(f"--split {kind} takes {wanted}, not {text!r}") from None
    return cut(ratings, kind, number, seed)


def pairs(given: Sequence[str], option: str, example: str) -> list[tuple[str, str]]:
    """What a repeatable NAME=VALUE option says."""
    parts = [text.partition("=") for text in given]
    for key, sign, value in parts:
        if not (key and sign and value):
            raise ConfigError(f"{option} takes NAME=VALUE, as {option} {example}")
    keys = [key for key, _, _ in parts]
    if len(set(keys)) < len(keys):
        raise ConfigError(f"{option} gives the same name twice")
    return [(key, value) for key, _, value in parts]
