"""The collector's part of sums by two servers: the task it publishes, the request for its sum,
and opening the sum.
"""

from __future__ import annotations

from hdpmf.common.aggregation.two_servers.dap import (
    AggregateShareAad,
    BatchSelector,
    Collection,
    CollectionReq,
    HpkeCiphertext,
    Interval,
    Query,
    Role,
)
from hdpmf.common.aggregation.two_servers.dap.hpke import aggregate_share_info
from hdpmf.common.protocol import Grouping, Popularity, SumContribution, decode
from hdpmf.common.protocol.catalogue import KnownItems
from hdpmf.common.protocol.servers import Servers
from hdpmf.common.protocol.survey_task import answer_of, stated
from hdpmf.common.protocol.task import Part, Task, prio_of, task_id
from hdpmf.errors import DapError, FederationError, ProtocolError
from hdpmf.untrusted.service.collector_keys import CollectorKeys
from hdpmf.untrusted.service.settings import RunSettings

NOISES = 2
"""How many times the whole noise is in a sum: each server adds it."""


def make_task(
    settings: RunSettings,
    known: KnownItems,
    servers: Servers,
    keys: CollectorKeys,
    now: float,
    part: Part = "whole",
    grouping: Grouping | None = None,
) -> Task:
    """What the two servers are to sum, from the next multiple of the precision on."""
    survey = settings.survey(known, settings.sharing(()))
    circuit, noise = stated(survey, part, grouping)
    begin = -int(-now // settings.rounded) * settings.rounded
    return Task(
        servers=servers,
        collector=keys.card,
        circuit=circuit,
        noise=noise,
        begin=begin,
        end=begin + settings.seconds,
        precision=settings.rounded,
        minimum=settings.minimum,
        survey=survey,
        part=part,
        grouping=grouping,
    )


def read_task(document: bytes) -> Task:
    """The task in a checkpoint."""
    task = decode(document)
    if not isinstance(task, Task):
        raise FederationError("the checkpoint holds no task where one should be; start a new run")
    return task


def collection_request(task: Task) -> bytes:
    """The request for the sum of a task: all of it, whenever it is asked, so that there is one
    request only.
    """
    return CollectionReq(Query(batch_interval=_whole(task)), b"").encode()


def open_collection(
    document: bytes, data: bytes, keys: CollectorKeys
) -> tuple[SumContribution | Popularity, int]:
    """The answer in what the leader gave, and how many reports it is over.

    Args:
        document: The task.
        data: A DAP ``Collection``.
        keys: What the servers encrypted to.

    Raises:
        ProtocolError: The sum is not what the task asks for, or cannot be opened.
    """
    task, name = read_task(document), task_id(document)
    try:
        collection = Collection.decode(data)
        numbers = prio_of(task, name).unshard(
            [
                _opened(keys, task, name, collection.leader_encrypted_agg_share, Role.LEADER),
                _opened(keys, task, name, collection.helper_encrypted_agg_share, Role.HELPER),
            ]
        )
    except DapError as error:
        raise ProtocolError(f"the sum of task {name.hex()[:12]} cannot be used: {error}") from error
    if collection.report_count < task.minimum:
        raise ProtocolError(
            f"the sum of task {name.hex()[:12]} is over {collection.report_count} reports; "
            f"{task.minimum} were to be "
            "the fewest. A server does not keep to the task"
        )
    return answer_of(task, numbers), collection.report_count


def _opened(
    keys: CollectorKeys, task: Task, name: bytes, share: HpkeCiphertext, server: Role
) -> bytes:
    aad = AggregateShareAad(name, b"", BatchSelector(batch_interval=_whole(task))).encode()
    try:
        return keys.hpke.open(share, aggregate_share_info(server), aad)
    except DapError as error:
        raise DapError(f"the {server.name.lower()}'s share: {error}", error.kind) from error


def _whole(task: Task) -> Interval:
    return Interval(task.begin, task.end - task.begin)
