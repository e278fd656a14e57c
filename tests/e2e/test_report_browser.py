"""The report in a real browser: real runs, a real page, no complaint, nobody asked, everything works."""

from __future__ import annotations

import re
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
from hdpmf.report.content import read_content
from hdpmf.report.page import render
from hdpmf.report.writer import experiment_page

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
    content = read_content(folder / "results")
    (folder / "report" / "own.html").write_text(render(content, experiment_page(content)))
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


def unfold(browser: Browser, report: Path, **screen) -> None:
    """Open the page with all its sections unfolded and drawn."""
    browser.open(report.as_uri(), **screen)
    browser.run("document.querySelectorAll('details.fold').forEach((fold) => { fold.open = true; })")
    browser.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("screen", WIDTHS)
def test_it_renders_without_complaint_and_asks_nobody(browser: Browser, report: Path, tmp_path: Path, screen, dark):
    width, height = WIDTHS[screen]
    unfold(browser, report, width=width, height=height, dark=dark)
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith(("file:", "data:"))] == []
    assert browser.run("document.documentElement.scrollWidth") == width  # nothing makes the page scroll sideways
    assert browser.run("document.querySelectorAll('.panel').length") == 16  # two of them of lists
    drawn = browser.run("JSON.parse(document.getElementById('report-data').textContent)")
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
    unfold(browser, report)
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
    unfold(browser, report)
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
    unfold(browser, report)
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
    unfold(browser, report)
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
    unfold(browser, report)
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


def test_the_first_screen_is_the_result(browser: Browser, report: Path):
    width, height = WIDTHS["desktop"]
    browser.open(report.as_uri(), width=width, height=height)
    assert browser.run("document.querySelector('#overview .broad').getBoundingClientRect().bottom") < height
    told = browser.run("[...document.querySelectorAll('.headline li')].map((sentence) => sentence.textContent)")
    assert 1 <= len(told) <= 3
    assert not any(re.search(r"\d\.\d{4}", sentence) for sentence in told)
    shown = browser.run("document.querySelectorAll('#overview .broad [data-glance]').length")
    assert shown == browser.run("document.querySelectorAll('#table3-table tbody:first-of-type th[scope=row]').length")
    assert browser.run("document.documentElement.scrollHeight") < 6_000  # the rest is folded
    assert _count(browser, "details.fold[open]") == 1
    assert browser.run("document.querySelector('#overview .narrow').checkVisibility()") is False


def test_names_in_the_figure_of_the_result_do_not_meet(browser: Browser, report: Path):
    for width, kind in ((1280, "broad"), (390, "narrow")):
        browser.open(report.as_uri(), width=width)
        boxes = browser.run(
            f"[...document.querySelectorAll('#overview .{kind} .value')]"
            ".map((name) => name.getBoundingClientRect().toJSON())"
        )
        assert len(boxes) > 5
        for number, one in enumerate(boxes):
            assert 0 <= one["left"] < one["right"] <= width
            for other in boxes[:number]:
                apart = one["right"] <= other["left"] + 1 or other["right"] <= one["left"] + 1  # a box has a rim
                # A line of text is higher than its letters.
                assert apart or abs(one["top"] - other["top"]) > 9, (kind, one, other)


def test_the_contents_stay_and_lead_into_what_is_folded(browser: Browser, report: Path):
    browser.open(report.as_uri())
    browser.click(".contents a[href='#tuning']")
    browser.run("new Promise((done) => setTimeout(done, 150))")
    assert browser.run("document.querySelector('#tuning details.fold').open") is True
    assert 0 <= browser.run("document.getElementById('tuning').getBoundingClientRect().top") < 300
    assert browser.run("document.querySelector('.contents').getBoundingClientRect().top") == 0
    browser.click("#unfold")
    browser.run("new Promise((done) => setTimeout(done, 150))")
    assert _count(browser, "details.fold:not([open])") == 0
    assert browser.run("document.getElementById('unfold').textContent") == "Fold all"
    assert browser.complaints() == []


def test_a_phone_says_that_a_table_goes_on(browser: Browser, report: Path):
    width, height = WIDTHS["phone"]
    unfold(browser, report, width=width, height=height)
    hint = "getComputedStyle(document.querySelector('#lists .scroll'), '::before').content"
    assert "Swipe sideways" in browser.run(hint)
    assert browser.run("document.querySelector('#lists .scroll').scrollWidth") > width
    unfold(browser, report)  # a wide screen has room
    assert "Swipe" not in browser.run("getComputedStyle(document.querySelector('#table3 .scroll'), '::before').content")


def test_every_cell_of_a_row_has_its_border(browser: Browser, report: Path):
    unfold(browser, report)
    bare = browser.run(
        "(() => { const wide = (row) => [...row.children].reduce((sum, cell) => sum + cell.colSpan, 0);"
        " return [...document.querySelectorAll('table.wide tbody tr')].filter((row) =>"
        " [...row.children].some((cell) => getComputedStyle(cell).borderTopWidth !== '1px')"
        " || wide(row) !== Math.max(...[...row.closest('table').rows].map(wide))"
        ").map((row) => row.textContent.slice(0, 60)); })()"
    )
    assert bare == []
    # A cell that stays while others scroll keeps its border only if borders are its own.
    assert browser.run("getComputedStyle(document.querySelector('table.wide')).borderCollapse") == "separate"


def test_a_report_on_ones_own_experiment_works_too(browser: Browser, report: Path):
    unfold(browser, report.with_name("own.html"))
    assert browser.complaints() == []
    assert _count(browser, ".panel svg path.line") > 10
    assert browser.run("document.querySelector('.controls').hidden") is False
