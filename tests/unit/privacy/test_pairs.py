"""What one rating and one person move in what a run of pairs sends, counted in whole numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpmf.common.privacy.accounting import cost
from hdpmf.common.privacy.pairs import (
    LINEAR_BITS,
    MEAN_ENTRY,
    PAIR_BITS,
    Heads,
    Histories,
    PairsPlan,
    fill,
    limit_of,
    linear_rows,
    make_plan,
    pair_rows,
    presence_rho,
    value_rho,
    value_rows,
)
from hdpmf.errors import PrivacyError

ITEMS = 60


def plan_of(kappa: float = 1 / 16, *, stars: bool = True) -> PairsPlan:
    return make_plan(1_000, ITEMS, 0.5, stars=stars, heads=40, kappa=kappa)


HEADS = Heads.of(np.arange(ITEMS, 0, -1.0) ** 2, 40)


def one(
    items: np.ndarray, stars: np.ndarray, beta: float = 1.0, gamma: np.ndarray | None = None
) -> Histories:
    return Histories(
        np.array([0, len(items)]),
        items,
        stars,
        np.array([beta]),
        np.ones(len(items)) if gamma is None else gamma,
    )


def sent(plan: PairsPlan, own: Histories) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of presence, values and pairs, with all entries."""
    linear, values, pairs = np.zeros(ITEMS), np.zeros(ITEMS + 1), np.zeros(plan.heads)
    rows = linear_rows(plan, own)
    linear[own.items] = rows
    values[own.items], (values[-1],) = value_rows(plan, own)
    rated, entries = pair_rows(plan, HEADS, own)
    pairs[rated.items] = entries
    return linear, values, pairs


def rho_between(plan: PairsPlan, one: tuple[np.ndarray, ...], two: tuple[np.ndarray, ...]) -> float:
    """Half the sum of (change / deviation)^2 over all numbers that are summed."""
    (b, v, a), (b2, v2, a2) = one, two
    moved = (np.outer(a, a) - np.outer(a2, a2))[np.triu_indices(plan.heads)]
    found = ((moved / plan.pair_noise) ** 2).sum() + ((b - b2) ** 2).sum() / plan.linear**2
    return float(found + ((v - v2) ** 2).sum() / plan.values**2) / 2


@st.composite
def histories(draw: st.DrawFn) -> Histories:
    """Few or many ratings, alike or not, of items with one weight or with weights of their own."""
    count = draw(st.integers(1, ITEMS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    items = np.sort(rng.choice(ITEMS, count, replace=False))
    stars = rng.integers(1, 6, count).astype(float)
    if draw(st.booleans()):
        stars[:] = draw(st.integers(1, 5))
    wishes = rng.choice([0.1, 0.5, 1.0], ITEMS) if draw(st.booleans()) else np.ones(ITEMS)
    return one(items, stars, draw(st.sampled_from([1.0, 0.6, 0.2])), wishes[items])


def without(own: Histories, which: int) -> Histories:
    kept = np.delete(np.arange(len(own.items)), which)
    return one(own.items[kept], own.stars[kept], float(own.beta[0]), own.gamma[kept])


@given(histories(), st.sampled_from([1 / 4, 1 / 16, 1]))
@settings(max_examples=150, deadline=None)
def test_a_person_pays_at_most_the_plan(own: Histories, kappa: float) -> None:
    plan = plan_of(kappa)
    empty = np.zeros(ITEMS), np.zeros(ITEMS + 1), np.zeros(plan.heads)
    beta = float(own.beta[0])
    assert rho_between(plan, sent(plan, own), empty) <= beta**2 * sum(plan.costs.values())
    assert sum(plan.costs.values()) <= plan.rho


@given(histories(), histories())
@settings(max_examples=100, deadline=None)
def test_one_history_for_another_costs_at_most_two_and_for_values_four_times_as_much(
    own: Histories, other: Histories
) -> None:
    plan = plan_of()
    own, other = replace(own, beta=np.ones(1)), replace(other, beta=np.ones(1))
    most = 2 * plan.costs["linear"] + 4 * plan.costs["values"] + 2 * plan.costs["pairs"]
    assert rho_between(plan, sent(plan, own), sent(plan, other)) <= most


@pytest.mark.slow
@given(histories(), st.sampled_from([1 / 4, 1 / 16, 1]), st.data())
@settings(max_examples=300, deadline=None)
def test_presence_and_value_of_a_rating_cost_at_most_their_bounds(
    own: Histories, kappa: float, data: st.DataObject
) -> None:
    plan = plan_of(kappa)
    which = data.draw(st.integers(0, len(own.items) - 1))
    beta, gamma = float(own.beta[0]), float(own.gamma[which])
    here = sent(plan, own)
    assert rho_between(plan, here, sent(plan, without(own, which))) <= presence_rho(
        plan, beta, gamma
    )
    for star in range(1, 6):
        stars = own.stars.copy()
        stars[which] = star
        found = rho_between(plan, here, sent(plan, replace(own, stars=stars)))
        assert found <= value_rho(plan, beta, gamma)


@given(st.integers(0, 2**32), st.sampled_from([1 / 4, 1 / 16, 1 / 64]))
@settings(max_examples=300, deadline=None)
def test_no_row_however_made_moves_more_than_the_bound(seed: int, kappa: float) -> None:
    """Histories made to hurt: some at their caps, many light ones, one that pushes them out."""
    rng = np.random.default_rng(seed)
    count, gammas = int(rng.integers(1, 300)), rng.choice([0.05, 0.5, 1.0], 301)
    weights = rng.choice([1, 2, 50, 5_000], count + 1)
    for bits, part in ((PAIR_BITS, "pairs"), (LINEAR_BITS, "linear")):
        limit = limit_of(bits)
        caps = np.floor(gammas[: count + 1] * math.sqrt(kappa * limit)).astype(np.int64)
        more, less = np.zeros((2, count + 1), np.int64)
        more[:] = fill(np.array([0, count + 1]), weights, caps, np.array([limit]))
        less[1:] = fill(np.array([0, count]), weights[1:], caps[1:], np.array([limit]))
        assert (more[1:] <= less[1:]).all()
        assert share_of_bound(part, kappa, gammas[0], less, more) <= 1


def share_of_bound(
    part: str, kappa: float, gamma: float, less: np.ndarray, more: np.ndarray
) -> float:
    """How much of what the bound allows two rows of pairs or of presence differ by."""
    plan = plan_of(kappa, stars=False)
    pairs = part == "pairs"
    alone = replace(plan, linear=10**12) if pairs else replace(plan, pairs=10**15)
    if pairs:
        moved = (less @ less) ** 2 + (more @ more) ** 2 - 2 * (less @ more) ** 2
        found = moved / (4 * plan.pairs**2)
    else:
        found = ((less - more) ** 2).sum() / (2 * plan.linear**2)
    return float(found / presence_rho(alone, 1.0, gamma))


@pytest.mark.parametrize("bits", [PAIR_BITS, LINEAR_BITS])
@pytest.mark.parametrize("kappa", [1 / 4, 1 / 16])
def test_the_bound_is_reached(bits: int, kappa: float) -> None:
    """Heavy ratings fill all but one cap; one more takes what many light ones had."""
    limit, heavy, light = limit_of(bits), round(1 / kappa), 200
    caps = np.full(heavy + light, math.floor(math.sqrt(kappa * limit)))
    weights = np.array([10_000] * heavy + [1] * light)
    more, less = np.zeros((2, heavy + light), np.int64)
    more[:] = fill(np.array([0, len(caps)]), weights, caps, np.array([limit]))
    less[1:] = fill(np.array([0, len(caps) - 1]), weights[1:], caps[1:], np.array([limit]))
    part = "pairs" if bits == PAIR_BITS else "linear"
    assert 0.7 < share_of_bound(part, kappa, 1.0, less, more) <= 1


def test_without_a_cap_a_rating_may_pay_what_a_person_does() -> None:
    of = {"epsilon": 8.0, "neighbours": "presence"}
    capped, free = (cost("hdp-pairs", "sums", cap=cap, **of) for cap in ("auto", 1.0))
    person = cost("hdp-pairs", "sums", unit="user", weight=[1.0], **of)
    assert capped.zcdp < person.zcdp / 3 < person.zcdp < free.zcdp
    exchange = cost("hdp-pairs", "sums", unit="user", weight=[1.0], epsilon=8.0,
                    neighbours="exchange")  # fmt: skip
    assert 2.5 * person.zcdp < exchange.zcdp < 3 * person.zcdp


@pytest.mark.parametrize("people", [600, 6_040, 10**6])
def test_of_clicks_a_rating_pays_its_weight_of_the_bound(people: int) -> None:
    """The paper's theorem: 4 kappa W^2 rho, for every weight, also where rounding hurts most."""
    plan = make_plan(people, 3_706, 1.388, stars=False)
    for beta in (1.0, 0.6, 0.02):
        for entry in range(1, 1024):
            for bits, reach in ((PAIR_BITS, math.sqrt(beta)), (LINEAR_BITS, beta)):
                gamma = entry / math.sqrt(plan.kappa * limit_of(bits)) / reach * (1 + 1e-12)
                most = 4 * plan.kappa * (beta * min(gamma, 1.0)) ** 2 * plan.rho
                assert presence_rho(plan, beta, min(gamma, 1.0)) <= most
                assert value_rho(plan, beta, min(gamma, 1.0)) <= most


def test_the_bound_is_four_kappa_rho_but_for_rounding() -> None:
    plan = make_plan(6_040, 3_706, 1.388, stars=True)
    assert presence_rho(plan) < 4.1 * plan.kappa * plan.rho
    # Entries of a light person are small, so that rounding is more of them.
    assert presence_rho(plan, 0.5, 0.5) < 6.4 * plan.kappa * plan.rho / 16


@pytest.mark.parametrize(
    ("most", "limits", "largest", "weights"),
    [
        (6, [9, 16, 25, 40, 60, 100], 6, [1, 2, 3, 5, 9, 40]),
        (12, [64, 255, 400, 1_000], 16, [1, 2, 7, 50, 1_000]),
        (40, [1_023, 4_095, 16_383], 60, [1, 2, 3, 100, 5_000]),
        (200, [limit_of(LINEAR_BITS), limit_of(PAIR_BITS)], 1_023, [1, 2, 50, 5_000]),
    ],
)
def test_the_lemmas_hold_in_whole_numbers(
    most: int, limits: list[int], largest: int, weights: list[int]
) -> None:
    """One rating more, or of more weight: no other entry gains, and rows move as little as said."""
    rng, rows = np.random.default_rng(most), 200_000 // most
    counts, limit = rng.integers(1, most, rows), rng.choice(limits, rows)
    start = np.concatenate(([0], np.cumsum(counts)))
    first, rated = start[:-1], start[:-1] + rng.integers(0, counts)
    room = np.sqrt(np.repeat(limit, counts)).astype(np.int64)
    caps = np.minimum(rng.integers(0, largest + 1, start[-1]), room)
    weight = rng.choice(weights, start[-1])
    b = fill(start, weight, caps, limit)
    lighter, fewer, gone = weight.copy(), caps.copy(), rng.random(rows) < 0.5
    lighter[rated] = np.maximum(weight[rated] * rng.random(rows), 1)
    fewer[rated[gone]] = 0
    a = fill(start, lighter, fewer, limit)
    own, top = caps[rated], np.maximum.reduceat(caps, first)
    aa, bb, ab, others = (np.add.reduceat(x, first) for x in (a * a, b * b, a * b, (a - b) ** 2))
    others -= (a - b)[rated] ** 2
    assert (np.delete(a - b, rated) >= 0).all()
    assert (others <= own**2).all()
    assert (aa + bb - 2 * ab <= 2 * own**2).all()
    bound = 4 * limit * own**2 - 2 * own**4 + 2 * np.maximum(top - 1, 0) ** 2
    assert (aa * aa + bb * bb - 2 * ab * ab <= bound).all()


def test_rows_are_filled_to_the_limit_or_to_their_caps() -> None:
    plan = plan_of()
    linear, values, pairs = sent(plan, one(np.arange(40), np.tile([3.0, 4.0], 20)))
    assert limit_of(LINEAR_BITS) - 2 * 255 <= linear @ linear <= limit_of(LINEAR_BITS)
    assert limit_of(PAIR_BITS) - 2 * 1_023 <= pairs @ pairs <= limit_of(PAIR_BITS)
    assert values @ values <= limit_of(LINEAR_BITS)
    linear, values, pairs = sent(plan, one(np.arange(3), np.full(3, 5.0)))
    assert linear.max() == 255
    assert pairs.max() == 1_023 == math.isqrt(limit_of(PAIR_BITS) // 16)
    assert 0 < values[-1] < MEAN_ENTRY


def test_a_history_of_nothing_sends_zeros() -> None:
    plan = plan_of()
    assert not any(part.any() for part in sent(plan, one(np.zeros(0, int), np.zeros(0))))


def test_a_plan_that_cannot_be_is_refused() -> None:
    for wrong in ({"rho": 0.0}, {"people": 0}, {"kappa": 0.0}, {"kappa": 1.5}):
        with pytest.raises(PrivacyError):
            make_plan(**({"people": 10, "items": 9, "rho": 1.0, "stars": True} | wrong))
