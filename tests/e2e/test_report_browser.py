"""The report in a real browser: real runs, a real page, no complaint, nobody asked, everything works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from browser import Browser, find_chromium

from hdpmf import paper
from hdpmf.experiments import Store, resolve, run_experiments
from hdpmf.experiments.spec import DataOptions
from hdpmf.paper.report import write_paper_report
from hdpmf.ratings import synthetic_world

WORLD = {"n_users": 40, "n_items": 30, "n_ratings": 900}
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}


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
        run_experiments(experiments, store, files=files, n_jobs=1, command="hdpmf paper run --quick")
    write_paper_report(folder / "results", folder / "report")
    return folder / "report" / "index.html"


@pytest.fixture(scope="module")
def browser(report: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as one:
        yield one


def test_a_page_that_misbehaves_would_be_noticed(browser: Browser, tmp_path: Path):
    page = tmp_path / "bad.html"
    page.write_text("<script>console.error('x'); missing()</script><img src='http://192.0.2.1/a.png'>")
    browser.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
    try:
        browser.open(page.as_uri())
        assert len(browser.complaints()) >= 2
        assert "http://192.0.2.1/a.png" in browser.requests()
    finally:
        browser.call(
            "Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("screen", WIDTHS)
def test_it_renders_without_complaint_and_asks_nobody(browser: Browser, report: Path, tmp_path: Path, screen, dark):
    width, height = WIDTHS[screen]
    browser.open(report.as_uri(), width=width, height=height, dark=dark)
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith(("file:", "data:"))] == []
    assert browser.run("document.documentElement.scrollWidth") == width  # nothing makes the page scroll sideways
    assert browser.run("document.querySelectorAll('.panel').length") == 16  # two of them of lists
    drawn = browser.run("JSON.parse(document.getElementById('data').textContent)")
    for kind, selector in (("lines", "path.line"), ("bars", "path.bar")):
        figures = [one for one in drawn["figures"] if one["kind"] == kind]
        assert len(figures) == (6 if kind == "lines" else 2)
        # One of each for every method, in each of two panels.
        assert _count(browser, f".panel svg {selector}") == 2 * sum(len(one["methods"]) for one in figures)
    shown = {method for figure in drawn["figures"] for method in figure["methods"]}
    assert {"hdpmf", "hdp-sum", "hdp-bit", "user-mean", "most-popular"} <= shown
    assert browser.run("[...document.querySelectorAll('.panel svg path')].every(p => !p.outerHTML.includes('NaN'))")
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(", "))) < 200) == dark
    picture = tmp_path / f"{screen}-{'dark' if dark else 'light'}.png"
    browser.screenshot(picture, whole=True)
    assert picture.stat().st_size > 50_000


def _count(browser: Browser, selector: str) -> int:
    found: int = browser.run(f"document.querySelectorAll({selector!r}).length")
    return found


def test_the_legend_takes_a_method_out_and_in(browser: Browser, report: Path):
    browser.open(report.as_uri())
    lines, button = "#figure_sparsity .panel g[data-method='hdpmf']", "#figure_sparsity .legend [data-method='hdpmf']"
    assert _count(browser, lines) == 2
    browser.click(button)
    assert _count(browser, lines) == 0
    assert browser.run(f'document.querySelector("{button}").getAttribute("aria-pressed")') == "false"
    assert _count(browser, "#figure_epsilon .panel g[data-method='hdpmf']") == 2  # only this figure
    browser.click(button)
    assert _count(browser, lines) == 2
    assert browser.complaints() == []


def test_choices_change_figures_and_tables(browser: Browser, report: Path):
    browser.open(report.as_uri())
    first = browser.run("document.querySelector('#figure_f_uc .panel .line').getAttribute('d')")
    browser.click("input[value='mae'] + span")
    assert browser.run("document.querySelector('#figure_f_uc .panel .line').getAttribute('d')") != first
    assert browser.run("document.querySelector('#figure_f_uc svg text:not(.low)') !== null")
    browser.click("input[value='5'] + span")
    assert "K = 10 only" in browser.run("document.querySelector('#figure_sparsity .chartnote').textContent")
    browser.run("document.getElementById('dataset').value = 'own'")
    browser.run("document.getElementById('dataset').dispatchEvent(new Event('change'))")
    assert _count(browser, ".panel") == 8
    assert browser.run("document.querySelector('#table3-table tbody[data-dataset=synthetic]').hidden") is True
    assert browser.complaints() == []


def test_pointing_shows_values_and_a_kept_value_leads_to_its_runs(browser: Browser, report: Path):
    browser.open(report.as_uri())
    browser.hover("#figure_epsilon .panel svg")
    assert browser.run("document.getElementById('tip').hidden") is False
    assert "±" in browser.run("document.getElementById('tip').textContent")
    browser.click("#figure_epsilon .panel svg")
    link = browser.run("document.querySelector('#tip a').hash.slice(1)")
    browser.click("#tip a")
    assert browser.run("location.hash.slice(1)") == link
    browser.run("new Promise(done => setTimeout(done, 100))")
    assert browser.run(f"document.getElementById({link!r}).closest('details').open") is True
    place = browser.run(f"document.getElementById({link!r}).getBoundingClientRect().top")
    assert 0 <= place < 900
    assert browser.complaints() == []


def test_the_keyboard_reaches_every_value(browser: Browser, report: Path):
    browser.open(report.as_uri())
    browser.run("document.querySelector('#figure_epsilon .panel svg').focus()")
    texts = []
    for _ in range(3):
        browser.key("ArrowRight")
        texts.append(browser.run("document.querySelector('#tip .title').textContent"))
    assert len(set(texts)) == 3
    assert "ε = 0.25" in texts[0]
    browser.key("Enter")
    assert browser.run("document.activeElement.closest('#tip') !== null")
    browser.key("Escape")
    assert browser.run("document.getElementById('tip').hidden") is True
    assert browser.run("document.activeElement.tagName") == "svg"
    assert browser.complaints() == []


def test_honest_epsilon_has_levels_and_places_of_its_own(browser: Browser, report: Path):
    browser.open(report.as_uri())
    assert _count(browser, "#figure_honest .panel g[data-method='user-mean'] path.level") == 2
    assert _count(browser, "#figure_honest .panel g[data-method='hdpmf'] path.level") == 0
    assert "secure sums seen" in browser.run(
        "document.querySelector(\"#figure_honest .legend [data-method='hdp-sum']\").textContent"
    )
    browser.run("document.querySelector('#figure_honest .panel svg').focus()")
    browser.key("ArrowRight")
    told = browser.run("document.getElementById('tip').textContent")
    assert "honest ε = " in told
    assert "nominal ε 0.25" in told
    assert "User mean" in told
    assert browser.complaints() == []


def test_without_script_the_tables_are_all_there(browser: Browser, report: Path):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(report.as_uri())
        root = browser.call("DOM.getDocument", depth=0)["root"]["nodeId"]
        for selector, least in (("#table3-table td", 20), ("details.numbers[open] td", 100), ("noscript p", 0)):
            found = browser.call("DOM.querySelectorAll", nodeId=root, selector=selector)["nodeIds"]
            assert len(found) > least
        assert browser.call("DOM.querySelectorAll", nodeId=root, selector=".controls[hidden]")["nodeIds"]
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
