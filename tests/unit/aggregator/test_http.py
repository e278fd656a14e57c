"""Tasks and reports over HTTP, without a network: who may give one, and what is wrong with it."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import httpx
import msgspec
import pytest

from hdpmf.common.aggregation.two_servers.dap.messages import (
    COLLECTION_JOBS_PATH,
    MEDIA_TYPES,
    REPORTS_PATH,
    HpkeConfigList,
    Problem,
    ReportError,
    ReportUploadStatus,
    UploadErrors,
    UploadRequest,
    id_to_text,
)
from hdpmf.common.protocol.task import (
    TASK_PATH,
)
from hdpmf.errors import ConfigError, StorageError
from hdpmf.untrusted.aggregator.aggregation_job_driver import AggregationJobDriver
from hdpmf.untrusted.aggregator.folder import AggregatorConfig, AggregatorFolder
from hdpmf.untrusted.aggregator.helper import Helper
from hdpmf.untrusted.aggregator.http import HelperResources, LeaderResources, Resources
from hdpmf.untrusted.aggregator.leader import Leader
from hdpmf.untrusted.aggregator.metrics import AggregatorMetrics
from hdpmf.untrusted.aggregator.serve import check_servable, open_server
from tests.aggregator.server_processes import _FOLDERS, CollectorHere, make_task

Role = Literal["leader", "helper"]


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, AggregatorFolder]:
    """A leader and a helper that know each other."""
    roles: tuple[Role, ...] = ("leader", "helper")
    made = {
        role: AggregatorFolder.create(
            tmp_path / role,
            AggregatorConfig(role=role, organisation=role, name=f"{role}.example"),
        )
        for role in roles
    }
    made["leader"].pair(made["helper"].card)
    made["helper"].pair(made["leader"].card)
    return made


def answers_to(folder: AggregatorFolder, requests: list[httpx.Request]) -> list[httpx.Response]:
    """What a server answers to each of these requests."""

    async def ask(resources: Resources) -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(resources.app())) as client:
            found = [await client.send(request) for request in requests]
        await Resources.stop(resources)
        return found

    with open_server(folder) as engine:
        if isinstance(engine, Leader):
            leader = LeaderResources(folder, engine, AggregatorMetrics())  # type: ignore[arg-type]
            return asyncio.run(ask(leader))
        return asyncio.run(ask(HelperResources(folder, engine, AggregatorMetrics())))


def test_one_worker_serves_a_folder_with_sqlite_and_no_more(
    folders: dict[str, AggregatorFolder],
) -> None:
    check_servable(folders["leader"], 1)
    with pytest.raises(ConfigError, match="several workers need a database"):
        check_servable(folders["leader"], 2)


Answers = Callable[[httpx.AsyncClient, LeaderResources], Awaitable[None]]
REPORT = MEDIA_TYPES[UploadRequest]


class Uploads:
    """A leader that takes reports, and aggregates nothing."""

    def __init__(
        self, folders: dict[str, AggregatorFolder], *, enrolled: bool = False, waiting: int = 2
    ) -> None:
        for folder in folders.values():
            _FOLDERS[folder.card.identity] = folder
        servers = folders["leader"].servers
        assert servers is not None
        collector = CollectorHere("shop")
        folders["leader"].admit(collector.card)
        self.folder = folders["leader"]
        self.asked = make_task(servers, collector.card, minimum=10, enrolled=enrolled)
        self.path = REPORTS_PATH.format(task_id=id_to_text(self.asked.id))
        self.metrics = AggregatorMetrics()
        self.waiting = waiting

    def run(self, story: Answers) -> None:
        limits = msgspec.structs.replace(self.folder.config.limits, waiting_uploads=self.waiting)

        async def served(engine: Leader) -> None:
            resources = LeaderResources(self.folder, engine, self.metrics)
            resources._limits = limits
            resources._writer._room = self.waiting
            app = resources.app()
            transport = httpx.ASGITransport(app)
            async with (
                app.router.lifespan_context(app),
                httpx.AsyncClient(transport=transport, base_url="https://server") as client,
            ):
                await story(client, resources)

        with open_server(self.folder) as engine:
            assert isinstance(engine, Leader)
            engine.add_task(self.asked.document)
            asyncio.run(served(engine))

    def outcomes(self) -> dict[str, float]:
        return {
            sample.labels["outcome"]: sample.value
            for found in self.metrics.uploads.collect()
            for sample in found.samples
            if sample.name.endswith("_total") and sample.value
        }


@pytest.fixture(autouse=True)
def _nothing_is_aggregated(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(driver: AggregationJobDriver) -> None:
        driver._leader.partner_clock.compare(time.time())

    monkeypatch.setattr(AggregationJobDriver, "start", start)


def test_reports_are_taken_and_refused_for_what_they_are(
    folders: dict[str, AggregatorFolder],
) -> None:
    uploads = Uploads(folders)
    report = uploads.asked.report([1, 2, 3, 4])
    answers: list[httpx.Response] = []

    async def cut() -> AsyncIterator[bytes]:
        yield report[:-1]

    async def story(client: httpx.AsyncClient, _: LeaderResources) -> None:
        kind = {"content-type": REPORT}
        unknown = REPORTS_PATH.format(task_id=id_to_text(bytes(32)))
        sent: list[tuple[str, Any, dict[str, str]]] = [
            (uploads.path, report, kind),
            (uploads.path, report, {"content-type": f"{REPORT.upper()}; charset=x"}),
            (uploads.path, report, {"content-type": "text/plain"}),
            (uploads.path, report[:-1], kind),
            (uploads.path, report + b"x", kind),
            (uploads.path, cut(), kind),
            (uploads.path, cut(), kind | {"content-length": "1" * 16}),
            (uploads.path, cut(), kind | {"content-length": "1" * 15}),
            (unknown, report, kind),
            (uploads.path, bytes(len(report)), kind),
        ]
        for path, body, headers in sent:
            answers.append(await client.post(path, content=body, headers=headers))

    uploads.run(story)
    assert [answer.status_code for answer in answers] == [
        200, 200, 415, 400, 400, 411, 411, 413, 404, 400,
    ]  # fmt: skip
    closed = [answer.headers.get("connection") == "close" for answer in answers]
    assert closed == [False] * 2 + [True] * 6 + [False] * 2
    size = len(report)
    assert answers[3].json() == {
        "type": "about:blank", "title": "Bad Request", "status": 400,
        "detail": f"expected a multiple of {size} and at most {16 << 20} bytes, not {size - 1}",
    }  # fmt: skip
    found = uploads.outcomes()
    assert (found["accepted"], found["failed"]) == (2, 6)
    assert found[Problem.UNRECOGNIZED_TASK] == 1


def test_several_reports_fit_one_upload_and_each_has_its_answer(
    folders: dict[str, AggregatorFolder],
) -> None:
    uploads = Uploads(folders, waiting=4)
    first, second, third = (uploads.asked.report([1, 2, 3, number]) for number in range(3))
    clash = uploads.asked.report([9, 9, 9, 9], report_id=first[:16])
    answers: list[httpx.Response] = []

    async def story(client: httpx.AsyncClient, resources: LeaderResources) -> None:
        for body in (first + second, third + clash + second, third * 5):
            kind = {"content-type": REPORT}
            answers.append(await client.post(uploads.path, content=body, headers=kind))
        assert resources._leader.waiting() == 3
        assert resources._writer.expected == 0

    uploads.run(story)
    taken, partly, many = answers
    assert (taken.status_code, taken.content) == (200, b"")
    assert (partly.status_code, partly.headers["content-type"]) == (200, MEDIA_TYPES[UploadErrors])
    refused = ReportUploadStatus(first[:16], ReportError.REPORT_REPLAYED)
    assert UploadErrors.decode(partly.content).status == (refused,)
    assert many.status_code == 503  # more than may wait
    assert uploads.outcomes() == {"accepted": 4, "report_replayed": 1, "busy": 1}


def test_a_token_is_for_one_report_of_an_upload(folders: dict[str, AggregatorFolder]) -> None:
    uploads = Uploads(folders, enrolled=True)
    report, headers = uploads.asked.admitted([1, 2, 3, 4])
    statuses: list[int] = []

    async def story(client: httpx.AsyncClient, _: LeaderResources) -> None:
        for body in (report * 2, report):
            told = {"content-type": REPORT, **headers}
            statuses.append(
                (await client.post(uploads.path, content=body, headers=told)).status_code
            )

    uploads.run(story)
    assert statuses == [413, 200]


def test_keys_are_served_as_dap_has_them(folders: dict[str, AggregatorFolder]) -> None:
    for role in ("leader", "helper"):
        (answer,) = answers_to(folders[role], [httpx.Request("GET", "https://server/hpke_config")])
        assert answer.headers["content-type"] == MEDIA_TYPES[HpkeConfigList]
        (config,) = HpkeConfigList.decode(answer.content).hpke_configs
        assert config == folders[role].hpke.config


def test_a_helper_goes_on_where_old_data_cannot_be_deleted(
    folders: dict[str, AggregatorFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hdpmf.untrusted.aggregator.http._GARBAGE_SECONDS", 0.01)
    tried = threading.Event()
    times: list[int] = []

    async def served(helper: Helper) -> None:
        def fail() -> None:
            times.append(1)
            if len(times) > 2:
                tried.set()
            raise StorageError("a full disk")

        monkeypatch.setattr(helper, "collect_garbage", fail)
        app = HelperResources(folders["helper"], helper, AggregatorMetrics()).app()
        async with app.router.lifespan_context(app):
            assert await asyncio.to_thread(tried.wait, 30.0)
        ended = len(times)
        await asyncio.sleep(0.1)
        assert len(times) <= ended + 1

    with open_server(folders["helper"]) as engine:
        assert isinstance(engine, Helper)
        asyncio.run(served(engine))


@pytest.mark.parametrize("lost", ["deleted", "replaced"])
def test_a_folder_that_had_a_database_is_not_served_without_it(
    folders: dict[str, AggregatorFolder], lost: str
) -> None:
    folder = folders["helper"]
    check_servable(folder, 1)
    with open_server(folder):
        pass  # the same one again is no loss
    path = folder.path / "data.sqlite"
    path.unlink()
    if lost == "replaced":
        folders["leader"].open_database().close()
        shutil.copy(folders["leader"].path / "data.sqlite", path)
    for _ in range(2):
        with pytest.raises(ConfigError, match="Bring back the newest copy"):
            check_servable(folder, 1)
    assert path.exists() == (lost == "replaced")  # no empty one was made


def test_every_refusal_is_a_problem_document(folders: dict[str, AggregatorFolder]) -> None:
    shop = CollectorHere("shop")
    task, job = id_to_text(bytes(32)), id_to_text(bytes(16))
    of_task = [
        ("POST", REPORTS_PATH.format(task_id=task)),
        ("GET", REPORTS_PATH.format(task_id=task)),
        ("POST", COLLECTION_JOBS_PATH.format(task_id=task)),
        ("GET", COLLECTION_JOBS_PATH.format(task_id=task) + "/" + job),
        ("GET", COLLECTION_JOBS_PATH.format(task_id=task) + "/x"),
        ("PUT", TASK_PATH.format(task_id=task)),
    ]
    others = [
        ("POST", REPORTS_PATH.format(task_id="x")),
        ("GET", "/nothing"),
        ("GET", "/metrics"),
        ("POST", "/healthz"),
    ]
    folders["leader"].admit(shop.card)
    headers = shop.headers(folders["leader"].card)
    asked = [
        httpx.Request(method, "https://server" + path, headers=headers)
        for method, path in of_task + others
    ]
    answers = answers_to(folders["leader"], asked)
    for answer in answers:
        assert 400 <= answer.status_code < 500
        assert answer.headers["content-type"] == "application/problem+json"
        details = answer.json()
        assert details["type"]
        assert details["title"]
        assert details["status"] == answer.status_code
