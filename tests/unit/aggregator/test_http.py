"""Tasks over HTTP, without a network: who may give one, and what is wrong with it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Literal

import httpx
import pytest

from hdpmf.common.aggregation.two_servers.dap.messages import Problem, id_to_text
from hdpmf.common.protocol import Accepted, encode
from hdpmf.common.protocol.task import TASK_MEDIA_TYPE, TASK_PATH, encode_submission, task_id
from hdpmf.errors import ConfigError
from hdpmf.untrusted.aggregator.folder import AggregatorConfig, AggregatorFolder
from hdpmf.untrusted.aggregator.http import HelperResources, LeaderResources, Resources
from hdpmf.untrusted.aggregator.leader import Leader
from hdpmf.untrusted.aggregator.metrics import AggregatorMetrics
from hdpmf.untrusted.aggregator.prefork import check_servable, open_server
from tests.aggregator.server_processes import CollectorHere, make_task

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
            leader = LeaderResources(folder, engine, AggregatorMetrics(), lambda: False)  # type: ignore[arg-type]
            return asyncio.run(ask(leader))
        return asyncio.run(ask(HelperResources(folder, engine, AggregatorMetrics())))


def put(
    folder: AggregatorFolder, collector: CollectorHere, tasks: list[tuple[bytes, bytes]]
) -> list[httpx.Response]:
    """Give a server these tasks, each an id and a document; what it answers."""
    headers = {**collector.headers(folder.card), "content-type": TASK_MEDIA_TYPE}
    return answers_to(
        folder,
        [
            httpx.Request(
                "PUT",
                "https://server" + TASK_PATH.format(task_id=id_to_text(found_id)),
                content=encode_submission(document),
                headers=headers,
            )
            for found_id, document in tasks
        ],
    )


@pytest.mark.parametrize("role", ["leader", "helper"])
def test_a_recommender_gives_tasks_of_its_own_only(
    folders: dict[str, AggregatorFolder], role: str
) -> None:
    folder, shop, films = folders[role], CollectorHere("shop"), CollectorHere("films")
    for known in (shop, films):
        folder.admit(known.card)
    servers = folder.servers
    assert servers is not None
    begin = int(time.time())
    own, foreign = (make_task(servers, who.card, minimum=10, begin=begin) for who in (shop, films))
    no_task = encode(Accepted())
    answers = put(
        folder,
        shop,
        [
            (own.id, own.document),
            (own.id, own.document),  # the same again is nothing new
            (foreign.id, foreign.document),
            (foreign.id, own.document),
            (task_id(no_task), no_task),
        ],
    )
    assert [answer.status_code for answer in answers] == [201, 201, 403, 400, 403]
    assert answers[2].json()["type"].endswith(Problem.UNAUTHORIZED_REQUEST)
    with open_server(folder) as engine:
        assert engine.task_ids() == [own.id]


def test_metrics_are_for_the_operator(folders: dict[str, AggregatorFolder]) -> None:
    folder = folders["helper"]
    shown = [{}, {"authorization": "Bearer wrong"}]
    shown.append({"authorization": f"Bearer {folder.metrics_token}"})
    url = "https://server/metrics"
    answers = answers_to(folder, [httpx.Request("GET", url, headers=one) for one in shown])
    assert [answer.status_code for answer in answers] == [403, 403, 200]
    assert ["hdpmf" in answer.text for answer in answers] == [False, False, True]


def test_one_worker_serves_a_folder_with_sqlite_and_no_more(
    folders: dict[str, AggregatorFolder],
) -> None:
    check_servable(folders["leader"], 1)
    with pytest.raises(ConfigError, match="at least one worker"):
        check_servable(folders["leader"], 0)
    with pytest.raises(ConfigError, match="several workers need a database"):
        check_servable(folders["leader"], 2)
