"""The messages: frozen, versioned, checked when they are made, whoever made them.

Those of the paper's rounds are drawn in the package, and Flower carries them. Those of the
one-round designs (`Survey`, `SumContribution` or `BitContribution`, `ItemFacts`) stay in memory.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from hdpmf.common.data import RatingScale
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


def check_scale(
    require: Callable[[bool, str], None], low: float, high: float, step: float | None = None
) -> None:
    """These must be a rating scale."""
    require(
        math.isfinite(low) and math.isfinite(high) and low < high,
        "the rating scale must have low < high",
    )
    require(
        step is None or (_positive(step) and step <= high - low), "the scale's step must fit it"
    )
    require(
        step is None or (high - low) / step <= MAX_LEVELS, f"a scale has at most {MAX_LEVELS} steps"
    )


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
        check_scale(self._require, self.scale_low, self.scale_high)


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


@dataclass(frozen=True, slots=True)
class Survey:
    """What the devices of a one-round design are asked.

    Attributes:
        design: ``A`` (sums over users) or ``L`` (one bit per rating).
        coding: The public curve that ratings are coded by.
        epsilon: The largest budget of a rating.
        catalogue: Fingerprint of the item ids and their public features.
    """

    design: Literal["A", "L"]
    coding: Literal["soft", "threshold", "linear"]
    epsilon: float
    n_items: int
    catalogue: str
    scale_low: float
    scale_high: float
    scale_step: float | None

    @property
    def scale(self) -> RatingScale:
        """The public rating scale."""
        return RatingScale(self.scale_low, self.scale_high, self.scale_step)


@dataclass(frozen=True, slots=True)
class SumContribution:
    """Whole numbers summed over users, with noise: all that the recommender sees of them.

    Attributes:
        scores: Per item, the weighted coded ratings.
        weights: Per item, the weights.
        total: The weighted ratings of all items together.
    """

    scores: np.ndarray
    weights: np.ndarray
    total: int


class BitContribution(_Message, frozen=True):
    """Client to recommender: one randomised bit per rating. The recommender sees every one of them.

    Attributes:
        senders: The device of each bit, counted within the client; the recommender sees it anyway.
        items: Position of each rating's item.
        units: Its privacy weight in 64ths, from 1 to 64.
        plus: 1 or 0.
        ruler: 1 for a bit about the rating itself, 0 for one about the survey's coding of it.
    """

    senders: np.ndarray
    items: np.ndarray
    units: np.ndarray
    plus: np.ndarray
    ruler: np.ndarray

    def _check(self) -> None:
        check_vectors(self, "senders", "items", "units", "plus", "ruler")
        for name in ("senders", "units", "plus", "ruler"):
            self._require(
                len(getattr(self, name)) == len(self.items), f"{name} must be one per bit"
            )
        self._require(bool((self.items >= 0).all()), "items must be positions")
        self._require(bool((self.senders >= 0).all()), "senders must be positions")
        self._require(
            bool(((self.units >= 1) & (self.units <= 64)).all()), "units must be from 1 to 64"
        )
        for name in ("plus", "ruler"):
            flags = getattr(self, name)
            self._require(bool(((flags == 0) | (flags == 1)).all()), f"{name} must be 0 or 1")


MAX_SIMILAR_ITEMS = 4096
MAX_SIMILAR_BYTES = 1 << 20
"""Most bytes of the similarity on a device: 128 columns of so many items, in 16 bits."""


class Similarity(_Message, frozen=True):
    """A part of ItemFacts: similarity of items by their raters, as columns to fit vectors to.

    Attributes:
        items: Positions of the items that it is about, ascending.
        columns: A row for each of them, in 16 bits.
        rest: For each of them, the variance of a rating that the columns leave, in stars squared.
        pull: How far a vector is expected to be drawn to the mean row of what its user rated.
    """

    items: np.ndarray
    columns: np.ndarray
    rest: np.ndarray
    pull: float

    def _check(self) -> None:
        check_vectors(self, "items")
        n = len(self.items)
        self._require(
            n <= MAX_SIMILAR_ITEMS, f"it may be about {MAX_SIMILAR_ITEMS:,} items at most"
        )
        ascending = bool((self.items[1:] > self.items[:-1]).all()) and (
            n == 0 or self.items[0] >= 0
        )
        self._require(ascending, "items must be positions, ascending")
        self._require(
            self.columns.ndim == 2 and self.columns.dtype == np.float16 and len(self.columns) == n,
            "columns must be a matrix of float16 with a row per item",
        )
        self._require(
            self.columns.nbytes <= MAX_SIMILAR_BYTES,
            f"columns may take {MAX_SIMILAR_BYTES:,} bytes at most",
        )
        self._require(bool(np.isfinite(self.columns).all()), "columns must be finite")
        _check_matrix(self, "rest", self.rest[None])
        self._require(
            self.rest.shape == (n,) and bool((self.rest >= 0).all()),
            "rest must be 0 or more, one per item",
        )
        self._require(math.isfinite(self.pull), "pull must be finite")


class ItemFacts(_Message, frozen=True):
    """Recommender to clients: estimates from the sums, to which devices fit their own vectors.

    Ratings are counted in stars, whatever their scale: 1 for its lower end, 5 for its upper.

    Attributes:
        catalogue: The survey's fingerprint.
        bias: Per item, its mean rating less the mean.
        variance: Per item, of the bias.
        popularity: Per item, the estimated weights of its raters.
        similarity: Of items by their raters, where that is in plain sight.
        mean_variance: Of the mean.
        popularity_margin: Per item, how far noise may have raised its popularity: further for any
            item in one of twenty catalogues. None where popularity has no noise.
    """

    catalogue: str
    mean: float
    bias: np.ndarray
    variance: np.ndarray
    popularity: np.ndarray
    similarity: Similarity | None = None
    mean_variance: float = 0.0
    popularity_margin: np.ndarray | None = None

    def _check(self) -> None:
        self._require(math.isfinite(self.mean), "mean must be finite")
        self._require(0 <= self.mean_variance < math.inf, "a variance is finite and not below 0")
        for name in ("bias", "variance", "popularity", "popularity_margin"):
            array = getattr(self, name)
            if array is None:
                continue
            self._require(array.ndim == 1, f"{name} must be a vector")
            _check_matrix(self, name, array[None])
            self._require(len(array) == len(self.bias), f"{name} must be one per item")
        if self.similarity is not None and len(self.similarity.items):
            self._require(
                int(self.similarity.items[-1]) < len(self.bias), "similarity must be of these items"
            )
        self._require(bool((self.variance >= 0).all()), "variance must be 0 or more")
        self._require(bool((self.popularity >= 0).all()), "popularity must be 0 or more")


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


Message = Plan | BudgetReport | Opening | ItemCounts | Round | Gradients
"""Anything that either side says in the paper's rounds."""


def encode(message: Message) -> bytes:
    """Return a message as Flower carries it."""
    return _ENCODER.encode(message)


def decode(data: bytes) -> Message:
    """Return the message in ``data``; ProtocolError unless it is exactly one valid message."""
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        if isinstance(error.__cause__, ProtocolError):
            raise error.__cause__ from None
        raise ProtocolError(f"not a message of this protocol: {error}") from None
    except (UnicodeDecodeError, RecursionError) as error:  # their text quotes the sender's bytes
        raise ProtocolError(f"not a message of this protocol ({type(error).__name__})") from None


def _packed(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    return array.dtype.str, array.shape, array.tobytes()


def _unpacked(kind: type, value: Any) -> np.ndarray:
    dtype, shape, data = value
    return np.frombuffer(data, dtype).reshape(shape)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_packed)
_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message, dec_hook=_unpacked)
