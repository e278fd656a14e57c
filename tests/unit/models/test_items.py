"""Items in Python: titles, genres, years and features from a frame, as ``--items`` takes a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hdpmf import MF, HDPBit, HDPSum, ItemFilter, ItemTable, UserMean, load_model, make_model
from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.errors import ConfigError, RatingsError

WORLD = synthetic_world(n_users=80, n_items=40, n_ratings=1500, rng=0)
BARE = Ratings.from_arrays(WORLD.user_ids, WORLD.item_ids, WORLD.values)


def facts() -> dict[str, Any]:
    table = WORLD.item_table
    assert table is not None
    numbers = np.random.default_rng(0).normal(size=len(table))
    return {
        "length": numbers.tolist(),
        "item": table.ids.tolist(),
        "title": [f"Film {item}" for item in table.ids.tolist()],
        "genres": ["|".join(own) for own in table.genres],
        "year": list(table.years),
        "studio": ["north" if number > 0 else "south" for number in numbers],
    }


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table, "file"])
def test_a_frame_gives_what_a_file_of_items_gives(kind: Any, tmp_path: Any) -> None:
    path = tmp_path / "items.csv"
    pl.DataFrame(facts()).write_csv(path)
    by_file = HDPSum(rng=0, features=path).fit(BARE)
    model = HDPSum(rng=0).fit(BARE, items=path if kind == "file" else kind(facts()))
    assert model.feature_names_ == by_file.feature_names_
    assert {"studio:north", "number:length", "year"} <= set(model.feature_names_)
    pairs = BARE.user_ids[:50], BARE.item_ids[:50]
    assert np.allclose(model.predict(*pairs), by_file.predict(*pairs))
    entry = model.recommend(int(BARE.users.ids[0]), 1)[0]
    assert entry.title == f"Film {entry.item}"
    assert entry.genres
    assert entry.year


def test_genres_may_be_lists_and_categories_words() -> None:
    plain = ItemTable.of(pl.DataFrame(facts()))
    listed = facts() | {"genres": [text.split("|") for text in facts()["genres"]]}
    for frame in (pl.DataFrame(listed), pd.DataFrame(listed), pa.table(listed)):
        assert ItemTable.of(frame).genres == plain.genres
    typed = pd.DataFrame(facts()).astype({"studio": "category"})
    names = HDPSum(rng=0).fit(BARE, items=typed).feature_names_
    assert names == HDPSum(rng=0).fit(BARE, items=plain).feature_names_


def test_every_model_knows_titles_and_filters(tmp_path: Any) -> None:
    table = ItemTable.of(pd.DataFrame(facts()))
    user = int(BARE.users.ids[0])
    for model in (MF(epochs=3, rng=0), HDPBit(rng=0)):
        lists = model.fit(BARE, items=table).recommend(user, 3, only=ItemFilter(from_year=1990))
        assert all(entry.year is not None and entry.year >= 1990 for entry in lists)
        model.save(tmp_path / type(model).__name__)
        again = load_model(tmp_path / type(model).__name__).recommend(user, 3)
        assert again[0].title == f"Film {again[0].item}"
    assert UserMean().fit(BARE, items=table).catalogue_.item_table is table


@pytest.mark.parametrize("column", ["audience", "Certificate", "age"])
def test_lists_for_an_audience_have_nothing_of_which_it_is_unknown(
    column: str, tmp_path: Any
) -> None:
    words = [(12, None, 6)[row % 3] for row in range(len(facts()["item"]))]
    model = HDPSum(rng=0).fit(BARE, items=pd.DataFrame(facts() | {column: words}))
    suitable = {item for item, age in zip(facts()["item"], words, strict=True) if age == 6}
    model.save(tmp_path / "model")
    for known in (model, load_model(tmp_path / "model")):
        found = known.recommend(int(BARE.users.ids[0]), 100, only=ItemFilter(audience=["6"]))
        assert found
        assert {entry.item for entry in found} <= suitable


def test_titles_alone_are_no_features() -> None:
    titles = pl.DataFrame(facts()).select("item", "title")
    model = HDPSum(rng=0).fit(BARE, items=titles)
    assert model.feature_names_ == HDPSum(rng=0).fit(BARE).feature_names_
    assert model.recommend(int(BARE.users.ids[0]), 1)[0].title
    with pytest.raises(RatingsError, match="no column can be used as a feature"):
        HDPSum(rng=0, features=True).fit(BARE, items=titles)
    with pytest.raises(ConfigError, match=r"fit\(..., items=frame\)"):
        HDPSum(rng=0, features=True).fit(BARE)


def test_ids_are_matched_by_their_kind() -> None:
    text = BARE.with_text_ids(items=True)
    model = HDPSum(rng=0).fit(text, items=pl.DataFrame(facts()))
    assert "studio:north" in model.feature_names_
    assert model.recommend(int(BARE.users.ids[0]), 1)[0].title
    strange = pl.DataFrame({"item": ["x", "y"], "title": ["X", "Y"]})
    with pytest.raises(RatingsError, match="none of the 2 items is in the ratings"):
        HDPSum(rng=0).fit(BARE, items=strange)
    twice = pl.DataFrame({"item": [1, 1], "title": ["X", "Y"]})
    with pytest.raises(RatingsError, match="listed twice"):
        HDPSum(rng=0).fit(BARE, items=twice)
    with pytest.raises(RatingsError, match="list is no data frame that Narwhals understands"):
        HDPSum(rng=0).fit(BARE, items=["a title"])


def test_a_frame_may_list_more_and_fewer_items_and_keeps_the_claim() -> None:
    few = pl.DataFrame(facts()).head(10)
    more = pl.concat([few, few.with_columns(item=pl.col("item") + 10_000)])
    model = HDPSum(rng=0).fit(BARE, items=more)
    assert len(model.catalogue_.items) == BARE.n_items
    assert model.privacy.items == "rated", "describing items does not make their list public"
    listed = HDPSum(rng=0).fit(BARE.over(ItemTable.of(pl.DataFrame(facts()))))
    assert listed.privacy.items == "stated"
    assert "studio:north" in listed.feature_names_


@pytest.mark.parametrize("name", ["hdp-sum", "hdp-pairs"])
def test_public_popularity_stands_in_where_noise_hides_who_chooses_what(name: str) -> None:
    few = synthetic_world(60, 120, 1200, rng=5, features=False)
    ids, counts = few.items.ids.tolist(), few.item_counts().astype(float)
    plain = make_model(name, epsilon=0.5, rng=0).fit(few)
    public = pd.DataFrame({"item": ids, "title": "x", "popularity": 1000 * counts})
    told = make_model(name, epsilon=0.5, rng=0, features=False).fit(few, items=public)

    def agreement(model: Any) -> float:
        return float(np.corrcoef(np.log1p(model.facts_.popularity), np.log1p(counts))[0, 1])

    assert agreement(plain) < 0.6
    assert agreement(told) > 0.9
    assert told.facts_.popularity.sum() < 10 * counts.sum()
    reasons = [e.reason or "" for e in told.recommend(few.users.ids[0].item(), 10)]
    assert any("many people" in reason for reason in reasons)
    clear = make_model(name, epsilon=1e4, rng=0).fit(few)
    public["popularity"] = counts[::-1]
    misled = make_model(name, epsilon=1e4, rng=0, features=False).fit(few, items=public)
    most = np.argsort(-counts)[:20]
    assert misled.facts_.popularity[most] == pytest.approx(clear.facts_.popularity[most], rel=0.1)


def test_popularity_that_is_no_number_is_refused() -> None:
    for wrong in (-1, "many"):
        with pytest.raises(RatingsError, match="'popularity', row 1: no number from 0"):
            ItemTable.of(pd.DataFrame({"item": [1, 2], "popularity": [wrong, 3]}))
    table = ItemTable.of(pd.DataFrame({"item": [2, 1], "popularity": [5, None]}))
    assert table.popularity == (None, 5.0)
    assert table.select([2]).popularity == table.with_text_ids().popularity[1:] == (5.0,)
