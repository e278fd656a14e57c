"""What is on the operator's pages: what the folder says, and nobody's name."""

from __future__ import annotations

import html
import math
import re
import shutil
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.methods import method_named
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.privacy.coding import WEIGHT_SCALE
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import encode
from hdpmf.errors import ConfigError
from hdpmf.private.device.policy import Policy
from hdpmf.untrusted.service import health
from hdpmf.untrusted.service.aggregation.two_servers import make_task
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.keys import pin_servers
from hdpmf.untrusted.service.page.charts import (
    HEIGHT,
    LIFE_EPSILON,
    WIDTH,
    column_chart,
    spent_by,
)
from hdpmf.untrusted.service.page.views import ModelItems
from hdpmf.untrusted.service.run_files import Checkpoint, Period, Trouble
from hdpmf.untrusted.service.scheduler import Schedule
from hdpmf.untrusted.service.settings import RunSettings
from hdpmf.untrusted.service.survey import weight_deviations
from tests.unit.service.page.conftest import PAGES
from tests.world import BITS, GROWING, SUMS, Federation, ServerPair, growing_federation


def told(operator, path: str) -> str:
    answer = operator.get(path)
    assert answer.status_code == 200, answer.text
    return html.unescape(
        re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", answer.text.partition("<main")[2]))
    )


def test_the_overview_says_how_it_is_and_what_to_do(operator, town: Federation):
    text = told(operator, "/overview")
    assert "town" in text
    assert "8 enrolled, for 8 users" in text
    assert "No process is serving this folder" in text
    assert "was given up" in text
    assert "To do: Begin a new one when its reason is gone." in text
    assert "authority ends on " in text
    assert "server ends on " in text
    with town.folder.serving():
        assert "A process is serving this folder." in told(operator, "/overview")


def test_without_trouble_nothing_is_to_do(operator, monkeypatch):
    monkeypatch.setattr(
        "hdpmf.untrusted.service.page.views.inspect_folder",
        lambda _: health.FolderHealth((), 10**12, (), 0.0),
    )
    text = told(operator, "/overview")
    assert "Nothing needs your attention." in text
    assert "1000.0 GB" in text


def test_runs_with_their_budgets(operator, town: Federation):
    text = told(operator, "/runs")
    done, given_up = (run.hex()[:12] for run in town.folder.runs())
    assert text.index(given_up) < text.index(done)
    assert (
        "Method hdp-sum What we see sums Rounds 1/1 Devices 8 Users 8 Minimum users "
        f"{SUMS.minimum} Epsilon 5000, proved Refusals 0" in text[text.index(done) :]
    )
    assert (
        "Method hdp-sum What we see sums Rounds 0/1"
        in text[text.index(given_up) : text.index(done)]
    )
    for run, stage in ((done, "done"), (given_up, "given up")):
        moment = r"20\d\d-\d\d-\d\d \d\d:\d\d UTC , \d+ (s|min) ago"
        assert re.search(f"{run} {stage} Started {moment} ?; ended {moment}", text)


def test_a_run_that_cannot_go_on_says_why_what_to_do_and_when_it_is_tried_again(
    visitor, tmp_path: Path
):
    town = growing_federation(tmp_path)
    files = town.folder.run_files(town.service.begin(SUMS))
    now = time.time()
    files.keep_trouble(
        Trouble(cause="3 users agreed", remedy="Have more take part", at=now, retry=now + 900)
    )
    visit = visitor(town.folder.path)
    visit.enter()
    with town.folder.serving():
        overview = told(visit, "/overview")
        runs = told(visit, "/runs")
        title = visit.get("/overview").text.partition("<title>")[2].partition("<")[0]
    assert "cannot go on: 3 users agreed. To do: Have more take part." in overview
    assert "Nothing needs your attention" not in overview
    assert title == "(1) Overview · town"
    assert "It cannot continue: 3 users agreed. To do: Have more take part." in runs
    assert re.search(r"Next attempt 20\S+ \S+ UTC , in 14 min", runs)
    assert "No process is serving this folder" in told(visit, "/runs")
    files.keep_trouble(Trouble(cause="3 users agreed", at=now - 9, retry=now - 1))
    with town.folder.serving():
        assert "Trying again now." in told(visit, "/runs")


def test_names_of_the_recommender_and_of_the_servers(visitor, tmp_path: Path):
    town = growing_federation(tmp_path)
    visit = visitor(town.folder.path)
    visit.enter()
    assert "not set up" in told(visit, "/overview")
    pair = ServerPair(time.time, (SeededNoise(1), SeededNoise(2))).servers
    pin_servers(town.folder.path, town.folder.config.name, pair, same_host=True)
    text = told(visit, "/overview")
    for server in (pair.leader, pair.helper):
        assert f"{server.organisation} {server.url}" in text
    assert f"Address for devices {town.folder.config.address}" in text
    for path in PAGES:
        assert '<p class="brand">town</p>' in visit.get(path).text


def test_a_task_of_two_servers_says_who_sums_it_and_until_when(visitor, tmp_path: Path):
    town = growing_federation(tmp_path)
    folder = town.folder
    pair = ServerPair(time.time, (SeededNoise(1), SeededNoise(2))).servers
    keys = pin_servers(folder.path, folder.config.name, pair, same_host=True)
    settings = RunSettings(
        method="hdp-sum", view="two-servers", minimum=3, rounds=1, period=7300, precision=1
    )
    run = town.service.begin(settings)
    task = make_task(settings, folder.known, pair, keys, time.time() - 60, token_key=b"")
    period = Period(document=encode(task), job=b"j" * 16, placed=True)
    folder.run_files(run).save(Checkpoint(stage="open", periods=[period]))
    visit = visitor(folder.path)
    visit.enter()
    text = told(visit, "/runs")
    assert "What we see sums by two servers Rounds 0/1 Devices unknown" in text
    assert f"by {pair.names}: takes reports. Accepts reports until 20" in text
    assert "UTC , in 2 h" in text
    task = make_task(settings, folder.known, pair, keys, time.time() - 9000, token_key=b"")
    period = Period(document=encode(task), job=b"j" * 16, placed=True)
    folder.run_files(run).save(Checkpoint(stage="open", periods=[period]))
    assert "its sum is asked for. Accepted reports until 20" in told(visit, "/runs")


def test_what_comes_next_and_until_when(visitor, tmp_path: Path, monkeypatch):
    town = growing_federation(tmp_path)
    town.run(SUMS)
    visit = visitor(town.folder.path)
    visit.enter()
    assert "Next run when you start one" in told(visit, "/overview")
    for schedule, words in (
        (Schedule(rule=True), "Next run when the schedule says a run is worthwhile"),
        (Schedule(every="7d"), "UTC , in 6 days"),
        (Schedule(every="1s"), "Next run now"),
    ):
        config = msgspec.structs.replace(town.folder.config, schedule=schedule)
        monkeypatch.setattr(visit._folder, "config", config)
        time.sleep(1.1 if schedule.every == "1s" else 0)
        assert words in told(visit, "/overview")
    town.service.metrics.until = time.time() + 7300
    town.service.write_state()
    assert " Until 20" not in told(visit, "/overview")  # nobody serves it
    with town.folder.serving():
        assert re.search(r" Until 20\S+ \S+ UTC , in 2 h", told(visit, "/overview"))


def test_charts_show_what_runs_say(operator, town: Federation):
    text = operator.get("/overview").text
    (done, _) = town.folder.runs()
    numbers = PublicModel.load(town.folder.path / "runs" / done.hex() / "model")
    typical = float(np.median(np.sqrt(numbers.numbers.variance))) * numbers.scale.width / 4
    drawn = dict(re.findall(r'aria-label="([^:"]+): ([^"]+)"', text))
    values = {name: re.findall(r"\d\d-\d\d: (\S+?)(?:,|$)", said) for name, said in drawn.items()}
    assert values == {
        "Reports per run": ["8", "0"],
        "Enrolled devices": ["8", "8"],
        "Accuracy of what was released": [f"±{typical:.2f}"],
        "Budget left": ["0", "0"],  # epsilon 5,000
    }


def test_what_is_left_of_a_budget_is_counted_as_devices_do():
    def run(method: str, epsilon: float | None, *, one_round: bool) -> dict[str, object]:
        return {"method": method, "epsilon": epsilon, "one_round": one_round}

    runs = [
        run("hdp-sum", 0.5, one_round=True),
        run("hdp-sum", 0.25, one_round=True),  # a rating is in one of them
        run("hdp-bit", 0.25, one_round=True),
        run("hdpmf", 1.0, one_round=False),
        run("hdpmf", 1.0, one_round=False),
        run("mf", None, one_round=False),
    ]
    assert spent_by(runs) == [0.5, 0.5, 0.75, 1.75, 2.75, 2.75]
    assert Policy().epsilon == LIFE_EPSILON


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=8), st.none() | st.floats(0, 1e6))
def test_columns_stay_inside_the_picture_and_in_proportion(values, mark):
    chart = column_chart("reports", [("x", value) for value in values], mark=mark)
    highest = max([*values, *([] if mark is None else [mark])])
    for column, value in zip(chart.columns, values, strict=True):
        assert 0 <= column.x < column.x + column.width <= WIDTH
        assert 10 < column.y <= column.y + column.height <= HEIGHT
        assert column.height == pytest.approx(96 * value / (highest or 1), abs=0.1)


def test_devices_are_counted_and_refusals_classed_and_nobody_is_named(
    operator, town: Federation, monkeypatch
):
    monkeypatch.setattr(ServiceFolder, "summary", lambda *_: {"refusals": {"policy": 3, "odd": 1}})
    text = told(operator, "/devices")
    assert "Devices 8 Users of these devices 8" in text
    assert town.folder.enrolled.digest in text
    assert "policy 3 their owners' policies forbid it" in text
    assert "odd 1 their answers could not be taken" in text


def test_who_shows_something_is_counted_by_level(operator, monkeypatch):
    levels = {"seen": {"people": 5, "ratings": 1_234}, "open": {"people": 2, "ratings": 60}}
    assert "What people show" not in told(operator, "/devices")
    monkeypatch.setattr(ServiceFolder, "summary", lambda *_: {"levels": levels})
    text = told(operator, "/devices")
    assert "Seen: which items they rated, each with a random bit 5 people, 1,234 ratings" in text
    assert "Open: ratings as they are 2 people, 60 ratings" in text
    assert "People who hide everything are only in the sums" in text


def test_no_page_has_a_device_in_it(operator, town: Federation):
    pages = "".join(operator.get(path).text for path in PAGES)
    words = " ".join(told(operator, path) for path in PAGES)
    for card in town.cards:
        assert card.identity[:12] not in pages
        assert not re.search(rf"\b{card.name}\b", words)
    assert town.folder.enrolled.digest in pages  # there is something to be seen


def test_the_model_has_titles_and_what_noise_makes_uncertain(operator, town: Federation):
    model = town.folder.model()
    best = int(np.argmax(model.numbers.popularity))
    text = told(operator, "/model")
    item = str(model.items.ids[best])
    noise = (
        math.sqrt(2 * 8 / 5) * WEIGHT_SCALE / 5000.0
    )  # 8 users added noise where 5 make the whole of it
    assert weight_deviations(town.folder, town.folder.runs()[0]) == pytest.approx(
        np.full(GROWING.n_items, noise)
    )
    assert f"{model.numbers.popularity[best]:.1f} ± {noise:.1f}" in text
    found = told(operator, f"/model?words={item}")
    rating = (
        model.scale.low
        + (model.numbers.mean + model.numbers.bias[best] - 1) * model.scale.width / 4
    )
    rating = np.clip(rating, model.scale.low, model.scale.high)
    assert (
        f"{rating:.2f} ± {math.sqrt(model.numbers.variance[best]) * model.scale.width / 4:.2f}"
        in found
    )
    assert "Found: 0" in told(operator, "/model?words=nothing+like+this")
    assert "&lt;script" in operator.get("/model?words=<script>alert(1)</script>").text


def test_most_liked_is_not_what_is_most_uncertain(town: Federation):
    model = town.folder.model()
    items = ModelItems(model, None)
    facts = model.numbers
    liked = [entry["item"] for entry in items.most_liked(5)]
    expected = np.argsort(-(facts.bias - np.sqrt(facts.variance)), kind="stable")[:5]
    assert liked == [str(model.items.ids[place]) for place in expected]


def test_what_it_knows_comes_from_the_methods_claims(operator):
    text = told(operator, "/knowledge")
    method = method_named("hdp-sum")
    claim = method.claim("sums")
    for words in (
        method.plain.sent,
        method.plain.stays_open,
        claim.reason,
        claim.needs,
        claim.sees,
    ):
        assert re.sub(r"\s+", " ", words)[1:60] in text
    assert "at most 100 % of the time instead of 50 %" in text  # epsilon 5,000
    assert "Promised budgets" in text


def test_bits_are_counted_without_noise_and_runs_that_are_put_together_have_more(tmp_path: Path):
    town = growing_federation(tmp_path)
    first = town.run(SUMS).run
    town.add_later_ones()
    second = town.run(SUMS).run
    alone, together = (
        weight_deviations(town.folder, first),
        weight_deviations(town.folder, second),
    )
    assert (together > alone).all()
    bits = town.service.begin(BITS)
    assert (weight_deviations(town.folder, bits) == 0).all()


def test_a_new_recommender_has_pages_too(visitor, tmp_path: Path, town: Federation):
    ServiceFolder.create(tmp_path / "new", Config(name="new"), town.folder.catalogue)
    newcomer = visitor(tmp_path / "new")
    newcomer.enter()
    assert "There are none." in told(newcomer, "/overview")
    assert "No runs yet" in told(newcomer, "/runs")
    assert "No runs yet." in told(newcomer, "/devices")
    assert "There is no model yet" in told(newcomer, "/model")
    assert "knows its items and its enrolled devices, and nothing else" in told(
        newcomer, "/knowledge"
    )


def test_what_cannot_be_read_is_said(visitor, tmp_path: Path, town: Federation):
    shutil.copytree(town.folder.path, tmp_path / "copy", symlinks=True)
    (tmp_path / "copy" / "state.json").write_text("{}")
    newcomer = visitor(tmp_path / "copy")
    newcomer.enter()
    answer = newcomer.get("/overview")
    assert answer.status_code == 500
    assert "state.json is damaged" in answer.text


def test_nothing_is_ever_written(operator, town: Federation):
    before = everything(town.folder.path)
    for path in PAGES:
        assert operator.get(path).status_code == 200
        for method in ("post", "put", "delete", "patch"):
            answer = operator.client._loop.run_until_complete(
                operator.client._client.request(
                    method.upper(), path, headers={"origin": "http://pabc.localhost:4711"}
                )
            )
            assert answer.status_code == 405
    assert everything(town.folder.path) == before


def test_an_old_folder_is_not_migrated_by_looking(tmp_path: Path, town: Federation):
    shutil.copytree(town.folder.path, tmp_path / "old", symlinks=True)
    (tmp_path / "old" / "format").unlink()
    before = everything(tmp_path / "old")
    with pytest.raises(ConfigError, match=r"before 1\.0"):
        ServiceFolder(tmp_path / "old", only_read=True)
    assert everything(tmp_path / "old") == before


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
    }
