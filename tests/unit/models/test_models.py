import numpy as np
import pytest
import sklearn.base

from hdpmf.common.data import Ratings
from hdpmf.common.methods import METHODS
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.errors import (
    ConfigError,
    DivergedError,
    NotFittedError,
    PrivacyError,
    RatingsError,
    UnknownIdError,
)  # fmt: skip
from hdpmf.models import DPMF, HDPMF, MF, PDPMF, GlobalMean, UserMean, make_model

QUICK = {"n_factors": 4, "epochs": 8, "rng": 0}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("solver", ["batch", "sequential"])
def test_every_method_fits_predicts_and_scores(name, solver, split, weights):
    train, test = split
    model = make_model(name, **METHODS[name].own(solver=solver, **QUICK)).fit(train, weights)
    predictions = model.predict(test.user_ids, test.item_ids)
    assert predictions.shape == (len(test),)
    assert ((predictions >= 1) & (predictions <= 5)).all()
    if not model.predicts_ratings:
        # An error would be that of the user's mean, which stands in for predictions.
        with pytest.raises(ConfigError, match="predicts no ratings, so it has no error; rank"):
            model.score(test)
        assert model.rank(test)["n_users"] > 0
        return
    scores = model.score(test)
    assert scores["n"] == len(test)
    assert scores["mse"] > 0
    assert np.mean((predictions - test.values) ** 2) == pytest.approx(scores["mse"])


@pytest.mark.parametrize("name", METHODS)
def test_scikit_learn_manners(name):
    model = make_model(name, **METHODS[name].own(**QUICK))
    copy = sklearn.base.clone(model)
    assert copy is not model
    assert copy.get_params() == model.get_params()
    assert repr(copy) == repr(model)
    with pytest.raises(NotFittedError, match="fit"):
        copy.predict([1], [1])
    with pytest.raises(ConfigError, match="no parameter 'depth'"):
        model.set_params(depth=3)


def test_set_params_changes_what_fit_does(split, weights):
    model = HDPMF(**QUICK)
    model.set_params(n_factors=7).fit(split[0], weights)
    assert model.catalogue_.factors.shape[1] == 7


@pytest.mark.parametrize("solver", ["batch", "sequential"])
@pytest.mark.parametrize("method", ["mf", "hdpmf", "hdpmf-w", "pdpmf"])
def test_a_seed_decides_everything_and_threads_nothing(method, solver, split, weights):
    def fitted(**changes):
        return make_model(method, **(QUICK | {"solver": solver} | changes)).fit(split[0], weights)

    one = fitted(n_threads=1)
    for other in (fitted(n_threads=2), fitted(n_threads=5)):
        assert other.catalogue_.factors.tobytes() == one.catalogue_.factors.tobytes()
        assert other.devices_.vectors.tobytes() == one.devices_.vectors.tobytes()
    assert fitted(rng=1).catalogue_.factors.tobytes() != one.catalogue_.factors.tobytes()


def test_a_generator_as_rng(split, weights):
    first = HDPMF(**(QUICK | {"rng": np.random.default_rng(5)})).fit(split[0], weights)
    again = HDPMF(**(QUICK | {"rng": np.random.default_rng(5)})).fit(split[0], weights)
    assert np.array_equal(first.catalogue_.factors, again.catalogue_.factors)


def test_learning_beats_the_means_without_noise(split):
    train, test = split
    model = MF(n_factors=5, learning_rate=0.03, rng=0).fit(train)
    assert model.score(test)["mse"] < UserMean().fit(train).score(test)["mse"]
    assert UserMean().fit(train).score(test)["mse"] < GlobalMean().fit(train).score(test)["mse"]


@pytest.mark.slow
def test_smaller_epsilon_means_more_noise(split, weights):
    train, test = split
    errors = [
        np.mean(
            [
                HDPMF(n_factors=4, epsilon=e, rng=s).fit(train, weights).score(test)["mse"]
                for s in range(3)
            ]
        )
        for e in (0.05, 1.0, 1000.0)
    ]
    assert errors[0] > errors[1] > errors[2]


def test_mf_is_hdpmf_without_noise_and_weights_up_to_the_ball(split):
    """With a huge epsilon and weight 1, stretching changes nothing: HDPMF and its weighted form
    agree.
    """
    train, _ = split
    stretch = HDPMF(epsilon=1e9, **QUICK).fit(train)
    weight = HDPMF(epsilon=1e9, mechanism="weight", **QUICK).fit(train)
    np.testing.assert_allclose(stretch.catalogue_.factors, weight.catalogue_.factors, atol=1e-4)


def test_user_vectors_stay_in_the_unit_ball_for_private_methods(split, weights):
    for solver in ("batch", "sequential"):
        model = HDPMF(learning_rate=0.05, solver=solver, **QUICK).fit(split[0], weights)
        assert np.linalg.norm(model.devices_.vectors, axis=1).max() <= 1 + 1e-5


@pytest.mark.parametrize("noise", ["epoch", "once"])
@pytest.mark.parametrize("h", ["item", "shared"])
@pytest.mark.parametrize("solver", ["batch", "sequential"])
def test_noise_options_change_the_result(noise, h, solver, split, weights):
    base = HDPMF(solver=solver, h=h, noise=noise, **QUICK).fit(split[0], weights).catalogue_.factors
    others = [
        ("item" if h == "shared" else "shared", noise),
        (h, "once" if noise == "epoch" else "epoch"),
    ]
    for other_h, other_noise in others:
        changed = HDPMF(solver=solver, h=other_h, noise=other_noise, **QUICK).fit(split[0], weights)
        assert not np.allclose(base, changed.catalogue_.factors)


def test_the_printed_form_diverges_and_says_so(world):
    with pytest.raises(DivergedError, match="smaller"):
        MF(n_factors=10, learning_rate=0.05, scale_steps=False, rng=0).fit(world)
    with pytest.raises(DivergedError, match="smaller"):
        MF(n_factors=10, learning_rate=50.0, solver="sequential", rng=0).fit(world)


def test_progress_history_and_stopping(split, weights):
    seen = []
    model = HDPMF(**QUICK).fit(split[0], weights, callbacks=[seen.append])
    assert [record.epoch for record in seen] == list(range(1, 9))
    assert model.history_ == tuple(seen)
    assert all(record.validation_mse is None for record in seen)
    stopped = HDPMF(**QUICK).fit(split[0], weights, callbacks=[lambda record: record.epoch == 3])
    assert len(stopped.history_) == 3


@pytest.mark.parametrize("solver", ["batch", "sequential"])
def test_early_stopping_keeps_the_best_epoch(solver, split, weights):
    train, test = split
    fit, validation = train.hold_out(per_user=3, rng=1)
    model = HDPMF(
        n_factors=4,
        epochs=60,
        epsilon=0.2,
        learning_rate=0.2,
        early_stopping=5,
        solver=solver,
        rng=0,
    )
    model.fit(fit, weights, validation=validation)
    errors = [record.validation_mse for record in model.history_]
    assert len(errors) < 60
    assert len(errors) - 1 - int(np.argmin(errors)) == 5
    assert model.score(validation)["mse"] == pytest.approx(min(errors), rel=1e-6)
    assert model.score(test)["n"] == len(test)
    with pytest.raises(ConfigError, match="validation"):
        model.fit(fit, weights)


def test_unknown_ids_get_the_documented_fallback(split, weights):
    train, _ = split
    model = HDPMF(**QUICK).fit(train, weights)
    user = train.users.ids[0]
    own_mean = train.values[train.user_codes == 0].mean()
    predicted = model.predict(
        [user, -6, -5, user], [-8, train.items.ids[0], -7, train.items.ids[0]]
    )
    assert predicted[0] == pytest.approx(own_mean)
    assert predicted[1] == predicted[2] == 3.0
    assert model.predict(user, train.items.ids[0])[0] == predicted[3]
    assert model.predict([], []).shape == (0,)
    with pytest.raises(RatingsError, match="pairs"):
        model.predict([user, user], [1, 2, 3])


def test_cold_test_ratings_are_scored_and_counted(split, weights):
    train, _ = split
    seen_item = int(train.item_codes[0])
    without = train.take(np.flatnonzero(train.item_codes != seen_item))
    model = HDPMF(**QUICK).fit(without, weights)
    cold = train.take(np.flatnonzero(train.item_codes == seen_item))
    assert model.score(cold)["n_cold"] == len(cold) == model.score(cold)["n"]
    counts = without.user_counts()
    sums = np.bincount(without.user_codes, without.values, train.n_users)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), 3.0)  # one user rated nothing else
    assert model.predict(cold.user_ids, cold.item_ids) == pytest.approx(means[cold.user_codes])


def test_recommendations_are_new_ranked_and_titled(split, weights):
    train, _ = split
    for name in ("mf", "hdpmf", "hdpmf-w"):
        model = make_model(name, **METHODS[name].own(**QUICK)).fit(train, weights)
        user = train.users.ids[3]
        best = model.recommend(user, n=12)
        assert len(best) == 12
        rated = set(train.item_ids[train.user_codes == 3].tolist())
        assert not rated & {one.item for one in best}
        assert all(one.title for one in best)
        scores = [recommended.rank_score for recommended in best]
        assert scores == sorted(scores, reverse=True)
        assert model.predict([user], [best[0].item])[0] == pytest.approx(best[0].score, abs=1e-5)
    with pytest.raises(UnknownIdError):
        model.recommend("nobody")
    with pytest.raises(ConfigError, match="n must"):
        model.recommend(user, n=0)
    with pytest.raises(ConfigError, match="cannot rank"):
        UserMean().fit(train).recommend(user)


def test_a_user_who_rated_everything_gets_nothing():
    everything = Ratings.from_arrays([1, 1, 2], [1, 2, 1], [5, 3, 4])
    model = MF(**QUICK).fit(everything)
    assert model.recommend(1) == []
    assert [one.item for one in model.recommend(2)] == [2]


def test_fold_in_gives_a_new_user_what_training_would(world):
    """A user left out of training and folded in is predicted about as well as one who took part."""
    rng = np.random.default_rng(0)
    late = rng.permutation(world.n_users)[:30]
    is_late = np.isin(world.user_codes, late)
    early_ratings, late_ratings = world.take(~is_late), world.take(is_late)
    kept, asked = late_ratings.hold_out(per_user=5, rng=0)
    model = MF(n_factors=4, learning_rate=0.03, rng=0).fit(early_ratings)
    kept_ids = world.users.ids[late]
    assert np.allclose(model.predict(asked.user_ids, asked.item_ids), 3.0)
    vectors = model.fold_in(Ratings.from_arrays(kept.user_ids, kept.item_ids, kept.values))
    assert vectors.shape == (len(late), 4)
    folded = model.score(asked)["mse"]
    assert folded < UserMean().fit(kept).score(asked)["mse"]
    assert len(model.recommend(kept_ids[0], n=5)) == 5


def test_fold_in_respects_the_ball_the_weights_and_replaces(split, weights):
    train, _ = split
    model = HDPMF(**QUICK).fit(train, weights)
    n_before = len(model.devices_.users)
    one = Ratings.from_arrays([10**6] * 5, train.items.ids[:5], [5, 5, 1, 5, 1])
    vector = model.fold_in(one, 0.5)
    assert np.linalg.norm(vector) <= 1 + 1e-5
    assert len(model.devices_.users) == n_before + 1
    assert model.devices_.beta[model.devices_.users.find([10**6])[0]] == 0.5
    again = model.fold_in(one, PrivacyWeights.uniform(one, 1.0), replace=True)
    assert len(model.devices_.users) == n_before + 1
    assert not np.allclose(again, vector)
    others = model.predict(train.user_ids[:50], train.item_ids[:50])
    fresh = HDPMF(**QUICK).fit(train, weights)
    assert others == pytest.approx(fresh.predict(train.user_ids[:50], train.item_ids[:50]))
    with pytest.raises(RatingsError, match="none of the rated items"):
        model.fold_in(Ratings.from_arrays([10**6 + 1], [10**7], [3]))
    with pytest.raises(RatingsError, match="scale"):
        model.fold_in(Ratings.from_arrays([1], train.items.ids[:1], [3], scale=(0, 10)))
    with pytest.raises(RatingsError, match="ids"):
        model.fold_in(Ratings.from_arrays(["x"], train.items.ids[:1], [3]))


@pytest.mark.parametrize(
    "bad",
    [
        {"n_factors": 0},
        {"n_factors": 2.5},
        {"epochs": 0},
        {"learning_rate": 0},
        {"learning_rate": float("nan")},
        {"reg": -1},
        {"solver": "magic"},
        {"h": "both"},
        {"noise": "never"},
        {"early_stopping": 0},
        {"n_threads": 0},
        {"rng": "x"},
        {"mechanism": "guess"},
        {"learning_rate": "fast"},
    ],
)
def test_bad_parameters_are_refused_by_name(bad, split, weights):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        HDPMF(**(QUICK | bad)).fit(split[0], weights, validation=split[1])


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf")])
@pytest.mark.parametrize("model", [HDPMF, PDPMF, DPMF])
def test_a_budget_of_nothing_is_refused(model, epsilon, split, weights):
    with pytest.raises(PrivacyError, match="epsilon"):
        model(**(QUICK | {"epsilon": epsilon})).fit(split[0], weights)


def test_unknown_methods_and_options():
    with pytest.raises(ConfigError, match="choose from mf"):
        make_model("als")
    with pytest.raises(TypeError):
        HDPMF(depth=3)


def test_one_rating_users_and_single_ratings():
    tiny = Ratings.from_arrays([1], [1], [4])
    for name in METHODS:
        model = make_model(name, **METHODS[name].own(**QUICK)).fit(tiny)
        assert model.predict([1], [1]).shape == (1,)
        assert not model.predicts_ratings or model.score(tiny)["n"] == 1


def test_other_scales():
    half = Ratings.from_arrays([1, 1, 2, 2], [1, 2, 1, 3], [0.5, 100, 20, 50], scale=(0, 100))
    for name in ("mf", "hdpmf", "user-mean"):
        learning_rate = 1e-4
        predicted = (
            make_model(name, **METHODS[name].own(learning_rate=learning_rate, **QUICK))
            .fit(half)
            .predict([1, 9], [3, 1])
        )
        assert ((predicted >= 0) & (predicted <= 100)).all()
        assert predicted[1] == 50.0


def test_claims_travel_with_the_model(split):
    assert UserMean().privacy.status == "proved"
    assert UserMean().privacy.epsilon == 0
    assert GlobalMean().privacy.epsilon is None
    assert MF().privacy.status == "none"
    for model in (DPMF, PDPMF, HDPMF):
        assert model(epsilon=0.5).privacy.status == "nominal"
        assert model(epsilon=0.5).privacy.epsilon == 0.5
