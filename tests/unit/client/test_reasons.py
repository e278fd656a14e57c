"""Reasons: parts add up to the score, what is personal is named where it is real, and what is
named says what it claims.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.model.device_fit import log_popularity
from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.common.model.taste import LIKE, taste
from hdpmf.models import HDPSum, make_model
from hdpmf.private.client.parts import (
    Parts,
    Reason,
    TasteParts,
    in_words,
    reasons,
)
from hdpmf.private.client.ranking import (
    ChooseAndLike,
    heights,
)

WORLD = synthetic_world(n_users=40, n_items=30, n_ratings=500, rng=3)
FITTED = HDPSum(rng=0).fit(WORLD)
N = 30


def _model(form: str, heads: np.ndarray | None = None) -> ListModel:
    """A model for lists with every part that its form can have."""
    rng = np.random.default_rng(4)
    n = N if heads is None else len(heads)
    encode = Bytes.of(rng.normal(size=(0 if form == "factors" else n, 5)))
    if form == "factors":
        encode = Bytes(np.zeros((0, 5), np.int8), np.ones(5, np.float32))
    entries = Entries.largest(rng.normal(size=(n, n)), 4) if form == "linear" else Entries.none(n)
    output = rng.normal(size=n).astype(np.float32)
    decode = Bytes.of(rng.normal(size=(n, 5)))
    return ListModel(form, encode, decode, entries, output, (0.5, 0.1), heads, N)  # type: ignore[arg-type]


MODELS = [
    _model(form, heads) for form in ("linear", "factors") for heads in (None, np.arange(3, 25, 2))
]


def _inputs(user: int) -> tuple[np.ndarray, np.ndarray]:
    own = slice(*FITTED.devices_.rated_start[user : user + 2])
    return FITTED.devices_.rated[own].astype(np.int64), FITTED.devices_.stars[own].astype(
        np.float64
    ) - 1.0


def test_parts_of_choose_and_like_add_up_and_are_what_they_say() -> None:
    order = FITTED._order()
    items, users = np.arange(N), np.arange(6)
    popularity = log_popularity(FITTED.facts_.popularity.astype(np.float64))
    for user, row, parts in zip(
        users, order.scores(users), order.parts(users, [items] * 6), strict=True
    ):
        assert parts.scores == pytest.approx(row, abs=1e-5)
        stars = FITTED.predict([WORLD.users.ids[user]] * N, WORLD.items.ids)
        # Constants apart: every part is measured against what people choose in general.
        assert np.ptp(parts.popularity - popularity) == pytest.approx(0.0, abs=1e-6)
        assert np.ptp(parts.stars - LIKE * stars) == pytest.approx(0.0, abs=1e-5)
        shares = np.maximum(FITTED.facts_.popularity, 0.3)
        assert parts.taste is not None
        for part in (parts.popularity, parts.stars, *parts.taste.sizes):
            assert shares @ part / shares.sum() == pytest.approx(0.0, abs=1e-5)


def test_what_ratings_add_to_taste_adds_up_to_it() -> None:
    order = FITTED._order()
    assert isinstance(order, ChooseAndLike)
    assert order.features is not None
    users = np.arange(6)
    tastes = taste(heights(FITTED.devices_, users), order.features, order.popularity)
    for whole, user, parts in zip(
        tastes, users, order.parts(users, [np.arange(N)] * 6), strict=True
    ):
        assert parts.taste is not None
        assert len(parts.taste.pulls) == len(_inputs(user)[0])
        assert parts.taste.pulls.sum(axis=0) == pytest.approx(whole, abs=1e-9)
        assert np.abs(parts.taste.pulls).min(axis=1).max() > 0


NAMES = (
    "popularity",
    "ratings",
    "genre:Comedy",
    "genre:Horror",
    "from 1970",
    "from 1995",
    "number:price",
    "director:Varda",
)
RATED = np.array([10, 11, 12])


def _parts(
    *,
    popularity: float = 0.0,
    stars: float = 0.0,
    own: tuple[float, float, float] = (0.0, 0.0, 0.0),
    has: tuple[str, ...] = (),
    price: float = 1.0,
    **sizes: float,
) -> Parts:
    """The parts of one item, with the sizes of taste parts by the last words of their names.

    A third of each part of taste comes from the first rating and two from the second, unless a test
    replaces them.
    """
    words = [name.replace(":", " ").split()[-1] for name in NAMES]
    assert set(sizes) <= {f"of_{word}" for word in words}
    apart = np.array([price if word == "price" else 1.0 for word in words])[:, None]
    whole = np.array([sizes.get(f"of_{word}", 0.0) for word in words]) / apart[:, 0]
    return Parts(
        base=1.0,
        popularity=np.array([popularity]),
        stars=np.array([stars]),
        rated=RATED,
        own=np.array(own)[:, None],
        taste=TasteParts(
            names=NAMES,
            apart=apart,
            present=np.array([word in (*has, "popularity", "ratings", "price") for word in words])[
                :, None
            ],
            pulls=np.array([whole / 3, whole * 2 / 3, whole * 0]),
            leaning=whole,
        ),
    )


def _found(parts: Parts, item: int = 0, undated: tuple[int, ...] = ()) -> Reason | None:
    return reasons(parts, np.array([item]), frozenset(undated))[0]


def _features(parts: Parts, undated: tuple[int, ...] = ()) -> tuple[str, ...] | None:
    found = _found(parts, undated=undated)
    return None if found is None or found.kind != "taste" else found.features


def _kind(parts: Parts) -> str | None:
    found = _found(parts)
    return None if found is None else found.kind


def test_what_is_personal_comes_first_from_a_tenth_of_what_raises_an_item_on() -> None:
    for share, kind in ((0.099, "popularity"), (0.101, "taste")):
        size = share / (1 - share)
        assert _kind(_parts(popularity=0.6, stars=0.4, of_Comedy=size, has=("Comedy",))) == kind
    for share, kind in ((0.099, "popularity"), (0.101, "own")):
        size = share / (1 - share)
        assert _kind(_parts(popularity=0.6, stars=0.4, own=(size, 0.0, 0.0))) == kind
    # What lowers it makes nothing else larger.
    assert _kind(_parts(popularity=1.0, stars=-5.0, of_Comedy=0.1, has=("Comedy",))) == "popularity"


def test_what_noise_may_have_raised_is_no_choice_of_many() -> None:
    parts = _parts(popularity=0.3, stars=0.2)
    for certain, kind in ((True, "popularity"), (False, "stars")):
        assert _kind(replace(parts, chosen=np.array([certain]))) == kind
    few = synthetic_world(n_users=30, n_items=200, n_ratings=600, rng=3, features=False)
    for name in ("hdp-pairs", "hdp-sum", "private-popular"):
        model = make_model(name, epsilon=0.5, rng=0).fit(few)
        seem = next(model._order().parts(np.zeros(1, np.int64), [np.arange(200)]))
        assert (seem.popularity > 0).any()
        for _, listed in model.recommend_each(few.users.ids.tolist(), 10):
            assert not any("many people" in (entry.reason or "") for entry in listed), name


def test_the_larger_personal_part_is_named_and_the_larger_of_the_others() -> None:
    for own, kind in ((0.4, "own"), (0.2, "taste")):
        assert _kind(_parts(own=(own, 0.0, 0.0), of_Comedy=0.3, has=("Comedy",))) == kind
    assert _kind(_parts(popularity=0.2, stars=0.3)) == "stars"
    assert _kind(_parts(popularity=0.3, stars=0.2)) == "popularity"
    assert _kind(_parts(popularity=-0.3, stars=-0.2)) is None


def test_what_others_choose_and_rate_is_never_named_as_taste() -> None:
    some = {"popularity": 0.1, "stars": 0.1}
    assert _kind(_parts(of_popularity=1.0, of_ratings=0.5, **some)) == "popularity"
    assert _kind(_parts(of_popularity=0.5, of_ratings=1.0, **some)) == "stars"
    # It belongs to what a personal part is measured against.
    some = _parts(popularity=0.5, of_popularity=0.5, of_Comedy=0.105, has=("Comedy",))
    assert _kind(some) == "popularity"


def test_what_few_people_choose_is_not_told_as_what_many_do() -> None:
    """Though it is this person's taste, and that part raises it."""
    assert _kind(_parts(popularity=-0.5, of_popularity=1.0)) is None
    assert _kind(_parts(popularity=-0.5, of_popularity=1.0, stars=0.1)) == "stars"
    assert _kind(_parts(popularity=0.1, stars=-0.5, of_ratings=1.0)) == "popularity"


def test_only_what_an_item_has_is_named() -> None:
    assert _kind(_parts(popularity=0.1, of_Horror=1.0)) == "popularity"  # not being Horror
    assert _features(_parts(of_Horror=1.0, of_Comedy=0.5, has=("Comedy",))) == ("genre:Comedy",)
    # Most of it is not being Horror: Comedy by itself is below a tenth.
    assert _kind(_parts(popularity=0.1, of_Horror=1.0, of_Comedy=0.1, has=("Comedy",))) != "taste"


def test_a_genre_is_not_named_where_taste_is_against_the_item() -> None:
    both = ("Comedy", "Horror")
    assert _kind(_parts(popularity=0.1, of_Comedy=0.5, of_Horror=-0.6, has=both)) == "popularity"
    assert _features(_parts(popularity=0.1, of_Comedy=0.5, of_Horror=-0.3, has=both)) == (
        "genre:Comedy",
    )


def test_a_genre_that_the_person_chooses_less_than_others_is_not_named() -> None:
    """A part of it can raise an item all the same, by what goes with it."""
    parts = _parts(popularity=0.1, of_Comedy=0.5, has=("Comedy",))
    assert parts.taste is not None
    less = replace(parts, taste=replace(parts.taste, leaning=-parts.taste.leaning))
    assert (_kind(parts), _kind(less)) == ("taste", "popularity")


def test_a_second_feature_is_named_beside_the_first_if_it_is_not_small() -> None:
    has = ("Comedy", "Horror", "Varda")
    assert _features(_parts(of_Comedy=0.1, of_Horror=0.3, of_Varda=0.2, has=has)) == (
        "genre:Horror",
        "director:Varda",
    )
    assert _features(_parts(of_Comedy=0.26, of_Horror=1.0, has=has)) == (
        "genre:Horror",
        "genre:Comedy",
    )
    assert _features(_parts(of_Comedy=0.24, of_Horror=1.0, has=has)) == ("genre:Horror",)


def test_periods_are_one_part_named_by_the_items_own() -> None:
    assert _features(_parts(of_1970=0.4, of_1995=0.1, has=("1995",))) == ("from 1995",)
    assert _features(_parts(of_1970=0.4, of_1995=-0.1, has=("1995",))) is None
    # Less than a usual period, though the column by itself speaks for it.
    assert _kind(_parts(popularity=0.1, of_1970=-0.4, of_1995=0.1, has=("1995",))) == "popularity"
    # Genres are named before it, however large it is.
    some = _parts(of_1995=0.4, of_Comedy=0.3, has=("1995", "Comedy"))
    assert _features(some) == ("genre:Comedy", "from 1995")
    # Of an item whose year nobody knows, none is.
    assert _features(some, undated=(0,)) == ("genre:Comedy",)


def test_numbers_are_high_or_low() -> None:
    assert _features(_parts(of_price=0.4)) == ("high price",)
    assert _features(_parts(of_price=0.4, price=-0.5)) == ("low price",)


def test_the_rated_items_that_add_most_are_named() -> None:
    found = _found(_parts(own=(0.2, 0.9, -0.5)))
    assert found is not None
    assert found.rated == (11, 10)
    found = _found(_parts(own=(0.2, 0.9, -0.5)), item=11)
    assert found is not None
    assert found.rated == (10,)  # no item is a reason for itself
    found = _found(_parts(own=(0.0, 0.9, 0.0), popularity=0.1), item=11)
    assert found is not None
    assert found.kind == "popularity"


def _words(reason: Reason | None, expected: float | None = 4.56) -> str | None:
    return in_words(
        reason,
        title=lambda item: f"Film {item}",
        stars=lambda item: {1: 5.0, 2: 4.0}.get(item, 3.9),
        expected=expected,
    )


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (None, None),
        (Reason("own", rated=(1, 2)), "because you rated Film 1 and Film 2 highly"),
        (Reason("own", rated=(1, 3)), "because you rated Film 1 and Film 3"),
        (Reason("own", rated=(1, 1)), "because you rated Film 1 highly"),
        (Reason("popularity"), "many people choose it"),
        (Reason("stars"), "you would probably give it 4.6"),
        (Reason("taste", features=("genre:Comedy", "genre:Drama")), "your genres: Comedy, Drama"),
        (
            Reason("taste", features=("from 1930",)),
            "from before 1940, which you choose more than most",
        ),
        (
            Reason("taste", features=("director:Varda", "from 2000")),
            "your taste: Varda, 2000 or later",
        ),
        (
            Reason("taste", features=("from here:Lyon", "low price")),
            "your taste: Lyon, low price",
        ),
    ],
)
def test_words(reason: Reason | None, words: str | None) -> None:
    assert _words(reason) == words


def test_no_rating_is_told_where_none_is_expected() -> None:
    assert _words(Reason("stars"), expected=None) is None


def test_what_is_claimed_of_items_and_titles_is_so() -> None:
    """Also where nothing but a matrix of features is known: and then no title is named.

    It said "because you liked Ran: Drama" of every other drama.
    """
    plain = Ratings.from_arrays(WORLD.user_ids, WORLD.item_ids, WORLD.values)
    assert WORLD.item_table is not None
    features = ItemFeatures.of_table(WORLD.item_table, WORLD.items)
    model = HDPSum(features=features, rng=0).fit(plain)
    n_claims = 0
    for recommended in model.recommend(plain.users.ids.tolist(), 30).values():
        for found in recommended:
            reason = found.reason or ""
            assert not set(reason.replace(",", "").split()) & {"its", "no", "popular"}
            assert not re.search(r"item \d+", reason)
            for at, name in enumerate(features.names):
                word = name.removeprefix("genre:")
                if name.startswith("genre:") and re.search(rf"[:,] {word}\b", reason):
                    n_claims += 1
                    assert features.matrix[plain.items.code(found.item), at]
    assert n_claims > 50


def test_reasons_are_not_in_reprs() -> None:
    own = _parts(own=(0.2, 0.9, -0.5))
    assert "11" not in repr(_found(own)).partition(" at 0x")[0]  # an address may hold any digits
    assert "11" not in repr(own.taste).partition(" at 0x")[0]
    assert "Film" not in repr(FITTED.recommend(WORLD.users.ids[0], 1)) + repr(own)
    told = FITTED.recommend(WORLD.users.ids[0], 1)[0]
    assert told.reason is not None
    assert "reason" not in repr(told)
