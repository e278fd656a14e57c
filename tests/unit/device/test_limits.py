"""Limits on a person's ratings: one rating more moves what the others send by its own weight at
most, in one run and over a whole life.

Distances are in the units of the proof: a 64th of a weight, or what the noise makes of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hdpmf.common.privacy.coding import make_coding, make_ruler, sum_channels, weight_units
from hdpmf.common.privacy.mechanisms import bound_weights
from hdpmf.common.protocol import CatalogueTable
from hdpmf.private.device.budget import charge, choose, entry_of, participation, units_paid
from hdpmf.private.device.disclosures.limits import fill
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.encryption import StoreCipher
from tests.world import terms, whole_life_policy

UNIT = 0.5 / 64
N_ITEMS = 14
TABLE = CatalogueTable(
    ids=tuple(str(item) for item in range(N_ITEMS)),
    integer_ids=False,
    scale_low=1.0,
    scale_high=5.0,
    scale_step=1.0,
)

Filled = Callable[[list[bytes], list[int], float], list[float]]


def filled(tags: list[bytes], units: list[int], room: float) -> list[float]:
    """The weights that enter, in 64ths."""
    found = fill(tags, [unit * UNIT for unit in units], room, unit=UNIT)
    return [(paid or 0.0) / UNIT for paid in found]


def drawn(tags: list[bytes], units: list[int], room: float) -> list[float]:
    """The same in the library, whose limits are whole ratings of weight 1."""
    draws = np.array([int.from_bytes(tag, "big") for tag in tags])
    most = math.floor(room / UNIT / 64)
    found = bound_weights(np.zeros(len(tags), np.int64), most, draws, np.array(units, np.int64))
    return [float(one) for one in found]


def all_or_nothing(tags: list[bytes], units: list[int], room: float) -> list[float]:
    """A planted fault: how it was before."""
    found = fill(tags, [unit * UNIT for unit in units], room)
    return [(paid or 0.0) / UNIT for paid in found]


def by_number(tags: list[bytes], units: list[int], room: float) -> list[float]:
    """Another one: a light rating takes the place of a heavy one."""
    most = math.ceil(room / UNIT / 64)
    found = fill(tags, [unit * UNIT for unit in units], math.inf, most, UNIT)
    return [(paid or 0.0) / UNIT for paid in found]


def rounded_weights(tags: list[bytes], units: list[int], room: float) -> list[float]:
    """A third one: what is paid is off the grid, and the rest is rounded down to it."""
    order = sorted(range(len(tags)), key=lambda at: tags[at])
    entered = [0.0] * len(tags)
    for at in order:
        entered[at] = float(min(units[at], max(math.floor(room / UNIT), 0)))
        room -= (units[at] + 0.9) * UNIT
    return entered


def worst_ratio(rule: Filled, trials: int = 3000) -> float:
    """The largest distance of two neighbours, over the weight of the rating between them."""
    rng = np.random.default_rng(7)
    worst = 0.0
    for _ in range(trials):
        n = int(rng.integers(1, 9))
        tags = [bytes(rng.bytes(4)) for _ in range(n)]
        units = rng.integers(1, 65, n).tolist()
        room = float(rng.uniform(0, sum(units) * 1.2)) * UNIT
        one = int(rng.integers(n))
        whole = rule(tags, units, room)
        rest = [at for at in range(n) if at != one]
        less = rule([tags[at] for at in rest], [units[at] for at in rest], room)
        moved = whole[one] + sum(abs(whole[at] - paid) for at, paid in zip(rest, less, strict=True))
        worst = max(worst, moved / units[one])
        if rule in (filled, drawn):
            assert sum(whole) <= room / UNIT + 1e-9
            assert all(paid <= most for paid, most in zip(whole, units, strict=True))
    return worst


@pytest.mark.parametrize("rule", [filled, drawn])
def test_one_rating_more_moves_twice_its_weight_at_most(rule: Filled) -> None:
    assert 1.9 < worst_ratio(rule) <= 2 + 1e-9


@pytest.mark.parametrize("fault", [all_or_nothing, by_number, rounded_weights])
def test_a_planted_fault_is_noticed(fault: Filled) -> None:
    assert worst_ratio(fault) > 2.01


def test_users_have_limits_of_their_own() -> None:
    """In the library many users are bounded at a time: as each of them alone."""
    rng = np.random.default_rng(4)
    users, units, draws = rng.integers(0, 9, 200), rng.integers(0, 65, 200), rng.random(200)
    together = bound_weights(users, 3, draws, units)
    for user in range(9):
        own = users == user
        alone = bound_weights(users[own], 3, draws[own], units[own])
        np.testing.assert_array_equal(together[own], alone)
        assert alone.sum() == min(3 * 64, units[own].sum())


def test_what_is_left_of_the_total_is_filled() -> None:
    tags = [b"a", b"b", b"c", b"d"]
    prices = [0.5, 0.25, 0.5, 0.125]
    assert fill(tags, prices, 1.0, unit=UNIT) == [0.5, 0.25, 0.25, None]
    assert fill(tags, prices, 1.0) == [0.5, 0.25, None, None]
    assert fill(tags, prices, 0.75, unit=UNIT) == [0.5, 0.25, None, None]
    assert fill(tags, prices, 0.75 + UNIT / 2, unit=UNIT) == [0.5, 0.25, None, None]
    assert fill(tags, prices, 0.75 + UNIT, unit=UNIT) == [0.5, 0.25, UNIT, None]
    assert fill(tags, prices, -1.0, unit=UNIT) == [None] * 4
    assert fill(tags, prices, math.inf, 2, UNIT) == [0.5, 0.25, None, None]
    assert fill(tags, [0.5, 0.0, 0.5, 0.0], 0.5, unit=UNIT) == [0.5, 0.0, None, 0.0]


class Life:
    """One person's device through runs of several recommenders, noise off."""

    def __init__(self, **limits: Any) -> None:
        self.store = DeviceStore.create(":memory:", policy=whole_life_policy(**limits))
        KEPT.append(self.store.pin_catalogue(TABLE))
        self.runs = 0

    def rate(self, item: int, value: float, weight: float) -> None:
        self.store.rate(str(item), value)
        self.store.set_weight(item=str(item), gamma=weight)

    def run(self, recommender: str, epsilon: float) -> dict[int, int]:
        """What a run gets of each item, in 64ths."""
        asked = terms(TABLE, epsilon=epsilon)
        taken = choose(self.store, asked, recommender)
        part = participation(self.store, taken.positions, units_paid(taken.pays, asked))
        self.runs += 1
        entry = entry_of(
            asked,
            "sent",
            "numbers",
            recommender=recommender,
            run=self.runs.to_bytes(16, "big"),
        )
        charge(self.store, entry, taken)
        units = weight_units(part.weights.for_ratings(part.ratings)).tolist()
        return dict(zip(map(int, part.ratings.item_ids.tolist()), units, strict=True))


def two_lives(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> tuple[Life, Life]:
    """Two devices with one key, which decides which ratings a limit leaves out."""
    cipher = StoreCipher.new()
    monkeypatch.setattr(StoreCipher, "new", lambda passphrase=None: cipher)
    lives = Life(**limits), Life(**limits)
    monkeypatch.undo()
    return lives


KEPT: list[object] = []
"""Stores in memory know their catalogue by its digest: somebody has to hold it."""


@pytest.mark.parametrize("limits", [{"max_total": 2.0}, {"max_ratings": 3}, {"max_total": None}])
def test_a_rating_moves_others_once_in_its_life(
    limits: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ratings come and go, two recommenders ask in turn; the worlds differ in one rating."""
    rng = np.random.default_rng(11)
    reached = 0
    for _ in range(12):
        lives = two_lives(monkeypatch, **limits)
        one = int(rng.integers(N_ITEMS))
        weights = rng.integers(1, 65, N_ITEMS) / 64
        order = rng.permutation(N_ITEMS)
        moved = took_part = 0
        for n, items in enumerate(np.array_split(order, 3)):
            for item in items.tolist():
                value = float(rng.integers(1, 6))
                for life in lives if item != one else lives[:1]:
                    life.rate(item, value, weights[item])
            for recommender in ("https://a.example", "https://b.example")[: 1 + n % 2]:
                whole, less = (life.run(recommender, 0.5) for life in lives)
                took_part += whole.get(one, 0)
                moved += sum(abs(whole.get(item, 0) - less.get(item, 0)) for item in range(N_ITEMS))
        reached += moved > took_part
        assert moved <= 2 * took_part or (took_part == 0 == moved)
    assert bool(reached) == (limits != {"max_total": None})


def test_who_was_cut_short_counts_as_paid_in_full() -> None:
    """A hidden rating more must not let another one take part later that could not without it."""
    life = Life(max_total=0.9)
    for item in range(4):
        life.rate(item, 3.0, 1.0)
    sent = life.run("https://a.example", 0.6)
    assert sorted(sent.values()) == [32, 64]
    store = life.store
    ratings, weights, policy = store.ratings(), store.weights(), store.policy
    assert sorted(store.ledger.spent(ratings).tolist()) == pytest.approx([0, 0, 0.3, 0.6])
    assert not store.ledger.affords(ratings, weights, policy, np.full(4, 0.5)).any()
    assert store.ledger.affords(ratings, weights, policy, np.full(4, 0.4)).all()
    assert store.ledger.has_answered("https://a.example", "hdp-sum", ratings).all()
    (run,) = store.ledger.charged()
    assert len(run.pairs) == 2  # who was left out is in no history


def test_another_epsilon_adds_two_units_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left after a run may fit the finer units of a run with a smaller epsilon."""
    rng = np.random.default_rng(5)
    for _ in range(12):
        lives = two_lives(monkeypatch, max_total=1.3)
        weights = rng.integers(1, 65, N_ITEMS) / 64
        spent = [0.0, 0.0]
        for n, items in enumerate(np.array_split(rng.permutation(N_ITEMS), 3)):
            for item in items.tolist():
                for life in lives if item != 0 else lives[:1]:
                    life.rate(item, 3.0, weights[item])
            epsilon = (0.5, 0.3, 0.05)[n]
            whole, less = (life.run("https://a.example", epsilon) for life in lives)
            moved = sum(abs(whole.get(item, 0) - less.get(item, 0)) for item in range(N_ITEMS))
            spent[0] += moved * epsilon / 64
            spent[1] += whole.get(0, 0) * epsilon / 64
        assert spent[0] <= 2 * spent[1] + 2 * 0.5 / 64 + 1e-9


def test_the_noise_makes_twice_the_presence_cost_of_it() -> None:
    """Scores, weights and the total of the vectors themselves, over the scales of their noise."""
    rng = np.random.default_rng(3)
    scale, epsilon = _scale(), 0.5
    coding = make_coding("soft", scale, epsilon)
    channels = sum_channels(coding, epsilon)
    ruler, dearest = make_ruler(scale), Fraction(0)
    for _ in range(300):
        n = int(rng.integers(2, 9))
        tags, values = [bytes(rng.bytes(4)) for _ in range(n)], rng.integers(1, 6, n)
        units = rng.integers(1, 65, n).tolist()
        room = float(rng.uniform(0, sum(units))) * UNIT
        whole = np.array(filled(tags, units, room)).astype(int)
        less = np.array([0, *filled(tags[1:], units[1:], room)]).astype(int)
        difference = whole - less
        scores = difference * coding.encode(values.astype(np.float32))
        cost = sum(map(abs, scores.tolist())) / channels.score.scale
        cost += Fraction(int(np.abs(difference).sum())) / channels.weight.scale
        moved = int((difference * ruler.encode(values.astype(np.float32))).sum())
        cost += abs(moved) / channels.total.scale
        claim = 2 * channels.presence_cost * Fraction(units[0], 64)
        assert cost <= claim
        dearest = max(dearest, cost / claim)
    assert dearest > Fraction(3, 5)


def _scale() -> Any:
    from hdpmf.common.privacy.accounting.setting import STARS

    return STARS
