"""Sharing: what the owner lets a recommender see, what a choice would show, and what was shown.

A choice that would show more of any item, rated or not, is one that the owner confirms first. One
that shows less counts at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from hdpmf.common.privacy.levels import HIDDEN, LEVELS, OPEN, Level
from hdpmf.common.protocol import decode
from hdpmf.common.protocol.layout import SHARING_METHOD
from hdpmf.common.protocol.oneround import ItemFacts
from hdpmf.errors import ConfigError, UnknownIdError
from hdpmf.private.device.disclosures.history import LedgerRun, entries_by_run
from hdpmf.private.device.disclosures.refusals import load_refusals
from hdpmf.private.device.own_items import current_catalogue
from hdpmf.private.device.recommendations import local_model
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.marks import genre_key
from hdpmf.private.device.store.ratings_table import ME
from hdpmf.private.device.store.schema import SharingRule

LISTS = {"nobody": 0.1795, "others": 0.2351, "oneself": 0.2365}
"""How good people's own lists of ten are (NDCG) on MovieLens 100K: if nobody shares, if 9 % of
others show what they rated, and if they do so themselves in place of as many others. Between
the last two is less than its error, 0.003 (``benchmarks/sharers/own_choice.py``, 14 seeds)."""


class Choice(NamedTuple):
    """A level that the owner chooses for a user's ratings, an item or a genre.

    Attributes:
        name: The user, the item's name on this device, or the genre.
        level: The most that is shown.
    """

    kind: Literal["user", "item", "genre"]
    name: str
    level: Level


@dataclass(frozen=True, slots=True, repr=False)
class Shown:
    """The items of a user's ratings, by what a recommender may see of them. PRIVATE.

    Attributes:
        hidden: Neither the rating nor that there is one.
        seen: That there is one.
        open: The rating itself.
        answered: Those whose rating was in a run of the recommender before, in sums or shown: a
            rating answers once, so that no choice shows more of it to this recommender.
    """

    hidden: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()

    def counts(self) -> dict[str, int]:
        """Return how many there are of each."""
        names = (*LEVELS, "answered")
        return {name: len(getattr(self, name)) for name in names}


@dataclass(frozen=True, slots=True, repr=False)
class ChoicePreview:
    """The changes that a choice would make. PRIVATE.

    Attributes:
        raises: It would show more of some item, rated or not, to some recommender: rules about
            items and genres are for all.
        now: The owner's ratings as they are shown at present.
        then: The same after the choice.
        beyond: How much more than ``max_total`` a user's ratings may spend after the choice. What
            is shown has half of it for itself, also where hidden ratings have spent more than the
            other half: otherwise it could be seen how much they have spent.
    """

    raises: bool
    now: Shown
    then: Shown
    beyond: float = 0.0


def offers_levels(store: DeviceStore) -> bool:
    """Return True if this view's recommender asks, or has asked, for what owners show.

    Also if such a run was refused, or its last model could not be without one.
    """
    address = store.recommender.address
    refused = load_refusals(store).refused
    asked = (*store.tables.questions.rows(), *(each.asked for each in store.tables.consents.rows()))
    methods = {
        *(each.method for each in store.ledger.entries() if each.recommender == address),
        *(each.method for each in refused if each.recommender == address),
        *(each.terms.method for each in asked if each.recommender == address),
    }
    if SHARING_METHOD in methods or store.sharing_level() != LEVELS[HIDDEN]:
        return True
    model = local_model(store)
    facts = None if model is None else decode(model.numbers)
    return isinstance(facts, ItemFacts) and facts.raters is not None


def would_show(store: DeviceStore, user: str = ME) -> Shown:
    """Return what the next run with this view's recommender may show, if it asks for it."""
    levels = _levels(store, store.sharing.rows(), user)
    return _shown(store, levels, user)


def preview_choice(store: DeviceStore, choice: Choice, user: str = ME) -> ChoicePreview:
    """Return what a choice would change. Nothing is changed.

    Raises:
        ConfigError: The recommender was not joined, or there is no such genre.
        UnknownIdError: There is no such item.
    """
    _check(store, choice)
    rows = store.sharing.rows()
    rule = _rule(store, choice)
    after = [*(row for row in rows if row.key != rule.key), rule]
    for_all = choice.kind != "user"
    views = map(store.at, store.recommender_ids) if for_all else [store]
    users = (store.rated.betas() or [ME]) if for_all else [choice.name]
    raises = choice.level != LEVELS[HIDDEN] and any(
        _raises(view, rows, after, each) for view in views for each in users
    )
    now, then = _levels(store, rows, user), _levels(store, after, user)
    beyond = 0.0
    if raises and choice.kind == "user" and not math.isinf(store.policy.own_total):
        policy = store.policy
        beyond = store.ledger.limits.most_together(policy, with_user=choice.name) - policy.own_total
    return ChoicePreview(raises, _shown(store, now, user), _shown(store, then, user), beyond)


def choose(store: DeviceStore, choice: Choice) -> None:
    """Let a choice count from now on. What was sent before stays sent.

    Who shows something takes part in runs in which that is asked for, by the policy, too.

    Raises:
        ConfigError: The recommender was not joined, or there is no such genre.
        UnknownIdError: There is no such item.
    """
    _check(store, choice)
    with store.transaction():
        if choice.kind == "user":
            store.set_sharing_level(choice.level, choice.name)
            policy = store.policy
            if choice.level != LEVELS[HIDDEN] and SHARING_METHOD not in policy.methods:
                methods = (*policy.methods, SHARING_METHOD)
                store.set_policy(msgspec.structs.replace(policy, methods=methods))
        elif choice.kind == "genre" and choice.level == LEVELS[OPEN]:
            store.sharing.put("genre", choice.name, None)
        else:
            store.sharing.put(choice.kind, choice.name, choice.level)


def was_shown(store: DeviceStore, recommender: str | None = None) -> dict[str, int]:
    """Return how many ratings were ever shown, by the ledger, whatever is chosen now.

    Args:
        recommender: To whom; to anybody by default.
    """
    counts = {"seen": 0, "open": 0}
    for name, entries in entries_by_run(store).items():
        run = LedgerRun(name, entries)
        paid = run.paid
        if paid is None or not run.count("sent"):
            continue
        if recommender is None or entries[0].recommender == recommender:
            counts["seen"] += paid.seen
            counts["open"] += paid.opened
    return counts


def _check(store: DeviceStore, choice: Choice) -> None:
    if choice.kind == "user":
        if not store.recommender.address or store.recommender.left:
            raise ConfigError(
                "you have not joined such a recommender, and a level is for one (hdpmf device "
                "join); nothing was changed"
            )
        return
    shown = current_catalogue(store)
    if choice.kind == "item" and (shown is None or choice.name not in shown.positions):
        raise UnknownIdError("the catalogue has no such item; nothing was changed")
    if choice.kind == "genre":
        genres = store.marks.genres_of().values()
        if not any(genre_key(choice.name) in (own or {""}) for own in genres):
            raise ConfigError("the catalogue has no such genre; nothing was changed")


def _rule(store: DeviceStore, choice: Choice) -> SharingRule:
    return SharingRule(
        kind=choice.kind,
        name=genre_key(choice.name) if choice.kind == "genre" else choice.name,
        level=choice.level,
        recommender_id=store.recommender_id if choice.kind == "user" else 0,
    )


def _raises(
    store: DeviceStore, rows: list[SharingRule], after: list[SharingRule], user: str
) -> bool:
    """Return True if a recommender would see more; also where its items are still to come."""
    if store.pinned_catalogue is None:
        return _own_level(store, after, user) != LEVELS[HIDDEN]
    return bool((_levels(store, after, user) > _levels(store, rows, user)).any())


def _own_level(store: DeviceStore, rows: list[SharingRule], user: str) -> Level:
    own = SharingRule(kind="user", name=user, recommender_id=store.recommender_id).key
    return next((row.level for row in rows if row.key == own), LEVELS[HIDDEN])


def _levels(store: DeviceStore, rows: list[SharingRule], user: str) -> np.ndarray:
    """Return the level of each item of the catalogue under these rules."""
    catalogue = store.pinned_catalogue
    if catalogue is None:
        return np.zeros(0, np.int8)
    level = _own_level(store, rows, user)
    if level == LEVELS[HIDDEN]:
        return np.zeros(len(catalogue.positions), np.int8)
    return np.asarray(np.minimum(store.sharing.for_items(catalogue, rows), LEVELS.index(level)))


def _shown(store: DeviceStore, levels: np.ndarray, user: str) -> Shown:
    if store.pinned_catalogue is None:
        return Shown()
    ratings = store.ratings()
    answered = store.ledger.has_answered(store.recommender.address, SHARING_METHOD, ratings)
    codes = np.where(answered, len(LEVELS), levels[ratings.item_codes])
    own = ratings.user_ids == user
    return Shown(
        *(
            tuple(map(str, ratings.item_ids[own & (codes == code)].tolist()))
            for code in range(len(LEVELS) + 1)
        )
    )
