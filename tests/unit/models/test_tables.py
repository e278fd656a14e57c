"""Answers as tables: lists of many users, several models beside each other, and parts of a model
by themselves.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

from hdpmf import (
    HDPMF,
    MF,
    BiasedMF,
    HDPBit,
    HDPPairs,
    HDPSum,
    Ratings,
    UserMean,
    compare,
    load_model,
    make_model,
)
from hdpmf.errors import ConfigError, MissingExtraError, ModelFileError, UnknownIdError


def test_lists_of_many_users_are_a_frame(split, tmp_path, monkeypatch):
    import polars as pl

    train, _ = split
    lists = MF(epochs=5, rng=0).fit(train).recommend(train.users.ids[:3], n=4)
    assert list(lists) == train.users.ids[:3].tolist()  # a dictionary, as ever
    frame = lists.to_frame()
    assert frame.shape == (12, 9)
    assert frame["rank"].to_list() == [1, 2, 3, 4] * 3
    assert frame["item"].to_list() == [entry.item for found in lists.values() for entry in found]
    lists.to_parquet(tmp_path / "lists.parquet")
    assert pl.read_parquet(tmp_path / "lists.parquet").equals(frame)
    assert (tmp_path / "lists.parquet").stat().st_mode & 0o077 == 0
    assert lists.to_frame("pandas")["user"].tolist() == frame["user"].to_list()
    assert lists._repr_html_().count("<tr>") == 13
    with pytest.raises(ConfigError, match="polars or pandas"):
        lists.to_frame("spark")
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setattr("hdpmf.common.base.progress.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install pandas"):
        lists.to_frame("pandas")


@pytest.mark.parametrize(
    "name", ["hdpmf", "hdp-sum", "hdp-pairs", "hdp-bit", "user-mean", "item-knn"]
)
def test_the_public_part_alone_takes_people_in(name, split, tmp_path):
    train, _ = split
    model = make_model(name).fit(train)
    model.save(tmp_path / "m")
    for hidden in (tmp_path / "m" / "devices").iterdir():
        hidden.unlink()  # nobody may look there
    for folder in (tmp_path / "m", tmp_path / "m" / "recommender"):
        public = load_model(folder, public_only=True)
        assert len(public.devices_.users) == 0
    if hasattr(public, "fold_in"):
        public.fold_in(train)
        pairs = train.user_ids[:20], train.item_ids[:20]
        if name != "hdpmf":  # training leaves other vectors than fitting does
            np.testing.assert_allclose(public.predict(*pairs), model.predict(*pairs), atol=1e-4)
        assert len(public.recommend(train.users.ids[0].item(), 3)) == 3
    with pytest.raises(ModelFileError):
        load_model(tmp_path / "m")


def test_what_is_learned_in_private_has_no_public_part(split, tmp_path):
    BiasedMF(n_factors=2, epochs=1).fit(split[0]).save(tmp_path / "m")
    with pytest.raises(ModelFileError, match="private part"):
        load_model(tmp_path / "m", public_only=True)


@pytest.mark.parametrize("kind", [HDPMF, HDPSum, HDPPairs, HDPBit])
def test_a_part_per_user_has_nothing_of_the_others(kind, split, weights, tmp_path):
    train, _ = split
    model = kind(rng=12345).fit(train, weights)
    user, other = train.users.ids[:2].tolist()
    part = model.only_users(user)
    assert part.devices_.users.ids.tolist() == [user]
    assert part.recommend(user, 5) == model.recommend(user, 5)
    part.save(tmp_path / "part")
    assert (
        "12345" not in (tmp_path / "part" / "devices" / "devices.json").read_text()
    )  # who has it has all noise
    back = load_model(tmp_path / "part")
    assert len(back.devices_.rated) == len(back.devices_.stars) == (train.user_codes == 0).sum()
    assert back.recommend(user, 5) == model.recommend(user, 5)
    with pytest.raises(UnknownIdError):
        back.recommend(other)
    assert model.rng == 12345
    assert len(model.devices_.users) == train.n_users


def test_a_comparison_has_the_trivial_baselines(world):
    found = compare([HDPSum(rng=0), "biased-mf", HDPSum(epsilon=0.1, rng=0)], world, lists=True)
    names = [row["model"] for row in found.rows()]
    assert {
        "User mean",
        "Global mean",
        "Biased MF",
        "HDP-Sum rng=0",
        "HDP-Sum epsilon=0.1, rng=0",
    } == set(names)
    errors = found.to_frame()["mse"].to_list()
    assert errors == sorted(errors)
    assert found["Biased MF"]["mse"] < found["Global mean"]["mse"]
    assert (found["HDP-Sum rng=0"]["epsilon_is"], found["User mean"]["epsilon"]) == ("proved", 0.0)
    assert found["Global mean"]["ndcg_at_10"] is None
    assert found["HDP-Sum rng=0"]["ndcg_at_10"] > 0
    assert "<table>" in found._repr_html_()
    assert "Biased MF" in str(found)
    train, test = world.hold_out(10, rng=0)
    assert compare([], (train, test))["User mean"]["mse"] == found["User mean"]["mse"]
    with pytest.raises(ConfigError, match=r"compare takes hdpmf.Estimators \(with parentheses\)"):
        compare([MF], world)
    with pytest.raises(ConfigError, match="was not compared"):
        _ = found["nothing"]


def test_a_model_for_lists_has_no_errors_and_comes_last(world):
    found = compare(["ease"], world, lists=True)
    assert [row["model"] for row in found.rows()][-1] == "EASE"
    assert found["EASE"]["mse"] is found["EASE"]["mae"] is None
    assert found["EASE"]["ndcg_at_10"] > 0
    assert found.to_frame()["mse"].null_count() == 1


def test_a_frame_on_another_scale():
    import polars as pl

    frame = pl.DataFrame({"user": [1, 1, 2, 2], "item": [1, 2, 1, 3], "rating": [10, 7, 8, 2]})
    model = UserMean().fit(frame, scale=(1, 10))
    assert model.predict(1, [1, 2]).tolist() == [8.5, 8.5]
    assert model.score(frame)["n"] == 4
    with pytest.raises(ConfigError, match="know their own scale"):
        UserMean().fit(Ratings.of(frame, scale=(1, 10)), scale=(1, 10))
