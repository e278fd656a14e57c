"""A device that is killed at any instant goes on: nothing is paid twice, answered twice or lost.

A kill is simulated where it can happen: the process ends before a commit (the disk refuses it), or
after the commit and before the reply leaves (the reply is thrown away); then the store is opened
again and the envelope comes again. Killing real processes is in the store's own tests and in the
federation's.
"""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import Refusal, Reply, decode
from hdpmf.errors import StorageError
from hdpmf.private.device.store.device_store import DeviceStore
from tests.world import RUN, envelope

from .federated import ROUNDS, Run, agent_for, make_store, part, survey_for, terms_for

pytestmark = pytest.mark.slow


class Killed(Run):
    """A run in which the first device is killed again and again."""

    def __init__(self, path, method, kill_at, **options):
        store = make_store(path, part([4]))
        other = make_store(ratings=part([1, 2]))
        agents = [agent_for(store, SeededNoise(1)), agent_for(other, SeededNoise(2))]
        super().__init__(agents, method, **options)
        self.path, self.kill_at, self.step = path, kill_at, 0
        self.replies = {}

    def restart(self):
        self.agents[0].store.close()
        self.agents[0] = agent_for(DeviceStore.open(self.path), SeededNoise(50 + self.step))

    def tell(self, message, number=0):
        data = envelope(message, number, run=self.run)
        self.step += 1
        if "before" in self.kill_at(self.step):
            store = self.agents[0].store
            with pytest.MonkeyPatch.context() as killed:
                killed.setattr(store.runs, "put_reply", _refuse)
                reply = decode(self.agents[0].answer(data))
            assert reply.part != "refusal" or decode(reply.body) == Refusal(reason="storage")
            self.restart()
        first = self.agents[0].answer(data)
        if "after" in self.kill_at(self.step):
            self.restart()
            assert self.agents[0].answer(data) == first
        assert decode(first).part == "job"
        others = [agent.answer(data) for agent in self.agents[1:]]
        return [decode(decode(one).body) for one in (first, *others)]


def _refuse(*_):
    raise StorageError("killed")


SCHEDULES = {
    "before every commit": lambda step: {"before"},
    "after every commit": lambda step: {"after"},
    "both": lambda step: {"before", "after"},
    "now and then": lambda step: (
        {"before"} if step % 3 == 0 else {"after"} if step % 4 == 0 else set()
    ),
}


@pytest.mark.parametrize("method", ["hdpmf", "pdpmf", "hdpmf-paid", "mf"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_training_survives(tmp_path, method, name):
    run = Killed(tmp_path / "me.db", method, SCHEDULES[name])
    run.open()
    run.finish()
    store = run.agents[0].store
    entries = store.ledger.entries()
    assert [one.ratings > 0 for one in entries].count(True) == 1
    rounds = [one.number for one in entries if one.action == "sent" and one.number]
    assert rounds == list(range(1, ROUNDS + 1))
    # pdpmf and dpmf report budgets first, which is when they pay.
    assert len(entries) == 1 + ROUNDS + 1 + (method == "pdpmf")
    weights = store.weights().for_ratings(store.ratings())
    if method not in (
        "mf",
        "hdpmf-paid",
    ):  # in this view these hide nothing, and pay infinitely much
        assert store.ledger.paid_in(RUN.hex(), store.ratings()) == pytest.approx(0.5 * weights)
    assert len(store.ratings()) == len(part([4]))


def test_vectors_after_a_restart_are_those_without_one(tmp_path):
    results = []
    for name in ("now and then", None):
        run = Killed(
            tmp_path / f"{name}.db", "hdpmf-w", SCHEDULES[name] if name else lambda step: set()
        )
        run.agents = [agent_for(agent.store) for agent in run.agents]
        run.restart = lambda run=run: run.agents.__setitem__(0, agent_for(run.agents[0].store))
        run.open()
        results.append(run.finish())
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_survey_survives(tmp_path, name):
    run = Killed(tmp_path / "me.db", "hdpmf", SCHEDULES[name], terms=terms_for("hdp-bit"))
    run.tell(run.terms)
    answers = run.tell(survey_for("L"))
    assert len(answers[0].plus) <= len(part([4]))
    entries = run.agents[0].store.ledger.entries()
    assert [(one.action, one.ratings > 0) for one in entries] == [("sent", True)]


def test_every_persisted_step_can_be_the_last_one(tmp_path):
    """The store copied after each answer, as a kill would leave it, and the conversation gone on
    with from there.
    """
    path = tmp_path / "me.db"
    store = make_store(path, part([4]))
    agent = agent_for(store, SeededNoise(1))
    copies = []

    def heard(place, asked, reply):
        copy = tmp_path / f"{len(copies)}.db"
        for end in ("", "-wal", ".counter"):
            shutil.copy(f"{path}{end}", f"{copy}{end}")
        copies.append((copy, asked, reply))

    run = Run([agent], heard=heard)
    run.open()
    run.finish()
    for place, (copy, asked, reply) in enumerate(copies):
        again = agent_for(DeviceStore.open(copy), SeededNoise(1000 + place))
        assert again.answer(asked) == reply
        for _, later, _ in copies[place + 1 :]:
            found = decode(again.answer(later))
            assert isinstance(found, Reply)
            assert found.part == "job", decode(found.body)
        total = again.store.ledger.paid_in(RUN.hex(), again.store.ratings())
        assert total == pytest.approx(
            0.5 * again.store.weights().for_ratings(again.store.ratings())
        )
        again.store.close()
