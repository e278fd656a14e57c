"""Lists for people: many at once, filtered, with or without what they rated."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from hdpmf.common.data import IdIndex, ItemFilter, ItemTable, Ratings, synthetic_world
from hdpmf.errors import ConfigError, UnknownIdError
from hdpmf.models import EASE, HDPBit, HDPSum
from hdpmf.models.base import Estimator
from hdpmf.private.client import ranking
from hdpmf.private.client.ranking import best_items

WORLD = synthetic_world(n_users=40, n_items=60, n_ratings=900, rng=3)
USERS = WORLD.users.ids.tolist()


@pytest.fixture(scope="module", params=[HDPSum, EASE])
def model(request: pytest.FixtureRequest) -> Estimator:
    fitted: Estimator = request.param(rng=0).fit(WORLD)
    return fitted


def test_many_users_get_what_each_gets(model: Estimator, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = {user: model.recommend(user, 7) for user in USERS}
    for block in (1, 130, 1 << 20):  # scores held at once: of one user, of two, of all
        monkeypatch.setattr(ranking, "_BLOCK_SCORES", block)
        together = model.recommend(USERS, 7)
        assert list(together) == USERS
        for user in USERS:
            assert [found.item for found in together[user]] == [found.item for found in alone[user]]
            assert [found.reason for found in together[user]] == [
                found.reason for found in alone[user]
            ]
            assert [found.rank_score for found in together[user]] == pytest.approx(
                [found.rank_score for found in alone[user]], rel=1e-5
            )
    assert model.recommend(np.array(USERS[:2])).keys() == set(USERS[:2])
    assert model.recommend([]) == {}
    with pytest.raises(UnknownIdError, match="user -5 was not in training"):
        model.recommend([USERS[0], -5])


def test_rated_items_are_left_out_or_kept(model: Estimator) -> None:
    user = USERS[4]
    rated = set(WORLD.item_ids[WORLD.user_codes == 4].tolist())
    new = model.recommend(user, 100)
    everything = model.recommend(user, 100, keep_rated=True)
    assert not rated & {found.item for found in new}
    assert rated <= {found.item for found in everything}
    assert [found.item for found in everything if found.item not in rated] == [
        found.item for found in new
    ]


def test_filters_leave_the_order_as_it_is(model: Estimator) -> None:
    table = WORLD.item_table
    assert table is not None
    everything = model.recommend(USERS[4], 100)
    only = ItemFilter(
        genres=["comedy", "Drama"], not_genres=["Horror"], from_year=1990, to_year=2015
    )
    some = model.recommend(USERS[4], 100, only=only)
    assert 0 < len(some) < len(everything)
    fitting = [
        found
        for found in everything
        if {"Comedy", "Drama"} & set(found.genres)
        and "Horror" not in found.genres
        and 1990 <= (found.year or 0) <= 2015
    ]
    assert some == fitting
    chosen = [found.item for found in everything[5:8]]
    assert model.recommend(USERS[4], 100, only=ItemFilter(items=chosen)) == everything[5:8]


def test_facts_of_items_and_expected_ratings(model: Estimator) -> None:
    table = WORLD.item_table
    assert table is not None
    for found in model.recommend(USERS[4], 5):
        row = table.index.code(found.item)
        assert (found.title, found.year, found.genres) == (
            table.titles[row],
            table.years[row],
            table.genres[row],
        )
        if model.predicts_ratings:
            assert found.score == pytest.approx(
                float(model.predict(USERS[4], found.item)[0]), abs=1e-5
            )
        else:
            assert found.score is None


def test_reasons_name_what_was_rated() -> None:
    table = WORLD.item_table
    assert table is not None
    stars = dict(
        zip(
            WORLD.item_ids[WORLD.user_codes == 4].tolist(),
            WORLD.values[WORLD.user_codes == 4],
            strict=True,
        )
    )
    for found in EASE(rng=0).fit(WORLD).recommend(USERS[4], 5):
        assert found.reason is not None
        named = [item for item in stars if table.title(item) in found.reason]
        assert 1 <= len(named) <= 2
        assert found.reason.endswith(" highly") == all(stars[item] >= 4 for item in named)


def test_no_period_is_told_of_an_item_without_a_year() -> None:
    table = WORLD.item_table
    assert table is not None
    dated = HDPSum(rng=0).fit(WORLD).recommend(USERS, 60)
    told = {
        found.item
        for each in dated.values()
        for found in each
        if re.search(r"\b\d{3}0s$", found.reason or "")
    }
    without = {min(told), max(told)}
    years = [
        None if item in without else year
        for item, year in zip(table.index.ids.tolist(), table.years, strict=True)
    ]
    world = replace(
        WORLD, item_table=ItemTable.build(table.index.ids, table.titles, table.genres, years)
    )
    shown = HDPSum(rng=0).fit(world).recommend(USERS, 60).values()
    of_these = [found for each in shown for found in each if found.item in without]
    assert of_these
    assert not any(re.search(r"\b\d{3}0s", found.reason or "") for found in of_these)


def test_somebody_who_told_nothing_gets_what_people_choose() -> None:
    """Who rated everything lowest has no input into a model for lists."""
    values = np.where(WORLD.user_codes == 4, 1.0, WORLD.values)
    lists = HDPBit(rng=0).fit(Ratings.from_arrays(WORLD.user_ids, WORLD.item_ids, values))
    everyone = lists.recommend(USERS, 3)
    assert not any("because you rated" in (found.reason or "") for found in everyone[USERS[4]])
    assert all("because you rated" in (found.reason or "") for found in everyone[USERS[5]])
    generally = super(HDPBit, lists)._order().scores(np.array([4]))[0]
    ranked = sorted(everyone[USERS[4]], key=lambda found: -generally[WORLD.items.code(found.item)])
    assert ranked == everyone[USERS[4]]


def test_without_titles_items_are_named_by_their_ids() -> None:
    plain = Ratings.from_arrays(WORLD.user_ids, WORLD.item_ids, WORLD.values)
    found = EASE(rng=0).fit(plain).recommend(USERS[4], 1)[0]
    assert (found.title, found.year, found.genres) == (None, None, ())
    assert found.reason is not None
    assert found.reason.startswith("because you rated item ")
    with pytest.raises(ConfigError, match="no genres are known"):
        EASE(rng=0).fit(plain).recommend(USERS[4], only=ItemFilter(genres=["Comedy"]))


def test_best_items_are_in_order_and_ties_in_that_of_the_catalogue() -> None:
    scores = np.array([1.0, 3.0, 2.0, 3.0, 2.0, 2.0, 9.0])
    able = scores < 9
    for n in range(1, 8):
        assert best_items(scores, n, able).tolist() == [1, 3, 2, 4, 5, 0][:n]
    assert best_items(scores, 3, np.zeros(7, bool)).tolist() == []


TABLE = ItemTable.build(
    [1, 2, 3, 4],
    ["a", "b", "c", "d"],
    [["Comedy"], ["Comedy", "Horror"], ["Drama"], []],
    [1980, 1999, None, 2005],
    ["G", "pg", "", "R"],
)
INDEX = TABLE.index


@pytest.mark.parametrize(
    ("wanted", "passing"),
    [
        (ItemFilter(), [1, 2, 3, 4]),
        (ItemFilter(genres=["comedy"]), [1, 2]),
        (ItemFilter(genres=["Comedy", "DRAMA"], not_genres=["Horror"]), [1, 3]),
        (ItemFilter(not_genres=["Comedy"]), [3, 4]),
        (ItemFilter(from_year=1999), [2, 4]),
        (ItemFilter(to_year=1999), [1, 2]),
        (ItemFilter(from_year=1999, to_year=1999), [2]),
        (ItemFilter(items=[4, 2], from_year=2000), [4]),
        (ItemFilter(items=[]), []),
        (ItemFilter(audience=["g", "PG"]), [1, 2]),
        (ItemFilter(audience=["R"], not_genres=["Comedy"]), [4]),
    ],
)
def test_which_items_pass(wanted: ItemFilter, passing: list[int]) -> None:
    assert INDEX.ids[wanted.allowed(INDEX, TABLE)].tolist() == passing


def test_filters_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="no genre 'War'; there are Comedy, Drama, Horror"):
        ItemFilter(genres=["Comedy", "War"]).allowed(INDEX, TABLE)
    with pytest.raises(ConfigError, match="no genre 'War'"):
        ItemFilter(not_genres=["War"]).allowed(INDEX, TABLE)
    with pytest.raises(ConfigError, match="no years are known"):
        ItemFilter(from_year=1990).allowed(INDEX, None)
    with pytest.raises(ConfigError, match="swap"):
        ItemFilter(from_year=1990, to_year=1980)
    with pytest.raises(ConfigError, match="no audience 'X'; there are G, R, pg"):
        ItemFilter(audience=["G", "X"]).allowed(INDEX, TABLE)
    for table in (None, ItemTable.build([1], ["a"], [[]], [None])):
        with pytest.raises(ConfigError, match="no audience is known"):
            ItemFilter(audience=["G"]).allowed(INDEX, table)
    with pytest.raises(ConfigError, match="a list of words"):
        ItemFilter(audience="G")
    with pytest.raises(UnknownIdError):
        ItemFilter(items=[9]).allowed(INDEX, TABLE)


def test_what_a_table_says_of_items_is_told_and_nothing_of_others() -> None:
    items = IdIndex(np.array([5, 6, 7, 8]))
    table = ItemTable.build(
        [5, 6, 7], ("First", "", "Third"), (("Drama",), (), ("War",)), (1999, None, 2001)
    )
    maker = ranking.ListMaker(None, None, None, np.ones(4, bool), items, table)  # type: ignore[arg-type]
    assert maker._undated == {1, 3}  # one without a year, one that the table does not know
    assert [maker._facts(item) for item in range(4)] == [
        ("First", 1999, ("Drama",)),
        (None, None, ()),
        ("Third", 2001, ("War",)),
        (None, None, ()),
    ]
    assert [maker._called(item) for item in range(4)] == ["First", "item 6", "Third", "item 8"]
    dateless = ItemTable.build([5, 6], ("First", ""), ((), ()), (None, None))
    for known in (dateless, None):
        assert replace(maker, table=known)._undated == frozenset()
