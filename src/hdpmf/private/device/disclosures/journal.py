"""The journal: what happened, line by line, sealed and append-only.

A line is an entry and, where ratings paid, were held or got something back, a charge for each of
them. Lines keep the order in which they were written, whatever the clock says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from hdpmf.common.methods import Status
from hdpmf.errors import StorageError
from hdpmf.private.device.disclosures.shared_budget import Subject
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.encryption import TAG_BYTES, StoreCipher
from hdpmf.private.device.store.tables import decoded

_TAG = f"V{TAG_BYTES}"
CHARGES = np.dtype(
    [
        ("pair", _TAG),
        ("epsilon", "<f8"),
        ("title", _TAG),
        ("year", "<i4"),
        ("source", _TAG),
    ]
)
"""A charge: which rating by tag, what it pays, and what the rating is about."""

_NOTHING = 1e-9
"""What is left of a charge that was given back, at most: a rounding error."""

Action = Literal["agreed", "sent", "refused", "received", "returned"]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened between this device and a recommender.

    Attributes:
        number: Which round of the run.
        epsilon: The largest budget of a rating that was asked for; infinite where nothing is
            hidden.
        status: What that number is worth.
        words: In plain English.
        factors: Length of the vectors, where there are any.
        at: When, by this device's clock (UTC, ISO 8601); filled in when it is written.
        paid: What they paid together. What was ``agreed`` is held for the run, and paid when
            numbers are ``sent``.
        part: Of ``returned``: how much of what the run was to cost never left, so that it is given
            back.
    """

    recommender: str
    run: str
    number: int
    method: str
    view: str
    epsilon: float
    status: Status
    action: Action
    words: str
    rounds: int = 1
    factors: int = 10
    at: str = ""
    ratings: int = 0
    paid: float = 0.0
    part: float = 0.0

    def __repr__(self) -> str:
        return f"Entry({self.action}, {self.method}, run {self.run[:8]}, number {self.number})"


def utc_now() -> str:
    """The time as the ledger writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Line(NamedTuple):
    """One line with its charges. PRIVATE."""

    number: int
    entry: Entry
    charges: np.ndarray


class Journal:
    """The lines of one store."""

    def __init__(
        self, database: Database, cipher: StoreCipher, clock: Callable[[], str] = utc_now
    ) -> None:
        self._database = database
        self._cipher = cipher
        self._clock = clock

    def __repr__(self) -> str:
        return "Journal(...)"

    def write(self, entry: Entry, charges: bytes | None) -> None:
        """Append a line, with charges or without (None)."""
        rows = self._database.execute("SELECT coalesce(max(number), 0) + 1 FROM ledger")
        number = int(rows[0][0])
        stamped = msgspec.structs.replace(entry, at=self._clock())
        sealed = self._cipher.seal(
            msgspec.msgpack.encode(stamped), entry_context(b"ledger", number)
        )
        paid = None
        if charges is not None:
            paid = self._cipher.seal(charges, entry_context(b"charges", number))
        self._database.execute("INSERT INTO ledger VALUES (?, ?, ?)", (number, sealed, paid))

    def entries(self) -> list[Entry]:
        """Everything, in the order in which it happened."""
        rows = self._database.execute("SELECT number, entry FROM ledger ORDER BY number")
        return [self._entry(number, sealed) for number, sealed in rows]

    def has_charges(self) -> bool:
        """Return True if anything was ever paid or held."""
        return bool(
            self._database.execute("SELECT 1 FROM ledger WHERE charges IS NOT NULL LIMIT 1")
        )

    def charged(self, wanted: Callable[[Entry], bool] = lambda entry: True) -> Iterator[Line]:
        """Lines with charges whose entry is wanted, in their order."""
        for number, entry, sealed in self._database.execute(
            "SELECT number, entry, charges FROM ledger WHERE charges IS NOT NULL ORDER BY number"
        ):
            written = self._entry(number, entry)
            if wanted(written):
                yield Line(number, written, self._charges(number, sealed))

    def sums(
        self,
        wanted: Callable[[Entry], bool] = lambda entry: True,
        *,
        held: bool = True,
        in_full: Mapping[bytes, float] | None = None,
    ) -> dict[bytes, float]:
        """Sum what was paid or is held, by ratings' tags. Read anew each time: never out of date.

        Args:
            wanted: Which entries count.
            held: Count what is held for runs from which nothing has left, too.
            in_full: Weights of ratings by tag: those of them that a limit cut short or left out in
                a sum count as if they had paid for all of their weight.
        """
        runs: dict[str, dict[bytes, float]] = {}
        prices: dict[str, dict[bytes, float]] = {}
        waiting: set[str] = set()
        for _, about, charges in self.charged(wanted):
            spent = runs.setdefault(about.run, {})
            if about.action == "returned":
                runs[about.run] = {
                    tag: paid * (1.0 - about.part) for tag, paid in spent.items() if about.part < 1
                }
                self._subtract(runs[about.run], charges)
                continue
            (waiting.add if about.action == "agreed" else waiting.discard)(about.run)
            pays = zip(tags_in(charges["pair"]), charges["epsilon"].tolist(), strict=True)
            for tag, epsilon in pays:
                spent[tag] = spent.get(tag, 0.0) + epsilon
                if epsilon == 0 and in_full:
                    price = in_full.get(tag, 0.0) * about.epsilon
                    prices.setdefault(about.run, {})[tag] = price
        total: dict[bytes, float] = {}
        for name, spent in runs.items():
            full = prices.get(name, {})
            for tag, paid in spent.items() if held or name not in waiting else ():
                total[tag] = total.get(tag, 0.0) + max(paid, full.get(tag, 0.0))
        return total

    @staticmethod
    def _subtract(spent: dict[bytes, float], charges: np.ndarray) -> None:
        """Take off what some ratings got back."""
        for tag, epsilon in zip(tags_in(charges["pair"]), charges["epsilon"].tolist(), strict=True):
            spent[tag] = spent.get(tag, 0.0) - epsilon
            if spent[tag] <= _NOTHING:
                del spent[tag]

    def _charges(self, number: int, sealed: bytes) -> np.ndarray:
        data = self._cipher.open(sealed, entry_context(b"charges", number))
        if len(data) % CHARGES.itemsize:
            raise StorageError("a ledger entry has the wrong length: the store is damaged")
        return np.frombuffer(data, CHARGES)

    def _entry(self, number: int, sealed: bytes) -> Entry:
        data = self._cipher.open(sealed, entry_context(b"ledger", number))
        return decoded(data, Entry, "ledger")


def _packed(tags: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(tags), _TAG)


def packed_charges(pairs: list[bytes], epsilons: np.ndarray, subjects: list[Subject]) -> np.ndarray:
    """Return charges: for each rating its tag, what it pays, and its subject."""
    charges = np.empty(len(epsilons), CHARGES)
    charges["pair"] = _packed(pairs)
    charges["epsilon"] = epsilons
    charges["title"] = _packed([subject.title for subject in subjects])
    charges["year"] = [subject.year for subject in subjects]
    charges["source"] = _packed([subject.source for subject in subjects])
    return charges


def tags_in(column: np.ndarray) -> list[bytes]:
    """Return the tags of a column of charges."""
    return [tag.tobytes() for tag in column]


def entry_context(kind: bytes, number: int) -> bytes:
    """Return the context that an entry (``ledger``) or its charges (``charges``) are sealed for."""
    return kind + number.to_bytes(8, "big")
