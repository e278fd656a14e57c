from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf import PrivacySpec, PrivacyWeights, make_model, read_split
from hdpmf.common.methods import METHODS

from .conftest import Call

KEYS = {
    "method",
    "mse",
    "mae",
    "n_test",
    "n_cold",
    "n_train",
    "fit_seconds",
    "epsilon",
    "epsilon_status",
    "epsilon_view",
    "epsilon_reason",
    "seed",
    "data",
    "hdpmf_version",
    "user_mean_mse",
    "user_mean_mae",
    "global_mean_mse",
    "global_mean_mae",
}
QUICK = ("--epochs", 5, "--factors", 4)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_promised_keys(
    call: Call, files: tuple[Path, Path], method: str
) -> None:
    trains = METHODS[method].trains
    result = call(
        "evaluate",
        method,
        "--train",
        files[0],
        "--test",
        files[1],
        *(QUICK if trains else ()),
        "--json",
    )
    assert result.code == 0
    assert all(line.startswith("warning: ") for line in result.err.splitlines())
    found = result.json
    assert found.keys() >= KEYS
    assert found["method"] == method
    assert ({"solver", "factors", "lr", "reg", "epochs"} <= found.keys()) == trains
    assert found["n_test"] == 177
    claim = METHODS[method].claim()
    assert found["epsilon"] == (
        None if claim.status == "none" else 0.0 if claim.value == 0 and not claim.presence else 1.0
    )
    assert found["epsilon_status"] in ("none", "nominal", "proved")


def test_the_command_is_the_library(call: Call, files: tuple[Path, Path]) -> None:
    train, test = read_split(*files)
    weights = PrivacySpec.paper(f_uc=0.3).draw(train, 8)
    params = {
        "n_factors": 3,
        "learning_rate": 0.02,
        "reg": 0.05,
        "epochs": 40,
        "epsilon": 20.0,
        "rng": 7,
    }
    score = (
        make_model("hdpmf", **params, solver="sequential", h="item", noise="once")
        .fit(train, weights)
        .score(test)
    )
    found = call(
        "evaluate",
        "hdpmf",
        "--train",
        files[0],
        "--test",
        files[1],
        "--factors",
        3,
        "--lr",
        0.02,
        "--reg",
        0.05,
        "--epochs",
        40,
        "--epsilon",
        20,
        "--seed",
        7,
        "--weights-seed",
        8,
        "--spec",
        "f_uc=0.3",
        "--solver",
        "sequential",
        "--h",
        "item",
        "--noise",
        "once",
        "--threads",
        1,
        "--scale",
        1,
        5,
        "--json",
    ).json
    assert found["mse"] == pytest.approx(score["mse"], rel=1e-12)
    assert (
        found["mse"] < 4
    )  # it learned something: predictions are not all cut off at the end of the scale
    assert found["spec"] == {"f_uc": 0.3}


@pytest.mark.parametrize(("text", "threshold"), [("5", 5.0), ("max", "max")])
def test_uniform_weights_and_threshold_reach_the_model(
    call: Call, files: tuple[Path, Path], text: str, threshold: str | float
) -> None:
    train, test = read_split(*files)
    model = make_model("pdpmf", threshold=threshold, epochs=50, epsilon=50.0, rng=0)
    score = model.fit(train, PrivacyWeights.uniform(train)).score(test)
    found = call(
        "evaluate",
        "pdpmf",
        "--train",
        files[0],
        "--test",
        files[1],
        "--epochs",
        50,
        "--epsilon",
        50,
        "--weights",
        "uniform",
        "--threshold",
        text,
        "--json",
    ).json
    assert found["weights"] == "uniform"
    assert found["mse"] == pytest.approx(score["mse"], rel=1e-12)
    # Weights drawn from the specification would have given something else.
    assert model.fit(train, PrivacySpec().draw(train, 0)).score(test)["mse"] != pytest.approx(
        score["mse"]
    )


def test_the_seed_decides_everything(call: Call) -> None:
    common = ("evaluate", "hdpmf", "--data", "synthetic", "--hold-out", 5, "--epochs", 2, "--json")
    same, again, other = (call(*common, "--seed", seed).json for seed in (1, 1, 2))
    assert same["mse"] == again["mse"] != other["mse"]
    assert same["user_mean_mse"] != other["user_mean_mse"]


def test_the_ready_split(call: Call, data_folder: Path) -> None:
    found = call("evaluate", "user-mean", "--data", "ml-100k", "--ready-split", "--json").json
    assert (found["n_train"], found["n_test"], found["data"]) == (90_570, 9_430, "MovieLens 100K")


def test_people_see_baselines_and_the_claim(call: Call, files: tuple[Path, Path]) -> None:
    result = call("evaluate", "hdpmf", "--train", files[0], "--test", files[1], *QUICK)
    assert result.code == 0
    for expected in (
        "HDPMF",
        "User mean",
        "Global mean",
        "NOMINAL",
        "0 (proved)",
        "1 (nominal, simulated)",
    ):
        assert expected in result.out
    assert all(line == line.rstrip() and line.isprintable() for line in result.out.splitlines())


def test_other_column_names(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "shop.csv"
    file.write_text(
        "customer,product,stars\n"
        + "".join(f"{u},{i},{1 + (u + i) % 5}\n" for u in range(5) for i in range(4))
    )
    columns = ("--column", "user=customer", "--column", "item=product", "--column", "rating=stars")
    result = call("evaluate", "user-mean", "--train", file, "--hold-out", 1, *columns, "--json")
    assert result.json["n_test"] == 5


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((), 2, "--train FILE or --data NAME"),
        (("--train", "a", "--data", "synthetic"), 2, "either"),
        (("--train", "absent.csv", "--test", "absent.csv"), 3, "absent.csv"),
        (("--train", "absent.csv"), 2, "--hold-out"),
        (("--data", "synthetic", "--test", "a"), 2, "--test"),
        (("--data", "synthetic", "--hold-out", 3, "--ready-split"), 2, "choose one"),
        (("--data", "synthetic", "--ready-split"), 4, "no ready-made split"),
        (("--train", "a", "--ready-split"), 2, "--ready-split"),
        (("--data", "synthetic", "--scale", 1, 5), 2, "--scale"),
        (("--data", "synthetic", "--step", 1), 2, "--step"),
        (("--data", "synthetic", "--hold-out", 0), 2, "per_user"),
        (("--data", "movies"), 4, "movies"),
        (("--data", "synthetic", "--epsilon", 0), 5, "epsilon"),
        (("--data", "synthetic", "--epsilon", "nan"), 5, "epsilon"),
        (("--data", "synthetic", "--lr", "nan"), 2, "--lr must be a positive number"),
        (("--data", "synthetic", "--lr", 1e9), 10, "smaller"),
        (
            ("--data", "synthetic", "--factors", 0),
            2,
            "--factors must be a whole number from 1 to 512",
        ),
        (("--data", "synthetic", "--epochs", 0), 2, "epochs"),
        (("--data", "synthetic", "--reg", -1), 2, "reg"),
        (("--data", "synthetic", "--seed", -1), 2, "--seed"),
        (("--data", "synthetic", "--threads", 0), 2, "threads"),
        (("--data", "synthetic", "--solver", "magic"), 2, "solver"),
        (("--data", "synthetic", "--h", "magic"), 2, "h must be"),
        (("--data", "synthetic", "--noise", "magic"), 2, "noise"),
        (("--data", "synthetic", "--spec", "f_xx=1"), 2, "f_xx"),
        (("--data", "synthetic", "--spec", "f_uc"), 2, "NAME=VALUE"),
        (("--data", "synthetic", "--spec", "f_uc=much"), 2, "number"),
        (("--data", "synthetic", "--spec", "f_uc=1", "--spec", "f_uc=0"), 2, "twice"),
        (("--data", "synthetic", "--spec", "f_uc=3"), 5, "ratio"),
        (
            ("--data", "synthetic", "--weights", "paper", "--weights", "uniform"),
            2,
            "one of these three",
        ),
        (("--data", "synthetic", "--missing-weight", 0.5), 2, "--missing-weight"),
        (("--data", "synthetic", "--weights", "absent.csv"), 3, "absent.csv"),
        (("--data", "synthetic", "--duplicates", "last"), 2, "--duplicates"),
        (("--data", "synthetic", "--implicit"), 2, "--implicit"),
        (("--train", "a", "--implicit", "--scale", 1, 5, "--hold-out", 1), 2, "--scale"),
        (
            ("--train", "a", "--duplicates", "any", "--hold-out", 1),
            2,
            "--duplicates takes error, last",
        ),
        (("--data", "synthetic", "--split", "magic"), 2, "--split takes hold-out, last"),
        (("--data", "synthetic", "--split", "last:many"), 2, "last:10"),
        (("--data", "synthetic", "--split", "time:soon"), 2, "time:0.2"),
        (("--data", "synthetic", "--split", "ratio:2"), 2, "above 0 and below 1"),
        (("--data", "synthetic", "--split", "ratio", "--hold-out", 3), 2, "choose one"),
        (("--data", "ml-100k", "--ready-split", "--core", 5), 2, "--core"),
        (("--data", "synthetic", "--core", 10_000), 3, "no core"),
        (("--data", "synthetic", "--spec", "f_uc=1", "--weights", "uniform"), 2, "--weights paper"),
    ],
)
def test_bad_options(call: Call, options: tuple[object, ...], code: int, said: str) -> None:
    result = call("evaluate", "hdpmf", *options, "--json")
    assert result.code == code
    assert said in result.err
    assert result.err.count("\n") == 1
    assert result.json["error"]["message"] == result.err.removeprefix("error: ").rstrip("\n")


def test_an_unknown_method(call: Call) -> None:
    result = call("evaluate", "magic", "--data", "synthetic")
    assert result.code == 2
    assert "hdpmf-w" in result.err


def test_a_threshold_that_is_neither_word_nor_number(call: Call) -> None:
    assert call("evaluate", "pdpmf", "--data", "synthetic", "--threshold", "magic").code == 5


@pytest.mark.parametrize(
    "text",
    [
        "user,item,rating\n1,1,7.31337\n",
        "user,item,rating\n1,1,4.31337\n1,1,4.31337\n",
        "user,item,rating\n1,1,nan\n2,1,4.31337\n",
        "user,item,rating\n1,1,7.31337x\n",
        "who,what,how\n1,1,4.31337\n",
        "user,item,rating\n",
        "",
    ],
)
def test_unusable_ratings_are_refused_without_showing_them(
    call: Call, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(text)
    result = call("evaluate", "mf", "--train", file, "--hold-out", 1, "--json")
    assert result.code == 3
    assert "31337" not in result.err + result.out
    assert result.err.count("\n") == 1


def test_nothing_to_test_on(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "few.csv"
    file.write_text("user,item,rating\n1,1,3\n2,1,4\n")
    result = call("evaluate", "mf", "--train", file, "--hold-out", 1)
    assert result.code == 3
    assert "nothing to test on" in result.err


def test_ranking_beside_the_errors(call: Call, files: tuple[Path, Path]) -> None:
    source = ("--train", files[0], "--test", files[1], *QUICK)
    found = call("evaluate", "mf", *source, "--ranking", "--json").json
    train, test = read_split(*files)
    expected = (
        make_model("mf", n_factors=4, learning_rate=0.01, epochs=5, rng=0).fit(train).rank(test)
    )
    assert found["ndcg_at_10"] == expected["ndcg"]
    assert found["recall_at_10"] == expected["recall"]
    assert found["coverage_at_10"] == expected["coverage"]
    assert found["n_ranked_users"] == expected["n_users"] > 0
    assert "NDCG 0." in call("evaluate", "mf", *source, "--ranking").out
    found = call("evaluate", "user-mean", *source[:4], "--ranking", "--json").json
    assert found["ndcg_at_10"] is None
    assert "Lists: none" in call("evaluate", "user-mean", *source[:4], "--ranking").out
    assert "ndcg_at_10" not in call("evaluate", "mf", *source, "--json").json


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("-k", 1500, "--factors must be a whole number from 1 to 512, not 1500"),
        ("-k", 100_000, "--factors must be a whole number from 1 to 512"),
        ("--threads", 100_000, "--threads must be a whole number from 1 to 1024"),
        ("--lr", 0, "--lr must be a positive number"),
    ],
)
def test_what_cannot_be_is_said_before_any_work(
    call: Call, option: str, value: int, said: str
) -> None:
    ended = call("evaluate", "mf", "--data", "ml-100k", option, value)
    assert ended.code == 2
    assert said in ended.err


def test_few_epochs_are_told(call: Call, files: tuple[Path, Path]) -> None:
    ended = call("evaluate", "mf", "--train", files[0], "--test", files[1], "--epochs", 3, "--json")
    assert ended.code == 0
    assert (
        "warning: MF fits its own training ratings worse than each user's own mean does"
        in ended.err
    )
