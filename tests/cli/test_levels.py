"""Levels on the command line: who shares, what each level has, and methods that know none."""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.common.methods import METHODS

from .conftest import Call

SMALL = ("--data", "synthetic", "--ranking")
SAYS = METHODS["hdp-share"].levels


@pytest.mark.slow
def test_who_shares(call: Call) -> None:
    nobody = call("evaluate", "hdp-share", *SMALL, "--json").json
    sums = call("evaluate", "hdp-sum", *SMALL, "--json").json
    for name in ("mse", "mae", "ndcg_at_10"):
        assert nobody[name] == sums[name]
    assert nobody["share_levels"] is None
    assert nobody["levels"]["hidden"]["people"] == 600
    some = call("evaluate", "hdp-share", *SMALL, "--share-levels", "0.25:open", "--json").json
    assert some["share_levels"] == "0.25:open"
    people = {level: row["people"] for level, row in some["levels"].items()}
    assert people == {"hidden": 450, "seen": 0, "open": 150}
    assert some["mse"] != nobody["mse"]
    assert some["epsilon_status"] == "proved"


@pytest.mark.slow
def test_what_each_level_has_is_printed_with_the_claim(call: Call) -> None:
    result = call("evaluate", "hdp-share", *SMALL, "--share-levels", "liberal")
    assert result.code == 0
    text = " ".join(result.out.split())
    assert "Levels: the liberal show what they rated; the others hide all." in text
    assert "Hidden: 546 people, " in text
    assert "Seen: 54 people, " in text
    assert SAYS["hidden"] in text
    assert SAYS["seen"] in text
    assert SAYS["open"] not in text  # nobody is
    claim = METHODS["hdp-share"].claim()
    assert f"epsilon 1 per rating, PROVED against {claim.against};" in text


@pytest.mark.slow
def test_levels_from_a_file_reach_a_trained_model(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    wishes = tmp_path / "wishes.csv"
    lines = files[0].read_text().splitlines()
    users = sorted({line.split(",")[0] for line in lines[1:]})
    rows = [f"{user},0.5,{'seen' if n % 2 else 'hidden'}" for n, user in enumerate(users)]
    wishes.write_text("\n".join(["user,weight,level", *rows]) + "\n")
    options = ("--train", files[0], "--weights", wishes)
    result = call("train", "hdp-share", *options, "--out", tmp_path / "m", "--json")
    assert result.code == 0
    assert result.json["levels"]["seen"]["people"] == len(users) // 2
    text = (tmp_path / "m" / "recommender" / "model.json").read_text()
    assert "level" not in text
    for method in ("hdp-sum", "hdp-bit", "mf"):
        refused = call("train", method, *options, "--out", tmp_path / "n")
        assert refused.code == 2
        assert "knows no levels" in refused.err
        assert not (tmp_path / "n").exists()
    wishes.write_text(wishes.read_text().replace("seen", "shown"))
    bad = call("train", "hdp-share", *options, "--out", tmp_path / "n")
    assert "column 'level', row 2: a level is hidden, seen or open" in bad.err
    assert "shown" not in bad.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("hdp-share", "--share-levels", "2"), "--share-levels takes a part of all people"),
        (("hdp-share", "--share-levels", "0.1:hidden"), "--share-levels takes a part"),
        (("hdp-share", "--share-levels", "shy"), "no user group 'shy'"),
        (("hdp-share", "--share-levels", "liberal", "--weights", "uniform"), "--weights paper"),
        (("hdp-sum", "--share-levels", "0.1"), "hdp-sum treats all ratings alike"),
        (("hdp-sum", "--share-levels", "0"), "hdp-sum treats all ratings alike"),
    ],
)
def test_what_cannot_be_meant(call: Call, options: tuple[str, ...], said: str) -> None:
    result = call("evaluate", *options, "--data", "synthetic")
    assert result.code == 2
    assert said in " ".join(result.err.split())


def test_what_each_level_has_is_explained(call: Call) -> None:
    found = call("privacy", "explain", "hdp-share", "--epsilon", 2, "--json").json["levels"]
    assert {level: row["says"] for level, row in found.items()} == dict(SAYS)
    costs = {level: (row["value_epsilon"], row["presence_epsilon"]) for level, row in found.items()}
    assert costs["hidden"] == pytest.approx((2.0, 1.5))
    assert costs["seen"] == (pytest.approx(2.0), None)
    assert costs["open"] == (None, None)
    text = " ".join(call("privacy", "explain", "hdp-share", "--epsilon", 2).out.split())
    assert "hidden: value epsilon 2; presence epsilon 1.5." in text
    assert "seen: value epsilon 2; presence no bound." in text
    assert call("privacy", "explain", "hdp-sum", "--json").json["levels"] == {}
