"""The page as a program: one process for each store, stopped on the page, no terminal needed."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
import webbrowser
from pathlib import Path

import pytest

from hdpmf.common.base import logs
from hdpmf.errors import ConfigError, StorageError
from hdpmf.private.page import app, http, serving
from hdpmf.private.page.address import PageAddress
from hdpmf.private.page.serving import default_store, only_server

from .conftest import ORIGIN, Person


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this user's data are."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return default_store().parent


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a browser would have read."""
    seen: list[str] = []

    def look(address: str) -> bool:
        seen.append(Path(address.removeprefix("file://")).read_text("utf-8"))
        return True

    monkeypatch.setattr(webbrowser, "open", look)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(app, "log_to", lambda handler: handlers.append(handler))
    handlers: list = []
    yield seen
    for handler in handlers:
        handler.close()


def test_who_names_no_store_has_one_in_a_folder_that_others_cannot_read(home: Path) -> None:
    assert default_store().name == "store.sqlite"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_one_process_serves_and_any_other_gets_its_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "me.sqlite"
    links = iter([None, None, "http://p1.localhost:1/enter#once"])
    monkeypatch.setattr(serving, "_LOOK", 0.0)
    with only_server(store) as first:
        assert first is None
        # It is only just starting: the second asks until it answers.
        monkeypatch.setattr(PageAddress, "running_link", lambda self: next(links))
        with only_server(store) as second:
            assert second == "http://p1.localhost:1/enter#once"
        monkeypatch.setattr(PageAddress, "running_link", lambda self: None)
        monkeypatch.setattr(serving, "_PATIENCE", 0.0)
        with pytest.raises(ConfigError, match="does not answer"), only_server(store):
            pass
    with only_server(store) as again:
        assert again is None
    assert stat.S_IMODE((tmp_path / "me.sqlite.page-lock").stat().st_mode) == 0o600


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot use the folder"), only_server(tmp_path / "a/b"):
        pass


def test_settings_say_the_version_and_how_to_update(person: Person) -> None:
    page = person.get("/settings").text
    assert re.search(r"<dt>Version</dt><dd>\d+\.\d+", page)
    assert "replace the program with the new download" in page


def test_the_owner_stops_the_program(person: Person) -> None:
    answer = person.post("/stop", {})
    assert "hdpmf has stopped" in answer.text
    assert person.ends == [True]


def test_nobody_else_stops_it(person: Person) -> None:
    headers = {"origin": ORIGIN}
    assert person.client.post("/stop", data={"csrf": "no"}, headers=headers).status_code == 403
    csrf = person.csrf
    person.clock.now += 61  # locked
    answer = person.client.post("/stop", data={"csrf": csrf}, headers=headers)
    assert answer.status_code == 403
    assert person.ends == []


def test_it_ends_by_itself_when_nobody_is_there_and_nobody_is_answered(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_WATCH_SECONDS", 0.005)
    stop = threading.Event()
    watch = threading.Thread(target=person.page.watch, args=(stop, 0.02))
    answers = {"recommender": (threading.current_thread(), stop, stop)}
    monkeypatch.setattr(person.owner.background, "_threads", answers)
    person.clock.now += 3600  # all sessions are locked, all links too old
    watch.start()
    try:
        assert not stop.wait(0.2)
        assert person.ends == []
        answers.clear()
        for _ in range(6000):
            if person.ends or stop.wait(0.01):
                break
        assert person.ends
    finally:
        answers.clear()
        stop.set()
        watch.join()


def test_a_page_that_has_forgotten_everything_can_still_be_found(person: Person) -> None:
    file = person.path.with_name("me.sqlite.page")
    person.post("/settings/forget", {"what": "everything", "sure": "yes"})
    assert not person.path.exists()
    assert json.loads(file.read_text())["name"] == "pabc"


def test_a_second_start_opens_the_page_that_runs(
    home: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "BROWSER_SECONDS", 0.0)
    monkeypatch.setattr(
        PageAddress, "running_link", lambda self: "http://p1.localhost:1/enter#once"
    )
    assert app.main() == 0
    assert 'action="http://p1.localhost:1/enter"' in opened[0]
    assert 'value="once"' in opened[0]


def test_what_goes_wrong_is_shown_without_a_terminal(home: Path, opened: list[str]) -> None:
    (home / "store.sqlite.page").write_text("nonsense")
    assert app.main() == ConfigError.exit_code
    assert "cannot be read; delete it" in opened[0]
    assert "hdpmf.log" in opened[0]


def test_a_bug_is_named_in_the_log_but_what_it_quotes_is_not(
    home: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("XDG_DATA_HOME", str(home.parent))
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address))
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)

    def broken(store: Path) -> None:
        raise RuntimeError("Zombie Opera: 5 stars")

    monkeypatch.setattr(app, "_serve", broken)
    before = {name: list(logs.logging.getLogger(name).handlers) for name in LOGGERS}
    try:
        assert app.main() == 1
    finally:
        for name, handlers in before.items():
            logger = logs.logging.getLogger(name)
            for handler in set(logger.handlers) - set(handlers):
                handler.close()
            logger.handlers, logger.propagate = handlers, True
    log = home / "hdpmf.log"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    line = json.loads(log.read_text())
    assert line["error"] == "RuntimeError"
    assert any("broken" in place for place in line["at"])
    said = (home / "problem.html").read_text()
    assert "ran into an unexpected problem" in said
    for text in (log.read_text(), said):
        assert "Zombie" not in text
    assert opened[-1] == (home / "problem.html").as_uri()


LOGGERS = ("hdpmf.untrusted.aggregator", "hdpmf.events", "uvicorn.error", "asyncio")


def test_programs_that_it_starts_get_the_systems_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/tmp/_MEI123")
    monkeypatch.setenv("LD_LIBRARY_PATH_ORIG", "/opt/lib")
    app._unfreeze()
    assert os.environ["LD_LIBRARY_PATH"] == "/tmp/_MEI123"  # it is no download
    monkeypatch.setattr(app.sys, "frozen", True, raising=False)
    app._unfreeze()
    assert os.environ["LD_LIBRARY_PATH"] == "/opt/lib"
