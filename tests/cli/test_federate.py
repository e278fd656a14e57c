"""``hdpmf federate simulate``: the promised fields, the statement, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hdpmf.untrusted.service.settings import RunSettings

from .conftest import Call
from .test_recommender import card

pytestmark = pytest.mark.slow

pytest.importorskip("cryptography")

KEYS = {
    "devices",
    "rounds",
    "seconds_per_round",
    "bytes_per_device",
    "mse",
    "mae",
    "view",
    "epsilon",
}
HERE = ("--processes", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ["--method", "hdpmf", "--rounds", 2],
            {"view": "sums", "status": "nominal", "rounds": 2, "devices": 60},
        ),
        (
            ["--method", "hdpmf", "--rounds", 1, "--secure-sum", "--devices", 5],
            {"view": "sums", "status": "nominal", "devices": 5, "users": 60},
        ),
        (
            ["--method", "hdp-sum", "--sample", 20, "--epsilon", 2],
            {"view": "sums", "status": "proved", "epsilon": 2.0, "rounds": 1, "users": 20},
        ),
        (
            [
                "--method",
                "hdp-sum",
                "--sums",
                "two-servers",
                "--step",
                1,
                "--sample",
                20,
                "--epsilon",
                2,
            ],
            {"view": "two-servers", "status": "proved", "epsilon": 2.0, "rounds": 1, "users": 20},
        ),
        (
            ["--method", "hdp-bit", "--set", "prior=films-100k"],
            {"view": "messages", "status": "proved"},
        ),
        (["--method", "mf", "--rounds", 3], {"epsilon": None, "status": "none"}),
    ],
)
def test_every_kind_of_run_gives_the_promised_fields(
    call: Call, files: tuple[Path, Path], options: list[object], expected: dict[str, object]
) -> None:
    result = call(
        "federate", "simulate", "--train", files[0], "--test", files[1], *options, *HERE, "--json"
    )
    assert result.code == 0
    assert result.err == ""
    found = result.json
    assert found.keys() >= KEYS
    assert {name: found[name] for name in expected} == expected
    assert found["n"] > 0
    assert 0 < found["mae"] ** 2 <= found["mse"]


def test_people_get_a_table_the_baseline_and_what_the_recommender_saw(
    call: Call, files: tuple[Path, Path]
) -> None:
    result = call(
        "federate",
        "simulate",
        "--train",
        files[0],
        "--test",
        files[1],
        "--method",
        "hdp-bit",
        "--devices",
        6,
        *HERE,
    )
    assert result.code == 0
    assert "60 users on 6 devices" in result.out
    assert "user mean (nothing is sent)" in result.out
    assert "The recommender could see: which items each device rated" in result.out
    assert "Privacy: epsilon 0.5 per rating, PROVED against all messages" in result.out
    assert "6 devices take part (60 users), 0 refused" in result.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--devices", 61], "60 users can be dealt to 1 to 60 devices"),
        (["--sample", 0], "--sample must be from 1"),
        (["--method", "user-mean"], "cannot run 'user-mean'"),
        (["--method", "hdp-bit", "--secure-sum"], "made for the view 'messages'"),
        (["--method", "hdp-sum", "--rounds", 2], "hdp-sum has 1 round, not 2"),
        (["--processes", 0], "'--processes': 0"),
        (["--minimum", 61], "needs 61 users"),
        (["--epsilon", 0], "epsilon must be"),
        (["--method", "hdp-sum", "--set", "prior=mine.json"], "devices have no prior 'mine.json'"),
        (["--method", "hdpmf", "--set", "prior=films"], "hdpmf has no option --set prior"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    call: Call, files: tuple[Path, Path], options: list[object], said: str
) -> None:
    result = call("federate", "simulate", "--train", files[0], "--test", files[1], *HERE, *options)
    assert result.code in (2, 5)
    assert said in result.err


@pytest.mark.parametrize(
    "options",
    [
        ["--method", "hdp-sum"],
        [
            "--method",
            "hdp-sum",
            "--set",
            "coding=soft",
            "--credit",
            40,
            "--colluding",
            0.1,
        ],
        ["--method", "hdp-bit", "--set", "patterns=3"],
        [
            "--method",
            "pdpmf",
            "--set",
            "threshold=0.25",
            "--set",
            "n_factors=3",
            "--rounds",
            7,
            "--set",
            "learning_rate=0.02",
            "--set",
            "reg=0.001",
        ],
        ["--method", "hdpmf", "--messages"],
        ["--method", "hdpmf-paid"],
        ["--method", "mf"],
    ],
)
def test_the_demos_recommender_is_told_every_setting(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[object]
) -> None:
    from hdpmf.errors import ConfigError
    from hdpmf.lab.simulate import demo
    from hdpmf.untrusted.service.service import Service

    seen: list[RunSettings] = []

    def stop(*arguments: object, **named: object) -> None:
        seen.extend(argument for argument in arguments if isinstance(argument, RunSettings))
        raise ConfigError("seen enough")

    monkeypatch.setattr(demo, "run_demo", stop)
    monkeypatch.setattr(Service, "check", stop)
    (tmp_path / "items.csv").write_text("item,title\n1,One\n2,Two\n")
    assert call("recommender", "init", tmp_path / "r", "--items", tmp_path / "items.csv").code == 0
    assert call("recommender", "enroll", tmp_path / "r", card(tmp_path, 1)).code == 0
    assert "seen enough" in call("federate", "demo", *options).err
    assert (
        "seen enough"
        in call("recommender", "run", tmp_path / "r", *demo.run_arguments(seen[0])).err
    )
    assert len(seen) == 2
    assert seen[0] == seen[1]


def test_too_few_devices_for_a_secure_sum_are_refused_before_any_work(call: Call) -> None:
    ended = call("federate", "simulate", "--data", "synthetic", "--devices", 2, "--secure-sum")
    assert ended.code == 2
    assert "a secure sum by masks is over at least 3 devices, not 2" in ended.err
    assert "Traceback" not in ended.err


def test_the_demo_says_that_it_has_no_pair_of_servers(call: Call) -> None:
    result = call("federate", "demo", "--method", "hdp-sum", "--sums", "two-servers")
    assert result.code == 2
    assert "starts no pair of servers" in result.err
    assert "hdpmf federate simulate --sums two-servers" in result.err.replace("\n", " ")
