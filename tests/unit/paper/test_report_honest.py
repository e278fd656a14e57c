"""Accuracy against honest epsilon: errors are the store's, costs the accountant's."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from hdpmf.common.methods import METHODS
from hdpmf.common.privacy.accounting import cost
from hdpmf.lab.experiments import Experiment, Store, collect
from hdpmf.lab.paper.report import paper_csv, paper_latex, paper_page
from hdpmf.lab.report.content import Content, anchor, read_content
from hdpmf.lab.report.page import render
from hdpmf.lab.report.tables import honest_cost, points

pytestmark = pytest.mark.slow

Fill = Callable[..., Path]
Make = Callable[..., list[Experiment]]


def shown(content: Content) -> str:
    return render(content, paper_page(content))


SUMS = ("hdp-sum", "hdpmf-paid", "hdp-pairs")
LEVELS = ("mf", "user-mean", "global-mean")


@pytest.fixture(scope="module")
def content(full_store: Path) -> Content:
    return read_content(full_store)


@pytest.fixture(scope="module")
def page(content: Content) -> str:
    return shown(content)


def expected(content: Content, cell) -> float:
    facts = content.datasets[cell.dataset]
    budget = {"dpmf": cell.x * facts["min_weight"], "pdpmf": cell.x * facts["mean_weight"]}.get(
        cell.method
    )
    rounds = (
        10 if cell.method == "hdpmf-paid" else 100
    )  # what the runs had, whatever the experiment says to others
    return cost(
        cell.method,
        "sums" if cell.method in SUMS else "messages",
        epsilon=cell.x,
        factors=10,
        rounds=rounds,
        n_raters=100,
        delta=1e-5,
        noise_budget=budget,
    ).epsilon_at_delta


def figure_of(page: str) -> dict:
    data = json.loads(
        re.search(r'<script[^>]*id="report-data"[^>]*>(.*?)</script>', page, re.DOTALL)[1]
    )
    return next(one for one in data["figures"] if one["name"] == "figure_honest")


def test_every_point_is_the_stores_at_the_accountants_epsilon(full_store, content, page):
    figure = figure_of(page)
    drawn = {cell["runs"]: cell for cell in figure["cells"]}
    rows = list(csv.DictReader(io.StringIO(paper_csv(content)["figure_honest.csv"].decode())))
    in_csv = {
        (
            row["dataset"],
            row["method"],
            row["nominal_epsilon"] and float(row["nominal_epsilon"]),
        ): row
        for row in rows
    }
    shown = set(map(float, re.findall(r'class="theirs" data-honest="([^"]+)"', page)))
    checked = 0
    with Store(full_store) as store:
        for cell in collect(store, "figure_epsilon"):
            level = cell.method in LEVELS
            row = in_csv[cell.dataset, cell.method, "" if level else cell.x]
            honest = expected(content, cell)
            assert float(row["honest_epsilon"]) == honest
            assert float(row["mse_mean"]) == cell.mse.mean
            assert honest in shown
            if not level:
                point = drawn[anchor(cell)]
                assert (point["x"], point["nominal"]) == (honest, cell.x)
                assert (point["mse"]["mean"], point["mae"]["std"]) == (
                    cell.mse.mean,
                    cell.metrics["mae"].std,
                )
                checked += 1
    levels = [cell for cell in figure["cells"] if cell["x"] is None]
    assert {cell["method"] for cell in levels} == set(LEVELS)
    assert len(levels) == 4 * len(LEVELS)
    assert len(figure["cells"]) == len(rows) == len(levels) + checked
    assert figure["xs"] == sorted({cell["x"] for cell in figure["cells"]} - {None})
    words = {name: one["words"] for name, one in figure["words"].items()}
    assert words["hdpmf"] == "all messages seen, nominal"
    assert words["hdp-sum"] == words["hdpmf-paid"] == "sums seen, proved"
    assert words["hdp-bit"] == "all messages seen, proved"
    assert (words["user-mean"], words["mf"]) == ("sends nothing, ε 0", "no privacy")


def test_the_claims_say_what_a_whole_person_pays(content, page):
    """The average person of each data set, where it is proved: as many ratings as per user, of
    the mean weight.
    """
    table = page.split('id="epsilon"')[1].split("</section>")[0]
    rows = {row.split("</th>")[0].split(">")[-1]: row for row in table.split("<tr>")[2:]}
    for method in ("hdp-sum", "hdp-bit", "hdpmf-paid"):
        row = rows[METHODS[method].label]
        for facts in content.datasets.values():
            ratings = round(facts["ratings"] / facts["users"])
            weight = (
                0.3 if method == "hdpmf-paid" else 19 / 64
            )  # the store's mean weight, and its 64ths
            words = re.search(rf"{ratings:,} ratings: <b data-person=\"([^\"]+)\">", row)
            assert float(words[1]) == pytest.approx(ratings * weight, rel=1e-6)
    assert "data-person" not in rows["HDPMF"] + rows["MF"]


def test_the_claims_say_what_they_honestly_cost(content, page):
    table = page.split('id="epsilon"')[1].split("</section>")[0]
    cell = next(one for one in content.cells["table3"] if one.method == "hdpmf")
    charged = cost("hdpmf", "messages", epsilon=1.0, factors=10, rounds=100, n_raters=100)
    assert honest_cost(content, cell).epsilon_at_delta == charged.epsilon_at_delta
    assert f">{charged.briefly()}</b>" in table
    assert ">unbounded</b>" in table
    assert ">0</b>" in table


def test_lists_have_a_section_of_their_own(tmp_path, fill_store: Fill, experiments: Make):
    names = ["table3", "lists"]
    chosen = [
        msgspec.structs.replace(experiment, datasets=("ml-100k",))
        for experiment in experiments(names)
    ]
    content = read_content(fill_store(tmp_path, chosen))
    page = shown(content)
    section = page.split('id="lists"')[1].split("</section>")[0]
    cells = [cell for cell in content.cells["lists"] if cell.x == 1.0]
    for cell in cells:
        summary = cell.metrics["ndcg_at_10"]
        assert (
            f'data-metric="ndcg_at_10" data-mean="{summary.mean!r}" data-std="{summary.std!r}"'
            in section
        )
        assert cell.label in section
    assert "user-mean" not in {cell.method for cell in cells}
    assert {"private-popular", "most-popular", "item-knn", "ease", "ials", "bpr", "mf"} <= {
        c.method for c in cells
    }
    assert "proved: values and presence; sums seen" in section  # hdp-sum
    assert "proved: presence; sums seen" in section  # private-popular
    # A table of errors has no lists beside it, though its runs were measured.
    table = page.split('id="table3-table"')[1].split("</table>")[0]
    assert "NDCG" not in table
    assert "ndcg_at_10_mean" not in paper_csv(content)["table3.csv"].decode().splitlines()[0]
    rows = list(csv.DictReader(io.StringIO(paper_csv(content)["lists.csv"].decode())))
    assert [float(row["ndcg_at_10_mean"]) for row in rows if row["x"] == "1.0"] == [
        cell.metrics["ndcg_at_10"].mean for cell in cells
    ]
    assert all(row["ndcg_margin_at_10_mean"] and row["ndcg_at_10_seed_0"] for row in rows)
    best = max(cells, key=lambda cell: cell.metrics["ndcg_at_10"].mean)
    latex = paper_latex(content)["lists_lists.tex"].decode()
    assert f"\\textbf{{{best.metrics['ndcg_at_10'].mean:.4f}" in latex
    assert latex.count("\\textbf{") == 1


def test_without_its_runs_there_is_no_figure(tmp_path, fill_store: Fill, experiments: Make):
    chosen = [
        msgspec.structs.replace(experiments(["table3"])[0], datasets=("ml-100k",), factors=(10,))
    ]
    content = read_content(fill_store(tmp_path, chosen, keep=lambda run: run.stage == "tuning"))
    page = shown(content)
    assert "Not run here: it takes the runs of figure_epsilon." in page
    assert points(content) == []
    assert "figure_honest.csv" not in paper_csv(content)
    assert "Lists of ten were not measured in these runs." in page


def test_gaps_stay_gaps(tmp_path, fill_store: Fill, experiments: Make):
    chosen = [msgspec.structs.replace(experiments(["figure_epsilon"])[0], datasets=("ml-100k",))]

    def keep(run):
        return run.stage == "tuning" or run.method != "hdpmf" or run.params.get("epsilon") != 2.0

    content = read_content(fill_store(tmp_path, chosen, keep=keep))
    gap = [
        one
        for one in figure_of(shown(content))["cells"]
        if (one["method"], one["nominal"]) == ("hdpmf", 2.0)
    ]
    assert [one["mse"]["mean"] for one in gap] == [None]
    assert all(math.isfinite(one["x"]) for one in gap)
