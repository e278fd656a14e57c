"""``hdpmf privacy compare``: designs at equal epsilon per person."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hdpmf.common.data import Ratings
from hdpmf.common.privacy import accounting

from .conftest import Call


def _median(train: Ratings) -> int:
    """How many ratings the median person has, where everybody has weight 1."""
    counts = np.sort(np.bincount(train.user_codes))
    return int(counts[int(np.ceil(0.5 * (len(counts) - 1)))])


def test_the_median_person_pays_what_was_asked_for(call: Call, files: tuple[Path, Path]) -> None:
    source = ("--train", files[0], "--test", files[1])
    found = call(
        "privacy", "compare", "hdp-sum", "hdp-bit", *source, "--person", 5, "--json"
    ).json  # fmt: skip
    rows = {row["method"]: row for row in found["designs"]}
    assert rows.keys() == {"hdp-sum", "hdp-bit", "user-mean", "global-mean"}
    n = _median(Ratings.read(files[0]))
    cases = (("hdp-sum", "sums", "presence"), ("hdp-bit", "messages", "value"))
    for name, view, about in cases:
        row = rows[name]
        assert row["ratings_of_person"] == n
        paid = accounting.cost(
            name,
            view,
            unit="user",
            weight=[1.0] * n,
            epsilon=row["epsilon"],
            n_raters=20,
            neighbours=about,
        ).epsilon_at_delta
        # Never more than was asked for, and hardly less: epsilon has four digits.
        assert 4.99 <= paid <= 5.0
        assert row[about] == pytest.approx(paid)
        assert row["status"] == "proved"
    assert rows["hdp-bit"]["presence"] is None
    assert rows["hdp-sum"]["presence"] < rows["hdp-sum"]["exchange"]
    assert rows["hdp-sum"]["presence"] < rows["hdp-sum"]["heaviest"]
    assert (rows["user-mean"]["value"], rows["user-mean"]["epsilon"]) == (0.0, None)
    assert rows["global-mean"]["status"] == "none"
    errors = [row["mse"] for row in found["designs"]]
    assert errors == sorted(errors)


def test_accuracy_is_that_of_evaluate(call: Call, files: tuple[Path, Path]) -> None:
    source = ("--train", files[0], "--test", files[1])
    shown = call("privacy", "compare", "hdp-sum", *source, "--person", 8, "--json").json
    (row,) = [row for row in shown["designs"] if row["method"] == "hdp-sum"]
    again = call("evaluate", "hdp-sum", *source, "--epsilon", row["epsilon"], "--json").json
    assert (row["mse"], row["mae"]) == (again["mse"], again["mae"])


def test_a_person_of_pairs_pays_the_same_whoever_it_is_and_a_limit_bounds_the_heaviest(
    call: Call, files: tuple[Path, Path]
) -> None:
    source = ("--train", files[0], "--test", files[1])
    common = ("privacy", "compare", "hdp-pairs", "hdp-sum", *source, "--person", 4)
    found = call(*common, "--max-ratings", 5, "--json").json
    rows = {row["method"]: row for row in found["designs"]}
    pairs, sums = rows["hdp-pairs"], rows["hdp-sum"]
    assert pairs["epsilon"] == 4
    assert 3.9999 < pairs["presence"] == pairs["heaviest"] <= 4
    assert 0.7 < pairs["guess"] < 0.8  # Phi, not e^epsilon / (1 + e^epsilon)
    # Everybody here has at least so many ratings.
    assert sums["presence"] == pytest.approx(sums["heaviest"], rel=1e-6)
    assert call(*common[:2], "hdpmf", *source, "--person", 4, "--max-ratings", 5).code == 2


def test_a_nominal_design_says_so(call: Call, files: tuple[Path, Path]) -> None:
    source = ("--train", files[0], "--test", files[1])
    page = call("privacy", "compare", "hdpmf", *source, "--person", 5)
    assert page.code == 0
    assert "It is no guarantee." in page.out
    (line,) = [line for line in page.out.splitlines() if line.startswith("HDPMF ")]
    assert line.rstrip().endswith("NOMINAL")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("magic", "--person", 5), 2, "unknown method 'magic'"),
        (("hdp-sum", "--person", 0), 5, "--person must be above 0"),
        (("hdp-sum", "--person", 1e12), 5, "it spends less at any"),
    ],
)
def test_bad_options(
    call: Call,
    files: tuple[Path, Path],
    arguments: tuple[object, ...],
    code: int,
    said: str,
) -> None:
    source = ("--train", files[0], "--test", files[1])
    refused = call("privacy", "compare", *arguments, *source)
    assert (refused.code, said in refused.err) == (code, True)
