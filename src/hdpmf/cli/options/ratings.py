"""Options for ratings: a file or a data set, and its split into training and test ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from hdpmf.cli.options.common import Columns, DatasetName, Duplicates, Scale, data_option
from hdpmf.errors import ConfigError, RatingsError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings, RatingScale
    from hdpmf.common.data.checks import Duplicates as Merging

_HOLD_OUT = 10
MERGING = ("error", "last", "first", "mean", "max")
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
    implicit: Annotated[
        bool, data_option("The file says who chose what (clicks, purchases), without ratings.")
    ] = False

    def __post_init__(self) -> None:
        if (self.train is None) == (self.data is None):
            raise ConfigError("say where the ratings are: either --train FILE or --data NAME")
        scaled = (self.scale, self.step) != (None, None)
        if self.data is not None and (scaled or self.duplicates or self.column or self.implicit):
            raise ConfigError(
                "--scale, --step, --column, --duplicates and --implicit describe files; a data set "
                "of --data knows its own"
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
            raise ConfigError("say where the ratings are: --train FILE")
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

    without = ("implicit", "step", "core")


@dataclass(frozen=True)
class SplitOptions:
    """The split: a second file, a ready-made split, or ratings held out at random or by time."""

    test: Annotated[Path | None, data_option("Test ratings, in the same form.", "FILE")] = None
    hold_out: Annotated[
        int | None,
        data_option("Test on N ratings of each user, chosen by the seed.", "N", default="10"),
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
    """Split ratings as ``--split`` says."""
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
