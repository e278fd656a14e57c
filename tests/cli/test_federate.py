"""``hdpmf federate simulate``: the promised fields, the statement, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Call

pytestmark = pytest.mark.slow

pytest.importorskip("cryptography")

KEYS = {"method", "view", "devices", "n", "mse", "mae", "user_mean_mse", "seconds", "weights"}


@pytest.mark.parametrize(
    ("options", "expected", "seen"),
    [
        (
            ("--step", 1, "--sample", 20, "--epsilon", 2),
            {"view": "two-servers", "status": "proved", "epsilon": 2.0, "devices": 20},
            "PROVED",
        ),
        (("--method", "hdpmf", "--epochs", 2), {"view": "messages", "devices": 60}, "NOMINAL"),
        (("--method", "mf", "--epochs", 2), {"view": "messages"}, "Privacy: none"),
    ],
)
def test_every_kind_of_run_gives_the_promised_fields(
    call: Call,
    files: tuple[Path, Path],
    options: tuple[object, ...],
    expected: dict[str, object],
    seen: str,
) -> None:
    common = ("federate", "simulate", "--train", files[0], "--test", files[1], *options)
    result = call(*common, "--json")
    assert result.code == 0, result.err
    assert result.json.keys() >= KEYS
    assert result.json.items() >= expected.items()
    shown = call(*common).out
    assert seen in shown
    assert "The recommender could see: " in shown
    assert "user mean (nothing is sent)" in shown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--sample", 61), "there are 60 users"),
        (("--method", "user-mean"), "cannot run 'user-mean'"),
        (("--set", "features=false"), "has no features; it has epsilon, delta"),
        (("--epsilon", 0), "epsilon must be"),
        (("--method", "hdpmf", "--set", "coding=soft"), "hdpmf has no option --set coding"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    call: Call, files: tuple[Path, Path], options: tuple[object, ...], said: str
) -> None:
    ended = call("federate", "simulate", "--train", files[0], "--test", files[1], *options)
    assert ended.code in (2, 5)
    assert said in ended.err
    assert ended.err.count("\n") == 1
