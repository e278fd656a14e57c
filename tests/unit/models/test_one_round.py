import json

import numpy as np
import pytest

from hdpmf.common.data import Ratings, RatingScale, synthetic_world
from hdpmf.common.data.item_features import fingerprint
from hdpmf.common.methods import METHODS
from hdpmf.common.model.public_model import read_part, write_part
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.errors import ConfigError, ModelFileError, PrivacyError, RatingsError
from hdpmf.models import HDPBit, HDPPairs, HDPSum, ItemFeatures, hdp_bit, load_model, make_model

KINDS = [HDPSum(rng=0), HDPSum(features=False, rng=0), HDPBit(rng=0), HDPPairs(rng=0)]
IDS = ["sums", "no features", "bits", "pairs"]


@pytest.mark.parametrize("model", KINDS, ids=IDS)
def test_a_seed_decides_everything_and_threads_nothing(model, split, weights):
    train, test = split
    scores = []
    for n_threads in (1, 2, 5):
        scores.append(
            type(model)(**(model.get_params() | {"n_threads": n_threads}))
            .fit(train, weights)
            .score(test)
        )
    assert scores[0] == scores[1] == scores[2]
    other = type(model)(**(model.get_params() | {"rng": 1})).fit(train, weights).score(test)
    assert other != scores[0]


@pytest.mark.parametrize("model", KINDS, ids=IDS)
def test_it_beats_the_users_mean_where_epsilon_is_large(model, split, weights):
    from hdpmf import UserMean

    train, test = split
    fitted = type(model)(**(model.get_params() | {"epsilon": 50.0})).fit(train, weights)
    assert fitted.score(test)["mse"] < 0.95 * UserMean().fit(train).score(test)["mse"]


@pytest.mark.parametrize("model", KINDS, ids=IDS)
def test_saved_models_come_back_and_hold_nothing_private_on_the_recommenders_side(
    model, split, weights, tmp_path
):
    train, test = split
    fitted = type(model)(**model.get_params()).fit(train, weights)
    fitted.save(tmp_path / "m")
    back = load_model(tmp_path / "m")
    assert back.score(test) == fitted.score(test)
    assert back.recommend(train.users.ids[0]) == fitted.recommend(train.users.ids[0])
    assert (back.n_silent_, back.feature_names_) == (fitted.n_silent_, fitted.feature_names_)
    public = b"".join(path.read_bytes() for path in (tmp_path / "m" / "recommender").iterdir())
    numbers = {
        float(number)
        for offset in range(8)
        for dtype, width in ((np.float32, 4), (np.float64, 8))
        for number in np.frombuffer(
            public[offset : offset + (len(public) - offset) // width * width], dtype
        )
    }
    for private in (fitted.devices_.vectors[:, :-1].ravel(), weights.beta[weights.beta < 1]):
        shared = {
            float(x) for x in private if x != 0
        } & numbers  # a coefficient that is zero is everybody's
        assert len(shared) <= 1, shared  # one of 10^9 pairs may agree by chance
    facts = json.loads((tmp_path / "m" / "recommender" / "model.json").read_text())
    assert "rng" not in facts["about"]["parameters"]
    assert "n_silent" not in json.dumps(facts)
    new = Ratings.from_arrays([9001] * 3, train.items.ids[:3], [5, 1, 4])
    assert np.array_equal(back.fold_in(new), fitted.fold_in(new))


def test_parts_that_do_not_fit_each_other_are_refused(split, weights, tmp_path):
    HDPSum(rng=0).fit(split[0], weights).save(tmp_path / "m")
    folder, names = tmp_path / "m" / "recommender", ("model.json", "numbers.safetensors")
    facts, arrays = read_part(*(folder / name for name in names))
    arrays["fit.precision"] = arrays["fit.precision"][1:]
    write_part(folder, names[0], facts, names[1], arrays)
    with pytest.raises(ModelFileError, match="do not fit"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize("kind", [HDPSum, HDPBit])
def test_any_scale_gives_the_same_predictions_in_its_own_units(kind, split, weights):
    """Stars, half stars that start at 0.5, and percent are one thing in other units; so are
    their results.
    """
    train, test = split
    reference = kind(rng=0).fit(train, weights).predict(test.user_ids, test.item_ids)
    for scale in (RatingScale(0.5, 2.5, 0.5), RatingScale(0, 100, 25), RatingScale(-2, 2)):
        values = scale.low + (train.values - 1) / 4 * scale.width
        moved = Ratings(
            train.users,
            train.items,
            train.user_codes,
            train.item_codes,
            values.astype(np.float32),
            scale=scale,
            item_table=train.item_table,
        )
        got = kind(rng=0).fit(moved, weights).predict(test.user_ids, test.item_ids)
        back = 1 + 4 * (got - scale.low) / scale.width
        # A scale without a step measures its mean on another grid, hence with other noise in the
        # same place; and ratings on it may lie between steps, which moves a bit's threshold.
        rough = 0.1 if kind is HDPSum else 0.3
        assert np.abs(back - reference).max() < (rough if scale.step is None else 1e-3)


def test_strangers_get_what_people_in_general_think(split, weights):
    train, _ = split
    model = HDPSum(rng=0).fit(train, weights)
    items = train.items.ids
    predicted = model.predict(
        ["nobody"] * len(items) if train.users.ids.dtype.kind == "U" else [-7] * len(items), items
    )
    expected = np.clip(model.facts_.mean + model.facts_.bias, 1, 5)
    np.testing.assert_allclose(predicted, expected, atol=1e-5)
    assert model.predict([train.users.ids[0]], [-99])[0] == pytest.approx(model.devices_.means[0])


def test_fold_in_gives_a_trained_user_the_same_vector(split, weights):
    train, _ = split
    model = HDPSum(rng=0).fit(train, weights)
    rows = train.take(train.user_codes == 3)
    before = model.devices_.vectors[3].copy()
    vectors = model.fold_in(rows, replace=True)
    np.testing.assert_allclose(vectors[0], before, atol=1e-5)
    assert len(model.recommend(train.users.ids[3], 5)) == 5
    with pytest.raises(RatingsError, match="scale"):
        model.fold_in(Ratings.from_arrays([1], [1], [9], scale=(1, 10)))
    with pytest.raises(RatingsError, match="knows none"):
        model.fold_in(Ratings.from_arrays([10**6], [-5], [3]))


def test_ratings_that_say_nothing_are_counted(split):
    train, _ = split
    weights = PrivacyWeights.per_rating(train, np.where(np.arange(len(train)) % 10 == 0, 0.01, 0.5))
    for model in (HDPSum(rng=0), HDPBit(rng=0)):
        assert model.fit(train, weights).n_silent_ == -(-len(train) // 10)


@pytest.mark.parametrize("model", [HDPSum, HDPBit])
def test_wrong_options_are_refused(model, split):
    for epsilon in (0, -1, float("nan"), float("inf"), "1", True):
        with pytest.raises(PrivacyError, match="epsilon"):
            model(epsilon).fit(split[0])
    with pytest.raises(ConfigError, match="coding"):
        model(coding="loud").fit(split[0])
    bare = Ratings.from_arrays([1, 2], [1, 1], [1, 2])
    with pytest.raises(ConfigError, match="needs an item table"):
        model(features=True).fit(bare)
    with pytest.raises(ConfigError, match="features are of"):
        model(features=ItemFeatures.of_table(split[0].item_table, split[0].items)).fit(bare)
    with pytest.raises(ConfigError, match="patterns"):
        HDPBit(patterns=-1).fit(split[0])


def test_claims_say_who_may_look(split):
    assert HDPSum(0.5).privacy.status == HDPBit(0.5).privacy.status == "proved"
    assert HDPSum(0.5).privacy.view == "sums over users (secure aggregation)"
    words = str(HDPBit(0.5).privacy)
    assert "NO GUARANTEE for who rated what, against anybody who downloads the model" in words
    assert "NO GUARANTEE" in HDPBit(0.5).privacy._repr_html_()
    assert HDPSum(0.5).privacy.epsilon == 0.5


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 4.0, 300.0])
def test_any_epsilon_will_do(epsilon, split, weights):
    train, test = split
    for model in (HDPSum(epsilon, rng=0), HDPBit(epsilon, rng=0)):
        assert 0.2 < model.fit(train, weights).score(test)["mse"] < 3


def test_features_from_a_file(tmp_path):
    world = synthetic_world(60, 40, 1200, rng=3)
    text = ["item,year,length,kind,title,constant"]
    for number, item in enumerate(world.items.ids):
        text.append(
            f"{item},{1950 + number},{number * 2.5},{'a|b' if number % 2 else 'b'},Title {number},7"
        )
    path = tmp_path / "items.csv"
    path.write_text("\n".join(text))
    features = ItemFeatures.read(path, world.items)
    assert features.names[:3] == ("year", "year before 1980", "year after 1990")
    assert features.names[3:] == ("number:length", "kind:a", "kind:b")
    assert features.matrix.shape == (40, 6)
    assert sorted(one.split(":")[0] for one in features.left_out) == ["constant", "title"]
    assert len(HDPSum(features=path, rng=0).fit(world).feature_names_) == 12
    assert fingerprint(world.items, features) != fingerprint(world.items, None)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", "not a table|needs a header"),
        ("item\n1\n", "needs a header"),
        ("item,x\n999,1\n998,2\n", "none of its items"),
        ("item,x\n1,1\n1,2\n", "more than one row"),
        ("item,name\n1,a\n2,b\n", "no column can be used"),
    ],
)
def test_files_of_features_that_cannot_be_used(content, match, tmp_path):
    world = Ratings.from_arrays([1, 1, 2], [1, 2, 1], [3, 4, 5])
    (tmp_path / "f.csv").write_text(content)
    with pytest.raises(RatingsError, match=match):
        ItemFeatures.read(tmp_path / "f.csv", world.items)


def test_lists_are_trained_in_fit_unless_nobody_wants_them(monkeypatch):
    trained = []
    train = hdp_bit.train_list_model
    monkeypatch.setattr(
        hdp_bit, "train_list_model", lambda *a, **k: trained.append(1) or train(*a, **k)
    )
    world = synthetic_world(n_users=60, n_items=40, n_ratings=1200, rng=0)
    now = HDPBit(rng=0).fit(world)
    assert len(trained) == 1
    later = HDPBit(rng=0).fit(world, lists=False)
    later.score(world)
    assert len(trained) == 1
    assert later.recommend(1, n=5) == now.recommend(1, n=5)
    assert len(trained) == 2


@pytest.mark.parametrize(
    ("name", "implicit", "words"),
    [
        ("hdp-sum", False, "every item of the catalogue two whole numbers"),
        ("hdp-sum", True, "(of choices without ratings, one)"),
        ("private-popular", False, "every item of the catalogue one whole number, once"),
        ("hdp-pairs", False, "every item of the catalogue (with stars, two, and one for all"),
        ("hdp-pairs", True, "first one for every item"),
    ],
)
def test_a_run_releases_the_sums_that_its_claim_counts(name, implicit, words, monkeypatch):
    """Each released number has noise of its own: another sum, or one by groups, has more of it."""
    drawn = []

    def counting(draw):
        def counted(self, *arguments):
            noise = draw(self, *arguments)
            drawn.append(noise.size)
            return noise

        return counted

    for law in ("discrete_laplace", "discrete_gaussian"):
        monkeypatch.setattr(SeededNoise, law, counting(getattr(SeededNoise, law)))
    world = synthetic_world(60, 40, 900, rng=3, implicit=implicit)
    model, n, form = make_model(name, rng=0).fit(world), world.n_items, METHODS[name].form
    rows = n if implicit or name == "private-popular" else 2 * n + 1
    if name == "hdp-pairs":
        heads = model.plan(world).heads
        rows = 2 * (rows + heads * (heads + 1) // 2)  # two servers add their noise
    assert sum(drawn) == rows
    assert words in form.sent
    assert form.claims["sums"].sees.startswith("one sum over devices")
