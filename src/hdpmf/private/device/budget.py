"""The budget of a run: which ratings take part, what they pay, and the ledger's entries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.methods import method_named
from hdpmf.common.methods.registry import PROMISE
from hdpmf.common.privacy.accounting import cost
from hdpmf.common.privacy.coding import WEIGHT_UNITS, weight_units
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.errors import PrivacyError
from hdpmf.private.device.disclosures.journal import Action, Entry
from hdpmf.private.device.disclosures.limits import Taken
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.policy import Policy, Terms
from hdpmf.private.device.store.device_store import DeviceStore

if TYPE_CHECKING:
    from hdpmf.common.protocol.servers import Servers


@dataclass(frozen=True, slots=True, repr=False)
class Participation:
    """Ratings that take part in a run.

    Attributes:
        table: All ratings of the device, as they were when these were chosen.
        ratings: Those that take part.
        weights: Theirs; of one that a limit cuts short, what is left of it.
        digest: Of which items they are of.
        content: Of that, their values and their weights; by the store's key.
    """

    table: Ratings
    ratings: Ratings
    weights: PrivacyWeights
    digest: bytes
    content: bytes


def choose(store: DeviceStore, terms: Terms, recommender: str) -> Taken:
    """Positions of the ratings that can take part, and what each will pay.

    A rating answers a recommender once, however much budget it has left: answers of several runs
    are combined, and it would count twice. There may be none: a device without ratings, or whose
    ratings have spent all, reports zeros. Whether, when and how it reports says nothing about them.
    """
    ratings, weights, policy = store.ratings(), store.weights(), store.policy
    check_policy(policy, terms)  # its owner may have changed it since the terms came
    own = weights.for_ratings(ratings)
    # Weights are sent in whole 64ths, and cost no more than that.
    unit = terms.epsilon / WEIGHT_UNITS
    pays = weight_units(own) * unit
    catalogue = store.pinned_catalogue
    retired = np.zeros(0, np.int64) if catalogue is None else catalogue.known.retired
    able = ~np.isin(ratings.item_codes, retired)  # of a retired item nothing new is sent
    able &= store.ledger.affords(ratings, weights, policy, pays)
    able &= weight_units(own) > 0  # lighter ratings send nothing
    able &= ~store.ledger.has_answered(recommender, terms.method, ratings)
    chosen = np.flatnonzero(able)
    return store.ledger.limits.within(ratings, chosen, pays, policy, unit=unit, sums=True)


def check_policy(policy: Policy, terms: Terms) -> None:
    """Refuse terms that the device's owner has not agreed to."""
    try:
        policy.check(terms)
    except PrivacyError as error:
        raise DeclinedError("policy", str(error)) from error


def charge(store: DeviceStore, entry: Entry, taken: Taken) -> None:
    """Let ratings pay, or refuse."""
    chosen, pays, short = taken
    try:
        store.ledger.charge(entry, store.ratings(), chosen, pays, short)
    except PrivacyError as error:
        # Only what another run took in this moment; what ratings have left was looked at before.
        raise DeclinedError("busy", str(error)) from error


def units_paid(pays: np.ndarray, terms: Terms) -> np.ndarray:
    """Return the weight, in 64ths, that ratings have paid for."""
    parts = np.minimum(pays / terms.epsilon, 1.0)
    return np.asarray(np.rint(parts * WEIGHT_UNITS), np.int64)


def participation(
    store: DeviceStore,
    chosen: np.ndarray,
    units: np.ndarray,
) -> Participation:
    """The chosen ratings by themselves.

    Args:
        chosen: Positions of these ratings.
        units: The weight, in 64ths, that each has paid for.
    """
    table, weights = store.ratings(), store.weights()
    ratings = table.take(chosen)
    digest = sha256(ratings.item_codes.tobytes()).digest()
    own = weights.take(chosen)
    numbers = ratings.values.tobytes() + own.for_ratings(ratings).tobytes() + units.tobytes()
    short = (units > 0) & (units < weight_units(own.for_ratings(ratings)))
    own = own.at_most(ratings, np.where(short, units / WEIGHT_UNITS, 1.0))
    return Participation(table, ratings, own, digest, store.keyed_digest(digest + numbers))


def paying_ratings(store: DeviceStore, run: bytes, terms: Terms) -> Participation:
    """Return the ratings that have paid for a run under way, and would send no more than that.

    Ratings that are gone are left out; the recommender cannot tell. One whose weight has grown
    since sends what it has paid for.
    """
    units = units_paid(store.ledger.paid_in(run.hex(), store.ratings()), terms)
    chosen = np.flatnonzero(units > 0)
    return participation(store, chosen, units[chosen])


def agreed_words(terms: Terms, servers: Servers) -> str:
    """Say in plain English what is paid for, and what it is worth."""
    sees = method_named(terms.method).claim(terms.view).sees
    return (
        f"{terms.method} with epsilon {terms.epsilon:g}, summed by the servers of {servers.names} "
        f"(digest {servers.digest}). The recommender, and either server alone, see only {sees}. "
        f"{PROMISE['proved']} The accountant, for a rating of weight 1: {_accountant(terms)}."
    )


def entry_of(terms: Terms, action: Action, words: str, *, recommender: str, run: bytes) -> Entry:
    """An entry of the ledger about a run with these terms."""
    return Entry(
        recommender=recommender,
        run=run.hex(),
        number=0,
        method=terms.method,
        view=terms.view,
        epsilon=terms.epsilon,
        status="proved",
        action=action,
        words=words,
        rounds=terms.rounds,
        factors=1,
    )


@lru_cache(maxsize=64)
def _accountant(terms: Terms) -> str:
    """The accountant's number for a rating of weight 1."""
    found = cost(terms.method, terms.view, epsilon=terms.epsilon)
    # A pure epsilon needs no composition, for which a device would load SciPy.
    return f"epsilon {found.pure:g} ({found.status})"
