"""A page of another site, in the browser in which the owner's page is open, gets nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("uvicorn")

from playwright.sync_api import Page, expect

from hdpmf.common.data import RatingScale
from hdpmf.private.device.device_identity import new_device
from hdpmf.private.device.own_items import load_catalogue
from hdpmf.private.device.store.device_store import DeviceStore
from tests.e2e.served_pages import ServedPage, enter, owner_page

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
  for (const path of ["/rate/set", "/settings/forget", "/lock", "/disclosures/answer"]) {
    const form = document.createElement("form"), sink = document.createElement("iframe");
    sink.name = "sink"; form.target = "sink"; form.method = "post"; form.action = target + path;
    form.innerHTML = '<input name=item value=1><input name=value value=""><input name=what value=everything>' +
      '<input name=sure value=yes>';
    document.body.append(sink, form); form.submit();
  }
  await new Promise(done => setTimeout(done, 1500));
  window.result = JSON.stringify(found);
})();
</script>"""  # noqa: E501


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "films.csv").write_text("item,title\n1,Zombie Opera\n")
    with new_device(tmp_path / "me.sqlite", scale=RatingScale(1.0, 5.0, 1.0)) as made:
        load_catalogue(made, tmp_path / "films.csv")
        made.rate("1", 5.0)
    return tmp_path / "me.sqlite"


@pytest.fixture
def served(store: Path) -> Iterator[ServedPage]:
    with owner_page(store) as opened:
        yield opened


@pytest.mark.parametrize(
    "host", ["evil.localhost", "127.0.0.1"], ids=["another-site", "another-port-of-this-machine"]
)
def test_a_hostile_page_in_the_same_browser_gets_nothing(
    page: Page, served: ServedPage, store: Path, host
):
    """Also one that another user of this machine serves from another port: cookies know no
    ports.
    """
    came: list[str] = []

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            came.append(self.headers.get("cookie", ""))
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(HOSTILE.replace("ORIGIN", served.origin).encode())

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    enter(page, served)
    expect(page.locator("body")).to_contain_text("Zombie Opera")
    # Chromium opens connections before it needs them: a server with one thread would wait for their
    # first word.
    with ThreadingHTTPServer(("127.0.0.1", 0), Evil) as evil:
        evil.daemon_threads = True
        threading.Thread(target=evil.serve_forever, daemon=True).start()
        page.goto(f"http://{host}:{evil.server_port}/")
        page.wait_for_function("window.result !== undefined", timeout=40_000)
        assert json.loads(page.evaluate("window.result")) == []
        assert came
        assert not any(came)  # our cookie does not go there
        evil.shutdown()
    with DeviceStore.open(store) as opened:
        assert [record.value for record in opened.records()] == [5.0]
    page.goto(f"{served.origin}/rate")
    expect(page.locator("body")).to_contain_text("Zombie Opera")  # nor were we locked out
