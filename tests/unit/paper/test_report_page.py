"""The page: its numbers are the store's, it asks nobody for anything, and nothing in the results
can break out.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from hdpmf.common.methods import METHODS
from hdpmf.common.privacy.accounting import cost
from hdpmf.errors import ConfigError
from hdpmf.lab.experiments import Experiment, Store, collect
from hdpmf.lab.paper import published
from hdpmf.lab.paper.published import reversals
from hdpmf.lab.paper.report import count_marks, paper_headline, paper_page
from hdpmf.lab.report.content import Content, anchor, read_content
from hdpmf.lab.report.page import render

pytestmark = pytest.mark.slow

Fill = Callable[..., Path]
Make = Callable[..., list[Experiment]]


def shown(content: Content) -> str:
    return render(content, paper_page(content))


class Reader(HTMLParser):
    """What the tests look at in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((name, dict(attributes)))
        if name not in ("meta", "link", "input"):
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, text: str) -> None:
        if self.open and self.open[-1] == "script":
            self.texts["script" if self.tags[-1][1].get("id") is None else "data"] = text
        elif self.open and self.open[-1] == "style":
            self.texts["style"] = text

    def with_attribute(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.tags if name in attributes]


@pytest.fixture(scope="module")
def page(full_store: Path) -> str:
    return shown(read_content(full_store))


def test_every_number_in_the_page_is_the_stores(full_store, page):
    reader = Reader(page)
    shown = {}
    for attributes in reader.with_attribute("data-mean"):
        if "data-metric" in attributes:
            key = (attributes["href"], attributes["data-metric"])
            shown.setdefault(key, set()).add(
                (float(attributes["data-mean"]), float(attributes["data-std"]))
            )
    drawn = {
        (cell["runs"], metric): (cell[metric]["mean"], cell[metric]["std"])
        for figure in json.loads(reader.texts["data"])["figures"]
        for cell in figure["cells"]
        for metric in ("mse", "mae", "ndcg_at_10")
        if metric in cell
    }
    checked = 0
    with Store(full_store) as store:
        results = store.results()
        for name, experiment in store.experiments().items():
            for cell in collect(store, experiment, results):
                for metric in ("mse", "mae"):
                    summary = cell.metrics[metric]
                    if METHODS[cell.method].lists_only:  # it predicts no ratings
                        assert (f"#{anchor(cell)}", metric) not in shown
                        continue
                    assert shown[f"#{anchor(cell)}", metric] == {(summary.mean, summary.std)}
                    if name != "table3" and experiment.errors:
                        assert drawn[anchor(cell), metric] == (summary.mean, summary.std)
                    checked += 1
                if experiment.lists:
                    summary = cell.metrics["ndcg_at_10"]
                    assert shown[f"#{anchor(cell)}", "ndcg_at_10"] == {(summary.mean, summary.std)}
                    level = (
                        "epsilon" not in METHODS[cell.method].options
                        and cell.x != experiment.vary.values[0]
                    )
                    assert level or drawn[anchor(cell), "ndcg_at_10"] == (summary.mean, summary.std)
    per_table = 4 * 2  # data sets and numbers of factors
    n_methods = sum(not method.lists_only for method in METHODS.values())
    assert checked >= 2 * per_table * (n_methods - 1) * 10  # more than ten tables' worth of cells
    values = {
        (a["data-metric"], float(a["data-value"])) for a in reader.with_attribute("data-value")
    }
    assert {metric for metric, _ in values} == {"mse", "mae", "ndcg_at_10"}
    values = {(metric, value) for metric, value in values if metric != "ndcg_at_10"}
    assert values == {
        (m, r.metrics[m])
        for r in results.values()
        if r.status == "done" and not METHODS[r.run.method].lists_only
        for m in ("mse", "mae")
    }


def test_beside_each_number_stands_the_papers_mean_and_deviation(full_store, page):
    """In this order, for the same data set, method, K and measure, with the paper's stars."""
    table = page.split('<section id="table3">')[1].split("</section>")[0]
    beside = re.findall(
        r'href="#([^"]+)"[^>]*data-metric="(\w+)"(?:(?!data-metric).)*?'
        r'<div class="theirs">paper ([\d.]+) ± ([\d.]+)(?:<sup class="stars">(\*+)</sup>)?</div>',
        table,
    )
    shown = {(place, metric): rest for place, metric, *rest in beside}
    expected = {}
    for cell in read_content(full_store).cells["table3"]:
        for metric in ("mse", "mae"):
            number = published.table3(cell.dataset, cell.method, cell.factors, metric)
            if number is not None:
                words = [f"{number.mean:.4f}", f"{number.std:.4f}", "*" * number.stars]
                expected[anchor(cell), metric] = words
    assert len(expected) == 64
    assert shown == expected


def test_hdpmf_against_pdpmf_has_each_in_its_own_column(full_store, page):
    rows = page.split('aria-label="HDPMF against PDPMF"')[1].split("</table>")[0].split("<tr>")[1:]
    heads = re.findall(r"<th[^>]*>([^<]+)</th>", rows[0])
    assert heads[2:4] == ["HDPMF", "PDPMF"]
    cells = {
        (cell.method, cell.dataset, cell.factors): cell
        for cell in read_content(full_store).cells["table3"]
        if cell.method in ("hdpmf", "pdpmf")
    }
    seen = set()
    for row in rows[1:]:
        (first, metric), (second, _) = re.findall(r'href="#([^"]+)"[^>]*data-metric="(\w+)"', row)
        own = next(cell for cell in cells.values() if anchor(cell) == first)
        rival = cells["pdpmf", own.dataset, own.factors]
        assert (own.method, second) == ("hdpmf", anchor(rival))
        saved = 1 - own.metrics[metric].mean / rival.metrics[metric].mean
        theirs = [
            published.table3(own.dataset, name, own.factors, metric).mean
            for name in ("hdpmf", "pdpmf")
        ]
        parts = [re.sub(r"<[^>]+>", "", part) for part in row.split("<td")[4:]]
        shown = [
            float(re.search(r"[-−+]?[\d.]+(?= ?%)", part)[0].replace("−", "-"))
            for part in (parts[0], parts[2])
        ]
        assert shown == pytest.approx([100 * saved, 100 * (1 - theirs[0] / theirs[1])], abs=0.06)
        seen.add((own.dataset, own.factors, metric))
    assert len(seen) == 16


def test_every_link_leads_somewhere_in_the_page_and_no_id_is_there_twice(page):
    reader = Reader(page)
    ids = [attributes["id"] for attributes in reader.with_attribute("id")]
    assert len(ids) == len(set(ids))
    links = {attributes["href"] for attributes in reader.with_attribute("href")} - {"data:,"}
    assert {link.removeprefix("#") for link in links} <= set(ids)
    data = json.loads(reader.texts["data"])
    assert {cell["runs"] for figure in data["figures"] for cell in figure["cells"]} <= set(ids)


def test_the_page_asks_nobody_for_anything(page):
    assert "http://www.w3.org/2000/svg" in page  # a name, not an address
    assert not re.findall(r"https?://", page.replace("http://www.w3.org/2000/svg", ""))
    reader = Reader(page)
    assert not reader.with_attribute("src")
    assert not re.search(r"@import|url\(", reader.texts["style"])
    policy = next(a["content"] for a in reader.with_attribute("http-equiv"))
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for name in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(reader.texts[name].encode()).digest())
        assert f"{name}-src 'sha256-{digest.decode()}'" in policy
    assert not reader.with_attribute("style")
    assert not reader.with_attribute("onclick")


def test_findings_come_from_the_numbers(full_store):
    content = read_content(full_store)
    first, second, third = paper_headline(content)
    counts = count_marks(content)
    assert sum(counts.values()) == 64
    known = 64 - counts["not comparable"]
    assert first.startswith(f"{counts['reproduced']} of {known} published numbers reproduce")
    assert second.startswith(
        "On MovieLens 100K, Douban and Yelp sample, a device that sends nothing"
    )
    charged = cost("hdpmf", "messages", epsilon=1.0, factors=10, rounds=100, n_raters=100)
    assert f"honestly {math.ceil(charged.epsilon_at_delta):,}" in third
    assert {(one.better.dataset, one.better.method) for one in reversals(content)} == {
        ("ml-1m", "pdpmf")
    }


def test_runs_that_nothing_shows_are_not_counted(tmp_path, fill_store, experiments, register):
    chosen = experiments(["table3"])
    everything = read_content(fill_store(tmp_path, chosen))
    assert everything.n_runs == len(everything.results)
    register(replace(METHODS["user-mean"], version=7))  # its old runs are nobody's any more
    old = [one for one in everything.results.values() if one.run.method == "user-mean"]
    assert read_content(tmp_path).n_runs == len(everything.results) - len(old)


def test_yelp_is_called_a_sample_everywhere(page):
    visible = re.sub(r"<[^>]+>", " ", page.split("<main>")[1].split("</main>")[0])
    for found in re.finditer("Yelp", visible):
        around = visible[max(0, found.start() - 60) : found.end() + 30]
        ours = visible[found.start() : found.end() + 7] == "Yelp sample"
        assert ours or "paper" in around or "Except very few cases" in around, around


def test_what_is_missing_is_said_and_nothing_stands_in(
    tmp_path, fill_store: Fill, experiments: Make
):
    def keep(run):
        return (run.stage == "tuning" and run.method != "dpmf") or (
            run.stage == "evaluation" and run.seed < 3
        )

    content = read_content(
        fill_store(tmp_path, experiments(["table3", "figure_epsilon"]), keep=keep, ended=False)
    )
    page = shown(content)
    reader = Reader(page)
    assert "3 of 5 seeds" in page
    assert "not run" in page
    assert "Some runs are missing" in page
    assert "killed or still running" in page
    figures = json.loads(reader.texts["data"])["figures"]
    assert all(
        cell["mse"]["mean"] is None for cell in figures[0]["cells"] if cell["method"] == "dpmf"
    )
    assert count_marks(content) == {"incomplete": 48, "not run": 16}
    assert paper_headline(content) == []
    assert (
        "nan"
        not in re.sub(r"<script.*", "", re.sub(r'data-std="nan"', "", page), flags=re.S).lower()
    )


def test_diverged_and_failed_cells_are_named(tmp_path, fill_store: Fill, experiments: Make):
    def change(result):
        if result.run.stage == "evaluation" and result.run.data.name == "douban":
            if result.run.method == "dpmf":
                return msgspec.structs.replace(
                    result, status="diverged", metrics={}, message="ran away"
                )
            if result.run.method == "mf":
                return msgspec.structs.replace(
                    result, status="failed", metrics={}, message="<script>bad()</script>"
                )
        return result

    content = read_content(
        fill_store(tmp_path, experiments(["table3", "figure_ablation"]), change=change)
    )
    page = shown(content)
    Reader(page)
    assert "<script>bad()" not in page
    assert count_marks(content)["diverged"] == 4
    assert count_marks(content)["failed"] == 4
    assert "Infinity" not in page.split('id="report-data">')[1].split("</script>")[0]


def test_names_from_outside_cannot_break_out(
    tmp_path, fill_store: Fill, experiments: Make, register
):
    evil = "</script><script>alert(1)</script><!-- \"'&$title \u2028"
    register(replace(METHODS["hdpmf"], name="evil method", label=evil))
    one = msgspec.structs.replace(
        experiments(["figure_epsilon"])[0],
        title=evil,
        reference=evil,
        vary=msgspec.structs.replace(
            experiments(["figure_epsilon"])[0].vary, parameter="reg", label=evil
        ),
        name="own",
    )
    page = shown(read_content(fill_store(tmp_path, [one])))
    reader = Reader(page)
    assert "alert(1)</script>" not in page
    assert sum(name == "script" for name, _ in reader.tags) == 2
    data = json.loads(reader.texts["data"])
    assert data["figures"][0]["axis"]["base"] == evil
    assert evil in [method["label"] for method in data["methods"]]
    ids = [attributes["id"] for attributes in reader.with_attribute("id")]
    assert any("evil_20_method" in one for one in ids)


def test_the_data_of_the_script_is_json_that_cannot_end_its_element(full_store, monkeypatch):
    content = read_content(full_store)
    page = paper_page(content)
    odd = {"a": "</script><!--&"}
    monkeypatch.setattr("hdpmf.lab.report.page.chart_data", lambda *_: odd)
    data = render(content, page).split('id="report-data">')[1]
    data = data.split("</script>")[0]
    assert json.loads(data) == odd
    monkeypatch.setattr("hdpmf.lab.report.page.chart_data", lambda *_: {"a": math.nan})
    with pytest.raises(ValueError, match="not JSON compliant"):
        render(content, page)


def test_an_empty_store_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="there are no results in"):
        read_content(tmp_path / "nothing")
    with Store(tmp_path, create=True):
        pass
    with pytest.raises(ConfigError, match="nothing to report"):
        read_content(tmp_path)


def test_a_method_that_is_gone_is_named(tmp_path, fill_store: Fill, experiments: Make, register):
    register(replace(METHODS["hdpmf"], name="mine", label="Mine"))
    own = msgspec.structs.replace(
        experiments(["figure_epsilon"])[0], name="own", methods=("mine", "mf")
    )
    fill_store(tmp_path, [*experiments(["table3"]), own])
    METHODS.discard("mine")
    with pytest.raises(ConfigError, match=r"own: unknown method 'mine'.*--plugin"):
        read_content(tmp_path)
