"""``hdpmf predict``, ``hdpmf fold-in``, titles from a file, and experiments done again."""

from __future__ import annotations

import csv
import shutil
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from hdpmf import load_model

from .conftest import Call


def test_predictions_are_the_models(call: Call, model_folder: Path) -> None:
    model = load_model(model_folder)
    user, items = model.devices_.users.ids[0].item(), model.catalogue_.items.ids[:3].tolist()
    found = call("predict", model_folder, user, *items, 9999, "--json").json
    assert [row["item"] for row in found["predictions"]] == [*items, 9999]
    expected = model.predict(user, [*items, 9999])
    assert np.allclose([row["expected"] for row in found["predictions"]], expected)
    assert [row["in_training"] for row in found["predictions"]] == [True, True, True, False]
    assert {"epsilon", "epsilon_status"} <= found.keys()
    shown = call("predict", model_folder, user, 9999)
    assert "was not in training" in shown.out
    rows = list(csv.DictReader(StringIO(call("predict", model_folder, user, *items, "--csv").out)))
    assert [row["item"] for row in rows] == [str(item) for item in items]
    ended = call("predict", model_folder, "bob", items[0])
    assert (ended.code, "user 'bob': the model's user ids are integers" in ended.err) == (2, True)


def test_titles_come_from_a_file(call: Call, model_folder: Path, tmp_path: Path) -> None:
    model = load_model(model_folder)
    items = model.catalogue_.items.ids.tolist()
    titles = tmp_path / "films.csv"
    titles.write_text("item,title\n" + "".join(f"{item},Film number {item}\n" for item in items))
    user = model.devices_.users.ids[0].item()
    shown = call("recommend", model_folder, user, "--titles", titles)
    assert shown.code == 0, shown.err
    assert "Film number" in shown.out
    assert (
        f"Film number {items[0]}"
        in call("predict", model_folder, user, items[0], "--titles", titles).out
    )
    (tmp_path / "others.csv").write_text("item,title\n77777,Nothing\n")
    ended = call("recommend", model_folder, user, "--titles", tmp_path / "others.csv")
    assert (ended.code, "has no item of this model" in ended.err) == (2, True)


def test_titles_of_training_stay_with_the_model(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    facts = tmp_path / "films.csv"
    facts.write_text(
        "item,title,year\n" + "".join(f"{item},Film number {item},1999\n" for item in range(1, 41))
    )
    ended = call("train", "hdp-sum", "--train", files[0], "--items", facts, "--out", tmp_path / "m")
    assert ended.code == 0, ended.err
    assert "Film number" in call("recommend", tmp_path / "m", 1).out


def test_new_users_are_taken_in(call: Call, model_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    shutil.copytree(model_folder, folder)
    items = load_model(folder).catalogue_.items.ids[:3].tolist()
    new = tmp_path / "new.csv"
    new.write_text(
        "user,item,rating\n" + "".join(f"90001,{item},4\n" for item in items) + "90001,8888,1\n"
    )
    done = call("fold-in", folder, new, "--out", tmp_path / "more", "--json")
    assert done.code == 0, done.err
    assert (done.json["n_users"], done.json["n_ratings_of_unknown_items"]) == (1, 1)
    assert call("recommend", tmp_path / "more", 90001).code == 0
    assert call("recommend", folder, 90001).code == 3
    again = call("fold-in", tmp_path / "more", new)
    assert again.code == 3
    assert "user 90001 is in the model already" in again.err
    assert call("fold-in", tmp_path / "more", new, "--replace").code == 0
    (tmp_path / "high.csv").write_text(f"user,item,rating\n90002,{items[0]},40\n")
    assert call("fold-in", folder, tmp_path / "high.csv").code == 3


@pytest.mark.slow
def test_an_experiment_begins_anew_or_goes_on(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "train.csv").write_bytes(files[0].read_bytes())
    file, out = tmp_path / "mine.toml", tmp_path / "out"
    file.write_text(
        'name = "mine"\ntitle = "Mine"\ndatasets = ["mine"]\nmethods = ["user-mean"]\n'
        "seeds = [0, 1]\n"
        'data.mine.file = "train.csv"\nsplit.per_user = 2\n'
    )
    command = ("experiment", "run", file, "--out", out, "--jobs", 1, "--json")
    nothing = call(*command, "--resume")
    assert (nothing.code, "nothing to go on from" in nothing.err) == (2, True)
    assert call(*command).json["n_ran"] == 2
    assert call(*command, "--resume").json["n_ran"] == 0
    again = call(*command, "--fresh")
    assert again.json["n_ran"] == 2
    assert "earlier results are kept in" in again.err
    assert sorted(path.name for path in out.glob("*.sqlite")) == [
        "results.1.sqlite",
        "results.sqlite",
    ]


def test_errors_about_users_speak_of_options(
    call: Call, model_folder: Path, tmp_path: Path
) -> None:
    model = load_model(model_folder)
    user, item = model.devices_.users.ids[0].item(), model.catalogue_.items.ids[0].item()
    for stranger in ("bob", 99999):
        ended = call("recommend", model_folder, stranger)
        assert ended.code == 3
        assert str(stranger) in ended.err
        assert "hdpmf fold-in FOLDER FILE takes new users in" in ended.err
    known = tmp_path / "known.csv"
    known.write_text(f"user,item,rating\n{user},{item},3\n")
    ended = call("fold-in", model_folder, known, "--out", tmp_path / "more")
    assert (ended.code, "all their ratings with --replace" in ended.err) == (3, True)
