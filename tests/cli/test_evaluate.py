"""``hdpmf evaluate``, and the one-round designs on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hdpmf import PrivacySpec, PrivacyWeights, make_model, read_split
from hdpmf.common.data import synthetic_world
from hdpmf.common.methods import METHODS
from hdpmf.common.model.priors import SHIPPED
from hdpmf.models import HDPSum, load_prior
from hdpmf.models.prior_learning import learn_prior

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
    predicts = not METHODS[method].lists_only
    assert all((found[name] is not None) == predicts for name in ("mse", "mae"))
    assert predicts or 0 < found["ndcg_at_10"] < 1
    assert found["user_mean_mse"] > 0


def test_a_method_for_lists_has_no_errors(call: Call, files: tuple[Path, Path]) -> None:
    """Its error would be the user mean's, which is in the next row."""
    shown = call("evaluate", "ease", "--train", files[0], "--test", files[1]).out
    (own,) = (line for line in shown.splitlines() if line.startswith("EASE"))
    (silent,) = (line for line in shown.splitlines() if line.startswith("User mean"))
    assert own.split()[1] == "none"  # its epsilon
    assert float(silent.split()[2]) > 0
    assert "NDCG 0." in shown


def test_the_command_is_the_library(call: Call, files: tuple[Path, Path]) -> None:
    train, test = read_split(*files)
    weights = PrivacySpec.paper(f_uc=0.3).draw(train, 7)
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
        "--spec",
        "f_uc=0.3",
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
        "--set",
        f"threshold={text}",
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
        (("--data", "synthetic", "--set", "n_threads=0"), 2, "threads"),
        (("--data", "synthetic", "--set", "solver=magic"), 2, "solver"),
        (("--data", "synthetic", "--set", "h=magic"), 2, "h must be"),
        (("--data", "synthetic", "--set", "noise=magic"), 2, "noise"),
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
    assert call("evaluate", "pdpmf", "--data", "synthetic", "--set", "threshold=magic").code == 5


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
        ("--set", "n_threads=100000", "--set n_threads must be a whole number from 1 to 1024"),
        ("--lr", 0, "--lr must be a positive number"),
    ],
)
def test_what_cannot_be_is_said_before_any_work(
    call: Call, option: str, value: object, said: str
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
@pytest.mark.parametrize(
    ("low", "high", "step"), [(0.5, 5, 0.5), (1, 10, 1), (0, 100, 25), (0, 100, None)]
)
def test_any_scale_with_public_ends(
    call: Call, tmp_path: Path, method: str, low: float, high: float, step: float | None
) -> None:
    """Errors are in units of the scale; per width of it they are about those of one to five
    stars.
    """
    world = synthetic_world(80, 50, 2_400, rng=5)
    unit = step or 0.1
    values = low + np.round((world.values - 1) / 4 * (high - low) / unit) * unit
    rows = [
        f"{user},{item},{value:g}"
        for user, item, value in zip(world.user_ids, world.item_ids, values, strict=True)
    ]
    path = tmp_path / "ratings.csv"
    path.write_text("\n".join(["user,item,rating", *rows]))
    grid = () if step is None else ("--step", step)
    done = call(
        "evaluate", method, "--train", path, "--hold-out", 5, "--scale", low, high, *grid, "--json"
    )
    assert done.code == 0
    assert 0.03 < done.json["mse"] / (high - low) ** 2 < 0.12
    assert (
        call(
            "evaluate",
            method,
            "--train",
            path,
            "--hold-out",
            5,
            "--scale",
            low,
            high - 0.6,
            "--json",
        ).code
        == 3
    )


def test_weights_below_the_grid_are_told(call: Call, files: tuple[Path, Path]) -> None:
    options = (
        "--spec",
        "epsilon_uc=0.01",
        "--spec",
        "epsilon_um=0.011",
        "--spec",
        "epsilon_ul=0.012",
    )
    common = ("evaluate", "hdp-sum", "--train", files[0], "--test", files[1], *options)
    shown = call(*common)
    assert shown.code == 0
    assert (
        "ratings sent nothing, because their privacy weight is below 1/64. PRIVATE: exact"
        in shown.out
    )
    found = call(*common, "--json").json
    assert found["n_silent"] > 0
    assert {"n_silent", "epsilon_per_person"} <= set(found["private"])


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
    none = "for presence: no finite epsilon"
    assert (none in shown) == (method == "hdp-bit")
    explained = call("privacy", "explain", method, "--set", "max_ratings=4").out
    limit = {
        "hdp-sum": "sent with the weight of 4 of weight 1 at most",
        "hdp-bit": "of which 4 at most are sent",
    }
    assert limit[method] in " ".join(explained.split())
    assert call("evaluate", "hdpmf", *common[2:], "--set", "max_ratings=4").code == 2


def test_priors_travel_with_their_origin(call: Call, files: tuple[Path, Path]) -> None:
    done = call(
        "evaluate",
        "hdp-sum",
        "--train",
        files[0],
        "--test",
        files[1],
        "--set",
        "prior=films",
        "--json",
    )
    assert done.json["prior_origin"]["dataset"] == "ml-1m"
    shown = call(
        "evaluate", "hdp-bit", "--train", files[0], "--test", files[1], "--set", "prior=films-100k"
    )
    assert "learned from ml-100k" in shown.out


def test_a_file_of_titles_alone_gives_titles_and_no_features(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    ids = synthetic_world(60, 40, 1_200, rng=3).items.ids
    items = tmp_path / "titles.csv"
    items.write_text("\n".join(["item,title", *(f"{item},Film {item}" for item in ids)]))
    trained = call("train", "hdp-sum", "--train", files[0], "--items", items, "--out",
                   tmp_path / "m")  # fmt: skip
    assert trained.code == 0, trained.err
    assert "lists show its titles" in trained.err
    assert "Film " in call("recommend", tmp_path / "m", 1).out
    both = ("--train", files[0], "--test", files[1], "--json")
    with_titles = call("evaluate", "hdp-sum", *both, "--items", items).json
    assert with_titles["mse"] == call("evaluate", "hdp-sum", *both).json["mse"]
    items.write_text("\n".join(["item,maker", *(f"{item},M{item}" for item in ids)]))
    refused = call("evaluate", "hdp-sum", *both, "--items", items)
    assert (refused.code, "no column can be used as a feature" in refused.err) == (3, True)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_priors_are_small_sound_and_say_where_they_come_from(name: str) -> None:
    prior = load_prior(name)
    assert prior is not None
    assert prior.origin["declared"] == "public"
    assert prior.name == name
    assert {"constant", "bias", "genre:Drama", "bias*genre:Drama", "decade 1990"} <= set(
        prior.columns
    )


@pytest.mark.slow
def test_a_learned_prior_helps_strangers_to_its_data_and_is_not_judged_on_its_own(
    call: Call, tmp_path: Path
) -> None:
    public = synthetic_world(150, 50, 3_000, rng=1).describe(name="public world")
    prior = learn_prior(
        public, name="p", origin={"dataset": "w", "title": public.name, "declared": "public"}
    )
    prior.save(tmp_path / "p.json")
    world = synthetic_world(150, 50, 3_000, rng=2)
    train, test = world.hold_out(5, rng=0)
    errors = [
        HDPSum(rng=0, prior=one).fit(train).score(test)["mse"]
        for one in (None, tmp_path / "p.json")
    ]
    assert errors[1] < errors[0]
    train, test = public.hold_out(5, rng=0)
    model = HDPSum(rng=0, prior=prior).fit(train)
    with pytest.raises(Exception, match="must not be judged"):
        model.score(test)
    assert np.isfinite(model.predict(test.user_ids, test.item_ids)).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mf", "--set", "prior=films"), "mf has no option --set prior"),
        (("mf", "--set", "features=false"), "mf has no option --set features"),
        (("hdp-sum", "--set", "patterns=3"), "hdp-sum has no option --set patterns"),
        (("hdp-bit", "--set", "patterns=-1"), "patterns must be"),
        (("hdp-sum", "--set", "coding=loud"), "coding must be"),
        (("hdp-sum", "--set", "prior=nonsense"), "no prior"),
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


def test_train_keeps_what_it_needs(
    call: Call, files: tuple[Path, Path], items: Path, tmp_path: Path
) -> None:
    done = call(
        "train", "hdp-sum", "--train", files[0], "--items", items, "--out", tmp_path / "m", "--json"
    )
    assert done.code == 0
    assert done.json["n_features"] == 9
    assert call("recommend", tmp_path / "m", 1, "--json").code == 0
