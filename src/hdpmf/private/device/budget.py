"""The budget of a run: which ratings take part, what they pay, and the ledger's entries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.methods import METHODS, Status, method_named
from hdpmf.common.methods.registry import PROMISE
from hdpmf.common.privacy.accounting import cost
from hdpmf.common.privacy.coding import WEIGHT_UNITS, weight_units
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import Terms
from hdpmf.errors import PrivacyError
from hdpmf.private.device.disclosures.journal import Action, Entry
from hdpmf.private.device.disclosures.limits import SLACK, Taken
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.catalogues import PinnedRoster
from hdpmf.private.device.store.device_store import DeviceStore

if TYPE_CHECKING:
    from hdpmf.common.protocol.servers import Servers

TYPICAL_RATERS = 20


@dataclass(frozen=True, slots=True, repr=False)
class Participation:
    """Ratings that take part in a run.

    Attributes:
        table: All ratings of the device, as they were when these were chosen.
        ratings: Those that take part.
        weights: Theirs; of one that a limit cuts short, what is left of it.
        digest: Of who rated which of them.
        content: Of that, their values and their weights; by the store's key.
    """

    table: Ratings
    ratings: Ratings
    weights: PrivacyWeights
    digest: bytes
    content: bytes


def choose(store: DeviceStore, terms: Terms, recommender: str, *, bare: bool = False) -> Taken:
    """Positions of the ratings that can take part, and what each will pay.

    Args:
        bare: Nothing is hidden, for a reason that is not in the terms.

    In the one-round designs a rating answers a recommender once, however much budget it has left:
    answers of several runs are combined, and it would count twice. There may be none: a device
    without ratings, or whose ratings have spent all, takes part like every other, with its noise.
    Whether, when and how it answers says nothing about them.
    """
    ratings, weights, policy = store.ratings(), store.weights(), store.policy
    check_policy(policy, terms, store.roster)  # its owner may have changed it since the terms came
    own = weights.for_ratings(ratings)
    method = method_named(terms.method)
    unit = terms.epsilon / WEIGHT_UNITS if method.one_round else None
    # Weights are sent in whole 64ths there, and cost no more than that.
    pays = own * terms.epsilon if unit is None else weight_units(own) * unit
    catalogue = store.pinned_catalogue
    retired = np.zeros(0, np.int64) if catalogue is None else catalogue.known.retired
    able = ~np.isin(ratings.item_codes, retired)  # of a retired item nothing new is sent
    if bare or method.claim(terms.view, labels=terms.labels).status == "none":
        pays = np.full(len(ratings), np.inf)
    else:
        affordable = store.ledger.affords(ratings, weights, policy, pays)
        able &= affordable
    if method.one_round:
        able &= weight_units(own) > 0  # lighter ratings send nothing there
        able &= ~store.ledger.has_answered(recommender, terms.method, ratings)
    chosen = np.flatnonzero(able)
    if np.isinf(pays).any():
        return Taken(chosen, pays[chosen], np.zeros(0, np.intp))
    sums = unit is not None and terms.view != "messages"
    taken = store.ledger.limits.within(ratings, chosen, pays, policy, unit=unit, sums=sums)
    return taken if sums else taken._replace(short=np.zeros(0, np.intp))


def check_policy(policy: Policy, terms: Terms, roster: PinnedRoster | None = None) -> None:
    """Refuse terms that the device's owner has not agreed to."""
    try:
        policy.check(terms)
        if roster is not None:
            policy.check_roster(terms, roster.users)
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


def units_paid(pays: np.ndarray, terms: Terms) -> np.ndarray | None:
    """Return the weight, in 64ths, that ratings have paid for; None but in one-round designs."""
    if not method_named(terms.method).one_round:
        return None
    parts = np.minimum(pays / terms.epsilon, 1.0)
    return np.asarray(np.rint(parts * WEIGHT_UNITS), np.int64)


def participation(
    store: DeviceStore,
    chosen: np.ndarray,
    units: np.ndarray | None = None,
) -> Participation:
    """The chosen ratings by themselves.

    Args:
        chosen: Positions of these ratings.
        units: The weight, in 64ths, that each has paid for; None for all of its weight.
    """
    table, weights = store.ratings(), store.weights()
    ratings = table.take(chosen)
    pairs = (
        *map(str, ratings.users.ids.tolist()),
        ratings.user_codes.tobytes(),
        ratings.item_codes.tobytes(),
    )
    digest = sha256(repr(pairs).encode()).digest()
    own = weights.take(chosen)
    numbers = ratings.values.tobytes() + own.for_ratings(ratings).tobytes()
    if units is not None:
        numbers += units.tobytes()
        short = (units > 0) & (units < weight_units(own.for_ratings(ratings)))
        own = own.at_most(ratings, np.where(short, units / WEIGHT_UNITS, 1.0))
    return Participation(table, ratings, own, digest, store.keyed_digest(digest + numbers))


def paying_ratings(store: DeviceStore, run: bytes, terms: Terms) -> Participation:
    """Return the ratings that have paid for a run under way, and would send no more than that.

    Ratings that are gone are left out; the recommender cannot tell. One whose weight has grown
    since is left out where a run has several rounds, and otherwise sends what it has paid for.
    """
    ratings, weights = store.ratings(), store.weights()
    paid = store.ledger.paid_in(run.hex(), ratings)
    units = units_paid(paid, terms)
    if units is not None:
        chosen = np.flatnonzero(units > 0)
        return participation(store, chosen, units[chosen])
    within = weights.for_ratings(ratings) * terms.epsilon <= paid * (1 + SLACK)
    return participation(store, np.flatnonzero((paid > 0) & within))


def agreed_words(
    terms: Terms,
    worth: Status,
    factors: int = 1,
    *,
    fresh: bool = True,
    servers: Servers | None = None,
) -> str:
    """Say in plain English what is paid for, and what it is worth."""
    sees = method_named(terms.method).claim(terms.view, labels=terms.labels).sees
    account = _accountant(terms, factors, "epoch" if fresh else "once")
    by, who = "", "The recommender sees"
    if servers is not None:
        by = f", summed by the servers of {servers.names} (digest {servers.digest})"
        who = "The recommender, and either server alone, see only"
    return (
        f"{terms.method} with epsilon {terms.epsilon:g}{by}. {who} {sees}. "
        f"{PROMISE[worth]} {account}"
    )


def entry_of(
    terms: Terms,
    status: Status,
    action: Action,
    words: str,
    *,
    recommender: str,
    run: bytes,
    number: int,
    factors: int = 1,
) -> Entry:
    """An entry of the ledger about a run with these terms, whose epsilon is worth so much."""
    return Entry(
        recommender=recommender,
        run=run.hex(),
        number=number,
        method=terms.method,
        view=terms.view,
        epsilon=math.inf if status == "none" else terms.epsilon,
        status=status,
        action=action,
        words=words,
        rounds=terms.rounds,
        factors=factors,
        labels=terms.labels,
    )


@lru_cache(maxsize=64)
def _accountant(terms: Terms, factors: int, noise: str) -> str:
    """The accountant's number for a rating of weight 1."""
    cost_of_one = cost(
        terms.method,
        terms.view,
        n_raters=TYPICAL_RATERS,
        epsilon=terms.epsilon,
        factors=factors,
        rounds=terms.rounds,
        noise=noise,
        labels=terms.labels,
    )
    shared = METHODS[terms.method].trains and terms.view == "messages"
    whose = f" (an item with {TYPICAL_RATERS} raters)" if shared else ""
    # A pure epsilon needs no composition, for which a device would load SciPy.
    pure = cost_of_one.pure
    found = str(cost_of_one) if math.isinf(pure) else f"epsilon {pure:g} ({cost_of_one.status})"
    return f"The accountant, for a rating of weight 1{whose}: {found}."
