"""The one-round methods and their priors on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.common.model.priors import SHIPPED
from hdpmf.models import HDPSum, load_prior
from hdpmf.models.prior_learning import learn_prior

from .conftest import Call


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
        "evaluate", method, "--train", files[0], "--test", files[1], "--no-features", "--json"
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
    shown = call("evaluate", "hdp-sum", "--train", files[0], "--test", files[1], *options)
    assert shown.code == 0
    assert "ratings sent nothing, because their privacy weight is below 1/64" in shown.out


@pytest.mark.parametrize("method", ["hdp-sum", "hdp-bit"])
def test_epsilon_of_a_person_stands_beside_that_of_a_rating(
    call: Call, files: tuple[Path, Path], method: str
) -> None:
    common = ("evaluate", method, "--train", files[0], "--test", files[1])
    free, bounded = (call(*common, *more, "--json").json for more in ((), ("--max-ratings", 4)))
    assert free["max_ratings"] is None
    assert bounded["max_ratings"] == 4
    assert bounded["mse"] != free["mse"]
    for person in ("median", "heaviest"):
        alone, many = bounded["epsilon_per_person"][person], free["epsilon_per_person"][person]
        assert alone["pure_epsilon"] <= 4 < many["ratings"]
        assert alone["pure_epsilon"] < many["pure_epsilon"] <= many["weight"]
        assert many["epsilon_at_delta"] <= many["pure_epsilon"]
    assert "for the median person" in call(*common).out
    assert (
        "of which 4 at most are sent" in call("privacy", "explain", method, "--max-ratings", 4).out
    )
    assert call("evaluate", "hdpmf", *common[2:], "--max-ratings", 4).code == 2


def test_priors_travel_with_their_origin(call: Call, files: tuple[Path, Path]) -> None:
    done = call(
        "evaluate", "hdp-sum", "--train", files[0], "--test", files[1], "--prior", "films", "--json"
    )
    assert done.json["prior_origin"]["dataset"] == "ml-1m"
    shown = call(
        "evaluate", "hdp-bit", "--train", files[0], "--test", files[1], "--prior", "films-100k"
    )
    assert "learned from ml-100k" in shown.out


def test_labels_and_patterns(call: Call, files: tuple[Path, Path], tmp_path: Path) -> None:
    world = synthetic_world(60, 40, 1_200, rng=3)
    items = tmp_path / "films.csv"
    rows = [f"{item},{1980 + number % 20},{'Drama' if number % 2 else 'Comedy'}" for number, item in
            enumerate(world.items.ids)]  # fmt: skip
    items.write_text("\n".join(["item,year,genres", *rows]))
    with_features = ("--train", files[0], "--test", files[1], "--items", items)
    done = call(
        "evaluate", "hdp-sum", *with_features, "--prior", "films-100k", "--labels", "--json"
    )
    assert done.code == 0
    assert (done.json["labels"], done.json["n_patterns"]) == (True, 1)
    assert "label" in done.json["epsilon_reason"]
    for patterns in (0, 3):
        bits = call(
            "evaluate",
            "hdp-bit",
            "--train",
            files[0],
            "--test",
            files[1],
            "--patterns",
            patterns,
            "--json",
        )
        assert (bits.json["n_patterns"], bits.json["labels"]) == (patterns, False)
    trained = call(
        "train",
        "hdp-sum",
        "--train",
        files[0],
        "--items",
        items,
        "--prior",
        "films-100k",
        "--labels",
        "--out",
        tmp_path / "m",
        "--json",
    )
    assert trained.json["labels"] is True


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_priors_are_small_sound_and_say_where_they_come_from(call: Call, name: str) -> None:
    prior = load_prior(name)
    assert prior is not None
    assert prior.origin["declared"] == "public"
    assert prior.name == name
    assert {"constant", "bias", "genre:Drama", "bias*genre:Drama", "decade 1990"} <= set(
        prior.columns
    )
    assert call("prior", "show", name, "--json").json["origin"] == prior.origin
    assert prior.dataset in call("prior", "show", name).out


def test_learning_needs_a_declaration(call: Call, tmp_path: Path) -> None:
    assert (
        "--public"
        in call("prior", "learn", "--data", "synthetic", "--out", tmp_path / "p.json").err
    )
    assert "--data" in call("prior", "learn", "--public", "--out", tmp_path / "p.json").err
    assert not (tmp_path / "p.json").exists()


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
        (("mf", "--prior", "films"), "mf has no option --prior"),
        (("mf", "--no-features"), "mf has no option --features"),
        (("hdp-bit", "--design", "S"), "hdp-bit has no option --design"),
        (("mf", "--labels"), "mf has no option --labels"),
        (("hdp-bit", "--labels"), "hdp-bit has no option --labels"),
        (("hdp-sum", "--labels"), "taste labels are drawn by a public score"),
        (("hdp-sum", "--labels", "--prior", "films-100k", "--design", "S"), "belong to design A"),
        (("hdp-sum", "--patterns", "3"), "hdp-sum has no option --patterns"),
        (("hdp-bit", "--patterns", "-1"), "patterns must be"),
        (("hdp-sum", "--design", "Q"), "design must be"),
        (("hdp-sum", "--coding", "loud"), "coding must be"),
        (("hdp-sum", "--prior", "nonsense"), "no prior"),
        (("hdp-sum", "--items", "absent.csv", "--no-features"), "--no-features"),
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
