"""HDPShare: hdp-sum where nobody shares, one channel per rating, and files without anybody."""

from __future__ import annotations

import json

import numpy as np
import pytest
from msgspec.structs import replace

from hdpmf import HDPBit, HDPShare, HDPSum, PrivacyWeights, load_model, make_model
from hdpmf.common.privacy.spec import Sharers
from hdpmf.errors import ConfigError
from hdpmf.models import hdp_share
from hdpmf.untrusted.recommender.sharing import facts_from_shares

from .test_one_round import prior_for


@pytest.fixture(scope="module")
def shared(split, weights):
    train, _ = split
    levels = Sharers(0.3).drawn(weights, 0).user_levels.copy()
    levels[np.flatnonzero(levels)[::3]] = 2  # some of them open
    return weights.with_levels(users=levels, items={train.items.ids[0].item(): "hidden"})


@pytest.mark.parametrize("options", [{}, {"max_ratings": 5}, {"features": False}], ids=str)
def test_with_nobody_sharing_it_is_hdp_sum(split, weights, options):
    train, test = split
    share = HDPShare(rng=3, **options).fit(train, weights)
    sums = HDPSum(rng=3, **options).fit(train, weights)
    assert share.score(test) == sums.score(test)
    assert share.rank(test) == sums.rank(test)
    assert share.recommend(train.users.ids[0]) == sums.recommend(train.users.ids[0])
    assert share.lists_ is None
    assert share.facts_.blend == 0
    assert share.facts_.similarity is None
    for name in ("mean", "bias", "variance", "popularity"):
        assert np.array_equal(getattr(share.facts_, name), getattr(sums.facts_, name))
    # Levels that hide everything are no levels.
    hidden = HDPShare(rng=3, **options).fit(train, weights.with_levels(users="hidden"))
    assert hidden.score(test) == sums.score(test)
    marked = weights.with_levels(users="open", items="hidden")
    assert HDPShare(rng=3, **options).fit(train, marked).score(test) == sums.score(test)


def test_a_seed_decides_everything_and_threads_nothing(split, shared):
    train, test = split
    scores = [
        HDPShare(rng=0, n_threads=threads).fit(train, shared).score(test) for threads in (1, 3)
    ]
    assert scores[0] == scores[1]
    assert HDPShare(rng=1).fit(train, shared).score(test) != scores[0]


def test_what_people_show_is_used(split, weights, shared):
    train, test = split
    plain = HDPShare(rng=0).fit(train, weights)
    model = HDPShare(rng=0).fit(train, shared)
    assert model.facts_.similarity is not None
    assert model.score(test) != plain.score(test)


def test_a_limit_leaves_as_many_visible_ratings_as_if_nothing_were_hidden(
    split, shared, monkeypatch
):
    train, _ = split
    heard = []

    def listen(survey, sums, shares, *args, **options):
        heard.extend(shares)
        return facts_from_shares(survey, sums, shares, *args, **options)

    monkeypatch.setattr(hdp_share, "facts_from_shares", listen)
    HDPShare(rng=0, max_ratings=3).fit(train, shared)
    ((bits, opens),) = heard
    sent = np.bincount([*bits.senders, *opens.senders], minlength=train.n_users)
    units = np.floor(64 * shared.for_ratings(train))
    levels = shared.levels_for(train)
    speaks = (levels == 2) | ((levels == 1) & (units > 0))
    visible = np.bincount(train.user_codes[levels > 0], minlength=train.n_users)
    silent = np.bincount(train.user_codes[(levels > 0) & ~speaks], minlength=train.n_users)
    assert sent.max() == 3
    assert (sent[silent == 0] == np.minimum(visible, 3)[silent == 0]).all()


def test_lists_are_blended_where_the_facts_say_so(split, shared):
    train, test = split
    model = HDPShare(rng=0).fit(train, shared)
    model.lists_ = HDPBit(rng=0).fit(train, shared).lists_
    facts, found = model.facts_, []
    for blend in (0.0, 0.5, 5.0):
        model.facts_ = replace(facts, blend=blend)
        found.append(model.rank(test)["ndcg"])
    assert len(set(found)) == 3
    model.lists_ = None
    assert model.rank(test)["ndcg"] == found[0]


def test_hidden_values_of_sharers_only_enter_sums(split, weights, shared):
    """All that a recommender gets of a marked item's value is in the sums."""
    train, _ = split
    everything = HDPShare(rng=0, epsilon=1e6).fit(train, weights.with_levels(users="open"))
    marked = HDPShare(rng=0, epsilon=1e6).fit(train, shared)
    assert everything.facts_.bias.shape == marked.facts_.bias.shape
    assert np.abs(everything.facts_.bias - marked.facts_.bias).max() < 1.5


def test_saved_models_hold_nobody_on_the_recommenders_side(split, shared, tmp_path):
    train, test = split
    model = HDPShare(rng=0).fit(train, shared)
    model.save(tmp_path / "m")
    back = load_model(tmp_path / "m")
    assert isinstance(back, HDPShare)
    assert back.score(test) == model.score(test)
    assert back.rank(test) == model.rank(test)
    assert back.recommend(train.users.ids[0]) == model.recommend(train.users.ids[0])
    folder = tmp_path / "m" / "recommender"
    files = {path.name for path in folder.iterdir()}
    assert files == {"model.json", "numbers.safetensors"}  # no release of bits, no shares
    facts = json.loads((folder / "model.json").read_text())
    assert not {"levels", "weights", "beta", "user_levels"} & set(json.dumps(facts).split('"'))
    # Numbers per person would be as long as there are people.
    from safetensors.numpy import load_file

    lengths = {len(array) for array in load_file(folder / "numbers.safetensors").values()}
    assert train.n_users not in lengths
    assert sum(map(len, shared.users.ids.astype(str))) > 0
    text = (folder / "model.json").read_text()
    assert all(f'"{user}"' not in text for user in shared.users.ids.astype(str).tolist()[:50])


def test_people_come_later_and_a_public_part_is_enough(split, tmp_path):
    train, test = split
    model = HDPShare(rng=0).fit(train, Sharers(0.5).drawn(PrivacyWeights.uniform(train), 0))
    model.save(tmp_path / "m")
    public = load_model(tmp_path / "m" / "recommender", public_only=True)
    some = train.users.ids[:5]
    part = train.take(np.isin(train.user_codes, np.arange(5)))
    public.fold_in(part)
    for user in some.tolist():
        assert [row.item for row in public.recommend(user)] == [
            row.item for row in model.recommend(user)
        ]
    user, item = test.user_ids[0].item(), test.item_ids[0].item()
    assert np.isfinite(model.predict(user, item))


def test_options(split, weights):
    train, test = split
    with pytest.raises(ConfigError, match="no option 'design'"):
        make_model("hdp-share", design="S")
    names = HDPShare(rng=0).fit(train, weights).feature_names_
    with_prior = HDPShare(rng=0, prior=prior_for(names)).fit(train, weights)
    assert with_prior.prior_origin_["name"] == "test"
    assert with_prior.score(test)["mse"] > 0
