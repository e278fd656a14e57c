import numpy as np
from scipy import stats

from hdpmf.common.data import IdIndex
from hdpmf.private.client.devices import SPREAD, initial_vectors


def test_a_users_first_vector_depends_on_the_user_and_the_seed_alone():
    everyone = initial_vectors(IdIndex(np.arange(100)), 6, seed=3)
    some = initial_vectors(IdIndex(np.arange(40, 60)), 6, seed=3)
    assert np.array_equal(everyone[40:60], some)
    assert not np.allclose(everyone, initial_vectors(IdIndex(np.arange(100)), 6, seed=4))
    words = initial_vectors(IdIndex(["ann", "bob"]), 6, seed=3)
    assert np.array_equal(words[1:], initial_vectors(IdIndex(["bob", "eve"]), 6, seed=3)[:1])


def test_first_vectors_are_the_same_in_every_release():
    """A device that is updated in the middle of a training starts from where it was."""
    numbers = initial_vectors(IdIndex(np.array([1, 2**40])), 3, seed=7)
    np.testing.assert_allclose(
        numbers,
        [[0.02971074, 0.19117697, 0.09056431], [0.04866397, 0.00305733, 0.03085716]],
        atol=1e-7,
    )
    words = initial_vectors(IdIndex(["anna", "b\u00f6la"]), 2, seed=0)
    np.testing.assert_allclose(
        words, [[-0.18140557, 0.00921058], [-0.14414941, 0.22959964]], atol=1e-7
    )


def test_first_vectors_are_normal():
    # 50,000 numbers against the normal law, level 1e-4, fixed seed.
    vectors = initial_vectors(IdIndex(np.arange(5000)), 10, seed=1).astype(np.float64)
    assert stats.kstest(vectors.ravel() / SPREAD, "norm").pvalue > 1e-4
    assert np.abs(np.corrcoef(vectors.T) - np.eye(10)).max() < 5 / np.sqrt(5000)


def test_first_vectors_stay_in_the_unit_ball_however_many_factors():
    assert (
        np.linalg.norm(initial_vectors(IdIndex(np.arange(200)), 300, seed=1), axis=1).max()
        <= 1 + 1e-6
    )
