"""``hdpmf train`` and ``recommend``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdpmf import load_model
from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.models import EASE

from .conftest import Call

pytestmark = pytest.mark.slow


def test_training_replaces_an_earlier_model_only_if_told(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    given = ("--train", files[0], "--out", tmp_path / "m")
    assert call("train", "mf", *given, "--epochs", 2).code == 0
    refused = call("train", "user-mean", *given)
    assert (refused.code, "or replace it with --force" in refused.err) == (8, True)
    assert type(load_model(tmp_path / "m")).__name__ == "MF"
    assert call("train", "user-mean", *given, "--force").code == 0
    assert type(load_model(tmp_path / "m")).__name__ == "UserMean"


def test_places_that_cannot_be_written_to(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    occupied = tmp_path / "occupied"
    occupied.mkdir()
    (occupied / "thesis.txt").write_text("years of work")
    in_the_way = tmp_path / "file"
    in_the_way.write_text("x")
    for out in (occupied, in_the_way, in_the_way / "below"):
        result = call("train", "mf", "--train", files[0], "--out", out, "--epochs", 2)
        assert result.code == 8
        assert result.err.count("\n") == 1
    assert (occupied / "thesis.txt").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "occupied"]


def test_recommendations(call: Call, model_folder: Path, files: tuple[Path, Path]) -> None:
    found = call("recommend", model_folder, 7, "-n", 3, "--json").json
    assert len(found["items"]) == 3
    assert found["epsilon_status"] == "nominal"
    scores = [one["score"] for one in found["items"]]
    assert scores == sorted(scores, reverse=True)
    ratings = Ratings.read(files[0])
    rated = set(ratings.item_ids[ratings.user_ids == 7].tolist())
    assert not rated & {one["item"] for one in found["items"]}
    shown = call("recommend", model_folder, 7, "-n", 3)
    assert all(str(one["item"]) in shown.out for one in found["items"])


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films") / "m"
    EASE(rng=0).fit(synthetic_world(30, 60, 600, rng=1)).save(folder)
    return folder


def test_lists_for_many(call: Call, films: Path, tmp_path: Path) -> None:
    alone = {
        user: call("recommend", films, user, "-n", 4, "--json").json["items"] for user in (1, 2)
    }
    several = call("recommend", films, 1, 2, "-n", 4, "--json").json
    assert [entry["user"] for entry in several["lists"]] == [1, 2]
    for entry in several[
        "lists"
    ]:  # but for the last digits of scores, which differ between a row and a table
        assert [(item["item"], item["reason"]) for item in entry["items"]] == [
            (item["item"], item["reason"]) for item in alone[entry["user"]]
        ]
    assert several["model"] == "EASE"
    (tmp_path / "users.txt").write_text("2\n\n1\n")
    from_file = call("recommend", films, "--users", tmp_path / "users.txt", "-n", 4, "--json").json
    assert [entry["user"] for entry in from_file["lists"]] == [2, 1]
    everyone = call("recommend", films, "--all-users", "-n", 4, "--json").json["lists"]
    assert len(everyone) == 30
    shown = call("recommend", films, 1, 2, "-n", 4).out
    assert shown.index("For 1:") < shown.index(alone[1][0]["title"]) < shown.index("For 2:")


def test_lists_with_filters(call: Call, films: Path, tmp_path: Path) -> None:
    def items(*options: object) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = call(
            "recommend", films, 1, "-n", 60, "--json", *options
        ).json["items"]
        return found

    everything = items()
    assert items("--genre", "comedy", "--genre", "Drama") == [
        item for item in everything if {"Comedy", "Drama"} & set(item["genres"])
    ]
    kept = items("--keep-rated")
    assert len(kept) > len(everything)
    rated = next(item["item"] for item in kept if item not in everything)
    (tmp_path / "rated.txt").write_text(f"{rated}\n")
    only = ("--items", tmp_path / "rated.txt")
    assert items(*only) == []
    assert [item["item"] for item in items(*only, "--keep-rated")] == [rated]
    (tmp_path / "items.txt").write_text(f"{everything[3]['item']}\n{everything[1]['item']}\n")
    assert items("--items", tmp_path / "items.txt") == [everything[1], everything[3]]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("1", "--genre", "Comdy"), 2, "there is no genre 'Comdy'; there are Action, "),
        (("1", "--audience", "G"), 2, "no audience is known of these items"),
        ((), 2, "name the users"),
        (("1", "--all-users"), 2, "name the users"),
        (("--users", "nowhere.txt"), 2, "cannot read nowhere.txt"),
    ],
)
def test_lists_that_cannot_be_made(
    call: Call, films: Path, options: tuple[str, ...], code: int, said: str
) -> None:
    result = call("recommend", films, *options)
    assert (result.code, said in result.err + result.out) == (code, True)


def _truncate(folder: Path) -> None:
    tensors = folder / "devices" / "devices.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-10])


def _no_json(folder: Path) -> None:
    (folder / "recommender" / "model.json").write_text("{")


def _from_the_future(folder: Path) -> None:
    facts = folder / "recommender" / "model.json"
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"format": 999}))


def _gone(folder: Path) -> None:
    shutil.rmtree(folder / "devices")


@pytest.mark.parametrize("damage", [_truncate, _no_json, _from_the_future, _gone])
def test_damaged_models(call: Call, model_folder: Path, tmp_path: Path, damage: object) -> None:
    folder = tmp_path / "m"
    shutil.copytree(model_folder, folder)
    damage(folder)  # type: ignore[operator]
    result = call("recommend", folder, 7, "--json")
    assert result.code == 7
    assert result.json["error"]["type"] == "ModelFileError"


def test_no_output_shows_a_weight(call: Call, files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "m"
    said = [
        call(
            "train", "hdpmf", "--train", files[0], "--weights", "paper", "--out", out, "--epochs", 3
        ),
        call(
            "train",
            "hdpmf",
            "--train",
            files[0],
            "--weights",
            "paper",
            "--out",
            out,
            "--epochs",
            3,
            "--json",
        ),
        call("recommend", out, 7),
        call("recommend", out, 7, "--json"),
        call("recommend", out, 12345),
    ]
    text = "".join(one.out + one.err for one in said)
    devices = load_model(out).devices_
    drawn = np.concatenate([devices.beta, devices.gamma])
    drawn = drawn[drawn < 1]
    assert len(drawn) > 10
    assert not [
        weight for weight in drawn.tolist() if f"{weight:.4f}"[:6] in text or repr(weight) in text
    ]


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


def test_an_unknown_user_is_told_how_to_come_in(call: Call, model_folder: Path) -> None:
    for stranger in ("bob", 99999):
        ended = call("recommend", model_folder, stranger)
        assert ended.code == 3
        assert str(stranger) in ended.err
        assert "model.fold_in(ratings) takes new users in" in ended.err
