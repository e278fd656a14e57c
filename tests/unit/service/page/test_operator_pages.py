"""What is on the operator's pages: what the folder says, and nobody's name."""

from __future__ import annotations

import html
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from hdpmf.common.methods import method_named
from hdpmf.common.privacy.coding import WEIGHT_SCALE
from hdpmf.errors import ConfigError
from hdpmf.untrusted.service import health
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.page.views import ModelItems
from hdpmf.untrusted.service.past_runs import weight_deviations
from tests.unit.service.page.conftest import PAGES
from tests.world import BITS, GROWING, SUMS, Federation, growing_federation


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
    assert "No process serves this folder now" in text
    assert "was given up" in text
    assert "To do: begin a new one when its reason is gone" in text
    assert "authority ends on " in text
    assert "server ends on " in text
    with town.folder.serving():
        assert "A process serves this folder." in told(operator, "/overview")


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
    assert f"{done} hdp-sum sums done 1/1 8 8 5000, proved 0" in text
    assert f"{given_up} hdp-sum sums given up 0/1" in text


def test_devices_are_counted_and_refusals_classed_and_nobody_is_named(
    operator, town: Federation, monkeypatch
):
    monkeypatch.setattr(ServiceFolder, "summary", lambda *_: {"refusals": {"policy": 3, "odd": 1}})
    text = told(operator, "/devices")
    assert "Devices 8 Users behind them 8" in text
    assert town.folder.enrolled.digest in text
    assert "policy 3 their owners' policies forbid it" in text
    assert "odd 1 their answers could not be taken" in text


def test_who_shows_something_is_counted_by_level(operator, monkeypatch):
    levels = {"seen": {"people": 5, "ratings": 1_234}, "open": {"people": 2, "ratings": 60}}
    assert "What people show" not in told(operator, "/devices")
    monkeypatch.setattr(ServiceFolder, "summary", lambda *_: {"levels": levels})
    text = told(operator, "/devices")
    assert "Seen: what they rated, each with a random bit 5 people, 1,234 ratings" in text
    assert "Open: ratings as they are 2 people, 60 ratings" in text
    assert "Whoever hides everything is in the sums only" in text


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
    assert "Budgets promised" in text


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
    assert "No run was begun yet" in told(newcomer, "/runs")
    assert "No run was begun yet." in told(newcomer, "/devices")
    assert "There is no model yet" in told(newcomer, "/model")
    assert "knows its items, its roster and nothing else" in told(newcomer, "/knowledge")


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
