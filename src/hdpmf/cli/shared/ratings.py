"""From options to ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hdpmf.cli.shared.options import Columns, DatasetName, Scale, data_option
from hdpmf.errors import ConfigError, RatingsError

if TYPE_CHECKING:
    from hdpmf.ratings import Ratings, RatingScale

_HOLD_OUT = 10


@dataclass(frozen=True)
class RatingsOptions:
    """Where ratings come from: a file, or a data set by name."""

    train: Annotated[
        Path | None,
        data_option("--train", metavar="FILE", help="Training ratings: CSV, TSV, '::' or Parquet, also .gz."),
    ] = None
    data: DatasetName = None
    scale: Scale = None
    column: Columns = None

    def __post_init__(self) -> None:
        if (self.train is None) == (self.data is None):
            raise ConfigError("say where the ratings are: either --train FILE or --data NAME")
        if self.data is not None and (self.scale is not None or self.column or self.distance is not None):
            raise ConfigError("--scale, --step and --column describe files; a data set of --data knows its own")

    @property
    def distance(self) -> float | None:
        """Between neighbouring ratings, where it was given."""
        return None

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
        from hdpmf.ratings import Ratings, load_dataset

        if self.data is not None:
            return load_dataset(self.data)
        return Ratings.read(self.file, scale=self.full_scale(), columns=self.columns)

    def full_scale(self) -> RatingScale:
        """The scale with the distance between its values."""
        from hdpmf.ratings import RatingScale

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

    @property
    def distance(self) -> float | None:
        """Between neighbouring ratings, where it was given."""
        return self.step


@dataclass(frozen=True)
class SplitOptions:
    """Training and test ratings, in one of three ways: a second file, a ready-made split, or ratings held out."""

    test: Annotated[Path | None, data_option("--test", metavar="FILE", help="Test ratings, in the same form.")] = None
    hold_out: Annotated[
        int | None,
        data_option(
            "--hold-out", metavar="N", help="Test on N ratings of each user, chosen by the seed.", show_default="10"
        ),
    ] = None
    ready_split: Annotated[
        bool,
        data_option("--ready-split", help="Use the split that the data set comes with (ml-100k: ua.base, ua.test)."),
    ] = False

    def split(self, source: RatingsOptions, seed: int) -> tuple[Ratings, Ratings]:
        """The ratings to learn from, and those to test on."""
        from hdpmf.ratings import load_split, read_split

        if (self.test is not None) + self.ready_split + (self.hold_out is not None) > 1:
            raise ConfigError("choose one of --test FILE, --hold-out N and --ready-split")
        if self.test is not None:
            if source.train is None:
                raise ConfigError("--test belongs to --train FILE; with --data use --hold-out or --ready-split")
            train, held = read_split(source.train, self.test, scale=source.full_scale(), columns=source.columns)
        elif self.ready_split:
            if source.data is None:
                raise ConfigError("--ready-split needs --data NAME; for files give --test FILE")
            train, held = load_split(source.data)
        elif source.train is not None and self.hold_out is None:
            raise ConfigError("give --test FILE beside --train, or hold ratings out of it with --hold-out N")
        else:
            train, held = source.load().hold_out(_HOLD_OUT if self.hold_out is None else self.hold_out, rng=seed)
        if len(held) == 0:
            raise RatingsError("there is nothing to test on: no user has a second rating that could be held out")
        return train, held


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
