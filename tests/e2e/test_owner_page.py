"""The owner's page in a real browser: keyboard and mouse, both colour schemes, a phone, a hostile page beside it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("uvicorn")

from browser import Browser, find_chromium
from owner_page import AXE, OpenPage, accessible, choose_file, enter, owner_page, submit, until

from hdpmf.device.card import new_device
from hdpmf.device.store import DeviceStore
from hdpmf.device.titles import load_catalogue
from hdpmf.ratings import RatingScale

pytestmark = pytest.mark.slow

PAGES = ("rate", "for-you", "privacy", "leaves", "recommenders", "settings")
FILMS = "item,title,genres,year\n" + "".join(
    f"{number},{word} Film {number},{'Drama|Comedy' if number % 2 else 'War'},{1950 + number}\n"
    for number, word in enumerate(["Quiet", "Zombie", "Golden", "Hidden"] * 8)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    find_chromium()
    made = tmp_path_factory.mktemp("page")
    (made / "films.csv").write_text(FILMS)
    return made


@pytest.fixture(scope="module")
def page(folder: Path) -> Iterator[OpenPage]:
    with new_device(folder / "me.sqlite", scale=RatingScale(0.5, 5.0, 0.5)) as store:
        load_catalogue(store, folder / "films.csv")
        for number in range(12):
            store.rate(str(number), 0.5 * (1 + number % 10))
    with owner_page(folder / "me.sqlite") as served:
        yield served


@pytest.fixture(scope="module")
def browser(folder: Path, page: OpenPage) -> Iterator[Browser]:
    with Browser(folder / "chromium") as opened:
        enter(opened, page)
        yield opened


def value_of(folder: Path, item: str) -> float | None:
    with DeviceStore.open(folder / "me.sqlite") as store:
        return next((record.value for record in store.records() if record.item == item), None)


def test_it_renders_without_complaint_for_everybody_and_asks_nobody_else(browser: Browser, page: OpenPage):
    for name in PAGES:
        for width, dark in ((1280, False), (390, True)):
            browser.open(f"{page.origin}/{name}", width=width, height=900, dark=dark)
            assert browser.complaints() == []
            assert [url for url in browser.requests() if not url.startswith(page.origin)] == []
            assert browser.run("document.documentElement.scrollWidth") == width, name
            assert accessible(browser) == [], (name, width)


def test_a_page_that_keeps_people_out_would_be_noticed(browser: Browser, page: OpenPage):
    browser.open(f"{page.origin}/settings")
    browser.run(AXE.read_text("utf-8"))
    browser.run("document.querySelector('main').append(document.createElement('input'))")
    found = browser.run("axe.run().then(told => told.violations.map(v => v.id))")
    assert "label" in found


def test_stars_by_mouse_and_keyboard_and_undo(browser: Browser, page: OpenPage, folder: Path):
    browser.open(f"{page.origin}/rate")
    browser.run("document.getElementById('search').focus()")
    browser.call("Input.insertText", text="golden film 22")
    until(browser, "document.querySelectorAll('#found .item').length === 1")
    browser.click("#found .stars label:nth-of-type(7)")
    until(browser, "document.querySelector('#notes button') !== null")
    assert value_of(folder, "22") == 3.5
    browser.run("document.querySelector('#found .stars input:checked').focus()")
    browser.key("ArrowRight")
    until(browser, "document.querySelector('#mine [data-item=\"22\"]').dataset.value === '4'")
    assert value_of(folder, "22") == 4.0
    browser.click("#notes button")
    until(browser, "document.querySelector('#mine [data-item=\"22\"]').dataset.value === '3.5'")
    assert value_of(folder, "22") == 3.5
    browser.click('#mine [data-item="22"] .remove')
    until(browser, "document.querySelector('#mine [data-item=\"22\"]').dataset.value === ''")
    assert value_of(folder, "22") is None
    browser.click("#notes button")
    until(browser, "document.querySelector('#mine [data-item=\"22\"]').dataset.value === '3.5'")
    assert value_of(folder, "22") == 3.5
    assert browser.complaints() == []


def test_a_file_with_a_preview(browser: Browser, page: OpenPage, folder: Path):
    (folder / "mine.csv").write_text("title,rating\nHidden Film 27,4.5\nNobody knows it,3\n")
    browser.open(f"{page.origin}/rate")
    choose_file(browser, "form[data-action='/rate/file'] input", folder / "mine.csv")
    submit(browser, "document.querySelector(\"form[data-action='/rate/file']\").requestSubmit()", "/rate")
    assert "no item like this" in browser.run("document.querySelector('main').innerText")
    assert value_of(folder, "27") is None
    submit(browser, "document.querySelector('button[value=yes]').click()", "/rate")
    assert value_of(folder, "27") == 4.5


def test_the_dial_tells_what_it_means_while_it_is_turned(browser: Browser, page: OpenPage):
    browser.open(f"{page.origin}/privacy")
    browser.click("button.group[data-weight='0.5']")
    until(browser, "document.getElementById('meaning').innerText.includes('62 %')")
    browser.run("document.getElementById('dial').focus()")
    for _ in range(8):
        browser.key("ArrowLeft")
    until(browser, "document.getElementById('meaning').innerText.includes('52 %')")
    assert browser.run("document.getElementById('group').textContent") == "Conservative"
    submit(browser, "document.querySelector('#dial-form button.main').click()", "/privacy")
    assert browser.run("document.getElementById('dial').value") == "0.1"


def test_nothing_private_is_in_the_history(browser: Browser, page: OpenPage):
    entries = browser.call("Page.getNavigationHistory")["entries"]
    assert len(entries) > 3
    token = page.link.partition("#")[2]
    for entry in entries:
        assert token not in entry["url"]
        assert entry["url"].count("?") == 0
        assert not any(word in entry["url"] + entry["title"] for word in ("Quiet", "Zombie", "Golden", "Hidden"))


HOSTILE = """<!doctype html><title>evil</title><body><script>
const target = "ORIGIN", found = [];
async function attempt(name, action) {
  try { const told = await action(); if (told) found.push(name + ": " + told); } catch (error) { /* kept out */ }
}
function image(path) {
  return new Promise((done) => { const i = new Image(); i.onload = () => done("loaded"); i.onerror = () => done("");
    i.src = target + path; });
}
function frame(path) {
  return new Promise((done) => {
    const f = document.createElement("iframe");
    f.onload = () => { try { done(f.contentDocument.body.innerText); } catch (error) { done(""); } };
    f.src = target + path; document.body.append(f); setTimeout(() => done(""), 3000);
  });
}
function script(path) {
  return new Promise((done) => { const s = document.createElement("script"); s.onload = () => done("ran");
    s.onerror = () => done(""); s.src = target + path; document.body.append(s); });
}
(async () => {
  const text = { method: "POST", credentials: "include", headers: { "content-type": "text/plain" } };
  await attempt("read", async () => (await (await fetch(target + "/rate", { credentials: "include" })).text()));
  await attempt("find", async () =>
    (await (await fetch(target + "/rate/find", { ...text, body: '{"words": "film"}' })).text()));
  await attempt("blind", async () => { await fetch(target + "/rate/set",
    { ...text, mode: "no-cors", body: '{"item": "1", "value": ""}' }); return ""; });
  await attempt("image", () => image("/static/icon.svg"));
  await attempt("frame", () => frame("/rate"));
  await attempt("script", () => script("/static/page.js"));
  await attempt("window", async () => { const w = window.open(target + "/rate");
    await new Promise(done => setTimeout(done, 1500)); return w && w.document && w.document.title; });
  for (const path of ["/rate/set", "/settings/forget", "/lock", "/leaves/answer"]) {
    const form = document.createElement("form"), sink = document.createElement("iframe");
    sink.name = "sink"; form.target = "sink"; form.method = "post"; form.action = target + path;
    form.innerHTML = '<input name=item value=1><input name=value value=""><input name=what value=everything>' +
      '<input name=sure value=yes>';
    document.body.append(sink, form); form.submit();
  }
  await new Promise(done => setTimeout(done, 1500));
  window.result = JSON.stringify(found);
})();
</script>"""


@pytest.mark.parametrize("own_host", [False, True], ids=["another-site", "another-port-of-this-machine"])
def test_a_hostile_page_in_the_same_browser_gets_nothing(browser: Browser, page: OpenPage, folder: Path, own_host):
    """Also one that another user of this machine serves from another port: cookies know no ports."""
    came: list[str] = []

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            came.append(self.headers.get("cookie", ""))
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(HOSTILE.replace("ORIGIN", page.origin).encode())

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with HTTPServer(("127.0.0.1", 0), Evil) as evil:
        threading.Thread(target=evil.serve_forever, daemon=True).start()
        before = value_of(folder, "1")
        assert before is not None
        host = "127.0.0.1" if own_host else "evil.localhost"
        browser.open(f"http://{host}:{evil.server_port}/")
        until(browser, "window.result !== undefined", 40)
        assert json.loads(browser.run("window.result")) == []
        assert came
        assert not any(came)  # our cookie does not go there
        evil.shutdown()
    assert value_of(folder, "1") == before
    browser.open(f"{page.origin}/rate")
    assert "Zombie Film 1" in browser.run("document.body.innerText")  # nor were we locked out


def test_it_locks_by_itself_and_a_new_link_is_the_key(folder: Path, tmp_path: Path):
    with new_device(tmp_path / "me.sqlite", scale=RatingScale(1.0, 5.0, 1.0)) as store:
        load_catalogue(store, folder / "films.csv")
        store.rate("1", 5)
    with owner_page(tmp_path / "me.sqlite", "--idle", "0.2") as served, Browser(tmp_path / "chromium") as opened:
        enter(opened, served)
        assert "Zombie Film 1" in opened.run("document.body.innerText")
        until(opened, "document.title.startsWith('Locked')", 60)
        assert "Zombie" not in opened.run("document.documentElement.outerHTML")
        opened.open(f"{served.origin}/rate")
        assert "Zombie" not in opened.run("document.documentElement.outerHTML")
        enter(opened, served, served.new_link())
        assert "Zombie Film 1" in opened.run("document.body.innerText")
