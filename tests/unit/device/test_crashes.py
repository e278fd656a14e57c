"""A device that is killed, or whose disk is full, loses nothing that was committed and keeps
nothing by halves.

Each test runs in a process of its own, which forks the writers that it kills.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import PASSPHRASE

pytestmark = pytest.mark.slow

_COMMON = """
import os, random, signal, sys, time
import numpy as np
from hdpmf.private.device.store import encryption as vault
vault.SCRYPT_COST = 16
from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.errors import ConfigError, StorageError
from hdpmf.common.protocol import CatalogueTable

path, passphrase, kills = sys.argv[1], sys.argv[2] or None, int(sys.argv[3])
ITEMS = tuple(str(number) for number in range(100, 1000))
POLICY = Policy(max_total=None, max_epsilon_per_run=None)  # many ratings pay here
TABLE = CatalogueTable(ids=ITEMS, integer_ids=True, scale_low=1.0, scale_high=5.0, scale_step=None)

def entry(words):
    return Entry(recommender="r", run="ab" * 16, number=0, method="hdp-sum", view="sums", epsilon=1.0, status="proved",
                 action="sent", words=words)

def step(store, number):
    # A rating, what it pays and the state belong together.
    with store.transaction():
        store.rate(ITEMS[number], 1.0 + number % 5)
        ratings, weights = store.ratings(), store.weights()
        at = np.flatnonzero(ratings.item_ids == int(ITEMS[number]))
        store.ledger.charge(entry(str(number)), ratings, at, np.ones(1))
        store.runs.save(b"r" * 16, str(number).encode() * 500)
        store.runs.put_part(b"r" * 16, b"request", str(number).encode())

def check(store):
    ratings, entries = store.ratings(), store.ledger.entries()
    n = len(entries)
    assert [one.words for one in entries] == [str(number) for number in range(n)], "the ledger has a gap"
    assert ratings.item_ids.tolist() == [int(item) for item in ITEMS[:n]], "ratings and ledger differ"
    assert np.allclose(store.ledger.remaining(ratings, store.weights(), store.policy), 0.0)
    if n:
        assert store.runs.load(b"r" * 16) == str(n - 1).encode() * 500
        assert store.runs.get_part(b"r" * 16, b"request") == str(n - 1).encode()
    return n
"""  # noqa: E501

_KILLED = (
    _COMMON
    + """
store = DeviceStore.create(path, passphrase=passphrase, policy=POLICY)
store.pin_catalogue(TABLE)
store.close()
chance = random.Random(7)
reached = 0
for _ in range(kills):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        store = DeviceStore.open(path, passphrase=passphrase)
        os.write(writer, b".")
        for number in range(reached, len(ITEMS)):
            step(store, number)
            os.write(writer, b"%d\\n" % number)
        os._exit(0)
    os.close(writer)
    os.read(reader, 1)
    said, wanted = b"", chance.randrange(4)
    while said.count(b"\\n") < wanted:  # however slow the machine is
        piece = os.read(reader, 1)
        assert piece, "it ended by itself"
        said += piece
    time.sleep(chance.expovariate(1 / 0.01))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while piece := os.read(reader, 1 << 16):
        said += piece
    os.close(reader)
    committed = int(said.split()[-1]) + 1 if said.split() else reached
    with DeviceStore.open(path, passphrase=passphrase) as store:
        found = check(store)
    # What was said to be committed is there; one more may have been, without the time to say so.
    assert committed <= found <= committed + 1, (committed, found)
    reached = found
print(reached)
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("passphrase", ["", PASSPHRASE], ids=["plain", "encrypted"])
def test_killed_at_random_moments(tmp_path: Path, passphrase: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _KILLED, tmp_path / "store", passphrase, "25"],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 0


_FULL = (
    _COMMON
    + """
import resource
store = DeviceStore.create(path, passphrase=passphrase, policy=POLICY)
store.pin_catalogue(TABLE)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
refused = 0
number = 0
for room in (30_000, 100_000, 250_000):
    largest = max(os.path.getsize(path + ending) for ending in ("", "-wal"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + room, hard))
    while True:
        try:
            step(store, number)
            number += 1
        except StorageError as error:
            refused += 1
            assert "disk" in str(error), error
            break
    try:
        assert check(store) == number
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    step(store, number)  # there is room again
    number += 1
    store.close()
    store = DeviceStore.open(path, passphrase=passphrase)
    assert check(store) == number
resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
try:
    DeviceStore.create(path + "-new")
except StorageError:
    refused += 1
assert not os.path.exists(path + "-new")
print(refused, number)
"""
)


@pytest.mark.parametrize("passphrase", ["", PASSPHRASE], ids=["plain", "encrypted"])
def test_full_disk(tmp_path: Path, passphrase: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _FULL, tmp_path / "store", passphrase, "0"],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    refused, number = map(int, ended.stdout.split())
    assert refused == 4
    assert number > 3


_RACE = (
    _COMMON
    + """
from hdpmf.errors import PrivacyError
store = DeviceStore.create(path, passphrase=passphrase, policy=POLICY)
store.pin_catalogue(TABLE)
for item in ITEMS[:3]:
    store.rate(item, 3.0)
store.close()
children = []
starter, start = os.pipe()
for recommender in ("one", "two", "three"):
    child = os.fork()
    if child == 0:
        with DeviceStore.open(path, passphrase=passphrase) as store:
            ratings, chance = store.ratings(), random.Random(recommender)
            os.close(start)
            os.read(starter, 1)  # until everybody is ready
            for _ in range(12):
                chosen = np.array(sorted(chance.sample(range(3), 2)))
                try:
                    store.ledger.charge(entry(recommender), ratings, chosen, np.full(2, 0.13))
                except PrivacyError:
                    pass
        os._exit(0)
    children.append(child)
os.close(start)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
with DeviceStore.open(path, passphrase=passphrase) as store:
    left = store.ledger.remaining(store.ratings(), store.weights(), store.policy)
    assert (left > -1e-9).all(), left
    assert (left < 0.13).sum() >= 2, left  # they did compete for it
"""
)


def test_several_recommenders_at_once_share_one_budget(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _RACE, tmp_path / "store", "", "0"], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
