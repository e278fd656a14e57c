import math

import numpy as np
import pytest

from hdpmf.common.data import Ratings, RatingScale, synthetic_world
from hdpmf.common.privacy import PrivacySpec, PrivacyWeights
from hdpmf.common.privacy.coding import RULER_SHARE, make_coding, sum_channels, weight_units
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import BitContribution, ItemFacts, Survey
from hdpmf.errors import PrivacyError, ProtocolError, RatingsError
from hdpmf.private.client.contributions import bits, n_silent, sums
from hdpmf.untrusted.recommender.bits import facts_from_bits

WORLD = synthetic_world(n_users=60, n_items=40, n_ratings=1500, rng=0)
WEIGHTS = PrivacySpec().draw(WORLD, rng=0)


def survey_for(ratings=WORLD, **changes):
    """A survey of all users of these ratings."""
    scale = ratings.scale
    fields = {
        "design": "A",
        "coding": "soft",
        "epsilon": 1.0,
        "n_items": ratings.n_items,
        "catalogue": "c",
        "scale_low": scale.low,
        "scale_high": scale.high,
        "scale_step": scale.step,
    }
    return Survey(**(fields | changes))


class Silent:
    """Noise off: what is left must not depend on how users are dealt out."""

    def discrete_laplace(self, scale, size):
        return np.zeros(size, np.int64)


def answer(ratings=WORLD, weights=WEIGHTS, noise=None, *, survey):
    send = bits if survey.design == "L" else sums
    return send(ratings, weights, survey, noise or SeededNoise(1))


def parts(n):
    """The world's users dealt out to ``n`` shards."""
    return [WORLD.take(np.flatnonzero(WORLD.user_codes % n == k)) for k in range(n)]


def test_any_partition_into_shards_gives_the_same_sums():
    survey = survey_for()
    results = []
    for n in (1, 2, 7, 60):
        replies = [answer(part, noise=Silent(), survey=survey) for part in parts(n)]
        results.append(
            [
                np.sum([getattr(one, name) for one in replies], axis=0)
                for name in ("scores", "weights", "total")
            ]
        )
    for found in results[1:]:
        for one, first in zip(found, results[0], strict=True):
            assert np.array_equal(one, first)


@pytest.mark.parametrize(
    "scale", [RatingScale(1, 5, 1), RatingScale(0.5, 5, 0.5), RatingScale(0, 100)], ids=str
)
@pytest.mark.parametrize("coding", ["soft", "threshold", "linear"])
def test_one_rating_moves_the_contribution_by_no_more_than_is_paid_for(coding, scale):
    """By brute force: every value of one rating, and the rating left out, with the noise off."""
    rng = np.random.default_rng(0)
    step = scale.step or 7.0
    users, items = np.divmod(rng.choice(50, 30, replace=False), 5)
    values = scale.low + step * rng.integers(0, int(scale.width / step) + 1, 30)
    table = Ratings.from_arrays(users, items, values, scale=scale)
    weights = rng.uniform(0.02, 1, 30)
    survey = survey_for(table, coding=coding)
    channels = sum_channels(make_coding(coding, scale, 1.0), 1.0)

    def sent(values, keep):
        rows = table.take(keep)
        rows = Ratings(
            table.users, table.items, rows.user_codes, rows.item_codes, values[keep], scale=scale
        )
        own = PrivacyWeights.per_rating(rows, weights[keep])
        return answer(rows, own, Silent(), survey=survey)

    everyone = np.arange(30)
    for one in (0, 11, 29):
        unit = int(weight_units(weights[one : one + 1])[0])
        answers = []
        for value in np.linspace(
            scale.low, scale.high, 41 if scale.step is None else round(scale.width / step) + 1
        ):
            changed = table.values.copy()
            changed[one] = value
            answers.append(sent(changed, everyone))
        without = sent(table.values, np.delete(everyone, one))
        costs = []
        for left, right, kind in [
            *((a, b, "value_step") for a in answers for b in answers),
            *((a, without, "presence_step") for a in answers),
        ]:
            moved = [
                np.abs(left.scores - right.scores).sum(),
                np.abs(left.weights - right.weights).sum(),
                abs(left.total - right.total),
            ]
            pairs = zip(moved, (channels.score, channels.weight, channels.total), strict=True)
            cost = 0.0
            for distance, channel in pairs:
                assert distance <= unit * getattr(channel, kind)
                cost += distance / channel.scale
            costs.append((kind, float(cost)))
        assert max(cost for kind, cost in costs if kind == "value_step") <= weights[one] * (
            1 + 1e-9
        )
        assert max(cost for kind, cost in costs if kind == "presence_step") <= 0.75 * weights[
            one
        ] * (1 + 1e-9)
        if unit:  # and the bound is met, not merely kept
            assert max(cost for kind, cost in costs if kind == "value_step") == pytest.approx(
                unit / 64
            )


@pytest.mark.slow
def test_every_entry_has_the_whole_noise():
    """Variance against the exact one; 40 x 2 entries, 300 draws, level 1e-6."""
    survey = survey_for()
    quiet = answer(noise=Silent(), survey=survey)
    channels = sum_channels(make_coding("soft", WORLD.scale, 1.0), 1.0)
    draws = []
    for seed in range(300):
        reply = answer(noise=SeededNoise(seed), survey=survey)
        scores = (reply.scores - quiet.scores) / float(channels.score.scale)
        weights = (reply.weights - quiet.weights) / float(channels.weight.scale)
        draws.append(np.concatenate((scores, weights)))
    draws = np.array(draws)
    # Laplace of scale 1: variance 2, fourth moment 24, so the mean square has variance 20/n.
    assert abs((draws**2).mean() - 2) < 5 * np.sqrt(20 / draws.size)


def test_sums_and_bits_are_unbiased():
    """Means of 400 answers within 5 standard errors (level below 1e-4 over all entries)."""
    survey = survey_for()
    quiet = answer(noise=Silent(), survey=survey)
    noisy = np.array([answer(noise=SeededNoise(seed), survey=survey).scores for seed in range(400)])
    assert (np.abs(noisy.mean(0) - quiet.scores) < 5 * noisy.std(0) / 20).all()
    asked = survey_for(design="L", coding="threshold")
    speaking = weight_units(WEIGHTS.for_ratings(WORLD)) > 0
    shares = (1 - RULER_SHARE, "threshold"), (RULER_SHARE, "linear")
    for about, (share, name) in enumerate(shares):  # three bits of four, and every fourth
        coding = make_coding(name, WORLD.scale, 1.0)
        said_of = []
        for seed in range(400):
            got = answer(noise=SeededNoise(seed), survey=asked)
            heights = 0.5 / np.tanh(0.5 * got.units / 64)
            said = (2 * got.plus - 1) * heights * (got.ruler == about) / share
            said_of.append(np.bincount(got.items, said, 40))
        centred = coding.encode(WORLD.values)[speaking] / coding.value_step
        expected = np.bincount(WORLD.item_codes[speaking], centred, 40)
        found = np.array(said_of)
        assert (np.abs(found.mean(0) - expected) < 5 * found.std(0) / 20).all()


def test_everything_sent_is_whole_numbers():
    sent = answer(survey=survey_for())
    assert (sent.scores.dtype, sent.weights.dtype, type(sent.total)) == (np.int64, np.int64, int)
    assert set(answer(survey=survey_for(design="L")).plus.tolist()) <= {0, 1}


def test_weights_too_small_for_the_grid_send_nothing():
    tiny = PrivacyWeights.per_rating(WORLD, np.where(np.arange(len(WORLD)) < 100, 1 / 65, 1.0))
    for design in "AL":
        noise = Silent() if design != "L" else None
        reply = answer(weights=tiny, noise=noise, survey=survey_for(design=design))
        assert n_silent(WORLD, tiny) == 100
        if design == "L":
            assert len(reply.plus) == len(WORLD) - 100
        else:
            assert reply.weights.sum() == 64 * (len(WORLD) - 100)


def test_a_recommender_refuses_bits_about_other_items():
    one = np.array([40])
    with pytest.raises(ProtocolError, match="do not have"):
        facts_from_bits(
            survey_for(),
            BitContribution(senders=one, items=one, units=one, plus=one - 39, ruler=one - 39),
            None,
        )


def test_item_facts_that_make_no_sense_are_refused():
    good = {name: np.ones(40, np.float32) for name in ("bias", "variance", "popularity")}
    bad = np.zeros(40, np.float32)
    bad[3] = np.nan
    for change in (
        {"mean": float("inf")},
        {"bias": bad},
        {"variance": -np.ones(40, np.float32)},
        {"popularity": bad},
        {"popularity": np.ones(39, np.float32)},
    ):
        with pytest.raises(ProtocolError):
            ItemFacts(**{"catalogue": "c", "mean": 3.5} | good | change)
    ItemFacts(catalogue="c", mean=3.5, **good)


@pytest.mark.parametrize("design", ["A", "L"])
@pytest.mark.parametrize("wrong", [0.0, 6.0, -1e6, math.nan, math.inf])
def test_a_rating_off_the_scale_is_refused(design, wrong):
    ratings = Ratings.from_arrays([1, 1, 2], [10, 11, 11], [1.0, 4.0, 5.0], scale=(1, 5, 1))
    ratings.values.setflags(write=True)  # past the door: a device whose memory or file was changed
    ratings.values[2] = wrong
    with pytest.raises(RatingsError, match=r"off the public scale.*nothing was sent"):
        answer(ratings, PrivacyWeights.uniform(ratings), survey=survey_for(ratings, design=design))


@pytest.mark.parametrize("design", ["A", "L"])
def test_weights_of_other_ratings_are_refused(design):
    with pytest.raises(PrivacyError, match="table of 2 ratings"):
        answer(
            weights=PrivacyWeights.per_rating(WORLD.take([0, 1]), [1.0, 1.0]),
            survey=survey_for(design=design),
        )
