"""The messages: frozen, versioned, checked when they are made, whoever made them."""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import numpy as np

from hdpmf.errors import ProtocolError

PROTOCOL_VERSION = 1

MAX_ITEMS = 1 << 24

MAX_FACTORS = 1024
"""Columns of anything that devices fit vectors to: fitting takes the square of it."""

MAX_LEVELS = 10_000
"""Steps of a rating scale."""


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True, kw_only=True):
    """Common manners: unknown fields are refused, and so is another version of the protocol."""

    version: int = PROTOCOL_VERSION

    def __post_init__(self) -> None:
        if self.version != PROTOCOL_VERSION:
            raise ProtocolError(
                f"{type(self).__name__} speaks protocol version {self.version}, this side speaks "
                f"{PROTOCOL_VERSION}; bring both sides to the same release of hdpmf"
            )
        self._check()

    def _check(self) -> None:
        """Raise ProtocolError where a field cannot be right."""

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            raise ProtocolError(f"{type(self).__name__} refused: {what}")


class Plan(_Message, frozen=True):
    """Recommender to clients, first: the public settings of the training.

    Attributes:
        n_factors: K.
        epochs: T, the number of rounds.
        learning_rate: Initial rate of the schedule.
        mechanism: A client that runs another one refuses.
        epsilon: The largest budget of a rating.
        scale_steps: Divide a step by the square root of the number of ratings behind it (or, as
            printed in the paper, not).
        fresh_noise: Draw noise anew in every round (or once for all rounds).
    """

    n_items: int
    n_factors: int
    epochs: int
    learning_rate: float
    reg: float
    mechanism: Literal["none", "uniform", "sample", "stretch", "weight", "paid"]
    epsilon: float
    scale_low: float
    scale_high: float
    scale_steps: bool
    fresh_noise: bool

    def _check(self) -> None:
        for name, most in (
            ("n_items", MAX_ITEMS),
            ("n_factors", MAX_FACTORS),
            ("epochs", 1_000_000),
        ):
            self._require(1 <= getattr(self, name) <= most, f"{name} must be from 1 to {most}")
        for name in ("learning_rate", "epsilon"):
            self._require(_positive(getattr(self, name)), f"{name} must be a positive number")
        self._require(math.isfinite(self.reg) and self.reg >= 0, "reg must be 0 or more")
        check_scale(self, self.scale_low, self.scale_high)


class BudgetReport(_Message, frozen=True):
    """Client to recommender, only for mechanisms that need it: a summary of its ratings' budgets.

    It reveals what it says. HDPMF does without.
    """

    count: int
    total: float
    smallest: float
    largest: float

    def _check(self) -> None:
        self._require(self.count >= 0, "count must be 0 or more")
        self._require(math.isfinite(self.total) and self.total >= 0, "total must be 0 or more")
        self._require(
            self.count == 0 or _positive(self.smallest), "smallest must be a positive number"
        )
        self._require(
            self.count == 0 or _positive(self.largest), "largest must be a positive number"
        )


class Opening(_Message, frozen=True):
    """Recommender to clients: the budget that sets the noise (None: no noise)."""

    noise_budget: float | None

    def _check(self) -> None:
        self._require(
            self.noise_budget is None or _positive(self.noise_budget),
            "noise_budget must be positive",
        )


class ItemCounts(_Message, frozen=True):
    """Client to recommender, in plain sight: how many of its ratings take part, per item."""

    counts: np.ndarray

    def _check(self) -> None:
        check_vectors(self, "counts")
        self._require(bool((self.counts >= 0).all()), "counts must be 0 or more")


class Round(_Message, frozen=True):
    """Recommender to clients: the item factors, and its half of the noise.

    Attributes:
        number: From 1; the last, T + 1, only brings the final factors.
        item_factors: V, one row per item.
        raters: Ratings that take part, per item, over all clients.
        h: Exp(1) draws for the noise, none below 2^-23, one row per item or one for all; None
            without noise.
    """

    number: int
    item_factors: np.ndarray
    raters: np.ndarray
    h: np.ndarray | None

    def _check(self) -> None:
        self._require(self.number >= 1, "rounds are numbered from 1")
        _check_matrix(self, "item_factors", self.item_factors)
        n_items, n_factors = self.item_factors.shape
        self._require(
            self.raters.dtype == np.int64 and self.raters.shape == (n_items,),
            "raters must be int64 per item",
        )
        self._require(bool((self.raters >= 0).all()), "raters must be 0 or more")
        if self.h is not None:
            _check_matrix(self, "h", self.h)
            self._require(
                self.h.shape in ((n_items, n_factors), (1, n_factors)),
                "h must have a row per item or one",
            )
            self._require(bool((self.h >= 0).all()), "h must be 0 or more")


class Gradients(_Message, frozen=True):
    """Client to recommender: per item, the sum of its raters' gradients, each with its noise."""

    number: int
    sums: np.ndarray

    def _check(self) -> None:
        self._require(self.number >= 1, "rounds are numbered from 1")
        _check_matrix(self, "sums", self.sums)


Message = Plan | BudgetReport | Opening | ItemCounts | Round | Gradients


def _positive(number: float) -> bool:
    return math.isfinite(number) and number > 0


def _check_matrix(message: _Message, name: str, matrix: np.ndarray) -> None:
    message._require(
        matrix.ndim == 2 and matrix.dtype == np.float32, f"{name} must be a matrix of float32"
    )
    # A sum is finite only if every entry is; where it overflows, no honest message was added up.
    with np.errstate(over="ignore", invalid="ignore"):
        finite = bool(np.isfinite(matrix.sum()))
    message._require(finite, f"{name} must be finite")


def check_vectors(message: _Message, *names: str) -> None:
    """These fields must be vectors of int64."""
    for name in names:
        array = getattr(message, name)
        message._require(
            array.ndim == 1 and array.dtype == np.int64, f"{name} must be a vector of int64"
        )


def check_scale(message: _Message, low: float, high: float, step: float | None = None) -> None:
    """These must be a rating scale."""
    message._require(
        math.isfinite(low) and math.isfinite(high) and low < high,
        "the rating scale must have low < high",
    )
    message._require(
        step is None or (_positive(step) and step <= high - low), "the scale's step must fit it"
    )
    message._require(
        step is None or (high - low) / step <= MAX_LEVELS, f"a scale has at most {MAX_LEVELS} steps"
    )


GRADIENT_STEP = 2.0**-20
"""Value of 1 in a sum of gradients."""

_LARGEST = 2.0**41


def to_grid(gradients: np.ndarray) -> np.ndarray:
    """Return gradients in whole units of ``GRADIENT_STEP``, clipped at 2^41; NaN becomes 0.

    Nothing is refused here: whoever chose the factors would learn which gradients are large.
    """
    finite = np.nan_to_num(gradients.astype(np.float64), nan=0.0).clip(-_LARGEST, _LARGEST)
    return np.rint(finite * (1.0 / GRADIENT_STEP)).astype(np.int64)


def from_grid(units: np.ndarray) -> np.ndarray:
    """Return whole units of ``GRADIENT_STEP`` as float32."""
    return (units * GRADIENT_STEP).astype(np.float32)


def learning_rate_at(initial: float, epoch: int, epochs: int) -> float:
    """Return the rate of ``epoch`` (from 1): a fifth after 1/4 of them, 1/25 after 3/4."""
    if epoch <= 0.25 * epochs:
        return initial
    return initial / 5 if epoch <= 0.75 * epochs else initial / 25
