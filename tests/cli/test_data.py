"""``hdpmf data``, and how commands read ratings, splits and weights from files."""

from __future__ import annotations

import random
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hdpmf.cli.options import DATASET_NAMES, DATASETS
from hdpmf.cli.rating_options import MERGING, SPLITS
from hdpmf.common.data import DatasetInfo, Ratings, synthetic_world
from hdpmf.common.data.checks import DUPLICATES
from hdpmf.common.data.datasets import REGISTRY
from hdpmf.common.data.splits import CUTS
from hdpmf.common.privacy import PrivacySpec, PrivacyWeights
from hdpmf.models import make_model

from .conftest import Call

pytestmark = pytest.mark.slow


def test_list(call: Call) -> None:
    found = call("data", "info", "--json").json["datasets"]
    assert [one["name"] for one in found] == list(DATASET_NAMES)
    assert all(one["title"] and one["how_to_get"] for one in found)
    shown = call("data", "info").out
    assert all(one["title"] in shown for one in found)


def test_a_file_is_no_data_set(call: Call, tmp_path: Path) -> None:
    (tmp_path / "own.csv").touch()
    for more in (), ("--scale", 1, 10):
        result = call("train", "hdp-sum", "--data", tmp_path / "own.csv", "--out", "m", *more)
        assert "own.csv is a file and no data set; give it with --train" in result.err


def test_info(call: Call) -> None:
    found = call("data", "info", "synthetic", "--json").json
    assert (found["users"], found["items"], found["ratings"]) == (600, 400, 40_000)
    assert [one["rating"] for one in found["distribution"]] == ["1", "2", "3", "4", "5"]
    assert sum(one["count"] for one in found["distribution"]) == 40_000
    shown = call("data", "info", "synthetic").out
    assert "40,000 ratings" in shown
    assert "#" * 40 in shown


def test_get_from_a_file(
    call: Call, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HDPMF_CACHE", str(tmp_path))
    result = call("data", "get", "ml-100k", "--from", data_folder / "ml-100k.zip", "--json")
    assert result.json["path"] == str(tmp_path / "ml-100k.zip")
    assert (tmp_path / "ml-100k.zip").stat().st_size == result.json["bytes"]
    monkeypatch.delenv("HDPMF_DATA", raising=False)
    assert str(tmp_path / "ml-100k.zip") in call("data", "info").out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("get", "movies"), 4),
        (("get", "synthetic"), 2),
        (("get", "yelp"), 4),
        (("get", "ml-100k", "--from", "absent.zip"), 4),
        (("info", "movies"), 4),
    ],
)
def test_what_cannot_be_got(call: Call, arguments: tuple[str, ...], code: int) -> None:
    result = call("data", *arguments)
    assert result.code == code
    assert result.err.count("\n") == 1
    assert result.out == ""


def test_get_refuses_something_else(
    call: Call, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HDPMF_CACHE", str(tmp_path))
    assert call("data", "get", "douban", "--from", files[0]).code == 4
    assert list(tmp_path.iterdir()) == []


QUICK = ("--epochs", 3, "--json")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Ratings of books as shops have them: zeros before ids, names of their own, dates."""
    chance = random.Random(0)
    rows = [
        (
            f"{user:05d}",
            f"{book:010d}",
            chance.randint(1, 5),
            f"2024-03-{chance.randint(1, 28):02d}",
        )
        for user in range(40)
        for book in chance.sample(range(30), 8)
    ]
    frame = pd.DataFrame(rows, columns=["customer", "ISBN", "stars", "date"])
    frame.to_csv(tmp_path / "shop.csv", index=False)
    return tmp_path / "shop.csv"


def frame_of(shop: Path) -> pd.DataFrame:
    return pd.read_csv(shop, dtype={"customer": str, "ISBN": str})


def read(shop: Path, **options: object) -> Ratings:
    columns = {"user": "customer", "item": "ISBN", "rating": "stars", "timestamp": "date"}
    return Ratings.read(shop, columns=columns, **options)  # type: ignore[arg-type]


def test_words_of_the_command_line_are_those_of_the_library() -> None:
    assert (MERGING, SPLITS) == (DUPLICATES, CUTS)


def test_ids_from_the_file_to_the_recommendation(call: Call, shop: Path, tmp_path: Path) -> None:
    result = call("train", "user-mean", "--train", shop, "--out", tmp_path / "mean")
    assert "item = ISBN" in result.err
    assert "--column user=NAME" in result.err
    call("train", "most-popular", "--train", shop, "--out", tmp_path / "model")
    found = call("recommend", tmp_path / "model", "00007", "--json").json
    assert [len(entry["item"]) for entry in found["items"]] == [10] * 10
    refused = call("recommend", tmp_path / "model", "7")
    assert refused.code == 3
    assert "unknown id '7'" in refused.err


def test_the_default_weights_are_everybody_at_1_and_said(call: Call, shop: Path) -> None:
    train, test = read(shop).split_by_time(0.25)
    score = (
        make_model("hdpmf", epochs=3, rng=0).fit(train, PrivacyWeights.uniform(train)).score(test)
    )
    own = ("evaluate", "hdpmf", "--train", shop, "--split", "time:0.25")
    found = call(*own, *QUICK).json
    assert found["mse"] == pytest.approx(score["mse"])
    assert (found["weights"], found["weights_seed"]) == ("uniform", None)
    assert "everybody at 1" in call(*own, "--epochs", 3).out
    paper = call(*own, "--weights", "paper", *QUICK).json
    drawn = (
        make_model("hdpmf", epochs=3, rng=0).fit(train, PrivacySpec().draw(train, 0)).score(test)
    )
    assert paper["mse"] == pytest.approx(drawn["mse"])
    assert (paper["weights"], paper["weights_seed"]) == ("paper", 0)
    named = call("evaluate", "hdpmf", "--data", "synthetic", "--epochs", 2)
    assert "the paper's random groups, drawn by seed 0" in named.out
    assert "Privacy weights" not in call("evaluate", "mf", "--data", "synthetic", "--epochs", 2).out


def test_lists_of_a_split_by_time_are_made_in_time(call: Call, shop: Path, tmp_path: Path) -> None:
    train, test = read(shop).split_by_time(0.25, per_user=True)
    own = ("evaluate", "ease", "--train", shop, "--split")
    wanted = make_model("ease").fit(train).rank(test, in_time=True)
    found = call(*own, "user-time:0.25", "--json").json
    assert found["ndcg_at_10"] == pytest.approx(wanted["ndcg"])
    said = "made at the time of the user's first test rating"
    assert said in call(*own, "user-time:0.25").out
    at_random = call(*own, "hold-out:3")
    assert (at_random.code, said in at_random.out) == (0, False)
    frame_of(shop).drop(columns="date").to_csv(tmp_path / "untimed.csv", index=False)
    refused = call("evaluate", "ease", "--train", tmp_path / "untimed.csv", "--split", "time:0.2")
    assert (refused.code, "there are no times" in refused.err) == (3, True)


@pytest.mark.parametrize("per", ["user", "item", "both", "rating"])
def test_wishes_from_files(call: Call, shop: Path, tmp_path: Path, per: str) -> None:
    train, test = read(shop).hold_out(2, rng=0)
    users = {user: 0.25 + 0.5 * (at % 2) for at, user in enumerate(train.users.ids.tolist())}
    items = {item: 0.5 + 0.25 * (at % 3) for at, item in enumerate(train.items.ids.tolist())}
    pd.DataFrame({"customer": users.keys(), "weight": users.values()}).to_csv(
        tmp_path / "users.csv", index=False
    )
    pd.DataFrame({"isbn": items.keys(), "weight": items.values()}).to_csv(
        tmp_path / "items.csv", index=False
    )
    whole = frame_of(shop).assign(weight=np.linspace(0.2, 1, 320))
    whole.to_parquet(tmp_path / "ratings.parquet")
    weights = {
        "user": PrivacyWeights.from_parts(train, users=users),
        "item": PrivacyWeights.from_parts(train, items=items),
        "both": PrivacyWeights.from_parts(train, users=users, items=items),
        "rating": PrivacyWeights.per_rating(
            train,
            pd.DataFrame({"customer": train.user_ids, "ISBN": train.item_ids})
            .merge(whole, on=["customer", "ISBN"])
            .weight.to_numpy(),
        ),
    }[per]
    given = {
        "user": ["users.csv"],
        "item": ["items.csv"],
        "both": ["users.csv", "items.csv"],
        "rating": ["ratings.parquet"],
    }
    options = [option for name in given[per] for option in ("--weights", tmp_path / name)]
    score = make_model("hdp-sum", rng=0).fit(train, weights).score(test)
    result = call("evaluate", "hdp-sum", "--train", shop, "--hold-out", 2, *options, "--json")
    assert result.json["mse"] == pytest.approx(score["mse"])
    assert result.json["weights"] == "file"


def test_wishes_that_cannot_be(call: Call, shop: Path, tmp_path: Path) -> None:
    file = tmp_path / "wishes.csv"
    ask = ("evaluate", "hdp-sum", "--train", shop, "--hold-out", 2, "--weights", file)

    def refused(content: str, *more: object) -> str:
        file.write_text(content)
        result = call(*ask, *more)
        assert result.code in (3, 5)
        return result.err

    assert "missing=W" in refused("user,weight\n00001,0.5\n")
    assert "39 of 40 users" in refused("user,weight\n00001,0.5\n")
    assert "written otherwise" in refused("user,weight\n1,0.5\n")
    said = refused("user,weight\n00001,0.5\n00002,0.125\n00003,7.625\n")
    assert "wishes.csv: column 'weight', row 3" in said
    assert "7.625" not in said
    assert "0.125" not in said
    assert "row 2 is about a user that has a weight before" in refused(
        "user,weight\n00001,0.5\n00001,1\n"
    )
    assert "column 'weight' beside a column 'user'" in refused("user,wish\n00001,0.5\n")
    assert "must hold numbers" in refused("user,weight\n00001,much\n")


def test_errors_name_the_row_and_the_option_but_no_rating(call: Call, shop: Path) -> None:
    shop.write_text(shop.read_text() + "00001,0000000099,7.625,2024-01-01\n")
    result = call("evaluate", "user-mean", "--train", shop, "--hold-out", 2)
    assert "shop.csv: column 'rating', row 321: off the scale 1..5" in result.err
    assert "--scale LOW HIGH" in result.err
    assert "7.625" not in result.err
    shop.write_text(shop.read_text() + "00001,0000000098,lots,2024-01-01\n")
    assert (
        "'rating', row 322: not a number"
        in call("evaluate", "mf", "--train", shop, "--hold-out", 2).err
    )
    shop.write_text("buyer,ISBN,stars\n1,2,3\n")
    assert "--column user=NAME" in call("evaluate", "mf", "--train", shop, "--hold-out", 2).err


def test_implicit_feedback(call: Call, shop: Path, tmp_path: Path) -> None:
    clicks = tmp_path / "clicks.csv"
    frame_of(shop)[["customer", "ISBN", "date"]].to_csv(clicks, index=False)
    ask = ("--train", clicks, "--split", "last:2")
    assert "--implicit" in call("evaluate", "private-popular", *ask).err
    found = call("evaluate", "private-popular", *ask, "--implicit", "--epsilon", 20, "--json").json
    assert (found["implicit"], found["n_test"], found["weights"]) == (True, 80, "uniform")
    assert 0 < found["ndcg_at_10"] <= 1
    assert 0 < found["popular_ndcg_at_10"] <= 1
    assert "mse" not in found
    assert "most popular" in call("evaluate", "ease", *ask, "--implicit").out
    sums = call("evaluate", "hdp-sum", *ask, "--implicit", "--ranking", "--json").json
    assert 0 < sums["ndcg_at_10"] <= 1
    assert "mse" not in sums
    trained = call("train", "hdp-sum", "--train", clicks, "--implicit", "--out", tmp_path / "sums")
    assert "a whole person pays, history against none" in trained.out
    assert "for values" not in trained.out
    stated = call("privacy", "statement", tmp_path / "sums")
    assert "A rating of weight 1 has spent at most: epsilon 0.75." in stated.out
    result = call("evaluate", "mf", *ask, "--implicit")
    assert result.code == 3
    assert "Methods that take it: hdp-sum, " in result.err
    result = call("train", "ease", "--train", clicks, "--implicit", "--out", tmp_path / "model")
    assert "320 choices" in result.out
    user = frame_of(clicks)["customer"][0]
    shown = call("recommend", tmp_path / "model", user)
    assert "because you chose item " in shown.out
    assert "expected" not in shown.out  # choices say nothing about stars
    listed = call("recommend", tmp_path / "model", user, "--json").json["items"]
    assert {entry["score"] for entry in listed} == {None}


def test_info_of_a_file(call: Call, shop: Path) -> None:
    result = call("data", "info", shop)
    assert "40 users, 30 items, 320 ratings" in result.out
    assert "from 2024-03-01 to 2024-03-28" in result.out
    assert f"hdpmf evaluate hdp-sum --train {shop} --split time:0.2" in result.out
    found = call("data", "info", shop, "--json").json
    assert found["scale"] == {"low": 1, "high": 5, "step": 1}
    assert (found["id_kinds"], found["duplicates"]) == ({"users": "text", "items": "text"}, 0)
    assert found["per_user"] == {"least": 8, "median": 8, "most": 8}
    frame_of(shop).assign(stars=lambda table: table.stars * 2 - 0.5).to_csv(shop, index=False)
    found = call("data", "info", shop, "--json").json
    assert found["scale"] == {"low": 1, "high": 10, "step": None}
    assert "--scale 1 10" in call("data", "info", shop).out


def words_after(text: str, mark: str) -> list[str]:
    """The words of the command that a line of the output gives."""
    (line,) = [line for line in text.splitlines() if line.startswith(mark)]
    return shlex.split(line.removeprefix(mark))


@pytest.mark.parametrize("timed", [True, False])
def test_info_suggests_a_command_that_runs(call: Call, tmp_path: Path, timed: bool) -> None:
    """Half stars, columns with blanks that nobody guesses, one twice."""
    rows = [
        (f"{who:03d}", what, (who + what) % 10 / 2 + 0.5, 1_000_000 + what)
        for who in range(20)
        for what in range(who % 3, 30, 3)
    ]
    rows.append((*rows[0][:2], 3.0, 2_000_000))
    frame = pd.DataFrame(rows, columns=["by whom", "of what", "how good", "at what time"])
    names = {"user": "by whom", "item": "of what", "rating": "how good"}
    names |= {"timestamp": "at what time"} if timed else {}
    path = tmp_path / "our ratings.csv"
    frame[list(names.values())].to_csv(path, index=False)
    column = [word for ours, theirs in names.items() for word in ("--column", f"{ours}={theirs}")]
    told = call("data", "info", path, *column)
    suggested = words_after(told.out, "use it with: hdpmf ")
    assert {"--step", "--duplicates", "--column"} <= set(suggested)
    ended = call(*suggested, "--json")
    assert ended.code == 0, ended.err
    assert ended.json["n_train"] + ended.json["n_test"] == len(rows) - 1
    position = suggested.index("--duplicates")  # nothing is merged without being told
    assert call(*suggested[:position], *suggested[position + 2 :]).code == 3
    frame.loc[5, "how good"] = None
    frame.loc[[7, 8], "by whom"] = None
    frame[list(names.values())].to_csv(path, index=False)
    told = call("data", "info", path, *column)
    assert "something is missing, not counted here: 3 (user in 2, rating in 1)" in told.out
    found = call("data", "info", path, *column, "--json").json
    assert (found["missing"], found["missing_rows"]) == ({"user": 2, "rating": 1}, 3)


def test_data_sets_of_packages_are_listed_with_ours(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mine = DatasetInfo(
        name="club",
        title="Our club",
        description="what we rated",
        page="https://example.org/club",
        files=("club.csv",),
        read=lambda info, path: Ratings.read(path, name=info.title),
    )
    monkeypatch.setattr(REGISTRY, "_known", {**REGISTRY._known, "club": mine})
    monkeypatch.setenv("HDPMF_DATA", str(tmp_path))
    synthetic_world(n_users=20, n_items=10, n_ratings=100, rng=0).write(tmp_path / "club.csv")
    assert [row["name"] for row in call("data", "info", "--json").json["datasets"]] == [
        *DATASET_NAMES,
        "club",
    ]
    assert call("data", "info", "club", "--json").json["ratings"] == 100
    assert "data sets are synthetic" in call("data", "info", "nowhere").err
    assert "club" in call("data", "info", "nowhere").err
    assert "club" in list(DATASETS)  # for completion
    assert call("evaluate", "user-mean", "--data", "club", "--hold-out", "2").code == 0
