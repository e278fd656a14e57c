"""A preview of what a run would send: the very numbers, their cost, and what that gives away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hdpmf.common.data import Ratings, RatingScale
from hdpmf.common.methods import Claim, method_named
from hdpmf.common.privacy.accounting import Cost, cost
from hdpmf.common.privacy.coding import (
    WEIGHT_UNITS,
    make_coding,
    sum_channels,
)
from hdpmf.private.device.budget import choose, units_paid
from hdpmf.private.device.disclosures.bounds import RunBounds, run_bounds
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.memberships import store_of
from hdpmf.private.device.policy import Terms
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import Question


@dataclass(frozen=True, slots=True, repr=False)
class SentNumber:
    """The number that one rating becomes. PRIVATE.

    Attributes:
        pays: What it would spend.
        plain: What goes into the sum for its item, before noise.
    """

    item: str
    title: str
    value: float
    weight: float
    pays: float
    plain: float


@dataclass(frozen=True, slots=True, repr=False)
class SendPreview:
    """A preview of what a run would send. PRIVATE.

    Attributes:
        claim: Who sees what, and what that stands on.
        cost: For a rating of weight 1, by the accountant.
        sends: What leaves the device, in sentences.
        not_protected: What is not protected, in sentences.
        numbers: One for each rating that takes part.
        others: Items that a zero is sent for, so that nobody sees which ones were rated.
        left_out: Ratings that would not take part.
        pays: What all take together.
        noise: The usual size of the noise on the sum of an item (its standard deviation).
        refused: Why the policy refuses it anyway; empty if it does not.
        has_items: Whether the recommender's items are here; without them nobody can say which
            ratings would take part.
        bounds: What one rating and the person have given away before and after it; None where
            nothing is proved, or no items are here.
    """

    asked: Question
    claim: Claim
    cost: Cost
    sends: str
    not_protected: str
    numbers: Sequence[SentNumber]
    others: int
    left_out: int
    pays: float
    noise: float
    refused: str
    has_items: bool = True
    bounds: RunBounds | None = None


def preview_of(store: DeviceStore, asked: Question) -> SendPreview:
    """Return what would be sent if the owner agreed now. Nothing is sent, paid or kept."""
    terms, store = asked.terms, store_of(store, asked.recommender)
    if store.pinned_catalogue is None:
        return _without_items(asked)
    method = method_named(terms.method)
    refused = ""
    chosen, pays = np.zeros(0, np.intp), np.zeros(0)
    try:
        chosen, pays, _ = choose(store, terms, asked.recommender)
    except DeclinedError as error:
        refused = str(error)
    table = store.ratings()
    taking = table.take(chosen)
    units = units_paid(pays, terms)
    plain, noise = _numbers(taking, units, asked, store.pinned_catalogue.known.scale)
    titles = (
        {}
        if table.item_table is None
        else dict(zip(map(str, table.items.ids.tolist()), table.item_table.titles, strict=True))
    )
    rows = zip(
        map(str, taking.item_ids.tolist()),
        taking.values.tolist(),
        units.tolist(),
        pays.tolist(),
        plain.tolist(),
        strict=True,
    )
    numbers = [
        SentNumber(
            item,
            titles.get(item, ""),
            value,
            weight / WEIGHT_UNITS,
            paid,
            before,
        )
        for item, value, weight, paid, before in rows
    ]
    found = _cost(terms)
    return SendPreview(
        asked=asked,
        claim=method.claim(terms.view),
        cost=found,
        sends=method.form.sent,
        not_protected=method.form.stays_open,
        numbers=numbers,
        others=table.n_items - len(taking),
        left_out=len(table) - len(taking),
        pays=math.fsum(pays.tolist()),
        noise=noise,
        refused=refused,
        bounds=run_bounds(store, terms, [(each.item, each.pays) for each in numbers])
        if found.status == "proved"
        else None,
    )


def _without_items(asked: Question) -> SendPreview:
    """Return the preview while a recommender's items are not here, or no longer."""
    terms, method = asked.terms, method_named(asked.terms.method)
    return SendPreview(
        asked,
        method.claim(terms.view),
        _cost(terms),
        method.form.sent,
        method.form.stays_open,
        numbers=(),
        others=0,
        left_out=0,
        pays=0.0,
        noise=0.0,
        refused="",
        has_items=False,
    )


def _cost(terms: Terms) -> Cost:
    return cost(terms.method, terms.view, epsilon=terms.epsilon)


def _numbers(
    taking: Ratings, units: np.ndarray, asked: Question, scale: RatingScale
) -> tuple[np.ndarray, float]:
    """Return the numbers without noise, and the standard deviation of the noise.

    Before the survey is known, it is the method's usual coding.
    """
    epsilon = asked.terms.epsilon
    coding = make_coding("auto" if asked.survey is None else asked.survey.coding, scale, epsilon)
    channel = sum_channels(coding, epsilon).score
    return units * coding.encode(taking.values), math.sqrt(2.0) * float(channel.scale)
