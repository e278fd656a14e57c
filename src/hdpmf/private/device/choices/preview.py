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
    Coding,
    bit_probability,
    make_coding,
    make_ruler,
    sum_channels,
    weight_units,
)
from hdpmf.common.privacy.sampling import ReleasedNoise
from hdpmf.common.protocol import Terms
from hdpmf.private.device.budget import choose, units_paid
from hdpmf.private.device.disclosures.bounds import RunBounds, run_bounds
from hdpmf.private.device.errors import DeclinedError
from hdpmf.private.device.memberships import store_of
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.ratings_table import ME
from hdpmf.private.device.store.schema import Question


@dataclass(frozen=True, slots=True, repr=False)
class SentNumber:
    """The number that one rating becomes. PRIVATE.

    Attributes:
        pays: What it would spend.
        plain: What goes into the sum for its item, before noise.
        noised: The same with noise as it could be drawn: an example, since the noise that counts is
            drawn later. None where noise is in the sum, and not in each number.
        user: Whose rating.
    """

    item: str
    title: str
    value: float
    weight: float
    pays: float
    plain: float
    noised: float | None
    user: str = ME


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
        noise: The usual size of the noise on the sum of an item (its standard deviation), or on a
            number that leaves by itself; 0 where there is none.
        shown: Whether the numbers can be shown beforehand: those of a training depend on what the
            recommender sends.
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
    shown: bool
    refused: str
    has_items: bool = True
    bounds: RunBounds | None = None


def preview_of(store: DeviceStore, asked: Question) -> SendPreview:
    """Return what would be sent if the owner agreed now. Nothing is sent, paid or kept."""
    terms, store = asked.terms, store_of(store, asked.recommender)
    if store.pinned_catalogue is None:
        return _without_items(asked)
    method = method_named(terms.method)
    form = method.form(terms.labels)
    refused = ""
    chosen, pays = np.zeros(0, np.intp), np.zeros(0)
    try:
        chosen, pays, _ = choose(store, terms, asked.recommender)
    except DeclinedError as error:
        refused = str(error)
    table, weights = store.ratings(), store.weights()
    taking = table.take(chosen)
    units = units_paid(pays, terms)
    if units is None:
        units = weight_units(weights.take(chosen).for_ratings(taking))
    question = _question(store, asked)
    plain, noise = np.zeros(len(taking)), 0.0
    noised = np.full(len(taking), None, object)
    if question is not None:
        plain, drawn, noise = _numbers(taking, units, question)
        if question.design == "L":  # otherwise a number leaves in halves; noise is in the sum
            noised = drawn.astype(object)
    titles = (
        {}
        if table.item_table is None
        else dict(zip(map(str, table.items.ids.tolist()), table.item_table.titles, strict=True))
    )
    rows = zip(
        map(str, taking.user_ids.tolist()),
        map(str, taking.item_ids.tolist()),
        taking.values.tolist(),
        units.tolist(),
        pays.tolist(),
        plain.tolist(),
        noised.tolist(),
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
            after,
            user,
        )
        for user, item, value, weight, paid, before, after in rows
    ]
    found = _cost(terms)
    return SendPreview(
        asked=asked,
        claim=method.claim(terms.view, labels=terms.labels),
        cost=found,
        sends=form.sent,
        not_protected=form.stays_open,
        numbers=numbers,
        others=table.n_items - len(taking),
        left_out=len(table) - len(taking),
        pays=math.fsum(pays.tolist()),
        noise=noise,
        shown=question is not None,
        refused=refused,
        bounds=run_bounds(store, terms, [(each.user, each.item, each.pays) for each in numbers])
        if found.status == "proved"
        else None,
    )


def _without_items(asked: Question) -> SendPreview:
    """Return the preview while a recommender's items are not here, or no longer."""
    terms, method = asked.terms, method_named(asked.terms.method)
    form, claim = method.form(terms.labels), method.claim(terms.view, labels=terms.labels)
    return SendPreview(
        asked,
        claim,
        _cost(terms),
        form.sent,
        form.stays_open,
        numbers=(),
        others=0,
        left_out=0,
        pays=0.0,
        noise=0.0,
        shown=False,
        refused="",
        has_items=False,
    )


def _cost(terms: Terms) -> Cost:
    return cost(
        terms.method, terms.view, epsilon=terms.epsilon, rounds=terms.rounds, labels=terms.labels
    )


@dataclass(frozen=True, slots=True)
class _Question:
    """The coding of ratings for a run."""

    design: str
    coding: Coding
    epsilon: float
    labels: bool
    scale: RatingScale


def _question(store: DeviceStore, asked: Question) -> _Question | None:
    """Return how the run codes ratings; None for a training, or while no items are pinned.

    Before its survey is known, it is the method's usual coding.
    """
    terms, survey, catalogue = asked.terms, asked.survey, store.pinned_catalogue
    method = method_named(terms.method)
    if not method.one_round or catalogue is None:
        return None
    scale = catalogue.known.scale
    usual = ("L", "threshold") if "L" in method.designs else ("A", "auto")
    design, curve = usual if survey is None else (survey.design, survey.coding)
    coding = make_ruler(scale) if design == "S" else make_coding(curve, scale, terms.epsilon)
    return _Question(design, coding, terms.epsilon, terms.labels, scale)


def _numbers(
    taking: Ratings, units: np.ndarray, question: _Question
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the numbers without noise, the same with a draw of noise, and its standard deviation.

    For bits: the probability of each, a draw, and 0.5.
    """
    coding, epsilon, noise = question.coding, question.epsilon, ReleasedNoise()
    entries = coding.encode(taking.values)
    if question.design == "L":
        odds = bit_probability(entries, units, coding, epsilon)
        return odds, noise.bits(odds, epsilon * units / WEIGHT_UNITS).astype(float), 0.5
    channel = sum_channels(question.design, coding, epsilon, labels=question.labels).score
    plain = units * entries
    drawn = noise.discrete_laplace(channel.scale, len(taking))
    return plain, plain + drawn, math.sqrt(2.0) * float(channel.scale)
