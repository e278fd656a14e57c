"""``hdpmf evaluate``, and the one-round designs on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf import PrivacySpec, make_model, read_split
from hdpmf.common.data import synthetic_world
from hdpmf.common.methods import METHODS

from .conftest import Call

pytestmark = pytest.mark.slow

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
QUICK = ("--epochs", 5, "--set", "n_factors=4")


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
    assert ({"solver", "n_factors", "learning_rate", "reg", "epochs"} <= found.keys()) == trains
    assert found["n_test"] == 177
    claim = METHODS[method].claim()
    asked = 8.0 if method == "hdp-pairs" else 1.0
    nothing = claim.value == 0 and not claim.presence
    assert found["epsilon"] == (None if claim.status == "none" else 0.0 if nothing else asked)
    assert found["epsilon_status"] in ("none", "nominal", "proved")
    predicts = not METHODS[method].lists_only
    assert all((found[name] is not None) == predicts for name in ("mse", "mae"))
    assert predicts or 0 < found["ndcg_at_10"] < 1
    assert found["user_mean_mse"] > 0


def test_the_command_is_the_library(call: Call, files: tuple[Path, Path]) -> None:
    train, test = read_split(*files)
    weights = PrivacySpec().draw(train, 7)
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
        "--set",
        "n_factors=3",
        "--set",
        "learning_rate=0.02",
        "--set",
        "reg=0.05",
        "--epochs",
        40,
        "--epsilon",
        20,
        "--seed",
        7,
        "--weights",
        "paper",
        "--set",
        "solver=sequential",
        "--set",
        "h=item",
        "--set",
        "noise=once",
        "--set",
        "n_threads=1",
        "--scale",
        1,
        5,
        "--json",
    ).json
    assert found["mse"] == pytest.approx(score["mse"], rel=1e-12)
    assert (
        found["mse"] < 4
    )  # it learned something: predictions are not all cut off at the end of the scale


def test_the_seed_decides_everything(call: Call) -> None:
    common = ("evaluate", "hdpmf", "--data", "synthetic", "--hold-out", 5, "--epochs", 2, "--json")
    same, again, other = (call(*common, "--seed", seed).json for seed in (1, 1, 2))
    assert same["mse"] == again["mse"] != other["mse"]
    assert same["user_mean_mse"] != other["user_mean_mse"]


def test_the_ready_split(call: Call, data_folder: Path) -> None:
    found = call("evaluate", "user-mean", "--data", "ml-100k", "--split", "ready", "--json").json
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


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((), 2, "--train FILE or --data NAME"),
        (("--train", "a", "--data", "synthetic"), 2, "give the ratings"),
        (("--train", "absent.csv", "--test", "absent.csv"), 3, "absent.csv"),
        (("--train", "absent.csv"), 2, "--hold-out"),
        (("--data", "synthetic", "--test", "a"), 2, "--test"),
        (("--data", "synthetic", "--hold-out", 3, "--split", "ready"), 2, "choose one"),
        (("--data", "synthetic", "--split", "ready"), 4, "no ready-made split"),
        (("--train", "a", "--split", "ready"), 2, "--split ready"),
        (("--data", "synthetic", "--scale", 1, 5), 2, "--scale"),
        (("--data", "synthetic", "--hold-out", 0), 2, "per_user"),
        (("--data", "movies"), 4, "movies"),
        (("--data", "synthetic", "--epsilon", 0), 5, "epsilon"),
        (("--data", "synthetic", "--epsilon", "nan"), 5, "epsilon"),
        (("--data", "synthetic", "--set", "learning_rate=nan"), 2, "must be a positive number"),
        (("--data", "synthetic", "--set", "learning_rate=1e9"), 10, "smaller"),
        (("--data", "synthetic", "--set", "n_factors=513"), 2, "a whole number from 1 to 512"),
        (("--data", "synthetic", "--epochs", 0), 2, "epochs"),
        (("--data", "synthetic", "--set", "reg=-1"), 2, "reg"),
        (("--data", "synthetic", "--seed", -1), 2, "--seed"),
        (("--data", "synthetic", "--set", "n_threads=0"), 2, "threads"),
        (("--data", "synthetic", "--set", "solver=magic"), 2, "solver"),
        (("--data", "synthetic", "--set", "h=magic"), 2, "h must be"),
        (("--data", "synthetic", "--set", "noise=magic"), 2, "noise"),
        (
            ("--data", "synthetic", "--weights", "paper", "--weights", "uniform"),
            2,
            "one of these three",
        ),
        (("--data", "synthetic", "--weights", "absent.csv"), 3, "absent.csv"),
        (("--data", "synthetic", "--duplicates", "last"), 2, "--duplicates"),
        (("--data", "synthetic", "--implicit"), 2, "--implicit"),
        (("--train", "a", "--implicit", "--scale", 1, 5, "--hold-out", 1), 2, "--scale"),
        (
            ("--train", "a", "--duplicates", "any", "--hold-out", 1),
            2,
            "--duplicates takes error, last",
        ),
        (("--data", "synthetic", "--split", "magic"), 2, "--split takes ready, or hold-out, last"),
        (("--data", "synthetic", "--split", "last:many"), 2, "last:10"),
        (("--data", "synthetic", "--split", "time:soon"), 2, "time:0.2"),
        (("--data", "synthetic", "--split", "ratio:2"), 2, "above 0 and below 1"),
        (("--data", "synthetic", "--split", "ratio", "--hold-out", 3), 2, "choose one"),
    ],
)
def test_bad_options(call: Call, options: tuple[object, ...], code: int, said: str) -> None:
    result = call("evaluate", "hdpmf", *options, "--json")
    assert result.code == code
    assert said in result.err
    assert result.err.count("\n") == 1
    assert result.json["error"]["message"] == result.err.removeprefix("error: ").rstrip("\n")


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


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("items") / "items.csv"
    world = synthetic_world(60, 40, 1_200, rng=3)
    rows = [
        f"{item},{number % 7},{'ab'[number % 2]}" for number, item in enumerate(world.items.ids)
    ]
    path.write_text("\n".join(["item,size,kind", *rows]))
    return path


@pytest.mark.parametrize("method", ["hdp-sum", "hdp-bit"])
def test_evaluate_with_a_file_of_features(
    call: Call, files: tuple[Path, Path], items: Path, method: str
) -> None:
    plain = call("evaluate", method, "--train", files[0], "--test", files[1], "--json")
    told = call(
        "evaluate", method, "--train", files[0], "--test", files[1], "--items", items, "--json"
    )
    assert (plain.code, told.code) == (0, 0)
    assert told.json["n_features"] == plain.json["n_features"] + 3
    assert told.json["epsilon_status"] == "proved"
    assert told.json["mse"] != plain.json["mse"]
    without = call(
        "evaluate",
        method,
        "--train",
        files[0],
        "--test",
        files[1],
        "--set",
        "features=false",
        "--json",
    )
    assert without.json["mse"] == plain.json["mse"]


@pytest.mark.parametrize("method", ["hdp-sum", "hdp-bit"])
def test_epsilon_of_a_person_stands_beside_that_of_a_rating(
    call: Call, files: tuple[Path, Path], method: str
) -> None:
    common = ("evaluate", method, "--train", files[0], "--test", files[1])
    free, bounded = (
        call(*common, *more, "--json").json for more in ((), ("--set", "max_ratings=4"))
    )
    assert free["max_ratings"] is None
    assert bounded["max_ratings"] == 4
    assert bounded["mse"] != free["mse"]
    for person in ("average", "median", "heaviest"):
        alone, many = bounded["epsilon_per_person"][person], free["epsilon_per_person"][person]
        assert alone["pure_epsilon"] <= 4 < many["ratings"]
        assert alone["pure_epsilon"] < many["pure_epsilon"] <= many["weight"]
        assert many["epsilon_at_delta"] <= many["pure_epsilon"]
        presence = many["presence"]
        if method == "hdp-sum":
            assert presence["pure_epsilon"] == pytest.approx(0.75 * many["pure_epsilon"])
        else:
            assert presence["pure_epsilon"] is presence["epsilon_at_delta"] is None
    shown = call(*common).out
    assert "at the median (" in shown
    none = "history against none: no finite epsilon"
    assert (none in shown) == (method == "hdp-bit")
    explained = call("privacy", "explain", method, "--set", "max_ratings=4").out
    limit = {
        "hdp-sum": "sent with the weight of 4 of weight 1 at most",
        "hdp-bit": "of which 4 at most are sent",
    }
    assert limit[method] in " ".join(explained.split())
    assert call("evaluate", "hdpmf", *common[2:], "--set", "max_ratings=4").code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mf", "--set", "features=false"), "mf has no option --set features"),
        (("hdp-sum", "--set", "patterns=3"), "hdp-sum has no option --set patterns"),
        (("hdp-bit", "--set", "patterns=-1"), "patterns must be"),
        (("hdp-sum", "--set", "coding=loud"), "coding must be"),
        (("hdp-sum", "--items", "absent.csv", "--set", "features=false"), "--set features"),
        (("hdp-sum", "--items", "absent.csv"), "no file"),
    ],
)
def test_options_that_make_no_sense(
    call: Call, files: tuple[Path, Path], arguments: tuple[str, ...], message: str
) -> None:
    done = call("evaluate", *arguments, "--train", files[0], "--test", files[1])
    assert done.code in (2, 3)
    assert message in done.err
