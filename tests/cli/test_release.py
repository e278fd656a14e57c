"""Released data sets on the command line: written, and looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hdpmf import HDPBit, Ratings, load_model
from hdpmf.common.protocol import encode
from hdpmf.untrusted.recommender.release import Release

from .conftest import Call

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def released(files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    from hdpmf.cli import main

    path = tmp_path_factory.mktemp("released") / "ratings.release"
    with pytest.raises(SystemExit) as end:
        main.run(
            [
                "release",
                "hdp-bit",
                "--train",
                str(files[0]),
                "--epsilon",
                "0.5",
                "--seed",
                "3",
                "--out",
                str(path),
            ]
        )
    assert end.value.code == 0
    return path


@pytest.mark.parametrize("kind", ["ease", "popular"])
def test_what_is_trained_on_the_file_is_what_training_gives(
    call: Call, files: tuple[Path, Path], released: Path, tmp_path: Path, kind: str
) -> None:
    ours = HDPBit.from_release(Release.load(released), rng=3, list_model=kind)
    options = ("--train", files[0], "--epsilon", 0.5, "--seed", 3, "--set", f"list_model={kind}")
    assert call("train", "hdp-bit", *options, "--out", tmp_path / "b").code == 0
    theirs = load_model(tmp_path / "b")
    assert isinstance(theirs, HDPBit)
    assert encode(ours.facts_) == encode(theirs.facts_)
    assert encode(ours.lists_.table()) == encode(theirs.lists_.table())  # type: ignore[union-attr]
    assert ours.privacy == theirs.privacy
    assert ours.release_.digest == Release.load(released).digest  # type: ignore[union-attr]
    # No user is known. Whoever is taken in gets what training gave them.
    ratings = Ratings.read(files[0], scale=(1, 5))
    assert len(ours.devices_.users) == 0
    ours.fold_in(ratings)
    user = int(ratings.users.ids[0])
    assert ours.recommend(user, 5) == theirs.recommend(user, 5)
    np.testing.assert_allclose(
        ours.predict([user] * 3, [1, 2, 3]), theirs.predict([user] * 3, [1, 2, 3]), rtol=1e-6
    )


def test_noise_of_the_operating_system_is_no_simulation(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        done = call(
            "release",
            "hdp-bit",
            "--train",
            files[0],
            "--noise",
            "released",
            "--terms",
            "ours",
            "--set",
            "max_ratings=5",
            "--out",
            path,
            "--json",
        )
        assert (done.json["epsilon_noise"], done.json["seed"]) == (None, None)
        assert done.json["provenance"] | {"sha256": ""} == {
            "made_by": done.json["provenance"]["made_by"],
            "origin": "train.csv",
            "terms": "ours",
            "noise": "released",
            "sha256": "",
        }
    one, two = map(Release.load, paths)
    assert one.digest != two.digest
    assert (one.max_ratings, int(np.bincount(one.bits.senders).max())) == (5, 5)


def test_the_page_says_what_is_in_plain_sight(call: Call, released: Path) -> None:
    page = call("privacy", "release", released).out
    assert "In plain sight. Which items each person rated" in page
    assert "right at most this often" in page
    assert "SIMULATED" in page
    found = call("privacy", "release", released, "--json").json
    assert found["people"] == 60
    assert [row["guess"] for row in found["ratings"]] == sorted(
        row["guess"] for row in found["ratings"]
    )
    assert found["ratings"][-1]["guess"] == pytest.approx(
        1 / (1 + np.exp(-0.5 * found["ratings"][-1]["weight"]))
    )
    assert 0 < found["epsilon_per_person"]["median"] <= found["epsilon_per_person"]["most"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("release", "hdp-sum", "--data", "ml-100k"), 2, "leaves no data set"),
        (("release", "hdp-bit", "--data", "ml-100k", "--epsilon", 0), 5, "epsilon"),
    ],
)
def test_what_makes_no_sense_is_said(
    call: Call, tmp_path: Path, arguments: tuple[object, ...], code: int, said: str
) -> None:
    result = call(*arguments, "--out", tmp_path / "out")
    assert result.code == code, result.err
    assert said in result.err
    assert not (tmp_path / "out").exists()
