"""The append-only ledger of what was sent and paid, written before anything is sent.

Entries keep the order in which they were written, whatever the clock says. A rating is known by a
tag of its item, so that what it has spent stays spent when its value changes, when it is
removed, and when it returns. What was spent on the same title under another name counts, too
(``shared_budget``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from hdpmf.common.protocol.servers import HTTPS, plain_address
from hdpmf.errors import PrivacyError
from hdpmf.private.device.disclosures.journal import (
    Entry,
    Journal,
    packed_charges,
    tags_in,
    utc_now,
)
from hdpmf.private.device.disclosures.limits import PersonLimits, affordable, check_ratings
from hdpmf.private.device.disclosures.shared_budget import Subject, spent_elsewhere, subjects_of
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.encryption import StoreCipher
from hdpmf.private.device.store.ratings_table import SealedRatings

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings
    from hdpmf.common.privacy.weights import PrivacyWeights


@dataclass(frozen=True, slots=True, repr=False)
class Charge:
    """A run that ratings have paid for. PRIVATE.

    Attributes:
        sent: What was sent first.
        number: Of the entry with which they paid; values that are younger are not in what was sent.
        pairs: Tags of the ratings.
        paid: What each paid.
    """

    entry: Entry
    sent: Entry
    number: int
    pairs: Sequence[bytes]
    paid: np.ndarray


@dataclass(frozen=True, slots=True, repr=False)
class SpentRating:
    """All that one rating ever paid or holds, whether it is still here or not. PRIVATE.

    Attributes:
        pair: Its tag.
        subjects: The titles and rows of files that it was charged for.
        paid: For what has left.
        held: For runs from which nothing has left yet.
    """

    pair: bytes
    subjects: frozenset[Subject]
    paid: float
    held: float


class Ledger:
    """The ledger of one store.

    Attributes:
        limits: Of what all ratings of a person may spend.

    Args:
        rated: The ratings, for their weights.
        policy: What the device agrees to now.
    """

    def __init__(
        self,
        database: Database,
        cipher: StoreCipher,
        rated: SealedRatings,
        policy: Callable[[], Policy],
        clock: Callable[[], str] = utc_now,
    ) -> None:
        self._database = database
        self._cipher = cipher
        self._rated = rated
        self._policy = policy
        self._journal = Journal(database, cipher, clock)
        self.limits = PersonLimits(self._journal, self._pairs)

    def __repr__(self) -> str:
        return "Ledger(...)"

    def remaining(self, ratings: Ratings, weights: PrivacyWeights, policy: Policy) -> np.ndarray:
        """Return each rating's budget, W_ij epsilon, less what it has spent; may be negative."""
        return np.asarray(weights.for_ratings(ratings) * policy.own_epsilon - self.spent(ratings))

    def affords(
        self, ratings: Ratings, weights: PrivacyWeights, policy: Policy, epsilons: np.ndarray
    ) -> np.ndarray:
        """Return a mask of the ratings that can pay these epsilons.

        `charge` takes these, up to ``max_total``. A rating that a limit cut short or left out in a
        sum counts as if it had paid in full: otherwise hidden ratings would decide what
        others can afford later.
        """
        own = weights.for_ratings(ratings)
        return affordable(self.spent(ratings, own), epsilons, own, policy)

    def charge(
        self,
        entry: Entry,
        ratings: Ratings,
        chosen: np.ndarray,
        epsilons: np.ndarray,
        short: np.ndarray | None = None,
    ) -> None:
        """Charge ratings, all of them or none; it is on the disk when this returns.

        Send only after that.

        Args:
            ratings: The table that ``chosen`` are positions in.
            chosen: Which ratings pay.
            epsilons: What each pays; infinite where nothing is hidden (``status`` none), which
                takes a policy that allows it.
            short: Positions of those that a limit leaves out, or lets pay less than their price.
                They are written down once more, with nothing: whoever was left out has no other
                chance with this recommender, or a hidden rating more would decide who comes later.

        Raises:
            PrivacyError: A rating, or all ratings together, would spend more than the policy
                allows. Nothing is written then.
            StorageError: The disk refused. Nothing is written then.
        """
        positions, pays = np.asarray(chosen), np.asarray(epsilons, np.float64)
        if positions.ndim != 1 or positions.dtype.kind not in "iu" or positions.shape != pays.shape:
            raise PrivacyError("a charge needs positions of ratings and one epsilon for each")
        if len(np.unique(positions)) != len(positions) or not bool((pays > 0).all()):
            raise PrivacyError("a charge names each rating once, with an epsilon above 0")
        paying = ratings.take(positions)
        with self._database.transaction():
            policy = self._policy()
            check_ratings(self.spent(paying), pays, self._weights(_items(paying)), policy)
            self.limits.check(policy, pays.tolist())
            charges = self._charges(paying, pays).tobytes()
            if short is not None and len(short):
                charges += self._charges(ratings.take(short), np.zeros(len(short))).tobytes()
            self._journal.write(
                msgspec.structs.replace(entry, ratings=len(pays), paid=math.fsum(pays.tolist())),
                charges,
            )

    def note(self, entry: Entry, *, first: bool = False) -> None:
        """Record an event without cost; ``first`` turns what is held for the run into paid."""
        with self._database.transaction():
            self._journal.write(
                msgspec.structs.replace(entry, ratings=0, paid=0.0), b"" if first else None
            )

    def give_back(self, entry: Entry, part: float) -> None:
        """Write down that of what a run was to cost this part never left the device.

        Args:
            entry: Of the run, with the proof in words.
            part: Up to 1; all of it only where the ledger has nothing that was sent.

        Raises:
            PrivacyError: Something of the run was sent, and all is to be given back.
        """
        with self._database.transaction():
            if part >= 1 and any(
                past.run == entry.run and past.action == "sent" for past in self.entries()
            ):
                raise PrivacyError(
                    "numbers of this run were sent; what they cost is not given back"
                )
            returned = msgspec.structs.replace(
                entry, action="returned", ratings=0, paid=0.0, part=min(part, 1.0)
            )
            self._journal.write(returned, b"")

    def release_held(self, words: str, recommender: str | None = None) -> None:
        """Release what is held for runs that sent nothing, of one recommender or of all.

        The caller has ended these runs. ``words`` is the reason for the ledger.
        """
        with self._database.transaction():
            held: dict[str, Entry] = {}
            for entry in self.entries():
                if entry.action == "agreed" and recommender in (None, entry.recommender):
                    held.setdefault(entry.run, entry)
                elif entry.action in ("sent", "returned"):
                    held.pop(entry.run, None)
            for entry in held.values():
                self.give_back(msgspec.structs.replace(entry, words=words), 1.0)

    def entries(self) -> list[Entry]:
        """Everything, in the order in which it happened."""
        return self._journal.entries()

    def paid_in(self, run: str, ratings: Ratings) -> np.ndarray:
        """Return what each rating has paid in one run (hex); 0 for those without a part in it."""
        return self._look_up(ratings, self._journal.sums(lambda entry: entry.run == run))

    def has_answered(self, recommender: str, method: str, ratings: Ratings) -> np.ndarray:
        """Return a mask of the ratings that paid, or are held, for a method of a recommender.

        It does not matter in which form the method ran.
        """
        whom = _host(recommender)
        paid = self._journal.sums(
            lambda entry: entry.method == method and _host(entry.recommender) == whom
        )
        if not paid:
            return np.zeros(len(ratings), np.bool_)
        pairs = self._pairs(ratings)
        return np.fromiter((pair in paid for pair in pairs), np.bool_, len(pairs))

    def spent(self, ratings: Ratings, in_full: np.ndarray | None = None) -> np.ndarray:
        """Return what was spent on each rating under any name, including what is held.

        Args:
            in_full: Their weights, to count those that a limit cut short or left out in a secure
                sum as if they had paid in full.
        """
        if not self._journal.has_charges():
            return np.zeros(len(ratings))
        pairs = self._pairs(ratings)
        weights = {} if in_full is None else dict(zip(pairs, in_full.tolist(), strict=True))
        sums = self._journal.sums(in_full=weights)
        own = np.fromiter((sums.get(pair, 0.0) for pair in pairs), np.float64, len(pairs))
        if sums.keys() <= set(pairs):
            return own  # names of one catalogue only
        elsewhere = spent_elsewhere(
            ratings, pairs, self._subjects(ratings), self._charged_subjects(), sums, self.tag_of
        )
        return np.asarray(own + elsewhere)

    def spent_by_name(self, items: Iterable[str]) -> dict[str, float]:
        """Return what ratings have spent under their own names."""
        sums = self._journal.sums()
        return {item: sums.get(self.tag_of(item), 0.0) for item in items}

    def spent_total(self) -> float:
        """Return what all ratings have paid together.

        What is held for a run from which nothing has left is not paid.
        """
        return math.fsum(self._journal.sums(held=False).values())

    def charged(self) -> list[Charge]:
        """The runs that ratings have paid for, since something of them has left; in their order."""
        about = dict[str, Entry]()
        sent = dict[str, Entry]()
        first = dict[str, int]()
        for number, written, charges in self._journal.charged():
            if written.action != "returned":
                about.setdefault(written.run, written)
                if len(charges):
                    first.setdefault(written.run, number)
            elif written.part >= 1:  # what is paid for from here on was made anew
                about.pop(written.run, None)
                first.pop(written.run, None)
            if written.action == "sent":
                sent.setdefault(written.run, written)
        found = []
        for run, written in about.items():
            paid = self._journal.sums(lambda entry, run=run: entry.run == run, held=False)  # type: ignore[misc]
            # What costs nothing was left out by a limit.
            paid = {tag: epsilon for tag, epsilon in paid.items() if epsilon > 0}
            if paid:
                pays = np.array(list(paid.values()))
                found.append(Charge(written, sent.get(run, written), first[run], list(paid), pays))
        return found

    def every_charge(self) -> list[SpentRating]:
        """Return what each rating ever paid or holds, under its own name; removed ones, too."""
        paid, whole = self._journal.sums(held=False), self._journal.sums()
        subjects: dict[bytes, set[Subject]] = {}
        for pair, subject in self._charged_subjects():
            subjects.setdefault(pair, set()).add(subject)
        return [
            SpentRating(
                pair, frozenset(subjects[pair]), paid.get(pair, 0.0), spent - paid.get(pair, 0.0)
            )
            for pair, spent in whole.items()
            if spent > 0  # others were left out by a limit
        ]  # fmt: skip

    def tag_of(self, item: str) -> bytes:
        """Return a rating's tag, the same through changes, removal, return and new passphrases."""
        return self._cipher.lasting_tag(b"pair", item)

    def _charges(self, ratings: Ratings, pays: np.ndarray) -> np.ndarray:
        return packed_charges(self._pairs(ratings), pays, self._subjects(ratings))

    def _weights(self, items: list[str]) -> np.ndarray:
        """Return the weights that are in the store now, not those of the caller's table."""
        weights = self._rated.weights_of(items)
        if bool(np.isnan(weights).any()):
            raise PrivacyError(
                "a rating that is to pay is not in the store any more; nothing was charged"
            )
        return weights

    def _look_up(self, ratings: Ratings, sums: dict[bytes, float]) -> np.ndarray:
        if not sums:
            return np.zeros(len(ratings))
        pairs = self._pairs(ratings)
        return np.fromiter((sums.get(pair, 0.0) for pair in pairs), np.float64, len(pairs))

    def _pairs(self, ratings: Ratings) -> list[bytes]:
        return [self.tag_of(item) for item in _items(ratings)]

    def _subjects(self, ratings: Ratings) -> list[Subject]:
        sources = self._rated.sources()
        from_files = [sources.get(item, "") for item in _items(ratings)]
        return subjects_of(ratings, from_files, self._cipher.lasting_tag)

    def _charged_subjects(self) -> Iterator[tuple[bytes, Subject]]:
        """Return the rating and the subject of all charges, also of those that were given back."""
        for _, _, found in self._journal.charged():
            columns = (tags_in(found["pair"]), tags_in(found["title"]), found["year"].tolist())
            for pair, title, year, source in zip(*columns, tags_in(found["source"]), strict=True):
                yield pair, Subject(title, year, source)


def _host(recommender: str) -> str:
    """A recommender, however its address is written."""
    return plain_address(recommender).removeprefix(HTTPS)


def _items(ratings: Ratings) -> list[str]:
    return [str(item) for item in ratings.item_ids.tolist()]
