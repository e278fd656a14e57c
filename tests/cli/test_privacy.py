"""``hdpmf privacy explain``."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from hdpmf.common.methods import METHODS
from hdpmf.common.privacy import PrivacySpec, accounting
from hdpmf.common.privacy.accounting.costs import example_people, noise_budget
from tests.cli.conftest import Call


@pytest.mark.parametrize("method", METHODS)
def test_a_page_for_people(call: Call, method: str) -> None:
    result = call("privacy", "explain", method)
    assert result.code == 0
    assert result.err == ""
    for expected in (
        "What the device sends.",
        "One star or five?",
        "strictest user",
        "median user",
        "most liberal",
    ):
        assert expected in result.out
    assert (
        "hidden" not in result.out or "(sums-h-hidden)" in result.out or not METHODS[method].has_h
    )
    lines = result.out.splitlines()
    assert all(line == line.rstrip() and line.isprintable() and len(line) <= 120 for line in lines)
    assert len(lines) <= 70
    bare = all(claim.status == "none" for claim in METHODS[method].form.claims.values())
    assert bare != ("Why: proofs/" in result.out)


def test_the_numbers_are_the_accountants(call: Call) -> None:
    found = call(
        "privacy",
        "explain",
        "hdpmf",
        "--epsilon",
        2,
        "--rounds",
        50,
        "--set",
        "n_factors=5",
        "--raters",
        20,
        "--ratings",
        3,
        "--json",
    ).json
    wanted = {
        (one["user"], one["view"], one["unit"], one["neighbours"]): one for one in found["costs"]
    }
    strictest, _, liberal = example_people(PrivacySpec())
    for person in (strictest, liberal):
        cost = accounting.cost(
            "hdpmf",
            "messages",
            weight=person.weight,
            n_raters=20,
            epsilon=2.0,
            rounds=50,
            factors=5,
        )
        one = wanted[person.name, "messages", "rating", "value"]
        assert one["epsilon_at_delta"] == pytest.approx(cost.epsilon_at_delta)
        assert one["guess"] == pytest.approx(cost.guess)
    assert len(found["costs"]) == 3 * 4 * 5
    assert wanted["median user", "final", "user", "value"]["status"] == "nominal"
    assert wanted["median user", "messages", "rating", "presence"]["epsilon_at_delta"] is None


def test_one_observer_and_uniform_weights(call: Call) -> None:
    found = call(
        "privacy",
        "explain",
        "hdp-sum",
        "--view",
        "sums",
        "--weights",
        "uniform",
        "--json",
    ).json
    value = next(
        one for one in found["costs"] if (one["unit"], one["neighbours"]) == ("rating", "value")
    )
    assert (value["view"], value["status"], value["pure_epsilon"]) == (
        "sums-h-known",
        "proved",
        pytest.approx(1.0),
    )
    assert {one["view"] for one in found["costs"]} == {"sums-h-known"}
    person = {
        one["neighbours"]: one["epsilon_at_delta"]
        for one in found["costs"]
        if one["unit"] == "user"
    }
    assert person["presence"] < person["value"] < person["exchange"]
    page = call("privacy", "explain", "hdp-sum", "--view", "sums", "--weights", "uniform").out
    assert "at most 74 %" in page  # 73.1
    assert "every user" in page


def test_a_person_reads_the_normal_law_not_that_of_pure_epsilon(call: Call) -> None:
    page = call("privacy", "explain", "hdp-pairs", "--epsilon", 8).out
    (row,) = {line for line in page.splitlines() if line.startswith("  every user")}
    # history or none: epsilon, right, 99 % sure in; the same for this or another
    numbers = ["8*", "80 %", "2.8 %", "15.6*", "93 %", "42.1 %"]
    assert [cell.strip() for cell in row.split("  ") if cell] == ["every user", *numbers]
    assert "99.9" not in page


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("magic",), 2, "magic"),
        (("hdpmf", "--view", "magic"), 2, "view"),
        (("hdpmf", "--epsilon", 0), 5, "epsilon"),
        (("hdpmf", "--rounds", 0), 2, "rounds"),
        (("hdpmf", "--raters", 0), 2, "--raters"),
        (("hdpmf", "--ratings", 0), 2, "--ratings"),
        (("hdpmf", "--set", "noise=magic"), 2, "noise"),
        (("hdpmf", "--set", "h=magic"), 2, "h must"),
        (("pdpmf", "--set", "threshold=magic"), 5, "threshold"),
    ],
)
def test_bad_options(call: Call, arguments: tuple[object, ...], code: int, said: str) -> None:
    result = call("privacy", "explain", *arguments, "--json")
    assert result.code == code
    assert said in result.err
    assert result.err.count("\n") == 1


def test_wherever_an_epsilon_is_printed_its_price_is(call: Call, files: tuple[Path, Path]) -> None:
    common = ("evaluate", "hdpmf", "--train", files[0], "--test", files[1], "--epochs", 5)
    (line,) = [line for line in call(*common).out.splitlines() if line.startswith("Privacy: ")]
    assert "NOMINAL: the paper's number, no guarantee" in line
    long_version = call(*_command_of(line)).out  # as it is written there
    assert "hdpmf: epsilon 1, 5 rounds, 10 factors" in long_version
    assert "NOMINAL: counts the rating's own messages only" in long_version
    found = call(*common, "--json").json
    assert found["epsilon_status"] == "nominal"
    assert "20 raters" in found["epsilon_honest"]
    assert call("evaluate", "user-mean", *common[2:6], "--json").json["epsilon_honest"] is None
    assert "no guarantee" in call(*common, "--set", "noise=once", "--json").json["epsilon_honest"]


def _command_of(line: str) -> list[str]:
    """The command at the end of a line about privacy, without ``hdpmf``."""
    return shlex.split(line.partition(" More: hdpmf ")[2])


def test_every_use_of_a_model_ends_with_one_line_and_the_way_to_the_long_version(
    call: Call, files: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "a model"
    trained = call("train", "hdp-sum", "--train", files[0], "--epsilon", 2, "--out", folder)
    for shown in (trained, call("recommend", folder, 1)):
        last = shown.out.splitlines()[-1]
        assert last.startswith("Privacy: epsilon 2 per rating, PROVED against sums over users")
        assert "SIMULATED noise, not for release" in last
        assert len(last.split()) < 30
        told = call(*_command_of(last))
        assert (told.code, told.err) == (0, "")
    assert "The noise is SIMULATED" in told.out


def test_the_documentations_numbers_are_these() -> None:
    page = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8")
    spec = PrivacySpec()
    for method, row in (("hdpmf", "`hdpmf-r`"), ("pdpmf", "| `pdpmf` |"), ("dpmf", "| `dpmf` |")):
        line = next(line for line in page.splitlines() if row in line)
        setting = accounting.Setting(method, noise_budget=noise_budget(method, spec, 1.0, "mean"))
        for view in ("messages", "sums-h-known", "sums-h-hidden"):
            cost = accounting.cost(setting, view)
            numbers = [float(cell.replace(",", "")) for cell in re.findall(r"([\d,.]+\d)\*", line)]
            assert any(
                number == pytest.approx(cost.epsilon_at_delta, rel=5e-3) for number in numbers
            )
    for method, view in (("hdp-sum", "sums"), ("hdp-bit", "messages"), ("hdpmf-paid", "sums")):
        assert f"| `{method}`" in page
        assert accounting.cost(method, view, rounds=10).pure == pytest.approx(1.0)
    for raters, number in ((20, "526*"), (500, "10,735*")):
        assert accounting.cost("hdpmf", n_raters=raters).briefly() == number
        assert number in page
