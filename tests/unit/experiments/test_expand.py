from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from hdpmf.common.data import Ratings
from hdpmf.common.methods import METHODS, Method
from hdpmf.errors import ConfigError, DatasetError, RatingsError
from hdpmf.lab import paper
from hdpmf.lab.experiments import Experiment, expected_runs, parse_experiment, resolve
from hdpmf.lab.experiments.execution import load_data, parts_of, weights_of
from hdpmf.lab.experiments.expansion import (
    Configuration,
    cell_configurations,
    chosen_by_seed,
    configurations,
    evaluation_runs,
    method_names,
    split_in_words,
    tuning_cells,
    tuning_runs,
)
from hdpmf.lab.experiments.runs import Data, Part, Privacy, Run, make_run

PARAMS = {
    "n_factors": 4,
    "epochs": 5,
    "learning_rate": 0.01,
    "reg": 0.01,
    "epsilon": 1.0,
    "solver": "batch",
}


def test_an_identity_is_pinned() -> None:
    """A change here makes all results of everybody run anew: raise RESULTS_VERSION instead, on
    purpose.
    """
    run = make_run(
        Data("ml-100k"), Part("hold-out", seed=1), "hdpmf", PARAMS, Privacy({"f_uc": 0.3}, 1), 1
    )
    assert run.id == "4891a80493f03393e355c65aa427dad4"


def test_an_identity_survives_every_journey() -> None:
    run = make_run(
        Data("ml-1m"),
        Part("hold-out", 5, 2, 0.5, 5, 3),
        "pdpmf",
        PARAMS,
        Privacy({"f_uc": 0.3}, 1),
        1,
    )
    assert pickle.loads(pickle.dumps(run)).id == run.id
    assert msgspec.json.decode(msgspec.json.encode(run), type=Run).id == run.id


@pytest.mark.parametrize(
    "other",
    [
        make_run(Data("ml-1m"), Part("hold-out"), "hdpmf", PARAMS, Privacy(), 0),
        make_run(Data("ml-100k"), Part("hold-out", seed=1), "hdpmf", PARAMS, Privacy(), 0),
        make_run(Data("ml-100k"), Part("hold-out", fraction=0.5), "hdpmf", PARAMS, Privacy(), 0),
        make_run(Data("ml-100k"), Part("hold-out", folds=5), "hdpmf", PARAMS, Privacy(), 0),
        make_run(Data("ml-100k"), Part("hold-out"), "pdpmf", PARAMS, Privacy(), 0),
        make_run(Data("ml-100k"), Part("hold-out"), "hdpmf", {**PARAMS, "epochs": 6}, Privacy(), 0),
        make_run(Data("ml-100k"), Part("hold-out"), "hdpmf", PARAMS, Privacy(seed=1), 0),
        make_run(Data("ml-100k"), Part("hold-out"), "hdpmf", PARAMS, Privacy({"f_uc": 0.3}), 0),
        make_run(Data("ml-100k"), Part("hold-out"), "hdpmf", PARAMS, Privacy(), 1),
    ],
)
def test_everything_that_matters_is_in_the_identity(other: Run) -> None:
    assert make_run(Data("ml-100k"), Part("hold-out"), "hdpmf", PARAMS, Privacy(), 0).id != other.id


def test_one_method_s_results_can_be_given_up(register: Callable[[Method], None]) -> None:
    def ids() -> list[str]:
        return [
            make_run(Data("ml-100k"), Part("hold-out"), name, {}, Privacy(), 0).id
            for name in ("hdp-sum", "mf")
        ]

    before = ids()
    register(replace(METHODS["hdp-sum"], version=99))
    after = ids()
    assert before[0] != after[0]
    assert before[1] == after[1]


def test_a_run_has_options_of_its_method_only() -> None:
    with pytest.raises(ConfigError, match="user-mean has no option 'epochs'; it has no options"):
        make_run(Data("ml-100k"), Part("hold-out"), "user-mean", {"epochs": 3}, Privacy(), 0)
    with pytest.raises(
        ConfigError, match=r"hdpmf has no option 'n_factor'; its options are .*n_factors"
    ):
        make_run(Data("ml-100k"), Part("hold-out"), "hdpmf", {"n_factor": 3}, Privacy(), 0)


DESCRIBED = {
    "mf": "40a735d1f04147c8",
    "hdpmf": "b13909209fb6c182",
    "hdpmf-w": "42bc7c688c41a9cb",
    "hdpmf-paid": "68658e57f522fa39",
    "pdpmf": "d6bb5e8e6bbe4534",
    "dpmf": "d14e9f4f267337e1",
    "hdp-sum": "717e1b8ceb5650e5",
    "hdp-bit": "d8be5e3136f39cad",
    "user-mean": "91c93d5c189268a9",
    "global-mean": "5c20d0a0319710be",
    "hdpmf-r": "e1144656a8f49717",
}


def test_runs_of_the_paper_are_described_as_they_always_were(
    register: Callable[[Method], None],
) -> None:
    """Stored results are found by these. A method whose results have changed gets another
    version instead.
    """
    for method in list(METHODS.values()):
        register(replace(method, version=0))
    ids: dict[str, list[str]] = {}
    for run in expected_runs(paper.experiment(name) for name in paper.NAMES if name != "lists"):
        ids.setdefault(run.method, []).append(run.id)
    digests = {
        method: hashlib.sha256("".join(sorted(same)).encode()).hexdigest()[:16]
        for method, same in ids.items()
    }
    assert {method: digests.get(method) for method in DESCRIBED} == DESCRIBED


def test_what_does_not_matter_is_not_in_the_identity() -> None:
    def run(method: str, epsilon: float, seed: int) -> str:
        privacy = Privacy({"f_uc": epsilon / 10}, seed)
        params = METHODS[method].own(**{**PARAMS, "epsilon": epsilon})
        return make_run(
            Data("ml-100k"), Part("ready-made", seed=seed), method, params, privacy, seed
        ).id

    assert run("user-mean", 1.0, 0) == run("user-mean", 2.0, 1)
    assert run("mf", 1.0, 0) == run("mf", 2.0, 0)
    assert run("mf", 1.0, 0) != run("mf", 1.0, 1)
    assert run("hdpmf", 1.0, 0) != run("hdpmf", 2.0, 0)


def test_every_seed_has_wishes_a_split_and_noise_of_its_own(small: Experiment) -> None:
    """Otherwise the deviation over seeds would leave out what the draw of wishes does."""
    experiment = msgspec.structs.replace(small, seeds=(3, 5, 8))
    place = next(place for place in configurations(experiment) if place.method == "hdpmf")
    runs = evaluation_runs(experiment, place, [{"learning_rate": 0.01, "reg": 0.01}] * 3, None)
    assert [run.privacy.seed for run in runs if run.privacy is not None] == [3, 5, 8]
    assert [run.seed for run in runs] == [run.part.seed for run in runs] == [3, 5, 8]
    ratings = load_data(runs[0].data, None)
    drawn = [weights_of(run, ratings, {}) for run in runs]
    assert not any(np.array_equal(drawn[0].beta, other.beta) for other in drawn[1:])


def test_counts_of_a_small_experiment(small: Experiment) -> None:
    assert len(list(configurations(small))) == 3 * 2  # hdpmf-r takes hdpmf's choice
    assert len(tuning_runs([small])) == 2 * 2 * 2 * 2
    # Three methods with randomness and the user's mean, two seeds each with a cut of its own.
    assert len(expected_runs([small])) == 16 + 8


def test_shared_runs_are_one_run() -> None:
    shared = [
        msgspec.structs.replace(paper.experiment(name), datasets=("ml-100k",))
        for name in ("table3", "figure_ablation")
    ]
    both, ablation = expected_runs(shared), expected_runs(shared[1:])
    # The ablation has all of the table but the yardstick, and one method more.
    alone = {run.id for run in both} - {run.id for run in ablation}
    assert len(both) == len(ablation) + len(alone)
    assert {run.method for run in both if run.id in alone} == {"biased-mf"}


def test_a_figure_begins_where_the_table_is() -> None:
    place = Configuration("ml-1m", "hdpmf", 10)
    chosen = [{"learning_rate": 0.005, "reg": 0.01}] * 5
    table = evaluation_runs(paper.experiment("table3"), place, chosen, None)
    for name, x in (("figure_epsilon", 1.0), ("figure_epsilon_uc", 0.1), ("figure_f_uc", 0.54)):
        figure = evaluation_runs(paper.experiment(name), place, chosen, x)
        same = [run.params == other.params for run, other in zip(table, figure, strict=True)]
        assert all(same), name
    assert evaluation_runs(paper.experiment("figure_epsilon"), place, chosen, 1.0) == table
    halved = evaluation_runs(paper.experiment("figure_sparsity"), place, chosen, 0.4)
    assert {(run.part.kind, run.part.fraction) for run in halved} == {("leave-one-out", 0.4)}


def test_the_paper_takes_the_ready_made_split_of_ml_100k_and_tunes_once() -> None:
    table = paper.experiment("table3")
    chosen = [{"learning_rate": 0.01, "reg": 0.01}] * 5
    runs = evaluation_runs(table, Configuration("ml-100k", "mf", 10), chosen, None)
    assert {run.part for run in runs} == {Part("ready-made")}
    assert [run.seed for run in runs] == [0, 1, 2, 3, 4]
    folds = tuning_cells(table, Configuration("ml-1m", "mf", 10))[0].runs
    assert [run.part for run in folds] == [
        Part("hold-out", folds=5, fold=fold) for fold in range(5)
    ]
    assert "the test set that the data comes with" in split_in_words(table, "ml-100k")
    assert "sees test ratings of other seeds" in split_in_words(table, "ml-1m")


@pytest.mark.parametrize("stated", ["", "[split]\nper_user = 5", "[split]\nkind = 'ratio'"])
def test_a_split_is_never_swapped_for_the_one_that_a_data_set_comes_with(stated: str) -> None:
    text = f'name = "s"\ntitle = "S"\ndatasets = ["ml-100k"]\nmethods = ["user-mean"]\n{stated}'
    experiment = parse_experiment(text, "s.toml")
    (place, *_) = configurations(experiment)
    parts = [run.part for run in evaluation_runs(experiment, place, [{}] * 5, None)]
    assert {part.kind for part in parts} == {experiment.split.kind}
    assert [part.seed for part in parts] == [0, 1, 2, 3, 4]
    if experiment.split.kind == "hold-out":
        assert {part.per_user for part in parts} == {5 if stated else 10}
    assert "drawn for each seed" in split_in_words(experiment, "ml-100k")


@pytest.mark.parametrize("kind", ["hold-out", "leave-one-out", "ratio", "user-time"])
def test_no_choice_sees_a_test_rating_of_its_seed(small: Experiment, kind: str) -> None:
    split = msgspec.structs.replace(small.split, kind=kind)
    experiment = msgspec.structs.replace(small, split=split)

    def pairs(ratings: Ratings) -> set[tuple[int, int]]:
        return set(zip(ratings.user_codes.tolist(), ratings.item_codes.tolist(), strict=True))

    chosen: dict[Configuration, dict[str, float]] = {}
    seen: dict[Configuration, set[tuple[int, int]]] = {}
    for place in configurations(experiment):
        cells = tuning_cells(experiment, place)
        chosen[place] = cells[0].values
        parts = [part for run in cells[0].runs for part in parts_of(run, {})]
        seen[place] = set().union(*map(pairs, parts))
    for place, tuned, x in cell_configurations(experiment):
        values = chosen_by_seed(experiment, tuned, chosen)
        for run, seed in zip(evaluation_runs(experiment, place, values, x), (0, 1), strict=True):
            own = tuned._replace(seed=None if kind == "user-time" else seed)
            train, test = (pairs(part) for part in parts_of(run, {}))
            assert test
            if own.method != "user-mean":
                assert seen[own] == train
                assert not seen[own] & test


def test_methods_added_later_appear_by_themselves(register: Callable[[Method], None]) -> None:
    register(replace(METHODS["user-mean"], name="later", label="Later"))
    for name in (
        "table3",
        "figure_epsilon_uc",
        "figure_sparsity",
        "figure_ablation",
        "figure_epsilon",
    ):
        assert "later" in method_names(paper.experiment(name))


def test_a_grid_of_one_cell_needs_no_cross_validation(small: Experiment) -> None:
    single = msgspec.structs.replace(
        small,
        tuning=msgspec.structs.replace(small.tuning, grids={"default": {"learning_rate": (0.01,)}}),
    )
    assert tuning_runs([single]) == []


def test_yelp_stands_for_its_sample_and_absent_data_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HDPMF_DATA", str(tmp_path))
    table = msgspec.structs.replace(paper.experiment("table3"), datasets=("yelp",))
    with pytest.raises(DatasetError, match="Yelp is not on this machine"):
        resolve(table)
    (tmp_path / "yelp-sample.tsv").touch()
    assert resolve(table)[0].datasets == ("yelp-sample",)
    (tmp_path / "yelp.parquet").touch()
    assert resolve(table)[0].datasets == ("yelp",)


def test_a_file_is_known_by_its_content_not_its_place(tmp_path: Path) -> None:
    text = 'name = "own"\ntitle = "Own"\ndatasets = ["mine"]\n[data.mine]\nfile = "ratings.csv"\n'
    experiment = parse_experiment(text, "own.toml")
    with pytest.raises(RatingsError, match="cannot read"):
        resolve(experiment, tmp_path)
    ids = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ratings.csv").write_text("user,item,rating\n1,1,3\n")
        resolved, files = resolve(experiment, tmp_path / folder)
        assert list(files.values()) == [tmp_path / folder / "ratings.csv"]
        assert str(tmp_path) not in msgspec.json.encode(resolved).decode()
        ids.append([run.id for run in expected_runs([resolved])])
    assert ids[0] == ids[1]
