"""The append-only ledger of what was sent and paid, written before anything is sent.

Entries keep the order in which they were written, whatever the clock says. A rating is known by a
tag of its user and item, so that what it has spent stays spent when its value changes, when it is
removed, and when it returns. What was spent on the same title under another name counts, too
(``shared_budget``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from hdpmf.common.methods import Status
from hdpmf.common.protocol.servers import HTTPS, plain_address
from hdpmf.errors import PrivacyError, StorageError
from hdpmf.private.device.disclosures.shared_budget import Subject, spent_elsewhere, subjects_of
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.database import Database
from hdpmf.private.device.store.encryption import TAG_BYTES, StoreCipher
from hdpmf.private.device.store.ratings_table import SealedRatings
from hdpmf.private.device.store.tables import decoded

if TYPE_CHECKING:
    from hdpmf.common.data import Ratings
    from hdpmf.common.privacy.weights import PrivacyWeights

SLACK = 1e-9
"""Rounding error that sums may have, as a part of the budget: ten times a tenth is affordable."""

_TAG = f"V{TAG_BYTES}"
_CHARGES = np.dtype(
    [
        ("user", _TAG),
        ("pair", _TAG),
        ("epsilon", "<f8"),
        ("title", _TAG),
        ("year", "<i4"),
        ("source", _TAG),
    ]
)

Action = Literal["agreed", "sent", "refused", "received", "returned"]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened between this device and a recommender.

    Attributes:
        number: Which round of the run.
        epsilon: The largest budget of a rating that was asked for; infinite where nothing is
            hidden.
        status: What that number is worth.
        action: What happened.
        words: In plain English.
        rounds: Rounds that were agreed to.
        factors: Length of the vectors, where there are any.
        labels: The run is by taste labels.
        at: When, by this device's clock (UTC, ISO 8601); filled in when it is written.
        ratings: How many ratings paid.
        paid: What they paid together. What was ``agreed`` is held for the run, and paid when
            numbers are ``sent``.
        part: Of ``returned``: how much of what the run was to cost never left, so that it is given
            back.
        seen: How many of these ratings show that they are there, and hide their values.
        opened: How many of them are published as they are. They pay nothing.
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
    labels: bool = False
    at: str = ""
    ratings: int = 0
    paid: float = 0.0
    part: float = 0.0
    seen: int = 0
    opened: int = 0

    def __repr__(self) -> str:
        return f"Entry({self.action}, {self.method}, run {self.run[:8]}, number {self.number})"


@dataclass(frozen=True, slots=True, repr=False)
class Charge:
    """A run that ratings have paid for. PRIVATE.

    Attributes:
        entry: What it was.
        sent: What was sent first.
        number: Of the entry with which they paid; values that are younger are not in what was sent.
        pairs: Tags of the ratings.
        users: Whose they were, by tag, one for each.
        paid: What each paid; 0 where its owner published it.
    """

    entry: Entry
    sent: Entry
    number: int
    pairs: Sequence[bytes]
    users: Sequence[bytes]
    paid: np.ndarray


def utc_now() -> str:
    """The time as the ledger writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Ledger:
    """The ledger of one store.

    Args:
        cipher: What seals it.
        rated: The ratings, for their weights.
        policy: What the device agrees to now.
        clock: What time it is.
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
        self._clock = clock

    def __repr__(self) -> str:
        return "Ledger(...)"

    def remaining(self, ratings: Ratings, weights: PrivacyWeights, policy: Policy) -> np.ndarray:
        """Return each rating's budget, W_ij epsilon, less what it has spent; may be negative."""
        return np.asarray(weights.for_ratings(ratings) * policy.own_epsilon - self.spent(ratings))

    def affords(
        self, ratings: Ratings, weights: PrivacyWeights, policy: Policy, epsilons: np.ndarray
    ) -> np.ndarray:
        """Return a mask of the ratings that can pay these epsilons.

        `charge` takes exactly these, up to ``max_total``.
        """
        budget = weights.for_ratings(ratings) * policy.own_epsilon
        return np.asarray(self.spent(ratings) + epsilons <= budget * (1 + SLACK))

    def within_limits(
        self,
        ratings: Ratings,
        chosen: np.ndarray,
        epsilons: np.ndarray,
        policy: Policy,
        shown: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the chosen ratings within ``max_ratings`` and ``max_total``, in table order.

        Which are left out depends on the tags of ratings, never on values: each user's ratings are
        taken in the order of tags, up to the first that would be too much.

        Args:
            ratings: The table that ``chosen`` are positions in.
            chosen: Which ratings could take part.
            epsilons: What each rating of the table would pay.
            policy: Has the limits.
            shown: A mask of the ratings that the owner shows. They are chosen first, as if nobody
                had hidden ones: otherwise a hidden rating more would push one out, in plain sight.
                Where hidden ones have used up too much of ``max_total`` before, none is shown.
        """
        totals = self._sums("user")
        if shown is None or not bool(shown[chosen].any()):
            return self._limited(ratings, chosen, epsilons, policy, totals, Counter())
        before = self._sums("user", lambda entry: entry.view == "messages")
        visible = chosen[shown[chosen]]
        visible = self._limited(ratings, visible, epsilons, policy, before, Counter())
        users = self._user_tags(ratings, visible)
        paid: dict[bytes, float] = {}
        for user, epsilon in zip(users, epsilons[visible].tolist(), strict=True):
            paid[user] = paid.get(user, 0.0) + epsilon
        room = policy.own_total * (1 + SLACK)
        fit = {user for user, more in paid.items() if totals.get(user, 0.0) + more <= room}
        visible = visible[[user in fit for user in users]]
        for user in fit:
            totals[user] = totals.get(user, 0.0) + paid[user]
        counts = Counter(self._user_tags(ratings, visible))
        hidden = chosen[~shown[chosen]]
        hidden = self._limited(ratings, hidden, epsilons, policy, totals, counts)
        return np.sort(np.concatenate([visible, hidden]))

    def _limited(
        self,
        ratings: Ratings,
        chosen: np.ndarray,
        epsilons: np.ndarray,
        policy: Policy,
        totals: dict[bytes, float],
        counts: Counter[bytes],
    ) -> np.ndarray:
        """Return the chosen ratings within limits, where users have spent and sent this before."""
        room = policy.own_total * (1 + SLACK)
        most = policy.max_ratings
        numbers = ratings.user_codes[chosen]
        largest = np.bincount(numbers, epsilons[chosen]).max(initial=0.0) + max(
            totals.values(), default=0.0
        )
        longest = int(np.bincount(numbers).max(initial=0)) + max(counts.values(), default=0)
        if largest <= room and (most is None or longest <= most):
            return chosen
        items = map(str, ratings.item_ids[chosen].tolist())
        users = map(str, ratings.user_ids[chosen].tolist())
        order = sorted(
            (self._user_tag(user), self.tag_of(user, item), position)
            for user, item, position in zip(users, items, chosen.tolist(), strict=True)
        )
        kept, totals, counts = [], dict(totals), Counter(counts)
        for user, _, position in order:
            totals[user] = totals.get(user, 0.0) + float(epsilons[position])
            counts[user] += 1
            if totals[user] <= room and (most is None or counts[user] <= most):
                kept.append(position)
        return np.array(sorted(kept), np.intp)

    def charge(
        self,
        entry: Entry,
        ratings: Ratings,
        chosen: np.ndarray,
        epsilons: np.ndarray,
        opened: np.ndarray | None = None,
    ) -> None:
        """Charge ratings, all of them or none; it is on the disk when this returns.

        Send only after that.

        Args:
            entry: What they pay for.
            ratings: The table that ``chosen`` are positions in.
            chosen: Which ratings pay.
            epsilons: What each pays; infinite where nothing is hidden (``status`` none), which
                takes a policy that allows it.
            opened: A mask of those that their owner publishes; these, and no others, pay nothing.

        Raises:
            PrivacyError: A rating, or a user's ratings together, would spend more than the policy
                allows. Nothing is written then.
            StorageError: The disk refused. Nothing is written then.
        """
        positions, pays = np.asarray(chosen), np.asarray(epsilons, np.float64)
        if positions.ndim != 1 or positions.dtype.kind not in "iu" or positions.shape != pays.shape:
            raise PrivacyError("a charge needs positions of ratings and one epsilon for each")
        free = np.zeros(len(pays), np.bool_) if opened is None else opened
        if len(np.unique(positions)) != len(positions) or bool(
            np.isnan(pays).any() or (pays < 0).any() or ((pays == 0) != free).any()
        ):
            raise PrivacyError("a charge names each rating once, with an epsilon above 0")
        if bool(np.isinf(pays).any()) != (entry.status == "none" and len(pays) > 0):
            raise PrivacyError("what hides nothing costs infinitely much, and only that does")
        paying = ratings.take(positions)
        users = [str(user) for user in paying.user_ids.tolist()]
        items = [str(item) for item in paying.item_ids.tolist()]
        charges = np.empty(len(pays), _CHARGES)
        charges["user"] = _tags([self._user_tag(user) for user in users])
        charges["pair"] = _tags([self.tag_of(*pair) for pair in zip(users, items, strict=True)])
        charges["epsilon"] = pays
        with self._database.transaction():
            policy = self._policy()
            weights = self._weights(users, items)
            subjects = self._subjects(paying)
            charges["title"] = _tags([subject.title for subject in subjects])
            charges["year"] = [subject.year for subject in subjects]
            charges["source"] = _tags([subject.source for subject in subjects])
            if entry.status == "none":
                if not policy.allow_unprotected:
                    raise PrivacyError(
                        "the policy does not allow what hides nothing (allow_unprotected = false)"
                    )
            else:
                costs = np.flatnonzero(pays > 0)
                self._check_ratings(paying.take(costs), pays[costs], weights[costs], policy)
                self._check_totals(charges, policy)
            self._write(
                msgspec.structs.replace(entry, ratings=len(pays), paid=math.fsum(pays.tolist())),
                charges.tobytes(),
            )

    def note(self, entry: Entry, *, first: bool = False) -> None:
        """Record an event without cost; ``first`` turns what is held for the run into paid."""
        with self._database.transaction():
            self._write(msgspec.structs.replace(entry, ratings=0, paid=0.0), b"" if first else None)

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
            self._write(returned, b"")

    def give_back_users(self, entry: Entry, users: Iterable[str]) -> None:
        """Write down that of these users' ratings nothing has left in a run that goes on.

        Args:
            entry: Of the run, with the proof in words.
            users: Whose ratings get back what they have paid, or hold, in it.
        """
        tags = {self._user_tag(user) for user in users}
        with self._database.transaction():
            kept = self._sums("pair", lambda about: about.run == entry.run)
            found: dict[bytes, np.ndarray] = {}
            for number, sealed_entry, sealed in self._rows():
                if self._entry(number, sealed_entry).run == entry.run:
                    charges = self._opened(number, sealed)
                    found |= {
                        pair: charge
                        for charge, user, pair in zip(
                            charges, _keys(charges["user"]), _keys(charges["pair"]), strict=True
                        )
                        if user in tags and pair in kept
                    }
            returned = np.array(list(found.values()), _CHARGES)
            returned["epsilon"] = [kept[pair] for pair in found]
            stamped = msgspec.structs.replace(
                entry, action="returned", ratings=0, paid=0.0, part=0.0
            )
            self._write(stamped, returned.tobytes())

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
        rows = self._database.execute("SELECT number, entry FROM ledger ORDER BY number")
        return [self._entry(number, sealed) for number, sealed in rows]

    def paid_in(self, run: str, ratings: Ratings) -> np.ndarray:
        """Return what each rating has paid in one run (hex); 0 for those without a part in it."""
        return self._look_up(ratings, self._sums("pair", lambda entry: entry.run == run))

    def has_answered(self, recommender: str, method: str, ratings: Ratings) -> np.ndarray:
        """Return a mask of the ratings that paid, or are held, for a method of a recommender.

        It does not matter in which form the method ran.
        """
        whom = _host(recommender)
        paid = self._sums(
            "pair", lambda entry: entry.method == method and _host(entry.recommender) == whom
        )
        return self._named(ratings, paid)

    def takes_part(self, run: str, ratings: Ratings) -> np.ndarray:
        """Return a mask of the ratings that paid, are held or are published in one run (hex)."""
        return self._named(ratings, self._sums("pair", lambda entry: entry.run == run))

    def spent(self, ratings: Ratings) -> np.ndarray:
        """Return what was spent on each rating under any name, including what is held."""
        sums = self._sums("pair")
        if not sums:
            return np.zeros(len(ratings))
        pairs = self._pairs(ratings)
        own = np.fromiter((sums.get(pair, 0.0) for pair in pairs), np.float64, len(pairs))
        if sums.keys() <= set(pairs):
            return own  # names of one catalogue only
        elsewhere = spent_elsewhere(
            ratings, pairs, self._subjects(ratings), self._charged_subjects(), sums, self.tag_of
        )
        return np.asarray(own + elsewhere)

    def spent_by_name(self, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], float]:
        """Return what ratings have spent under their own names, by user and item."""
        sums = self._sums("pair")
        return {pair: sums.get(self.tag_of(*pair), 0.0) for pair in pairs}

    def spent_total(self) -> float:
        """Return what one user's ratings have paid together; in a silo, the most of any user.

        What is held for a run from which nothing has left is not paid.
        """
        return max(self._sums("user", held=False).values(), default=0.0)

    def charged(self) -> list[Charge]:
        """The runs that ratings have paid for, since something of them has left; in their order."""
        about, sent, first, owners = (
            dict[str, Entry](),
            dict[str, Entry](),
            dict[str, int](),
            dict[bytes, bytes](),
        )
        for number, entry, sealed in self._rows():
            written = self._entry(number, entry)
            if written.action != "returned":
                about.setdefault(written.run, written)
                charges = self._opened(number, sealed)
                owners |= zip(_keys(charges["pair"]), _keys(charges["user"]), strict=True)
                if len(charges):
                    first.setdefault(written.run, number)
            elif written.part >= 1:  # what is paid for from here on was made anew
                about.pop(written.run, None)
                first.pop(written.run, None)
            if written.action == "sent":
                sent.setdefault(written.run, written)
        found = []
        for run, written in about.items():
            paid = self._sums("pair", lambda entry, run=run: entry.run == run, held=False)  # type: ignore[misc]
            if paid:
                pays, users = np.array(list(paid.values())), [owners[tag] for tag in paid]
                found.append(
                    Charge(written, sent.get(run, written), first[run], list(paid), users, pays)
                )
        return found

    def tag_of(self, user: str, item: str) -> bytes:
        """Return a rating's tag, the same through changes, removal, return and new passphrases."""
        return self._cipher.lasting_tag(b"pair", user, item)

    def _check_ratings(
        self, paying: Ratings, pays: np.ndarray, weights: np.ndarray, policy: Policy
    ) -> None:
        after = self.spent(paying) + pays
        over = int(np.count_nonzero(after > weights * policy.own_epsilon * (1 + SLACK)))
        over_run = int(np.count_nonzero(pays > weights * policy.epsilon_per_run * (1 + SLACK)))
        if over or over_run:
            raise PrivacyError(
                f"{max(over, over_run)} of {len(pays)} ratings would spend more than the "
                "policy allows "
                f"({'over their whole life' if over else 'in one run'}); nothing was charged "
                "and nothing may be sent"
            )

    def _check_totals(self, charges: np.ndarray, policy: Policy) -> None:
        totals = self._sums("user")
        for tag, epsilon in zip(_keys(charges["user"]), charges["epsilon"].tolist(), strict=True):
            totals[tag] = totals.get(tag, 0.0) + epsilon
        if any(totals[tag] > policy.own_total * (1 + SLACK) for tag in set(_keys(charges["user"]))):
            raise PrivacyError(
                "a user's ratings together would spend more than max_total of the policy "
                "allows here "
                f"({policy.own_total:g}); nothing was charged and nothing may be sent"
            )

    def _weights(self, users: list[str], items: list[str]) -> np.ndarray:
        """Return the weights that are in the store now, not those of the caller's table."""
        weights = self._rated.weights_of(zip(users, items, strict=True))
        if bool(np.isnan(weights).any()):
            raise PrivacyError(
                "a rating that is to pay is not in the store any more; nothing was charged"
            )
        return weights

    def _user_tags(self, ratings: Ratings, chosen: np.ndarray) -> list[bytes]:
        return [self._user_tag(user) for user in map(str, ratings.user_ids[chosen].tolist())]

    def _named(self, ratings: Ratings, sums: dict[bytes, float]) -> np.ndarray:
        """Return a mask of the ratings that are in these sums, whatever they paid."""
        if not sums:
            return np.zeros(len(ratings), np.bool_)
        pairs = self._pairs(ratings)
        return np.fromiter((pair in sums for pair in pairs), np.bool_, len(pairs))

    def _user_tag(self, user: str) -> bytes:
        return self._cipher.lasting_tag(b"user", user)

    def _look_up(self, ratings: Ratings, sums: dict[bytes, float]) -> np.ndarray:
        if not sums:
            return np.zeros(len(ratings))
        pairs = self._pairs(ratings)
        return np.fromiter((sums.get(pair, 0.0) for pair in pairs), np.float64, len(pairs))

    def _pairs(self, ratings: Ratings) -> list[bytes]:
        """Return the tag of each rating."""
        return [self.tag_of(*pair) for pair in _users_and_items(ratings)]

    def _subjects(self, ratings: Ratings) -> list[Subject]:
        """Return what each rating is about."""
        sources = self._rated.sources()
        from_files = [sources.get(pair, "") for pair in _users_and_items(ratings)]
        return subjects_of(ratings, from_files, self._cipher.lasting_tag)

    def _charged_subjects(self) -> Iterator[tuple[bytes, Subject]]:
        """Return the rating and the subject of all charges, also of those that were given back."""
        for number, _, sealed in self._rows():
            found = self._opened(number, sealed)
            columns = (_keys(found["pair"]), _keys(found["title"]), found["year"].tolist())
            for pair, title, year, source in zip(*columns, _keys(found["source"]), strict=True):
                yield pair, Subject(title, year, source)

    def _sums(
        self,
        by: Literal["user", "pair"],
        wanted: Callable[[Entry], bool] = lambda entry: True,
        *,
        held: bool = True,
    ) -> dict[bytes, float]:
        """Sum what was paid or is held, by tag. Read anew each time: never out of date."""
        runs: dict[str, dict[bytes, float]] = {}
        waiting: set[str] = set()
        for number, entry, sealed in self._rows():
            about = self._entry(number, entry)
            if not wanted(about):
                continue
            spent = runs.setdefault(about.run, {})
            charges = self._opened(number, sealed)
            if about.action == "returned":
                runs[about.run] = {
                    tag: paid * (1.0 - about.part) for tag, paid in spent.items() if about.part < 1
                }
                self._subtract(runs[about.run], charges, by)
                continue
            (waiting.add if about.action == "agreed" else waiting.discard)(about.run)
            for tag, epsilon in zip(_keys(charges[by]), charges["epsilon"].tolist(), strict=True):
                spent[tag] = spent.get(tag, 0.0) + epsilon
        total: dict[bytes, float] = {}
        for name, spent in runs.items():
            for tag, paid in spent.items() if held or name not in waiting else ():
                total[tag] = total.get(tag, 0.0) + paid
        return total

    @staticmethod
    def _subtract(
        spent: dict[bytes, float], charges: np.ndarray, by: Literal["user", "pair"]
    ) -> None:
        """Take off what some users got back."""
        for tag, epsilon in zip(_keys(charges[by]), charges["epsilon"].tolist(), strict=True):
            spent[tag] = spent.get(tag, 0.0) - epsilon
            if spent[tag] <= SLACK:
                del spent[tag]

    def _rows(self) -> list[tuple[Any, ...]]:
        """Entries with charges, in their order."""
        return self._database.execute(
            "SELECT number, entry, charges FROM ledger WHERE charges IS NOT NULL ORDER BY number"
        )

    def _opened(self, number: int, sealed: bytes) -> np.ndarray:
        data = self._cipher.open(sealed, entry_context(b"charges", number))
        if len(data) % _CHARGES.itemsize:
            raise StorageError("a ledger entry has the wrong length: the store is damaged")
        return np.frombuffer(data, _CHARGES)

    def _write(self, entry: Entry, charges: bytes | None) -> None:
        rows = self._database.execute("SELECT coalesce(max(number), 0) + 1 FROM ledger")
        number = int(rows[0][0])
        stamped = msgspec.structs.replace(entry, at=self._clock())
        sealed = self._cipher.seal(
            msgspec.msgpack.encode(stamped), entry_context(b"ledger", number)
        )
        paid = (
            None
            if charges is None
            else self._cipher.seal(charges, entry_context(b"charges", number))
        )
        self._database.execute("INSERT INTO ledger VALUES (?, ?, ?)", (number, sealed, paid))

    def _entry(self, number: int, sealed: bytes) -> Entry:
        data = self._cipher.open(sealed, entry_context(b"ledger", number))
        return decoded(data, Entry, "ledger")


def _tags(tags: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(tags), f"V{TAG_BYTES}")


def _host(recommender: str) -> str:
    """A recommender, however its address is written."""
    return plain_address(recommender).removeprefix(HTTPS)


def _users_and_items(ratings: Ratings) -> Iterator[tuple[str, str]]:
    return zip(
        map(str, ratings.user_ids.tolist()), map(str, ratings.item_ids.tolist()), strict=True
    )


def _keys(column: np.ndarray) -> list[bytes]:
    return [tag.tobytes() for tag in column]


def entry_context(kind: bytes, number: int) -> bytes:
    """Return the context that an entry (``ledger``) or its charges (``charges``) are sealed for."""
    return kind + number.to_bytes(8, "big")
