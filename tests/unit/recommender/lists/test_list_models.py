"""Models for lists: each against its definition, what compression costs, and files that anything
may be in.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.sparse import csr_matrix

from hdpmf.common.base.threads import one_blas_thread
from hdpmf.common.data import synthetic_world
from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.protocol import Round
from hdpmf.errors import ConfigError, MissingExtraError, ModelFileError
from hdpmf.untrusted.recommender.lists import training
from hdpmf.untrusted.recommender.lists.training import (
    LIST_MODELS,
    Presence,
    best_epoch,
    compress,
    item_item,
    ndcg,
    train_list_model,
)

WORLD = synthetic_world(n_users=150, n_items=60, n_ratings=3000, rng=4)
PRESENCE = Presence(WORLD.user_codes, WORLD.item_codes, WORLD.n_users, WORLD.n_items)
OWN, HEIGHTS = np.array([3, 7, 20, 41]), np.array([4.0, 1.0, 0.0, 3.0])


def _inputs(n_items=WORLD.n_items):
    return csr_matrix((HEIGHTS, OWN, [0, len(OWN)]), shape=(1, n_items))


def _saved(model, folder):
    """What a file says of it."""
    n = WORLD.n_items
    numbers = Round(
        number=1,
        item_factors=np.zeros((n, 1), np.float32),
        raters=np.zeros(n, np.int64),
        h=None,
    )
    PublicModel({}, WORLD.items, WORLD.scale, None, numbers, lists=model).save(folder / "model")
    return PublicModel.load(folder / "model").lists


def test_ease_is_the_ridge_regression_of_each_item_on_the_others():
    whole = item_item(PRESENCE, 5.0)
    rated = PRESENCE.matrix.toarray().astype(np.float64)
    item = 11
    others = np.delete(np.arange(WORLD.n_items), item)
    ridge = np.diag(5.0 * np.sqrt(PRESENCE.raters[others]))
    expected = np.linalg.solve(
        rated[:, others].T @ rated[:, others] + ridge, rated[:, others].T @ rated[:, item]
    )
    assert whole.matrix[others, item] == pytest.approx(expected, abs=1e-9)
    assert (np.diag(whole.matrix) == 0).all()
    system = rated.T @ rated + np.diag(5.0 * np.sqrt(PRESENCE.raters))
    assert whole.importance == pytest.approx(whole.matrix.T @ system @ whole.matrix, abs=1e-6)


def test_compression_costs_less_the_more_it_keeps():
    whole = item_item(PRESENCE)
    exact = HEIGHTS @ whole.matrix[OWN]
    errors = [
        np.abs(compress(whole, rank, per).scores(OWN, HEIGHTS) - exact).max()
        for rank, per in ((4, 0), (4, 8), (59, 8))
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.02 * np.abs(exact).max()


@pytest.mark.parametrize("kind", LIST_MODELS)
def test_every_kind_scores_one_user_and_many_alike_and_the_same_every_time(kind, tmp_path):
    model = train_list_model(kind, PRESENCE, seed=3)
    alone = model.scores(OWN, HEIGHTS)
    assert alone.shape == (WORLD.n_items,)
    assert model.many(_inputs())[0] == pytest.approx(alone, rel=1e-4, abs=1e-5)
    assert (
        train_list_model(kind, PRESENCE, seed=3).scores(OWN, HEIGHTS).tobytes() == alone.tobytes()
    )
    again = _saved(model, tmp_path)
    assert again.scores(OWN, HEIGHTS).tobytes() == alone.tobytes()
    assert again.about["kind"] == kind
    assert again.n_bytes == model.n_bytes


def _two_kinds():
    """Two kinds of people and of items: whoever rated some of one kind rates the rest of it."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(80), 10)
    items = np.concatenate(
        [rng.choice(20, 10, replace=False) + 20 * (user % 2) for user in range(80)]
    )
    return Presence(users, items, 80, 40)


@pytest.mark.parametrize("kind", [kind for kind in LIST_MODELS if kind != "popular"])
def test_every_kind_finds_what_goes_together(kind):
    scores = train_list_model(kind, _two_kinds(), seed=0).scores(np.arange(5), np.full(5, 4.0))
    assert np.mean(scores[5:20] > scores[20:].max()) > 0.9


def test_ials_gives_devices_the_vectors_that_it_has_itself():
    implicit = pytest.importorskip("implicit.cpu.als")
    model = train_list_model("ials", PRESENCE, rank=8, reg=5.0, seed=3)
    with one_blas_thread():
        theirs = implicit.AlternatingLeastSquares(
            8, regularization=5.0, alpha=2.0, num_threads=1, use_cg=False
        )
    theirs.item_factors = model.decode.rows(np.arange(WORLD.n_items)).astype(np.float32)
    row = csr_matrix((np.ones(4, np.float32), OWN, [0, 4]), shape=(1, WORLD.n_items))
    vector = theirs.recalculate_user(0, row)
    scores = model.scores(OWN, np.ones(4))
    assert 2 * scores == pytest.approx(theirs.item_factors @ vector, rel=1e-3, abs=1e-4)


def test_without_implicit_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "implicit.cpu.als", None)
    with pytest.raises(MissingExtraError, match=r"hdpmf\[bench\]"):
        train_list_model("ials", PRESENCE, reg=5.0)


def test_training_stops_where_lists_of_what_was_held_out_are_best():
    found, pairs = [], _two_kinds()

    class Rising:
        """Gets better until the third epoch."""

        def __init__(self, pairs):
            self.pairs, self.number = pairs, 0
            self.good = train_list_model("ease", pairs)
            self.bad = train_list_model("popular", pairs)

        def epoch(self):
            self.number += 1
            found.append(self.number)

        def model(self):
            return self.good if self.number == 3 else self.bad

    assert best_epoch(pairs, Rising, 20, 0) == 3
    assert found[-1] == 7  # four more that were no better
    train, held = pairs.hold_out(3, 0)
    assert len(train.users) + len(held.users) == len(pairs.users)
    good, bad = (
        ndcg(train_list_model(kind, train), train, held, 0) for kind in ("ease", "popular")
    )
    assert good > bad


@pytest.mark.parametrize("kind", ["ease", "bpr", "knn"])
def test_of_a_large_catalogue_the_most_rated_items_are_modelled(kind, monkeypatch, tmp_path):
    monkeypatch.setattr(training, "MOST_ITEMS", {kind: 50})
    model = train_list_model(kind, PRESENCE, seed=1)
    assert len(model.heads) == 50
    assert PRESENCE.raters[model.heads].min() >= np.sort(PRESENCE.raters)[-50]
    left_out = np.setdiff1d(np.arange(WORLD.n_items), model.heads)
    own = np.append(OWN, left_out[0])  # something that the model does not know changes nothing
    scores = model.scores(own, np.append(HEIGHTS, 2.0))
    assert scores == pytest.approx(model.scores(OWN, HEIGHTS))
    assert scores[left_out].max() < scores[model.heads].min()
    assert model.many(_inputs())[0] == pytest.approx(scores, rel=1e-4, abs=1e-5)
    assert (
        _saved(model, tmp_path).scores(OWN, HEIGHTS).tobytes()
        == model.scores(OWN, HEIGHTS).tobytes()
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"decode": Bytes.of(np.ones((WORLD.n_items + 1, 2)))},
        {"output": np.zeros(3, np.float32)},
        {"heads": np.arange(WORLD.n_items) + 1, "n_items": WORLD.n_items},
        {"entries": replace(Entries.none(WORLD.n_items), start=np.ones(3, np.int32))},
        {
            "entries": Entries.of(
                np.zeros(1, int), np.full(1, WORLD.n_items), np.ones(1), WORLD.n_items
            )
        },
    ],
)
def test_a_file_whose_parts_do_not_fit_is_refused(changes, tmp_path):
    model = train_list_model("ease", PRESENCE, rank=2)
    with pytest.raises(ModelFileError, match="do not fit each other"):
        _saved(replace(model, **changes), tmp_path)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ConfigError, match="no model 'svd'"):
        train_list_model("svd", PRESENCE)


@given(arrays.arrays(np.float64, (5, 3), elements=st.floats(-1e3, 1e3)))
def test_eight_bits_are_the_nearest_whole_numbers(matrix):
    stored = Bytes.of(matrix)
    assert np.abs(stored.rows(np.arange(5)) - matrix).max(axis=0) == pytest.approx(
        0.0, abs=np.abs(matrix).max() / 253 + 1e-9
    )


def test_the_largest_entries_of_each_column_are_kept():
    matrix = np.arange(25.0).reshape(5, 5)
    scores = np.zeros(5)
    Entries.largest(matrix, 2).add(scores, np.arange(5), np.ones(5))
    assert scores == pytest.approx(matrix[3:].sum(axis=0), rel=0.02)


def test_an_entry_takes_three_bytes_in_a_catalogue_of_up_to_65536_items():
    start = np.zeros(WORLD.n_items + 1, np.int32).nbytes
    assert Entries.largest(item_item(PRESENCE).matrix, 10).n_bytes == start + 3 * 10 * WORLD.n_items
    assert Entries.none(1 << 16).items.dtype == np.uint16
    assert Entries.none((1 << 16) + 1).items.dtype == np.uint32
    # What is promised for ML-1M: 3,706 items, rank 128, ten entries each, 1.1 MB.
    n, rank = 3706, 128
    entries = Entries(
        np.zeros(n + 1, np.int32), np.zeros(10 * n, np.uint16), np.zeros(10 * n, np.int8), 1.0
    )
    matrix = Bytes(np.zeros((n, rank), np.int8), np.zeros(rank, np.float32))
    assert ListModel("linear", matrix, matrix, entries, np.zeros(n, np.float32)).n_bytes < 1_100_000
