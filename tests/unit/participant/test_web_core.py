"""The web app's core takes part: what it sends is signed, opened, checked and summed here."""

from __future__ import annotations

import json
import shutil
import subprocess
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from hdpmf.common.protocol.task import Pairs, read_task, task_id
from hdpmf.errors import TransportError
from hdpmf.private.device.public import take_catalogue
from hdpmf.private.device.seal import own_row
from tests.unit.participant import publishing
from tests.unit.participant.outside import Outside, published_in, sealed
from tests.unit.participant.publishing import FILMS, ITEMS, PERIOD, START

WEB = Path(__file__).parents[3] / "clients" / "web"
RUNNER = WEB / "node_modules" / ".bin" / "vite-node"

pytestmark = pytest.mark.skipif(
    not (shutil.which("node") and RUNNER.exists()), reason="make web installs what this runs"
)

PROOF = "a" * 32  # the secret of an invitation
RATINGS = {ITEMS[0]: 5.0, ITEMS[2]: 1.0, ITEMS[5]: 4.0, ITEMS[11]: 3.0}


def take_part(outside: Outside, until: int, *, ahead: float = 0, **options: Any) -> dict[str, Any]:
    """Let the core live in this world, its clock so far ahead; return what it says at its end."""
    begun = publishing.state(**options)
    begin = {
        "now": START,
        "until": until,
        "invitation": msgspec.to_builtins(begun.of(FILMS).invitation),
        "limits": msgspec.to_builtins(begun.limits),
        "wish": begun.wish,
        "proof": PROOF,
        "seed": begun.seed.hex(),
        "ratings": {item: each.value for item, each in begun.ratings_of(FILMS).items()},
    }
    command = [str(RUNNER), "core/test/participant.ts"]
    with subprocess.Popen(
        command, cwd=WEB, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            asked = json.loads(line)
            if asked["what"] == "end":
                process.stdin.write("{}\n")
                process.stdin.close()
                return dict(asked)
            answer = begin if asked["what"] == "begin" else _answer(outside, asked, ahead)
            process.stdin.write(json.dumps(answer) + "\n")
            process.stdin.flush()
    raise AssertionError("the core ended before its time")


def _answer(outside: Outside, asked: dict[str, Any], ahead: float) -> dict[str, Any]:
    outside.now = asked["now"]
    if asked["what"] == "read":
        try:
            return {"data": outside.read(asked["url"], asked["most"]).hex()}
        except TransportError:
            return {"data": None}
    if asked["what"] == "date":
        outside.requests.append((asked["now"], f"GET {asked['url']}", 0))
        return {"date": formatdate(asked["now"] - ahead, usegmt=True)}
    body = bytes.fromhex(asked["body"])
    told = outside.send(sealed("POST", asked["url"], asked["headers"], body))
    return {"status": told.status, "body": told.body.hex()}


@pytest.mark.parametrize("sums", [publishing.linear(), publishing.pairs()], ids=["linear", "pairs"])
def test_a_report_of_the_core_is_counted_with_the_row_that_this_device_would_send(
    sums: Any,
) -> None:
    document = publishing.task(sums=sums)
    outside = published_in(task=document)
    end = take_part(outside, START + PERIOD, ratings=RATINGS, wish=800)
    assert end["done"] is True
    assert [line["zeros"] for line in end["ledger"]] == [False]
    assert len(outside.reports) == 1
    assert [each.secret for each in outside.enrolments] == [PROOF]
    state = publishing.state(RATINGS, wish=800)
    state = state.with_joined(publishing.joined())
    state = take_catalogue(state, state.of(FILMS), publishing.CATALOGUE.to_bytes())
    row = own_row(state, state.of(FILMS), read_task(document))
    assert np.abs(row).sum() > 100
    if isinstance(sums, Pairs):
        row = np.outer(row, row)[np.triu_indices(len(row))]
    assert outside.sums(document, task_id(document)) == row.tolist()


def test_whether_and_when_the_core_answers_and_in_which_size_depends_on_no_rating() -> None:
    document = publishing.task()
    seen = []
    for ratings, limits in ((RATINGS, publishing.LIMITS), ({}, publishing.LIMITS)):
        outside = published_in(task=document)
        take_part(outside, START + PERIOD, ratings=ratings, limits=limits)
        sent = [each for each in outside.requests if not each[1].startswith("GET")]
        seen.append([(int(at), size) for at, _, size in sent])
    assert len(seen[0]) == 3  # an enrolment, a token, a report
    assert seen[0] == seen[1]


@pytest.mark.parametrize(("ahead", "reports"), [(-299, 1), (299, 1), (302, 0), (-302, 0)])
def test_a_core_whose_clock_is_wrong_sends_no_report(ahead: float, reports: int) -> None:
    outside = published_in(task=publishing.task())
    take_part(outside, START + PERIOD, ahead=ahead, ratings=RATINGS)
    assert len(outside.reports) == reports
    asked = [url for _, url, _ in outside.requests if "healthz" in url]
    assert set(asked) == {f"GET {publishing.SERVERS.leader.url}/healthz"}
    assert len(asked) > 1 - reports
