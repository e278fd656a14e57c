"""CSV and LaTeX, and the command that writes all of it."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from hdpmf.cli import main
from hdpmf.common.methods import METHODS
from hdpmf.errors import StorageError
from hdpmf.lab.experiments import Experiment, Result, Store, collect
from hdpmf.lab.experiments.runs import Data, Part, Run
from hdpmf.lab.paper import published
from hdpmf.lab.paper.report import paper_csv, paper_latex, write_paper_report
from hdpmf.lab.report.content import read_content
from hdpmf.lab.report.exports import escape

pytestmark = pytest.mark.slow

Fill = Callable[..., Path]
Make = Callable[..., list[Experiment]]


def _rows(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode())))


@pytest.fixture(scope="module")
def small_store(
    tmp_path_factory: pytest.TempPathFactory, fill_store: Fill, experiments: Make
) -> Path:
    """Table III and two figures on two data sets."""
    chosen = [
        msgspec.structs.replace(one, datasets=("ml-1m", "yelp-sample"), factors=(10,))
        for one in experiments(["table3", "figure_sparsity", "figure_ablation"])
    ]
    return fill_store(tmp_path_factory.mktemp("small"), chosen)


def test_csv_has_every_cell_in_full(full_store):
    files = paper_csv(read_content(full_store))
    assert set(files) == {
        "table1.csv",
        "table2.csv",
        "table3.csv",
        "figure_epsilon_uc.csv",
        "figure_f_uc.csv",
        "figure_sparsity.csv",
        "figure_ablation.csv",
        "figure_epsilon.csv",
        "figure_honest.csv",
        "lists.csv",
        "table_no_features.csv",
    }
    with Store(full_store) as store:
        results = store.results()
        for name in store.experiments():
            cells = collect(store, name, results)
            for row, cell in zip(_rows(files[f"{name}.csv"]), cells, strict=bool(cells)):
                assert (row["dataset"], row["method"], int(row["factors"])) == (
                    cell.dataset,
                    cell.method,
                    cell.factors,
                )
                assert (row["x"] and float(row["x"])) == ("" if cell.x is None else cell.x)
                by_seed = [row[f"mse_seed_{seed}"] for seed in range(5)]
                if METHODS[cell.method].lists_only:
                    assert {row["mse_mean"], row["mae_std"], row["mse_all_mean"], *by_seed} == {""}
                else:
                    assert float(row["mse_mean"]) == cell.mse.mean
                    assert float(row["mae_std"]) == cell.metrics["mae"].std
                    assert list(map(float, by_seed)) == list(cell.mse.values)
                assert [row[f"run_seed_{seed}"] for seed in range(5)] == list(cell.run_ids)
                assert row.get("learning_rate", "") == str(
                    cell.hyperparameters.get("learning_rate", "")
                )
    for row in _rows(files["table3.csv"]):
        for metric in ("mse", "mae"):
            number = published.table3(row["dataset"], row["method"], int(row["factors"]), metric)
            shown = [row[f"paper_{metric}_{field}"] for field in ("mean", "std", "stars")]
            assert [float(text) for text in shown if text] == (
                [] if number is None else [number.mean, number.std, number.stars]
            )
    first = next(row for row in _rows(files["table3.csv"]) if row["method"] == "hdpmf")
    number = published.table3("ml-100k", "hdpmf", 10, "mse")
    assert (float(first["paper_mse_mean"]), first["mse_mark"]) == (number.mean, "reproduced")


def test_csv_leaves_what_is_not_there_empty(tmp_path, fill_store: Fill, experiments: Make):
    chosen = [msgspec.structs.replace(experiments(["table3"])[0], datasets=("ml-1m",))]
    folder = fill_store(tmp_path, chosen, keep=lambda run: run.stage == "tuning" or run.seed < 2)
    rows = {
        row["method"]: row
        for row in _rows(paper_csv(read_content(folder))["table3.csv"])
        if row["factors"] == "5"
    }
    assert rows["hdpmf"]["status"] == "missing"
    assert rows["hdpmf"]["mse_seed_1"] != ""
    assert rows["hdpmf"]["mse_seed_2"] == ""
    assert rows["hdpmf"]["mse_p_hdpmf_pdpmf"] == ""
    assert rows["hdpmf"]["mse_mark"] == "incomplete"


def test_latex_follows_the_papers_layout(full_store):
    files = {name: data.decode() for name, data in paper_latex(read_content(full_store)).items()}
    assert set(files) == {
        "table1.tex",
        "table2.tex",
        "table3.tex",
        "table3_warm.tex",
        "figure_ablation.tex",
        "figure_ablation_warm.tex",
        "table_no_features.tex",
        "table_no_features_warm.tex",
        "lists_lists.tex",
    }
    table, everything = files["table3_warm.tex"], files["table3.tex"]
    assert "\\multicolumn{2}{c}{warm MSE} & \\multicolumn{2}{c}{warm MAE}" in table
    assert "(warm: test ratings whose user and item are in training)" in table
    assert "\\multicolumn{2}{c}{MSE} & \\multicolumn{2}{c}{MAE}" in everything
    assert "warm" not in everything
    shown = [
        name for name, method in METHODS.items() if name != "hdpmf-r" and not method.lists_only
    ]
    rows = f"\\multirow{{{len(shown)}}}{{*}}"
    assert table.count(rows) == 4
    assert f"{rows}{{Yelp sample}} & MF$^{{\\S}}$ & " in table
    with Store(full_store) as store:
        cells = collect(store, "table3")
    for cell in cells:
        for metric, shown in (("mse", table), ("mse_all", everything)):
            summary = cell.metrics[metric]
            assert f"{summary.mean:.4f} $\\pm$ {summary.std:.4f}" in shown
    bold = [line for line in table.splitlines() if "\\textbf{" in line]
    assert len(bold) == 3  # HDPMF, everywhere but on ML-1M
    assert all(" HDPMF & \\textbf{" in line for line in bold)
    assert "$^{***}$}" in bold[0]
    rows = [
        line for line in table.splitlines() if line.endswith("\\\\") and "multicolumn" not in line
    ]
    assert all(line.count("&") == 5 for line in rows)
    for text in files.values():
        assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")
        assert text.count("\\begin") == text.count("\\end")
    assert "\\label{tab:figure-ablation-warm}" in files["figure_ablation_warm.tex"]
    assert "\\label{tab:figure-ablation}" in files["figure_ablation.tex"]
    assert "$[\\epsilon_{uc}, \\epsilon_{um})$ & $[0.1,0.5)$" in files["table2.tex"]
    assert "$1 - f_{uc} - f_{um}$ & $0.09$" in files["table2.tex"]


def test_latex_escapes():
    assert escape("a_b & 50% \\x {y} $z$ #1 ~^<>\n") == (
        "a\\_b \\& 50\\% \\textbackslash{}x \\{y\\} \\$z\\$ \\#1 "
        "\\textasciitilde{}\\textasciicircum{}"
        "\\textless{}\\textgreater{}"
    )


def test_the_command_writes_everything(small_store, tmp_path, capsys):
    out = tmp_path / "report"
    with pytest.raises(SystemExit) as end:
        main.run(["paper", "report", str(out), "--results", str(small_store), "--json"])
    assert end.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} == set(
        told["files"]
    )
    assert "published numbers reproduce" in told["findings"][0]
    assert (
        told["marks"]["reproduced"] + told["marks"].get("close", 0) + told["marks"]["different"]
        == 8
    )
    assert told["missing_cells"] == 0
    before = {name: (out / name).read_bytes() for name in told["files"]}
    write_paper_report(small_store, out)
    assert before == {name: (out / name).read_bytes() for name in told["files"]}
    assert all(math.isfinite(float(row["mse_mean"])) for row in _rows(before["csv/table3.csv"]))


def test_results_of_a_method_that_is_unknown_here_are_named(tmp_path, fill_store, experiments):
    chosen = [msgspec.structs.replace(experiments(["table_no_features"])[0], datasets=("ml-1m",))]
    fill_store(tmp_path, chosen)
    assert write_paper_report(tmp_path, tmp_path / "r")[0].unknown == ()
    with Store(tmp_path) as store:
        store.add(Result(Run(Data("ml-1m"), Part("hold-out"), "own", {}), "done", {}, None))
    assert write_paper_report(tmp_path, tmp_path / "r")[0].unknown == ("own",)


def test_the_command_says_what_is_wrong(tmp_path, small_store, capsys):
    with pytest.raises(SystemExit) as end:
        main.run(["paper", "report", str(tmp_path / "r"), "--results", str(tmp_path / "none")])
    assert end.value.code == 2
    assert "there are no results in" in capsys.readouterr().err
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="cannot make the folder"):
        write_paper_report(small_store, tmp_path / "file")
