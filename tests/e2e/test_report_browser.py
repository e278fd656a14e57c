"""The report in a real browser: real runs, a real page, no complaint, nobody asked, everything
works.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import BrowserContext, Page

from hdpmf.common.data import synthetic_world
from hdpmf.lab import paper
from hdpmf.lab.experiments import Store, resolve, run_experiments
from hdpmf.lab.experiments.spec import DataOptions
from hdpmf.lab.paper.report import paper_page
from hdpmf.lab.report.content import read_content
from hdpmf.lab.report.page import experiment_page, render
from tests.e2e.browsing import DESKTOP, SCREENS, Heard, find_chromium, settle

WORLD = {"n_users": 40, "n_items": 30, "n_ratings": 900}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The paper's evaluation on two very small data sets, and its page."""
    find_chromium()
    folder = tmp_path_factory.mktemp("e2e")
    synthetic_world(*WORLD.values(), rng=5).write(folder / "own.csv")
    experiments, files = [], {}
    for name in paper.NAMES:
        one = msgspec.structs.replace(
            paper.quick(paper.experiment(name)),
            datasets=("synthetic", "own"),
            data={"synthetic": DataOptions(world=WORLD), "own": DataOptions(file="own.csv")},
            epochs=3,
        )
        one = msgspec.structs.replace(one, split=msgspec.structs.replace(one.split, per_user=3))
        resolved, places = resolve(one, folder)
        experiments.append(resolved)
        files |= places
    with Store(folder / "results", create=True) as store:
        run_experiments(
            experiments, store, files=files, n_jobs=1, command="hdpmf paper run --quick"
        )
    content = read_content(folder / "results", paper.NAMES)
    (folder / "index.html").write_text(render(content, paper_page(content)))
    (folder / "own.html").write_text(render(content, experiment_page(content)))
    return folder / "index.html"


def test_a_page_that_misbehaves_would_be_noticed(
    context: BrowserContext, page: Page, heard: Heard, tmp_path: Path
):
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<script>console.error('x'); missing()</script><img src='http://192.0.2.1/a.png'>"
    )
    context.set_offline(True)
    page.goto(bad.as_uri())
    settle(page)
    assert len(heard.complaints) >= 2
    assert "http://192.0.2.1/a.png" in heard.requests


def unfold(page: Page, report: Path) -> None:
    """Open the page with all its sections unfolded and drawn."""
    page.goto(report.as_uri())
    page.evaluate(
        "document.querySelectorAll('details.fold').forEach((fold) => { fold.open = true; })"
    )
    settle(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_it_renders_without_complaint_and_asks_nobody(new_context, report: Path, screen, scheme):
    context = new_context(**SCREENS[screen], color_scheme=scheme)
    page, heard = context.new_page(), Heard(context)
    unfold(page, report)
    assert heard.complaints == []
    assert [url for url in heard.requests if not url.startswith(("file:", "data:"))] == []
    # Nothing makes the page scroll sideways.
    assert page.evaluate("document.documentElement.scrollWidth") == page.viewport_size["width"]
    assert page.evaluate("document.querySelectorAll('.panel').length") == 16  # two of them of lists
    drawn = page.evaluate("JSON.parse(document.getElementById('report-data').textContent)")
    for kind, selector in (("lines", "path.line"), ("bars", "path.bar")):
        figures = [one for one in drawn["figures"] if one["kind"] == kind]
        assert len(figures) == (6 if kind == "lines" else 2)
        # One of each for every method, in each of two panels.
        assert _count(page, f".panel svg {selector}") == 2 * sum(
            len(one["methods"]) for one in figures
        )
    shown = {method for figure in drawn["figures"] for method in figure["methods"]}
    assert {"hdpmf", "hdp-sum", "hdp-bit", "user-mean", "most-popular"} <= shown
    assert page.evaluate(
        "[...document.querySelectorAll('.panel svg path')].every(p => !p.outerHTML.includes('NaN'))"
    )
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(", "))) < 200) == (scheme == "dark")
    assert len(page.screenshot(full_page=True)) > 50_000


def _count(page: Page, selector: str) -> int:
    return page.locator(selector).count()


def test_the_legend_takes_a_method_out_and_in(page: Page, heard: Heard, report: Path):
    unfold(page, report)
    lines, button = (
        "#figure_sparsity .panel g[data-method='hdpmf']",
        "#figure_sparsity .legend [data-method='hdpmf']",
    )
    assert _count(page, lines) == 2
    page.click(button)
    assert _count(page, lines) == 0
    assert (
        page.evaluate(f'document.querySelector("{button}").getAttribute("aria-pressed")') == "false"
    )
    assert _count(page, "#figure_epsilon .panel g[data-method='hdpmf']") == 2  # only this figure
    page.click(button)
    assert _count(page, lines) == 2
    settle(page)
    assert heard.complaints == []


def test_choices_change_figures_and_tables(page: Page, heard: Heard, report: Path):
    unfold(page, report)
    first = page.evaluate("document.querySelector('#figure_f_uc .panel .line').getAttribute('d')")
    page.check("input[value='mae']")
    assert (
        page.evaluate("document.querySelector('#figure_f_uc .panel .line').getAttribute('d')")
        != first
    )
    assert page.evaluate("document.querySelector('#figure_f_uc svg text:not(.low)') !== null")
    page.check("input[value='5']")
    assert "K = 10 only" in page.evaluate(
        "document.querySelector('#figure_sparsity .chartnote').textContent"
    )
    page.evaluate("document.getElementById('dataset').value = 'own'")
    page.evaluate("document.getElementById('dataset').dispatchEvent(new Event('change'))")
    assert _count(page, ".panel") == 8
    assert (
        page.evaluate(
            "document.querySelector('#table3-table tbody[data-dataset=synthetic]').hidden"
        )
        is True
    )
    settle(page)
    assert heard.complaints == []


def test_the_keyboard_reaches_every_value(page: Page, heard: Heard, report: Path):
    unfold(page, report)
    page.evaluate("document.querySelector('#figure_epsilon .panel svg').focus()")
    texts = []
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        texts.append(page.evaluate("document.querySelector('#tip .title').textContent"))
    assert len(set(texts)) == 3
    assert "ε = 0.25" in texts[0]
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('#tip') !== null")
    page.keyboard.press("Escape")
    assert page.evaluate("document.getElementById('tip').hidden") is True
    assert page.evaluate("document.activeElement.tagName") == "svg"
    settle(page)
    assert heard.complaints == []


def test_without_script_the_tables_are_all_there(new_context, report: Path):
    page = new_context(java_script_enabled=False).new_page()
    page.goto(report.as_uri())
    for selector, least in (
        ("#table3-table td", 20),
        ("details.numbers[open] td", 100),
        ("noscript p", 0),
    ):
        assert page.locator(selector).count() > least
    assert page.locator(".controls[hidden]").count() > 0


def test_the_first_screen_is_the_result(page: Page, report: Path):
    page.goto(report.as_uri())
    height = DESKTOP["viewport"]["height"]
    assert (
        page.evaluate("document.querySelector('#overview .broad').getBoundingClientRect().bottom")
        < height
    )
    told = page.evaluate(
        "[...document.querySelectorAll('.headline li')].map((sentence) => sentence.textContent)"
    )
    assert 1 <= len(told) <= 3
    assert not any(re.search(r"\d\.\d{4}", sentence) for sentence in told)
    shown = page.evaluate("document.querySelectorAll('#overview .broad [data-glance]').length")
    assert shown == page.evaluate(
        "document.querySelectorAll('#table3-table tbody:first-of-type th[scope=row]').length"
    )
    assert page.evaluate("document.documentElement.scrollHeight") < 6_000  # the rest is folded
    assert _count(page, "details.fold[open]") == 1
    assert page.evaluate("document.querySelector('#overview .narrow').checkVisibility()") is False


def test_a_report_on_ones_own_experiment_works_too(page: Page, heard: Heard, report: Path):
    unfold(page, report.with_name("own.html"))
    settle(page)
    assert heard.complaints == []
    assert _count(page, ".panel svg path.line") > 10
    assert page.evaluate("document.querySelector('.controls').hidden") is False
