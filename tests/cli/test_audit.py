"""``hdpmf audit``."""

import json

import pytest

from hdpmf.common.data import synthetic_world
from hdpmf.lab.audit.game import audited

pytestmark = pytest.mark.slow

FAST = ("--set", "n_factors=4", "--epochs", "8")


def test_run_prints_the_bound_beside_the_claim(call):
    result = call("audit", "run", "--method", "hdp-bit", "--runs", "500")
    assert result.code == 0
    assert "not contradicted" in result.out
    assert "95% confidence" in result.out
    assert "PROVED" in result.out


def test_json_has_the_agreed_keys(call):
    result = call(
        "audit", "run", "--method", "hdpmf", "--view", "sums", "--runs", "40", "--json", *FAST
    )
    found = result.json
    assert set(found) >= {
        "method", "view", "runs", "epsilon_claimed", "epsilon_lower_bound", "confidence", "verdict",
    }  # fmt: skip
    assert (found["method"], found["view"], found["runs"], found["epsilon_claimed"]) == (
        "hdpmf",
        "sums",
        40,
        1.0,
    )
    assert found["verdict"] in ("claim broken", "not contradicted")


def test_parts_are_printed_for_gradients(call):
    result = call("audit", "run", "--method", "hdpmf", "--runs", "20", *FAST)
    assert "through the user's vector" in result.out


def test_presence_and_hidden_h(call):
    result = call(
        "audit",
        "run",
        "--method",
        "hdp-sum",
        "--view",
        "sums",
        "--adjacency",
        "presence",
        "--runs",
        "200",
    )
    assert "0.75 (proved)" in result.out
    result = call(
        "audit",
        "run",
        "--method",
        "hdpmf",
        "--view",
        "sums-h-hidden",
        "--runs",
        "20",
        "--json",
        *FAST,
    )
    assert result.json["view"] == "sums-h-hidden"


def test_a_claim_for_another_view_is_called_so(call):
    result = call("audit", "run", "--method", "hdp-sum", "--view", "messages", "--runs", "20")
    assert "1 (proved, not for this view)" in result.out
    assert "not made for the view of this audit" in result.out


def test_reconstruct(call):
    command = ("audit", "reconstruct", "--users", "3", *FAST)
    assert 0 < call(*command, "--json").json["exact"] <= 1
    assert "exactly right" in call(*command).out


@pytest.mark.slow
def test_all_methods_make_a_table_and_numbers(call, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "hdpmf.common.data.load_dataset", lambda name: synthetic_world(80, 50, 1_600, rng=1)
    )
    result = call("audit", "run", "--runs", "40", "--out", tmp_path / "audit.json")
    assert result.code == 0
    numbers = json.loads((tmp_path / "audit.json").read_text())["results"]
    assert {row["method"] for row in numbers} == set(audited())
    assert "claim broken" in result.out


@pytest.mark.parametrize(
    "wrong",
    [
        ("run", "--method", "nonsense"),
        ("run", "--method", "hdpmf", "--view", "nonsense"),
        ("run", "--method", "hdpmf", "--runs", "1"),
        ("run", "--method", "hdp-bit", "--adjacency", "presence"),
        ("run", "--method", "hdp-sum", "--view", "sums-h-hidden"),
        ("run", "--method", "hdp-sum", "--view", "two-servers"),
        ("reconstruct", "--method", "hdp-bit"),
    ],
)
def test_wrong_options_end_in_one_line(call, wrong):
    result = call("audit", *wrong)
    assert result.code == 2
    assert result.err.count("\n") == 1


def test_a_weight_outside_its_range(call):
    assert call("audit", "run", "--method", "hdp-bit", "--weight", "2").code == 5
