"""What is held for a run counts as spent by all others, to the last; what was given back does
not.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from hdpmf.errors import PrivacyError
from hdpmf.private.device.store.device_store import DeviceStore

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
    assert sorted(run.paid) == pytest.approx(sorted(0.25 * _budgets(store)))


def test_one_run_has_a_limit_of_its_own(store: DeviceStore) -> None:
    store.set_policy(msgspec.structs.replace(store.policy, max_epsilon_per_run=0.5))
    with pytest.raises(PrivacyError, match="in one run"):
        charge_all(store, 0.501)
    charge_all(store, 0.5)
    charge_all(store, 0.5, run=OTHER)
    with pytest.raises(PrivacyError, match="over their whole life"):
        charge_all(store, 0.001, run="ef" * 16)
