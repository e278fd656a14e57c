"""No rating is ever spent beyond its budget, and what was written stays written, in its order."""

from __future__ import annotations

import math
import sqlite3
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hdpmf.common.privacy.accounting.costs import rounded_up
from hdpmf.common.protocol import CatalogueTable
from hdpmf.errors import PrivacyError, StorageError
from hdpmf.private.device.disclosures.bounds import total_spending
from hdpmf.private.device.disclosures.limits import SLACK
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from tests.world import whole_life_policy

from .conftest import charge_all, entry

ITEMS = tuple("abcdefgh")
TABLE = CatalogueTable(ids=ITEMS, integer_ids=False, scale_low=1.0, scale_high=5.0, scale_step=None)


def test_a_charge_is_written_and_counted(store: DeviceStore) -> None:
    ratings, weights, policy = store.ratings(), store.weights(), store.policy
    budgets = weights.for_ratings(ratings) * policy.epsilon
    assert np.array_equal(store.ledger.remaining(ratings, weights, policy), budgets)
    store.ledger.charge(entry(), ratings, np.array([0, 2]), budgets[[0, 2]] / 4)
    assert store.ledger.remaining(ratings, weights, policy) == pytest.approx(
        budgets * [0.75, 1, 0.75]
    )
    assert store.ledger.spent_total() == pytest.approx(float(budgets[0] + budgets[2]) / 4)
    (written,) = store.ledger.entries()
    assert (written.ratings, written.paid) == (2, pytest.approx(float(budgets[0] + budgets[2]) / 4))
    assert written.words == "whole numbers into a sum"
    assert store.ledger.paid_in("ab" * 16, ratings) == pytest.approx(budgets * [0.25, 0, 0.25])
    assert not store.ledger.paid_in("cd" * 16, ratings).any()


def test_one_that_is_too_much_leaves_all_as_it_was(store: DeviceStore) -> None:
    ratings, weights = store.ratings(), store.weights()
    budgets = weights.for_ratings(ratings) * store.policy.epsilon
    store.ledger.charge(entry(), ratings, np.array([1]), budgets[[1]] / 2)
    with pytest.raises(PrivacyError, match="1 of 3 ratings"):
        store.ledger.charge(entry(), ratings, np.arange(3), budgets * 0.75)
    assert len(store.ledger.entries()) == 1
    assert store.ledger.affords(ratings, weights, store.policy, budgets * 0.75).tolist() == [
        True,
        False,
        True,
    ]


def test_what_is_spent_stays_spent(store: DeviceStore, path: Path, passphrase: str | None) -> None:
    charge_all(store)
    store.rate("film-of-shame", 5.0)  # another value
    store.remove("quiet-romance")
    store.rate("quiet-romance", 3.0)  # gone and back
    store.close()
    with DeviceStore.open(path, passphrase=passphrase) as again:  # a restart
        for recommender in ("films.example", "other.example"):
            with pytest.raises(PrivacyError, match="3 of 3"):
                charge_all(again, 0.01, recommender=recommender)
        again.forget(ratings=True)
        for item in ("film-of-shame", "quiet-romance", "zombie-opera"):
            again.rate(item, 1.0)
        with pytest.raises(PrivacyError, match="3 of 3"):
            again.ledger.charge(entry(), again.ratings(), np.arange(3), np.full(3, 1.0))


def test_ten_tenths_are_a_whole(store: DeviceStore) -> None:
    for _ in range(10):
        charge_all(store, 0.1)
    ratings, weights = store.ratings(), store.weights()
    assert not store.ledger.affords(ratings, weights, store.policy, np.full(3, 1e-6)).any()
    with pytest.raises(PrivacyError):
        charge_all(store, 1e-6)


def test_two_devices_of_a_person_spend_no_more_than_one(tmp_path: Path) -> None:
    policy = Policy(epsilon=1.0, max_total=1.5, devices=2)
    paid = np.zeros(3)
    for name in ("phone", "laptop"):
        with DeviceStore.create(tmp_path / name, policy=policy) as own:
            own.pin_catalogue(TABLE)
            for item in "abc":
                own.rate(item, 3.0)
            ratings, weights = own.ratings(), own.weights()
            assert not own.ledger.affords(ratings, weights, policy, np.full(3, 0.6)).any()
            assert own.ledger.affords(ratings, weights, policy, np.full(3, 0.5)).all()
            chosen, _, _ = own.ledger.limits.within(ratings, np.arange(3), np.full(3, 0.5), policy)
            with pytest.raises(PrivacyError, match="max_total"):
                own.ledger.charge(entry(), ratings, np.arange(3), np.full(3, 0.5))
            own.ledger.charge(entry(), ratings, chosen, np.full(len(chosen), 0.5))
            with pytest.raises(PrivacyError, match="whole life"):
                own.ledger.charge(entry(), ratings, chosen, np.full(len(chosen), 0.1))
            paid += own.ledger.paid_in("ab" * 16, ratings)
    assert 0 < paid.max() <= 1.0
    assert paid.sum() <= 1.5


def test_a_smaller_weight_counts_at_once(store: DeviceStore) -> None:
    ratings, weights = store.ratings(), store.weights()
    store.set_weight(beta=0.01)
    with pytest.raises(PrivacyError, match="3 of 3"):  # whatever table the caller still holds
        store.ledger.charge(entry(), ratings, np.arange(3), weights.for_ratings(ratings))
    assert store.ledger.entries() == []


def test_a_rating_that_is_gone_cannot_pay(store: DeviceStore) -> None:
    ratings = store.ratings()
    store.remove("zombie-opera")
    with pytest.raises(PrivacyError, match="not in the store"):
        store.ledger.charge(entry(), ratings, np.arange(3), np.full(3, 0.01))


def test_a_limit_for_all_of_a_persons_ratings(path: Path) -> None:
    store = DeviceStore.create(path, policy=Policy(max_total=1.5))
    for item in ITEMS[:3]:
        store.rate(item, 3.0)
    store.pin_catalogue(TABLE)
    charge_all(store, 0.5)
    assert store.ledger.spent_total() == pytest.approx(1.5)
    ratings = store.ratings()
    with pytest.raises(PrivacyError, match="max_total"):
        store.ledger.charge(entry(), ratings, np.array([0]), np.array([0.1]))


def test_at_most_so_many_ratings_of_a_person_in_a_run(path: Path) -> None:
    """Whichever they are, their values have no say."""
    store = DeviceStore.create(path, policy=Policy(max_ratings=2, max_total=math.inf))
    for item in ITEMS[:5]:
        store.rate(item, 3.0)
    store.pin_catalogue(TABLE)

    def within() -> list[str]:
        ratings = store.ratings()
        kept, _, _ = store.ledger.limits.within(ratings, np.arange(5), np.ones(5), store.policy)
        return list(ratings.item_ids[kept].tolist())

    before = within()
    assert len(before) == 2
    for item in ITEMS[:5]:
        store.rate(item, 5.0)
    assert within() == before


def test_a_person_is_charged_for_all_ratings_together(path: Path) -> None:
    """Pure they add up; at delta many small ones cost less."""
    store = DeviceStore.create(path, policy=Policy(max_total=None))
    assert total_spending(store.ledger).pure == 0
    for number in range(60):
        store.rate(f"i{number:02d}", 3.0)
    ids = tuple(f"i{number:02d}" for number in range(60))
    store.pin_catalogue(
        CatalogueTable(ids=ids, integer_ids=False, scale_low=1.0, scale_high=5.0, scale_step=None)
    )
    ratings = store.ratings()
    for run in ("ab" * 16, "cd" * 16):
        store.ledger.charge(entry(run=run, epsilon=0.25), ratings, np.arange(60), np.full(60, 0.25))
    found = total_spending(store.ledger)
    assert found.proved
    assert found.pure == pytest.approx(30.0) == store.ledger.spent_total()
    assert 8 < found.at_delta < 0.7 * found.pure
    assert str(found) == f"epsilon 30, or ({rounded_up(found.at_delta, 4)}, 1e-05)"


def test_a_limit_per_run(path: Path) -> None:
    store = DeviceStore.create(path, policy=Policy(max_epsilon_per_run=0.25))
    store.rate("a", 3.0)
    store.pin_catalogue(TABLE)
    with pytest.raises(PrivacyError, match="in one run"):
        charge_all(store, 0.5)
    charge_all(store, 0.25)


@pytest.mark.parametrize(
    ("chosen", "epsilons"),
    [
        ([0, 0], [0.1, 0.1]),
        ([0], [0.0]),
        ([0], [-0.1]),
        ([0], [math.nan]),
        ([0, 1], [0.1]),
        ([0.5], [0.1]),
    ],
)
def test_charges_that_make_no_sense(
    store: DeviceStore, chosen: list[float], epsilons: list[float]
) -> None:
    with pytest.raises(PrivacyError):
        store.ledger.charge(entry(), store.ratings(), np.array(chosen), np.array(epsilons))
    assert store.ledger.entries() == []


def test_nobody_takes_part_and_that_is_written(store: DeviceStore) -> None:
    store.ledger.charge(entry(), store.ratings(), np.empty(0, np.int64), np.empty(0))
    assert [one.ratings for one in store.ledger.entries()] == [0]
    assert store.ledger.spent_total() == 0.0


def test_the_order_is_that_of_writing_whatever_the_clock_says(store: DeviceStore) -> None:
    times = iter(
        ("2031-01-01T00:00:00+00:00", "1970-01-01T00:00:00+00:00", "2026-05-05T00:00:00+00:00")
    )
    store.ledger._journal._clock = lambda: next(times)
    charge_all(store, 0.5, words="first")
    store.ledger.note(entry(action="sent", words="second"))
    charge_all(store, 0.5, words="third")
    written = store.ledger.entries()
    assert [one.words for one in written] == ["first", "second", "third"]
    assert [one.at[:4] for one in written] == ["2031", "1970", "2026"]
    with pytest.raises(PrivacyError):
        charge_all(store, 0.01)


def test_it_is_append_only(store: DeviceStore, path: Path) -> None:
    charge_all(store, 0.5)
    connection = sqlite3.connect(path)
    for statement in (
        "DELETE FROM ledger",
        "UPDATE ledger SET charges = NULL",
        "REPLACE INTO ledger VALUES (1, '', '')",
        "INSERT INTO ledger VALUES (-5, '', '')",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    connection.close()
    assert len(store.ledger.entries()) == 1


def test_entries_cannot_be_exchanged_in_an_encrypted_store(path: Path) -> None:
    store = DeviceStore.create(path, passphrase="passphrase")
    store.rate("a", 3.0)
    store.pin_catalogue(TABLE)
    charge_all(store, 0.5)
    charge_all(store, 0.1)
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER ledger_stays")
    connection.execute(
        "UPDATE ledger SET charges = (SELECT charges FROM ledger WHERE number = 2) WHERE number = 1"
    )
    connection.commit()
    connection.close()
    with pytest.raises(StorageError, match="tampered"):
        store.ledger.spent_total()


class Life(RuleBasedStateMachine):
    """A device's life with two recommenders, crashes and a changing mind; a model of it in plain
    Python beside it.
    """

    @initialize(encrypted=st.booleans())
    def begin(self, encrypted: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "store"
        self.passphrase = "passphrase" if encrypted else None
        self.store = DeviceStore.create(
            self.path, passphrase=self.passphrase, policy=whole_life_policy()
        )
        self.store.pin_catalogue(TABLE)
        self.spent: dict[str, float] = defaultdict(float)
        self.weight: dict[str, float] = {}
        self.rated: dict[str, float] = {}
        self.allowed: dict[str, float] = defaultdict(
            float
        )  # the largest budget that a rating ever had
        self.written = 0

    def _note_budgets(self) -> None:
        for item in self.rated:
            self.allowed[item] = max(
                self.allowed[item], self.weight.get(item, 1.0) * self.store.policy.epsilon
            )

    @rule(item=st.sampled_from(ITEMS), value=st.floats(1, 5))
    def rate(self, item: str, value: float) -> None:
        self.store.rate(item, value)
        self.rated[item] = value

    @rule(item=st.sampled_from(ITEMS), gamma=st.floats(0.01, 1.0))
    def weigh(self, item: str, gamma: float) -> None:
        self.store.set_weight(item=item, gamma=gamma)
        self.weight[item] = gamma

    @rule(item=st.sampled_from(ITEMS))
    def remove(self, item: str) -> None:
        if item in self.rated:
            self.store.remove(item)
            del self.rated[item]

    @rule(
        epsilon=st.floats(0.01, 0.7),
        recommender=st.sampled_from(["one", "two"]),
        greedy=st.booleans(),
        crash=st.booleans(),
    )
    def charge(self, epsilon: float, recommender: str, greedy: bool, crash: bool) -> None:
        """A run: an honest agent takes what ratings can afford, a faulty one takes all."""
        ratings, weights, policy = self.store.ratings(), self.store.weights(), self.store.policy
        if not len(ratings):
            return
        self._note_budgets()
        asked = weights.for_ratings(ratings) * epsilon
        can = self.store.ledger.affords(ratings, weights, policy, asked)
        chosen = np.arange(len(ratings)) if greedy else np.flatnonzero(can)
        try:
            self.store.ledger.charge(entry(recommender=recommender), ratings, chosen, asked[chosen])
            assert can[chosen].all()
            self.written += 1
            for item, paid in zip(
                ratings.item_ids[chosen].tolist(), asked[chosen].tolist(), strict=True
            ):
                self.spent[item] += paid
        except PrivacyError:
            assert greedy
            assert not can.all()
        if crash:
            self.reopen()

    @rule()
    def reopen(self) -> None:
        """The process dies without a word (its descriptors are closed, nothing is flushed)."""
        self.store._database._connection.close()
        self.store = DeviceStore.open(self.path, passphrase=self.passphrase)

    @invariant()
    def never_beyond_the_budget(self) -> None:
        if not hasattr(self, "store"):
            return
        assert len(self.store.ledger.entries()) == self.written
        ratings, weights, policy = self.store.ratings(), self.store.weights(), self.store.policy
        budgets = weights.for_ratings(ratings) * policy.own_epsilon
        spent_now = budgets - self.store.ledger.remaining(ratings, weights, policy)
        paid = dict(zip(ratings.item_ids.tolist(), spent_now.tolist(), strict=True))
        known = {item: self.spent[item] for item in self.rated}
        assert paid == pytest.approx(known, abs=1e-12)
        for item, spent in self.spent.items():
            assert spent <= self.allowed[item] * (1 + 2 * SLACK)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()


TestLife = pytest.mark.slow(Life.TestCase)
TestLife.settings = settings(
    max_examples=25,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-3, 0.5), min_size=1, max_size=12), st.floats(0.05, 1.0))
def test_what_can_be_afforded_can_be_charged(epsilons: list[float], beta: float) -> None:
    store = DeviceStore.create(":memory:")
    store.rate("a", 3.0)
    store.set_weight(beta=beta)
    store.pin_catalogue(TABLE)
    ratings, weights, one = store.ratings(), store.weights(), np.array([0])
    for epsilon in epsilons:
        can = bool(
            store.ledger.affords(ratings, weights, store.policy, np.array([epsilon * beta]))[0]
        )
        try:
            store.ledger.charge(entry(), ratings, one, np.array([epsilon * beta]))
            assert can
        except PrivacyError:
            assert not can
    assert store.ledger.spent_total() <= beta * (1 + SLACK)
