"""A report on an experiment of one's own speaks of that experiment and of nothing else."""

from __future__ import annotations

import csv
import io
import re
from html import unescape
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import ttest_1samp

from hdpmf.lab.experiments import Store, collect, parse_experiment, resolve, run_experiments
from hdpmf.lab.experiments.summary import stars_of_best
from hdpmf.lab.report import write_report
from hdpmf.lab.report.content import read_content
from hdpmf.lab.report.exports import latex_files
from hdpmf.models.result_tables import all_pairs

pytestmark = pytest.mark.slow

HEAD = """
title = "My own question"
datasets = ["synthetic"]
factors = [4]
seeds = [0, 1]
epochs = 4
[data.synthetic]
world = { n_users = 40, n_items = 30, n_ratings = 700 }
[split]
per_user = 3
[tuning]
grids.default = { learning_rate = [0.01], reg = [0.01] }
"""
TABLE = f'name = "mine"\nmethods = ["hdpmf", "mf", "hdp-sum", "user-mean", "global-mean"]\n{HEAD}'
FIGURE = f"""name = "curve"\nmethods = ["hdp-sum", "hdpmf"]\n{HEAD}
[vary]
parameter = "epsilon"
values = [0.5, 2]
"""


def run(folder: Path, *texts: str) -> Path:
    with Store(folder, create=True) as store:
        run_experiments(
            [resolve(parse_experiment(text, "mine.toml"))[0] for text in texts], store, n_jobs=1
        )
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("table"), TABLE)


def test_the_page_is_about_the_experiment(table: Path, tmp_path: Path) -> None:
    written = write_report(table, tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "<h1>My own question</h1>" in page
    assert "<title>My own question</title>" in page
    assert (
        "tested on 3 random ratings of each user, drawn for each seed; 5 folds of each seed's "
        "training part" in unescape(page)
    )
    body = re.sub(
        r"<[^>]+>", " ", page.split("<body>")[1].split('<script type="application/json"')[0]
    )
    for word in (
        "Table III",
        "Heterogeneous differential",
        "ot run here",
        "not in the paper",
        "reproduc",
        "PDPMF is",
    ):
        assert word not in body, word
    assert {"csv/mine.csv", "csv/datasets.csv", "latex/mine.tex"} <= set(written.files)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "csv" / "mine.csv").read_text())))
    assert [row["method"] for row in rows] == ["hdpmf", "mf", "hdp-sum", "user-mean", "global-mean"]
    assert "in_paper" not in rows[0]
    for name, measure, label in (("mine", "mse_all", "MSE"), ("mine_warm", "mse", "warm MSE")):
        best = min(float(row[f"{measure}_mean"]) for row in rows)
        latex = (tmp_path / "latex" / f"{name}.tex").read_text()
        assert f"\\textbf{{{best:.4f}" in latex
        assert f"{{c}}{{{label}}}" in latex
    latex = (tmp_path / "latex" / "mine.tex").read_text()
    assert (
        "My own question: mean and deviation of MSE and MAE over 2 evaluations. Bold "
        "is the lowest error" in latex
    )
    assert (
        "No mark: $\\epsilon$ is nominal; $^\\ddagger$ $\\epsilon$ is proved; $^\\S$ no privacy."
        in latex
    )
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert page.count(">nominal</span>") > 0
    assert "dagger$ not in" not in latex
    assert page.count('class="number" href="#runs-mine-synthetic-hdpmf-k4"') > 0
    first = written.files
    assert write_report(table, tmp_path).files == first


def test_a_curve_has_its_honest_epsilon_and_two_experiments_both_titles(tmp_path: Path) -> None:
    other = FIGURE.replace("My own question", "Another question")
    written = write_report(run(tmp_path / "store", TABLE, other), tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text()
    assert "<h1>My own question and Another question</h1>" in page
    assert 'id="figure_honest"' in page
    assert {"csv/figure_honest.csv", "csv/mine.csv", "csv/curve.csv"} <= set(written.files)


def test_an_experiment_of_lists_has_their_table_and_figure(tmp_path: Path) -> None:
    text = 'measure = "lists"\n' + FIGURE
    text = text.replace('["hdp-sum", "hdpmf"]', '["hdp-sum", "private-popular", "most-popular"]')
    written = write_report(run(tmp_path / "store", text), tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text()
    assert 'id="lists"' in page
    assert 'data-figure="curve-curves"' in page
    assert 'id="figures"' not in page  # errors were not asked for
    assert {"latex/curve_lists.tex", "csv/curve.csv"} <= set(written.files)


def test_a_caption_explains_only_what_is_in_the_table(tmp_path: Path) -> None:
    text = TABLE.replace(
        '["hdpmf", "mf", "hdp-sum", "user-mean", "global-mean"]', '["hdp-sum", "user-mean"]'
    )
    content = read_content(run(tmp_path, text.replace("seeds = [0, 1]", "seeds = [0]")))
    latex = latex_files(content)["mine.tex"].decode()
    assert (
        "My own question: MSE and MAE of one evaluation. Bold is the lowest error of "
        "its data set and K." in latex
    )
    assert "$^\\ddagger$ $\\epsilon$ is proved.}" in latex
    for absent in ("nominal", "no privacy", "dagger$ not", "deviation"):
        assert absent not in latex


def test_an_epsilon_of_a_person_is_told_from_one_of_a_rating(tmp_path: Path) -> None:
    """Both were 1, proved, in one table: the first is worth many times the second."""
    text = TABLE.replace(
        '["hdpmf", "mf", "hdp-sum", "user-mean", "global-mean"]', '["hdp-sum", "hdp-pairs"]'
    )
    write_report(run(tmp_path / "store", 'measure = "both"\n' + text), tmp_path / "out")
    latex = (tmp_path / "out" / "latex" / "mine.tex").read_text()
    assert "HDP-Sum$^{\\ddagger}$" in latex
    assert "HDP-Pairs$^{\\Vert}$" in latex
    assert "$^\\Vert$ $\\epsilon$ is proved, and a whole person's" in latex
    lists = (tmp_path / "out" / "latex" / "mine_lists.tex").read_text()
    assert "HDP-Pairs & proved, per person: " in lists
    assert "HDP-Sum & proved: " in lists
    rows = csv.DictReader(io.StringIO((tmp_path / "out" / "csv" / "mine.csv").read_text()))
    assert [row["epsilon_status"] for row in rows] == ["proved", "proved, per person"]


def test_the_page_says_whose_wishes_the_weights_are_and_charges_by_them(tmp_path: Path) -> None:
    own = 'name = "own"\nmethods = ["hdp-sum", "pdpmf"]\n' + HEAD.replace(
        "n_ratings", "rng = 1, n_ratings"
    )
    paper = run(tmp_path / "paper", own)
    uniform = run(
        tmp_path / "uniform",
        own.replace("[data.synthetic]", '[data.synthetic]\nweights = "uniform"'),
    )
    wishes = tmp_path / "wishes.csv"
    wishes.write_text("user,weight\n1,0.5\n")
    with Store(tmp_path / "files", create=True) as store:
        options = '[data.synthetic]\nweights = "wishes.csv"\nmissing_weight = 0.25'
        experiment = parse_experiment(own.replace("[data.synthetic]", options), "mine.toml")
        resolved, files = resolve(experiment, tmp_path)
        run_experiments([resolved], store, files=files, n_jobs=1)

    def said(results: Path) -> tuple[str, list[float]]:
        write_report(results, results / "page")
        page = (results / "page" / "index.html").read_text()
        settings = unescape(page.split("Settings")[1].split("</table>")[0])
        told = re.findall(r"<td>([^<]*)</td></tr>", settings)[-1]
        return told, [float(value) for value in re.findall(r'data-person="([^"]+)"', page)]

    told, (average,) = said(paper)
    assert told == "the paper's random groups, nobody's own wishes"
    told, (whole,) = said(uniform)
    assert told == "everybody at 1"
    facts = read_content(uniform).datasets["synthetic"]
    # With everybody at 1 each rating costs all of epsilon: one, as often as the average person
    # rated.
    assert whole == pytest.approx(round(facts["ratings"] / facts["users"]), rel=0.02)
    assert average < 0.6 * whole
    # What people's own wishes come to is not written down, so nothing is charged by somebody
    # else's.
    assert said(tmp_path / "files") == ("from files of people's own wishes", [])


def test_methods_are_tested_over_users_and_raw_runs_are_in_long_form(
    table: Path, tmp_path: Path
) -> None:
    written = write_report(table, tmp_path)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "csv" / "mine_tests.csv").read_text())))
    assert len(rows) == 2 * 10  # measures, pairs of five methods
    with Store(table) as store:
        cells = {cell.method: cell for cell in collect(store, "mine")}
        errors = {
            name: np.mean([store.users(run)["mse"] for run in cells[name].run_ids], axis=0)
            for name in ("hdp-sum", "user-mean")
        }
    differences = errors["hdp-sum"] - errors["user-mean"]
    differences = differences[np.isfinite(differences)]  # users without a test rating
    test = ttest_1samp(differences, 0)
    (row,) = (
        row
        for row in rows
        if (row["metric"], row["first"], row["second"]) == ("mse", "hdp-sum", "user-mean")
    )
    assert float(row["difference"]) == pytest.approx(differences.mean(), rel=1e-5)
    assert float(row["t_p"]) == pytest.approx(test.pvalue, rel=1e-4)
    assert float(row["low"]) == pytest.approx(test.confidence_interval().low, rel=1e-4)
    assert float(row["effect"]) == pytest.approx(differences.mean() / differences.std(ddof=1))
    assert float(row["t_holm"]) >= float(row["t_p"])
    assert "More than chance?" in (tmp_path / "index.html").read_text()
    assert "corrected by Holm" in (tmp_path / "latex" / "mine.tex").read_text()
    assert "corrected by Holm" not in (tmp_path / "latex" / "mine_warm.tex").read_text()
    assert {"raw/runs.csv", "raw/runs.parquet"} <= set(written.files)
    raw = pl.read_parquet(tmp_path / "raw" / "runs.parquet")
    assert raw.equals(pl.read_csv(tmp_path / "raw" / "runs.csv", schema=raw.schema))
    own = raw.filter(method="hdp-sum", metric="mse_all")
    assert own["value"].to_list() == list(cells["hdp-sum"].summary("mse_all").values)
    assert own["seed"].to_list() == [0, 1]


def test_stars_are_earned_against_every_other_method() -> None:
    wave = np.tile([-1.0, 1.0], 20)
    samples = {"a": 0.3 * wave, "b": 1 + 0.1 * wave, "c": 0.2 - 0.5 * wave}
    tests = all_pairs(samples)
    by_pair = {(test.first, test.second): test for test in tests}
    assert by_pair["a", "b"].t_holm < 0.01
    assert by_pair["a", "c"].t_holm > 0.05
    assert stars_of_best(tests, "a") == 0
    assert stars_of_best([by_pair["a", "b"]], "a") == 3
    assert stars_of_best([by_pair["a", "b"]], "b") == 0
    assert stars_of_best([by_pair["a", "b"]], "b", lowest=False) == 3
