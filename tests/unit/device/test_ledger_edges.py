"""What is held for a run counts as spent by all others, to the last; what was given back does
not.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from hdpmf.errors import PrivacyError
from hdpmf.private.device.disclosures.bounds import budgets
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from tests.world import whole_life_policy

from .conftest import charge_all, entry

RUN, OTHER = "ab" * 16, "cd" * 16


def _left(store: DeviceStore) -> np.ndarray:
    return store.ledger.remaining(store.ratings(), store.weights(), store.policy)


def _budgets(store: DeviceStore) -> np.ndarray:
    return store.weights().for_ratings(store.ratings()) * store.policy.epsilon


def test_what_is_held_for_one_run_is_not_there_for_another(store: DeviceStore) -> None:
    ratings, weights = store.ratings(), store.weights()
    charge_all(store, 0.75, action="agreed")
    assert _left(store) == pytest.approx(_budgets(store) / 4)
    assert store.ledger.spent_total() == 0  # nothing has left
    assert store.ledger.charged() == []
    with pytest.raises(PrivacyError, match="over their whole life"):
        charge_all(store, 0.5, action="agreed", run=OTHER)
    quarter, more = _budgets(store) / 4, _budgets(store) * 0.26
    assert store.ledger.affords(ratings, weights, store.policy, quarter).all()
    assert not store.ledger.affords(ratings, weights, store.policy, more).any()
    charge_all(store, 0.25, action="agreed", run=OTHER)
    assert _left(store) == pytest.approx(0, abs=1e-12)
    store.ledger.note(entry(action="sent"), first=True)
    assert store.ledger.spent_total() == pytest.approx(0.75 * _budgets(store).sum())
    assert store.ledger.paid_in(RUN, ratings) == pytest.approx(0.75 * _budgets(store))
    assert store.ledger.paid_in(OTHER, ratings) == pytest.approx(0.25 * _budgets(store))


def test_the_owner_sees_what_each_rating_may_spend_and_what_is_left(store: DeviceStore) -> None:
    store.set_policy(whole_life_policy(epsilon=3.0))
    charge_all(store, 0.75)
    allowed = {"quiet-romance": 3.0 * 0.53125 * 0.28125}
    for budget in budgets(store):
        assert budget.allowed == pytest.approx(allowed.get(budget.item, 3.0 * 0.53125))
        assert budget.left == pytest.approx(budget.allowed / 4)
        assert budget.part == pytest.approx(1 / 4)
    assert len(budgets(store)) == 3


def test_a_part_or_all_of_it_comes_back(store: DeviceStore) -> None:
    charge_all(store, 1.0, action="agreed")
    store.ledger.give_back(entry(), 0.25)
    assert _left(store) == pytest.approx(_budgets(store) / 4)
    store.ledger.give_back(entry(), 1.5)  # no more than there was
    last = store.ledger.entries()[-1]
    assert (last.action, last.part, last.ratings, last.paid) == ("returned", 1.0, 0, 0.0)
    assert _left(store) == pytest.approx(_budgets(store))
    charge_all(store, 1.0)
    with pytest.raises(PrivacyError, match="not given back"):
        store.ledger.give_back(entry(), 1.0)
    store.ledger.give_back(entry(), 0.999)
    assert _left(store) == pytest.approx(0.999 * _budgets(store))


def test_lines_that_charge_nothing_say_that_nothing_was_paid(store: DeviceStore) -> None:
    charge_all(store, 1.0, action="agreed")
    stated = msgspec.structs.replace(entry(), ratings=7, paid=3.0, part=0.5)
    store.ledger.note(stated)
    store.ledger.give_back_users(stated, ["nobody"])
    for line in store.ledger.entries()[-2:]:
        assert (line.ratings, line.paid) == (0, 0.0)
    assert store.ledger.entries()[-1].part == 0.0


def test_what_is_held_and_can_never_be_sent_comes_back(store: DeviceStore) -> None:
    charge_all(store, 0.25, action="agreed")
    charge_all(store, 0.25, action="agreed", run=OTHER)
    store.ledger.note(entry(run=OTHER, action="sent"), first=True)
    store.ledger.release_held("the model is gone")
    last = store.ledger.entries()[-1]
    assert (last.run, last.action, last.part, last.words) == (
        RUN,
        "returned",
        1.0,
        "the model is gone",
    )
    assert _left(store) == pytest.approx(0.75 * _budgets(store))
    n_entries = len(store.ledger.entries())
    store.ledger.release_held("again")
    assert len(store.ledger.entries()) == n_entries
    run = store.ledger.charged()[0]
    assert run.entry.run == run.sent.run == OTHER
    assert len(store.ledger.charged()) == 1
    assert list(run.users) == [store.rated.user_tag("me")] * 3
    assert sorted(run.paid) == pytest.approx(sorted(0.25 * _budgets(store)))


def test_one_run_has_a_limit_of_its_own(store: DeviceStore) -> None:
    store.set_policy(msgspec.structs.replace(store.policy, max_epsilon_per_run=0.5))
    with pytest.raises(PrivacyError, match="in one run"):
        charge_all(store, 0.501)
    charge_all(store, 0.5)
    charge_all(store, 0.5, run=OTHER)
    with pytest.raises(PrivacyError, match="over their whole life"):
        charge_all(store, 0.001, run="ef" * 16)


@pytest.mark.parametrize(
    ("positions", "epsilons"),
    [
        ([0, 0], [0.1, 0.1]),
        ([0], [0.1, 0.1]),
        ([0], [0.0]),
        ([0], [-0.1]),
        ([0], [np.nan]),
        ([0], [np.inf]),
        ([0.5], [0.1]),
    ],
)
def test_charges_that_are_none(
    store: DeviceStore, positions: list[float], epsilons: list[float]
) -> None:
    with pytest.raises(PrivacyError):
        store.ledger.charge(entry(), store.ratings(), np.array(positions), np.array(epsilons))
    assert store.ledger.entries() == []


def test_a_limit_on_a_person_takes_the_first_by_tags(store: DeviceStore) -> None:
    """Up to the first that would be too much, also where a later one would fit."""
    ratings, chosen = store.ratings(), np.arange(3)
    tags = [store.rated.pair_tag("me", item) for item in ratings.item_ids.tolist()]
    order = sorted(chosen, key=lambda place: tags[place])
    epsilons = np.empty(3)
    epsilons[order] = [0.25, 0.5, 0.125]

    def within(**limits: object) -> list[int]:
        policy = msgspec.structs.replace(Policy(), **({"max_total": None} | limits))
        return store.ledger.limits.within(ratings, chosen, epsilons, policy).positions.tolist()

    assert within() == [0, 1, 2]
    assert within(max_ratings=3) == [0, 1, 2]
    assert within(max_ratings=2) == sorted(order[:2])
    assert within(max_ratings=1) == order[:1]
    assert within(max_total=0.875) == [0, 1, 2]
    assert within(max_total=0.8) == sorted(order[:2])
    assert within(max_total=0.75) == sorted(order[:2])
    assert within(max_total=0.5) == order[:1]
    assert within(max_total=0.2) == []
