"""Facts from sums, bits and open ratings: exactly those of sums where nobody shares, better where
some do, and sound whoever shares.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from msgspec.structs import replace

from hdpmf.common.data import Ratings
from hdpmf.common.data.item_features import fingerprint
from hdpmf.common.model.device_fit import device_fit
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import BitContribution, OpenContribution, SumContribution, Survey
from hdpmf.errors import ProtocolError
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.private.client.sharing import ShareClient
from hdpmf.untrusted.recommender.item_weights import typical_weights
from hdpmf.untrusted.recommender.lists.blending import (
    ENOUGH,
    MOST,
    RATED,
    Choosing,
    _largest,
    choose_blend,
    density,
    standardised,
)
from hdpmf.untrusted.recommender.lists.ease import ease_scores, item_item
from hdpmf.untrusted.recommender.lists.presence import Presence
from hdpmf.untrusted.recommender.one_round import make_survey
from hdpmf.untrusted.recommender.sharing import Shared, SharedFacts, facts_from_shares
from hdpmf.untrusted.recommender.sums import facts_from_sums

N_USERS, N_ITEMS = 400, 60


@cache
def world() -> tuple[Ratings, PrivacyWeights, np.ndarray]:
    """People of two kinds, each of whom mostly rates one half of the items, and items of different
    worth and weight; also what items are worth."""
    rng = np.random.default_rng(0)
    worth = rng.normal(0.0, 0.7, N_ITEMS)
    kind = rng.integers(0, 2, N_USERS)
    appeal = rng.gamma(2.0, 1.0, N_ITEMS)
    users, items, values = [], [], []
    for user in range(N_USERS):
        near = np.where((np.arange(N_ITEMS) % 2) == kind[user], 8.0, 1.0) * appeal
        rated = rng.choice(N_ITEMS, 20, replace=False, p=near / near.sum())
        stars = np.clip(np.rint(3.4 + worth[rated] + rng.normal(0.0, 0.8, 20)), 1, 5)
        users += [user] * 20
        items += rated.tolist()
        values += stars.tolist()
    ratings = Ratings.from_arrays(users, items, values, scale=(1, 5, 1))
    weights = PrivacyWeights.from_parts(
        ratings, rng.uniform(0.3, 1.0, ratings.n_users), rng.uniform(0.2, 1.0, ratings.n_items)
    )
    return ratings, weights, worth[ratings.items.ids]


def ask(
    level: str, people: np.ndarray, noise_seed: int = 0
) -> tuple[Survey, SumContribution, Shared]:
    ratings, weights, _ = world()
    codes = np.zeros(ratings.n_users, np.int8)
    codes[people] = ("hidden", "seen", "open").index(level)
    survey = make_survey(
        "A",
        1.0,
        ratings.scale,
        n_items=ratings.n_items,
        catalogue=fingerprint(ratings.items, None),
        contributors=ratings.n_users,
    )
    survey = replace(survey, sharing=True)
    client = ShareClient(
        ratings,
        weights.with_levels(users=codes),
        SeededNoise(noise_seed, stream=3),
        epsilon=1.0,
        catalogue=survey.catalogue,
        simulation=True,
    )
    client.accept(survey)
    return survey, client.contribute(), Shared(*client.shared())


def share(level: str, people: np.ndarray) -> SharedFacts:
    survey, sums, shared = ask(level, people)
    return facts_from_shares(survey, [sums], [shared], None, seed=0, n_threads=1)


def test_where_nobody_shares_facts_are_those_of_hdp_sum() -> None:
    survey, sums, shared = ask("hidden", np.arange(0))
    found = facts_from_shares(survey, [sums], [shared], None)
    usual = facts_from_sums(survey, [sums], None)
    assert found.lists is None
    assert found.facts.blend == 0.0
    assert found.facts.raters is None
    assert found.facts.similarity is None
    for name in ("bias", "variance", "popularity"):
        assert (getattr(found.facts, name) == getattr(usual, name)).all()
    assert found.facts.mean == usual.mean


@pytest.mark.parametrize("level", ["seen", "open"])
def test_those_who_share_show_what_goes_with_what(level: str) -> None:
    ratings, _, _ = world()
    found = share(level, np.arange(0, ratings.n_users, 2))
    assert found.lists is not None
    assert found.facts.blend > 0
    similarity = found.facts.similarity
    assert similarity is not None
    rows = np.zeros((ratings.n_items, similarity.columns.shape[1]))
    rows[similarity.items] = similarity.columns
    alike = rows @ rows.T
    halves = ratings.items.ids % 2
    same = halves[:, None] == halves
    np.fill_diagonal(same, False)
    assert alike[same].mean() > 2 * alike[halves[:, None] != halves].mean()
    device_fit(found.facts, None, None)


def test_only_weights_that_are_shown_correct_popularity() -> None:
    assert share("seen", np.arange(0, 400, 4)).facts.raters is not None
    assert share("open", np.arange(0, 400, 4)).facts.raters is None
    assert share("seen", np.array([5])).facts.raters is None  # one person shows too few


def test_open_values_sharpen_biases() -> None:
    ratings, _, worth = world()
    right = [
        np.corrcoef(share(level, np.arange(0, ratings.n_users, 2)).facts.bias, worth)[0, 1]
        for level in ("seen", "open")
    ]
    assert right[1] > right[0] > 0.5


@pytest.mark.parametrize("level", ["seen", "open"])
def test_everybody_may_share(level: str) -> None:
    """Then the sums are noise alone, and must not decide on anything."""
    ratings, _, worth = world()
    facts = share(level, np.arange(ratings.n_users)).facts
    assert np.corrcoef(facts.bias, worth)[0, 1] > 0.5
    assert 2.5 < facts.mean < 4.0
    assert np.isfinite(facts.variance).all()


@pytest.mark.parametrize("level", ["seen", "open"])
def test_one_person_may_share(level: str) -> None:
    survey, sums, shared = ask(level, np.array([3]))
    found = facts_from_shares(survey, [sums], [shared], None)
    assert found.lists is None
    assert found.facts.blend == 0.0
    hidden = facts_from_sums(survey, [sums], None)
    assert np.abs(found.facts.bias - hidden.bias).max() < 0.5


def test_results_do_not_depend_on_how_senders_are_numbered_or_parted() -> None:
    survey, sums, shared = ask("seen", np.arange(0, 400, 4))
    once = facts_from_shares(survey, [sums], [shared], None, n_threads=1)
    bits, opens = shared
    moved = BitContribution(
        senders=bits.senders + 7, items=bits.items, units=bits.units, plus=bits.plus
    )
    again = facts_from_shares(survey, [sums], [Shared(moved, opens)], None, n_threads=1)
    first = bits.senders <= np.median(bits.senders)
    parts = [
        Shared(
            BitContribution(
                senders=bits.senders[rows],
                items=bits.items[rows],
                units=bits.units[rows],
                plus=bits.plus[rows],
            ),
            opens,
        )
        for rows in (first, ~first)
    ]
    parted = facts_from_shares(survey, [sums], parts, None, n_threads=1)
    for other in (again, parted):
        assert other.facts.bias == pytest.approx(once.facts.bias)
        assert other.facts.blend == once.facts.blend


def test_refuse_what_is_off_the_catalogue_or_the_scale() -> None:
    survey, sums, (bits, _) = ask("hidden", np.arange(0))
    one = np.array([0])
    for items, steps in ((survey.n_items, 0), (0, 5)):
        opens = OpenContribution(senders=one, items=one + items, steps=one + steps)
        with pytest.raises(ProtocolError, match="open rating"):
            facts_from_shares(survey, [sums], [Shared(bits, opens)], None)


def test_a_lenient_sharer_moves_no_bias() -> None:
    """Open ratings of people who rate everything higher say the same about items."""
    survey, sums, (bits, opens) = ask("open", np.arange(0, 400, 4))
    higher = np.minimum(opens.steps + 1, 4)
    same = opens.steps < 4  # those of five stars could not be higher
    opens = OpenContribution(
        senders=opens.senders[same], items=opens.items[same], steps=opens.steps[same]
    )
    lenient = OpenContribution(senders=opens.senders, items=opens.items, steps=higher[same])
    usual, moved = (
        facts_from_shares(survey, [sums], [Shared(bits, given)], None, n_threads=1).facts
        for given in (opens, lenient)
    )
    apart = moved.bias - usual.bias
    assert abs(apart.mean()) < 0.1
    assert np.ptp(apart) < 0.1


def test_typical_weights_are_those_of_items_whoever_shows_them() -> None:
    _, weights, _ = world()
    _, _, (bits, _) = ask("seen", np.arange(0, 400, 4))
    found = typical_weights(bits, bits.senders, N_ITEMS, None)
    truth = np.log(weights.gamma) - np.log(weights.gamma).mean()
    assert np.corrcoef(np.log(found), truth)[0, 1] > 0.99
    assert np.log(found).std() == pytest.approx(truth.std(), rel=0.1)


def test_a_person_of_small_weights_does_not_blur_what_others_show() -> None:
    """Weights of one or two 64ths are rounded by up to their own size."""
    rng = np.random.default_rng(0)
    truth = rng.uniform(0.1, 1.0, N_ITEMS)
    senders = np.repeat(np.arange(6), N_ITEMS)
    items = np.tile(np.arange(N_ITEMS), 6)
    persons = np.array([0.1, 0.12, 0.15, 0.17, 0.2, 1.0])
    units = np.floor(64 * persons[senders] * truth[items]).astype(np.int64)
    senders, items, units = senders[units > 0], items[units > 0], units[units > 0]
    bits = BitContribution(senders=senders, items=items, units=units, plus=np.zeros_like(items))
    found = np.log(typical_weights(bits, senders, N_ITEMS, None))
    assert np.corrcoef(found, np.log(truth))[0, 1] > 0.99


def test_typical_weights_are_all_alike_where_nothing_says_otherwise() -> None:
    rng = np.random.default_rng(0)
    count = 30
    bits = BitContribution(
        senders=np.arange(count),
        items=rng.integers(0, N_ITEMS, count),
        units=rng.integers(1, 65, count),
        plus=np.zeros(count, np.int64),
    )
    found = typical_weights(bits, bits.senders, N_ITEMS, None)
    assert np.abs(np.log(found)).max() < 0.5


def presence(n_users: int, *, kinds: bool, seed: int = 0) -> Presence:
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(n_users):
        near = np.where(np.arange(N_ITEMS) % 2 == user % 2, 8.0 if kinds else 1.0, 1.0)
        rows.append(rng.choice(N_ITEMS, 15, replace=False, p=near / near.sum()))
    return Presence(np.repeat(np.arange(n_users), 15), np.concatenate(rows), n_users, N_ITEMS)


def test_scores_without_the_matrix_are_those_of_the_matrix() -> None:
    pairs = presence(50, kinds=True)
    rows = pairs.matrix[:7]
    assert ease_scores(pairs, rows, 10.0) == pytest.approx(
        np.asarray(rows @ item_item(pairs, 10.0).matrix), abs=1e-6
    )


@pytest.mark.parametrize("kind", ["ease", "ials"])
def test_a_list_model_counts_where_it_helps(kind: str) -> None:
    choosing = Choosing(np.ones(N_ITEMS), np.zeros(N_ITEMS), None)
    found = choose_blend(kind, presence(200, kinds=True), choosing, n_threads=1)
    assert 0 < found <= MOST


def test_a_list_model_counts_little_where_it_cannot_help() -> None:
    """People rate at random here, so what few of them rated together says nothing."""
    popularity = np.geomspace(1.0, 50.0, N_ITEMS)
    rng = np.random.default_rng(1)
    blends = []
    for _ in range(5):
        rows = [
            rng.choice(N_ITEMS, 15, replace=False, p=popularity / popularity.sum())
            for _ in range(30)
        ]
        pairs = Presence(np.repeat(np.arange(30), 15), np.concatenate(rows), 30, N_ITEMS)
        choosing = Choosing(popularity, np.zeros(N_ITEMS), None)
        blends.append(choose_blend("ease", pairs, choosing, seed=0))
    assert np.mean(blends) < 0.2


@pytest.mark.parametrize(
    ("gains", "chosen"), [([0.02, 0.01], 2), ([0.02, -0.02], 1), ([-0.02, -0.02], 0)]
)
def test_sharers_whose_lists_get_worse_take_less(gains: list[float], chosen: int) -> None:
    rng = np.random.default_rng(0)
    people = np.column_stack([np.zeros(100), rng.normal(gains, 0.02, (100, 2))])
    assert _largest(0.3 + people) == chosen
    assert _largest(people[:1]) == 0  # one person says nothing


def test_few_people_cannot_make_a_list_model_count_much() -> None:
    choosing = Choosing(np.ones(N_ITEMS), np.zeros(N_ITEMS), None)
    many = presence(400, kinds=True)
    assert choose_blend("ease", many, choosing) > 0.5
    few = presence(2, kinds=True)
    d = density(few, choosing.raters)
    assert choose_blend("ease", few, choosing) <= round(MOST * d / (d + ENOUGH), 2) < 0.1
    # Neither can many who rated little: they show few pairs of items.
    assert choose_blend("ease", many.take(np.arange(len(many.users)) % 15 < 1), choosing) == 0


def test_density_is_of_pairs_of_items_that_count() -> None:
    equal = np.ones(N_ITEMS)
    pairs = presence(10, kinds=False)
    assert density(pairs, equal) == pytest.approx(10 * 15 * 14 / N_ITEMS**2)
    hardly_chosen = np.concatenate([equal, np.full(1000, 1e-6)])
    assert density(pairs, hardly_chosen) == pytest.approx(density(pairs, equal), rel=1e-2)
    # One person cannot show more than RATED items' worth.
    everything = Presence(np.zeros(5000, np.int64), np.arange(5000), 1, 5000)
    assert density(everything, np.ones(5000)) == pytest.approx(RATED * (RATED - 1) / 5000**2)


def test_corrected_popularity_is_what_vectors_are_fitted_by_too() -> None:
    facts = share("seen", np.arange(0, 400, 4)).facts
    assert facts.raters is not None
    assert facts.popularity / facts.popularity.sum() == pytest.approx(
        facts.raters / facts.raters.sum(), rel=1e-4
    )


def test_similarity_counts_the_less_the_fewer_share() -> None:
    few, many = (share("seen", np.arange(0, 400, step)).facts.similarity for step in (40, 2))
    assert few is not None
    assert many is not None
    assert few.rest.mean() < 0.2 < many.rest.mean()


def test_standardised_scores_have_deviation_one_or_are_zero() -> None:
    found = standardised(np.array([[1.0, 3.0, 5.0], [2.0, 2.0, 2.0]]))
    assert found[0].mean() == pytest.approx(0.0)
    assert found[0].std() == pytest.approx(1.0)
    assert (found[1] == 0).all()


def test_hidden_ratings_answer_as_in_hdp_sum() -> None:
    """The same survey, the same seed: sums of those who hide everything do not know of sharing."""
    ratings, weights, _ = world()
    survey, sums, _ = ask("hidden", np.arange(0))
    client = OneRoundClient(
        ratings,
        weights,
        SeededNoise(0, stream=3),
        epsilon=1.0,
        catalogue=survey.catalogue,
        simulation=True,
    )
    client.accept(survey)
    plain = client.contribute()
    assert isinstance(plain, SumContribution)
    assert (plain.scores == sums.scores).all()
    assert (plain.weights == sums.weights).all()
