"""Options for ratings: a file or a data set, its split, and privacy weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from hdpmf.cli.options import (
    MERGING,
    Columns,
    DatasetName,
    Duplicates,
    Scale,
    data_option,
    parse_pairs,
    privacy_option,
)
from hdpmf.errors import ConfigError, RatingsError

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings, RatingScale
    from hdpmf.common.data.checks import Duplicates as Merging
    from hdpmf.common.privacy import PrivacyWeights


_HOLD_OUT = 10

_READY = "ready"

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
    implicit: Annotated[
        bool, data_option("The file says who chose what (clicks, purchases), without ratings.")
    ] = False

    def __post_init__(self) -> None:
        if (self.train is None) == (self.data is None):
            raise ConfigError("give the ratings: --train FILE or --data NAME")
        scaled = self.scale or self.step
        if self.data is not None and (scaled or self.duplicates or self.column or self.implicit):
            from hdpmf.common.data import dataset_info

            dataset_info(self.data)  # or it is a file
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
            "scale": self._full_scale() if self.scale or self.step else None,
            "columns": self.columns,
            "duplicates": self.merging,
            "implicit": self.implicit,
        }

    @property
    def columns(self) -> dict[str, str] | None:
        """The file's names for columns, by ours."""
        return dict(parse_pairs(self.column, "--column", "user=customer")) if self.column else None

    def load(self) -> Ratings:
        """Return all ratings."""
        from hdpmf.common.data import Ratings, load_dataset

        if self.data is not None:
            return load_dataset(self.data)
        if self.train is None:
            raise ConfigError("give the ratings: --train FILE")
        return Ratings.read(self.train, **self.reading)

    def _full_scale(self) -> RatingScale:
        from hdpmf.common.data import RatingScale

        plain = RatingScale.of(self.scale)
        return RatingScale(plain.low, plain.high, self.step)


class ExplicitRatingsOptions(RatingsOptions):
    """The source of ratings, for commands that cannot use implicit feedback."""

    without = ("implicit",)


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
    how: Annotated[
        str | None,
        data_option(
            "Test on: hold-out:N of each user's ratings, at random; last:N of each user's, by "
            "time; ratio:F of all ratings, at random; time:F, the last of all; user-time:F, the "
            "last of each user's; ready, the split that the data set comes with.",
            "KIND[:N]",
            "--split",
            words=(*SPLITS, _READY),
        ),
    ] = None

    @property
    def by_time(self) -> bool:
        """Tell whether the last ratings are tested on."""
        from hdpmf.common.data.splits import BY_TIME

        return self.how is not None and self.how.partition(":")[0] in BY_TIME

    def split(self, source: RatingsOptions, seed: int) -> tuple[Ratings, Ratings]:
        """Return the ratings to learn from, and those to test on."""
        chosen = (self.test, self.hold_out, self.how)
        if sum(choice is not None for choice in chosen) > 1:
            raise ConfigError("choose one of --test FILE, --hold-out N and --split KIND")
        train, held_out = self._parts(source, seed)
        if len(held_out) == 0:
            raise RatingsError(
                "there is nothing to test on: no user has a second rating that could be held out"
            )
        return train, held_out

    def _parts(self, source: RatingsOptions, seed: int) -> tuple[Ratings, Ratings]:
        from hdpmf.common.data import load_split, read_split

        if self.test is not None:
            if source.train is None:
                raise ConfigError(
                    "--test belongs to --train FILE; with --data use --hold-out or --split"
                )
            return read_split(source.train, self.test, **source.reading)
        if self.how == _READY:
            if source.data is None:
                raise ConfigError("--split ready needs --data NAME; for files give --test FILE")
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
            f"--split takes {_READY}, or {', '.join(SPLITS)} with a number as in last:1 or "
            f"time:0.2, not {how!r}"
        )
    counted = kind in ("hold-out", "last")
    try:
        number = None if not text else int(text) if counted else float(text)
    except ValueError:
        wanted = f"a whole number, as {kind}:10" if counted else f"a fraction, as {kind}:0.2"
        raise ConfigError(f"--split {kind} takes {wanted}, not {text!r}") from None
    return cut(ratings, kind, number, seed)


_KINDS = ("paper", "uniform")


@dataclass(frozen=True)
class WeightOptions:
    """The privacy weights of the people in one data set."""

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

    def __post_init__(self) -> None:
        words = set(self.weights or ()) & set(_KINDS)
        if words and len(self.weights or ()) > 1:
            raise ConfigError("--weights takes uniform, paper, or files: one of these three")

    def kind(self, source: RatingsOptions) -> str:
        """Return ``uniform``, ``paper`` or ``file``.

        No weights are invented for the user's own data, unless the options ask for that.
        """
        if self.weights is not None:
            return self.weights[0] if self.weights[0] in _KINDS else "file"
        return "uniform" if source.data is None else "paper"

    def sentence(self, seed: int, source: RatingsOptions) -> str:
        """Return a description of the weights."""
        kind = self.kind(source)
        if kind == "file":
            return f"Privacy weights: from {' and '.join(self.weights or ())}."
        if kind == "uniform":
            hint = (
                " Wishes of your users: --weights FILE; the paper's random ones: --weights paper."
            )
            words = "everybody at 1, which allows all of epsilon"
        else:
            hint = " Everybody at 1: --weights uniform."
            words = f"the paper's random groups, drawn by seed {seed}; nobody's own wishes"
        return f"Privacy weights: {words}.{hint if self.weights is None else ''}"

    def fields(self, seed: int, source: RatingsOptions) -> dict[str, Any]:
        """Return a description of the weights for JSON."""
        kind = self.kind(source)
        return {
            "weights": kind,
            "weights_files": list(self.weights or ()) if kind == "file" else [],
            "weights_seed": seed if kind == "paper" else None,
        }

    def draw(self, ratings: Ratings, seed: int, source: RatingsOptions) -> PrivacyWeights:
        """Return the weights of ratings from this source."""
        from hdpmf.common.privacy import PrivacySpec, PrivacyWeights

        match self.kind(source):
            case "uniform":
                return PrivacyWeights.uniform(ratings)
            case "paper":
                return PrivacySpec().draw(ratings, seed)
            case _:
                return PrivacyWeights.from_frame(ratings, *(self.weights or ()))
