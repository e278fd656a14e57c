"""``hdpmf device receipt``: written, shown, and checked by somebody who has nothing but the
file.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from hdpmf.common.protocol.task import task_id
from tests.unit.device.reporting_world import (
    PERIOD,
    STARS,
    World,
    live,
    make_store,
    make_task,
    reporter,
)

from .conftest import Call

RUN = task_id(make_task()).hex()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that has reported once."""
    where, world = tmp_path / "me.sqlite", World()
    world.publish(task=make_task())
    with make_store(path=where) as store:
        live(reporter(store, world), world, PERIOD + 200)
    assert len(world.uploads) == 1
    return where


def test_a_receipt_is_written_and_checked(tmp_path: Path, path: Path, call: Call):
    file = tmp_path / "receipt.json"
    done = call("device", "receipt", path, RUN[:8], "--out", file)
    assert done.code == 0
    assert "holds no rating" in done.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not any(item in file.read_text() for item in STARS)
    path.unlink()
    said = " ".join(call("device", "receipt", "--check", file).out.split())
    assert "The signature holds" in said
    assert "no proof that anybody got the bytes" in said
    assert f"Run {RUN}, asked for by https://films.example." in said
    assert "Summed by Leaders (https://leaders.example:8443) and Helpers" in said
    assert (
        "Terms: hdp-sum, view two-servers, epsilon 0.5, 1 round, in sums over 100 people at least."
        in said
    )
    assert "The leader answered 201 at" in said
    told = call("device", "receipt", "--check", file, "--json").json
    assert told["signature_holds"]
    assert told["receipt"]["run"] == RUN
    file.write_text(file.read_text().replace("201", "202"))
    wrong = call("device", "receipt", "--check", file)
    assert wrong.code == 2
    assert "does not hold" in wrong.err
    assert wrong.out == ""


def test_a_receipt_is_shown_and_nothing_is_overwritten(tmp_path: Path, path: Path, call: Call):
    assert "bytes left, number 0, SHA-256" in " ".join(
        call("device", "receipt", path, RUN).out.split()
    )
    told = call("device", "receipt", path, RUN, "--json").json
    assert told["file"] is None
    assert told["receipt"]["left"][0]["answer"] == 201
    assert f"hdpmf device receipt {path} RUN" in call("device", "ledger", path).out
    (of_ledger,) = call("device", "ledger", path, "--json").json["receipts"]
    assert of_ledger["left"] == told["receipt"]["left"]
    (tmp_path / "there").write_text("mine")
    assert "exists already" in call("device", "receipt", path, RUN, "--out", tmp_path / "there").err
    assert (tmp_path / "there").read_text() == "mine"


def test_what_makes_no_sense_is_refused(tmp_path: Path, path: Path, call: Call):
    assert "STORE and RUN" in call("device", "receipt").err
    assert "STORE and RUN" in call("device", "receipt", path).err
    assert "stands alone" in call("device", "receipt", path, "--check", path).err
    assert RUN[:8] in call("device", "receipt", path, "77").err
    (tmp_path / "other").write_text(json.dumps({"format": "other"}))
    assert "no receipt" in call("device", "receipt", "--check", tmp_path / "other").err
    assert "cannot read" in call("device", "receipt", "--check", tmp_path / "nothing").err
