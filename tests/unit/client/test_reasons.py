"""Reasons: parts add up to the score, the largest is named, and what is named says what it
claims.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.model.device_fit import log_popularity
from hdpmf.common.model.list_model import Bytes, Entries, ListModel
from hdpmf.models import HDPSum
from hdpmf.private.client.ranking import LIKE, ByListModel, list_parts
from hdpmf.private.client.reasons import Parts, Reason, in_words, reasons

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
    hidden = rng.normal(size=5).astype(np.float32) * (form == "autoencoder")
    output = rng.normal(size=n).astype(np.float32)
    decode = Bytes.of(rng.normal(size=(n, 5)))
    return ListModel(form, encode, decode, entries, hidden, output, (0.5, 0.1), heads, N)  # type: ignore[arg-type]


MODELS = [
    _model(form, heads)
    for form in ("linear", "autoencoder", "factors")
    for heads in (None, np.arange(3, 25, 2))
]


def _inputs(user: int) -> tuple[np.ndarray, np.ndarray]:
    own = slice(*FITTED.devices_.rated_start[user : user + 2])
    return FITTED.devices_.rated[own].astype(np.int64), FITTED.devices_.stars[own].astype(
        np.float64
    ) - 1.0


@pytest.mark.parametrize(
    "model", MODELS, ids=lambda model: f"{model.form}{'' if model.heads is None else ' heads'}"
)
def test_parts_of_a_list_model_add_up_to_its_scores(model: ListModel) -> None:
    everything = np.arange(N)
    order = ByListModel(FITTED.devices_, model)
    users = np.array([0, 7, 39])
    for row, parts in zip(order.scores(users), order.parts(users, [everything] * 3), strict=True):
        assert parts.scores == pytest.approx(row, abs=1e-3)
        assert np.abs(parts.own).sum() > 0
    nothing = np.zeros(0, np.int64)
    assert list_parts(model, nothing, np.zeros(0), everything).scores == pytest.approx(
        model.scores(nothing, np.zeros(0)), abs=1e-4
    )


def test_what_a_rated_item_adds_is_what_is_lost_without_it() -> None:
    """In a linear model, that is: a definition of its part that knows nothing of how parts are
    computed.
    """
    model = MODELS[0]
    rated, inputs = _inputs(5)
    items = np.setdiff1d(np.arange(N), rated)
    parts = list_parts(model, rated, inputs, items)
    whole = model.scores(rated, inputs)[items]
    for place in range(len(rated)):
        left = np.arange(len(rated)) != place
        lost = whole - model.scores(rated[left], inputs[left])[items]
        assert parts.own[place] == pytest.approx(lost, abs=1e-4)


def test_what_is_rated_lowest_adds_nothing() -> None:
    rated, inputs = _inputs(5)
    inputs[0] = 0.0
    for model in MODELS:
        parts = list_parts(model, rated, inputs, np.arange(N))
        assert (parts.own[parts.rated == rated[0]] == 0).all()


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
        for part in (parts.popularity, parts.stars, *parts.taste):
            assert shares @ part / shares.sum() == pytest.approx(0.0, abs=1e-5)


PARTS = Parts(
    base=1.0,
    popularity=np.array([3.0, 0.1, 0.1, 0.1, -1.0]),
    stars=np.array([0.5, 2.0, 0.0, 0.0, -1.0]),
    rated=np.array([10, 11, 12]),
    own=np.array(
        [[0.2, 0.2, 0.3, 0.0, -1.0], [0.1, 0.1, 0.9, 0.1, 0.0], [-1.0, 0.0, -0.1, 0.1, 0.0]]
    ),
    features=("genre:Comedy", "genre:Horror", "from 1970", "from 1990"),
    taste=np.array(
        [
            [0.1, 0.0, 0.2, 0.6, 0.0],
            [0.0, 0.0, 0.1, 0.7, 0.0],
            [0.0, 0.1, 0.0, 0.4, 0.0],
            [0.0, 0.0, 0.0, -0.9, 0.0],
        ]
    ),
    absent=np.array([[False] * 5, [True] * 5, [False] * 5, [False] * 5]),
)


def _found(place: int, parts: Parts = PARTS, item: int = 0) -> Reason | None:
    return reasons(parts, np.full(5, item))[place]


def _reason(
    place: int, parts: Parts = PARTS, item: int = 0
) -> tuple[str, tuple[int, ...], tuple[str, ...]] | None:
    found = _found(place, parts, item)
    return None if found is None else (found.kind, found.rated, found.features)


def test_the_largest_part_is_named_and_a_swap_would_be_noticed() -> None:
    expected = [
        ("popularity", (), ()),
        ("stars", (), ()),
        ("own", (11, 10), ()),
        ("taste", (), ("genre:Horror", "genre:Comedy")),  # the periods together are against it
        None,
    ]
    assert [_reason(place) for place in range(5)] == expected
    swaps = (
        replace(PARTS, popularity=PARTS.popularity[[2, 1, 0, 3, 4]]),
        replace(PARTS, own=PARTS.own[[1, 0, 2]]),
        replace(PARTS, taste=PARTS.taste[[1, 0, 2, 3]]),
    )
    for swapped in swaps:
        assert [_reason(place, swapped) for place in range(5)] != expected


def test_no_item_is_a_reason_for_itself() -> None:
    assert _reason(2, item=11) == ("own", (10,), ())


def _words(reason: Reason | None) -> str | None:
    return in_words(
        reason,
        title=lambda item: f"Film {item}",
        stars=lambda item: {1: 5.0, 2: 4.0}.get(item, 3.9),
        expected=4.56,
    )


def test_words() -> None:
    assert _words(None) is None
    assert _words(Reason("own")) is None
    assert _words(Reason("own", rated=(1, 2))) == "because you rated Film 1 and Film 2 highly"
    assert _words(Reason("own", rated=(1, 3))) == "because you rated Film 1 and Film 3"
    assert _words(Reason("popularity")) == "popular"
    assert _words(Reason("stars")) == "people like you would give it 4.6"
    assert (
        _words(Reason("taste", features=("genre:Comedy", "genre:Drama")))
        == "your genres: Comedy, Drama"
    )
    assert _words(Reason("taste", features=("year", "genre:Horror"), absent=("genre:Horror",))) == (
        "your taste: its year, no Horror"
    )
    assert (
        _words(Reason("taste", features=("number:price", "title:sequel")))
        == "your taste: its price, sequel"
    )
    assert _words(_found(3)) == "your genres: no Horror, Comedy"


def test_a_genre_that_an_item_has_is_not_denied() -> None:
    """Nor one that it lacks claimed, where nothing but a matrix of features is known."""
    plain = Ratings.from_arrays(WORLD.user_ids, WORLD.item_ids, WORLD.values)
    assert WORLD.item_table is not None
    features = ItemFeatures.of_table(WORLD.item_table, WORLD.items)
    model = HDPSum(features=features, rng=0).fit(plain)
    said = set()
    for recommended in model.recommend(plain.users.ids.tolist(), 30).values():
        for found in recommended:
            row = features.matrix[plain.items.code(found.item)]
            for name, value in zip(features.names, row, strict=True):
                word = name.removeprefix("genre:")
                words = (found.reason or "").partition(": ")[2].split(", ")
                if word in words or f"no {word}" in words:
                    said.add(word in words)
                    assert (word in words) == (value != 0)
    assert said == {True, False}


def test_reasons_are_not_in_reprs() -> None:
    assert "11" not in repr(_found(2)).partition(" at 0x")[0]  # an address may hold any digits
    assert "Film" not in repr(FITTED.recommend(WORLD.users.ids[0], 1)) + repr(PARTS)
    told = FITTED.recommend(WORLD.users.ids[0], 1)[0]
    assert told.reason is not None
    assert "reason" not in repr(told)
