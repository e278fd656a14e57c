"""The paper's printed numbers."""

from __future__ import annotations

import math

import pytest

from hdpmf.lab.paper import published
from hdpmf.lab.paper.published import Published, privacy_groups


def test_table_3_has_64_numbers_and_the_stars() -> None:
    count = stars = 0
    for dataset in ("ml-100k", "ml-1m", "douban", "yelp"):
        for method in ("mf", "hdpmf", "pdpmf", "dpmf"):
            for factors in (10, 5):
                for metric in ("mse", "mae"):
                    number = published.table3(dataset, method, factors, metric)
                    assert number is not None
                    assert number.comparable
                    assert 0 < number.std < number.mean
                    count += 1
                    stars += number.stars
    assert (count, stars) == (64, 45)
    assert published.table3("ml-100k", "hdpmf", 10, "mse") == Published(
        1.4690,
        0.0369,
        3,
        published.table3("ml-100k", "mf", 5, "mae").reference,  # type: ignore[union-attr]
    )
    assert published.table3("ml-100k", "user-mean", 10, "mse") is None
    assert published.table3("ml-100k", "mf", 7, "mse") is None


def test_the_yelp_sample_is_not_yelp() -> None:
    number = published.table3("yelp-sample", "mf", 10, "mse")
    assert number is not None
    assert not number.comparable
    assert published.verdict(number.mean, number) == "not comparable"


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (1.0, "reproduced"),
        (1.049, "reproduced"),
        (0.96, "reproduced"),
        (1.09, "close"),
        (1.11, "different"),
        (math.inf, "different"),
        (math.nan, "different"),
    ],
)
def test_verdicts(ours: float, verdict: str) -> None:
    assert published.verdict(ours, Published(1.0, 0.01)) == verdict


def test_the_papers_deviation_counts_too() -> None:
    assert published.verdict(1.2, Published(1.0, 0.25)) == "reproduced"


def test_table_1_knows_its_slips() -> None:
    rows = published.table1()
    assert rows["ml-100k"]["slips"]
    assert rows["ml-1m"]["slips"]
    assert rows["yelp"]["slips"]
    assert not rows["douban"]["slips"]
    douban = rows["douban"]
    counted = douban["ratings"] / douban["users"] / douban["items"]
    assert douban["density"] == pytest.approx(counted, rel=0.01)


def test_table_2_is_the_librarys_default() -> None:
    rows, printed = privacy_groups(), published.table2()
    assert len(rows) == 6
    assert [row.ratio for row in rows] == [0.54, 0.37, 0.09, 0.33, 0.33, 0.34]
    assert [printed[name] for name in ("f_uc", "f_um", "f_ic", "f_im")] == [0.54, 0.37, 0.33, 0.33]
    assert (rows[0].low, rows[0].high) == (printed["epsilon_uc"], printed["epsilon_um"])
    assert (rows[5].low, rows[5].high) == (printed["epsilon_il"], printed["epsilon_il"])
