"""The HTTP resources of leader and helper: DAP's (draft-ietf-ppm-dap-18) and a few of our own.

::

    GET  /hpke_config                                   everybody
    GET  /hpke_config/signed                            ours: everybody
    POST /tasks/{task}/reports                          leader, devices
    POST /tasks/{task}/collection_jobs, GET .../{job}   leader, the task's collector
    POST /tasks/{task}/aggregation_jobs, GET .../{job}  helper, the leader
    POST /tasks/{task}/aggregate_shares                 helper, the leader
    PUT  /tasks/{task}                                  ours: collectors that were admitted
    POST /epoch                                         ours: helper, the leader
    GET  /healthz                                       ours: everybody
    GET  /metrics                                       ours: the operator

The caller is authenticated first, then the announced length is checked, and only then is the body
read. Computation and disk access run in threads.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TypeVar

from hdpmf.common.aggregation.two_servers.dap.codec import Message
from hdpmf.common.aggregation.two_servers.dap.messages import (
    AGGREGATE_SHARES_PATH,
    AGGREGATION_JOBS_PATH,
    COLLECTION_JOBS_PATH,
    HPKE_CONFIG_PATH,
    JOB_ID_SIZE,
    JOB_PATH,
    MEDIA_TYPES,
    PROBLEM_MEDIA_TYPE,
    REPORT_ID_SIZE,
    REPORTS_PATH,
    TASK_ID_SIZE,
    AggregateShare,
    AggregateShareReq,
    AggregationJobInitReq,
    AggregationJobResp,
    CollectionJobReq,
    CollectionJobResp,
    HpkeConfigList,
    Problem,
    ReportRefusedError,
    ReportUploadStatus,
    UploadErrors,
    UploadRequest,
    id_from_text,
    id_to_text,
    job_id,
    media_type,
)
from hdpmf.common.aggregation.two_servers.tokens import TOKEN_HEADER, Token
from hdpmf.common.base.files import storage_errors
from hdpmf.common.base.logs import event
from hdpmf.common.net.https import HEALTH_PATH, date_of
from hdpmf.common.net.server import PUBLIC
from hdpmf.common.protocol.key_list import SIGNED_KEYS_MEDIA_TYPE, SIGNED_KEYS_PATH
from hdpmf.common.protocol.task import (
    TASK_MEDIA_TYPE,
    TASK_PATH,
    read_task,
    task_id,
)
from hdpmf.errors import (
    DapError,
    PrioError,
    ProtocolError,
    StorageError,
    TransportError,
    needs,
)
from hdpmf.untrusted.aggregator.aggregation_job_driver import AggregationJobDriver
from hdpmf.untrusted.aggregator.folder import (
    JOB_REPORTS,
    RETRY_AFTER,
    TASK_BYTES,
    AggregatorFolder,
    BearerTokens,
)
from hdpmf.untrusted.aggregator.helper import Helper
from hdpmf.untrusted.aggregator.leader import Leader
from hdpmf.untrusted.aggregator.metrics import AggregatorMetrics
from hdpmf.untrusted.aggregator.report_writer import ReportWriter, Upload
from hdpmf.untrusted.aggregator.server import (
    EPOCH_MEDIA_TYPE,
    EPOCH_PATH,
    EPOCH_SIZE,
    read_epoch,
)
from hdpmf.untrusted.aggregator.tasks import AggregatorTask

with needs("starlette", "servers"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route


_STATUS = {
    Problem.UNRECOGNIZED_TASK: 404,
    Problem.UNRECOGNIZED_AGGREGATION_JOB: 404,
    Problem.UNAUTHORIZED_REQUEST: 403,
}

_CLOSE = {"connection": "close"}


def problem_response(error: Exception) -> Response:
    """Return the problem document (RFC 9457) for an error; unexpected errors disclose nothing."""
    if isinstance(error, HTTPException):
        return _problem(error.status_code, str(error.detail), headers=error.headers)
    if isinstance(error, (StorageError, TransportError)):
        event("unavailable", logging.ERROR, error)
        later = {"retry-after": str(RETRY_AFTER)}
        return _problem(503, "not possible at the moment; try again later", headers=later)
    if isinstance(error, (PrioError, ProtocolError)):
        kind = Problem(getattr(error, "kind", Problem.INVALID_MESSAGE))
        return _problem(_STATUS.get(kind, 400), str(error), kind.uri)
    event("failed", logging.ERROR, error)
    return _problem(500, "an error of this server")


def _problem(
    status: int,
    detail: str,
    kind: str = "about:blank",
    headers: Mapping[str, str] | None = None,
) -> Response:
    details = {
        "type": kind,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    return JSONResponse(details, status, dict(headers or {}), PROBLEM_MEDIA_TYPE)


class _TryLaterError(HTTPException):
    """Nothing is taken now; ``outcome`` is for the metrics."""

    def __init__(self, outcome: str, why: str) -> None:
        super().__init__(503, why, {"retry-after": str(RETRY_AFTER)})
        self.outcome = outcome


async def read_body(request: Request, wanted: str, most: int) -> bytes:
    """Read a body of announced length; raise HTTPException, before reading, if it is wrong."""
    check_body(request, wanted, most)
    return await read_checked(request)


async def read_checked(request: Request) -> bytes:
    """Read a body that was checked; raise HTTPException if it is cut."""
    try:
        return await request.body()
    except ClientDisconnect:
        raise HTTPException(400, "the request was cut") from None


def check_body(request: Request, wanted: str, most: int, parts: int | None = None) -> int:
    """Return the announced length; raise HTTPException unless that and the type are acceptable.

    Args:
        parts: Of how many bytes the body consists.
    """
    if media_type(request.headers.get("content-type", "")) != wanted:
        raise HTTPException(415, f"expected {wanted}", _CLOSE)
    stated = request.headers.get("content-length", "")
    if not (stated.isascii() and stated.isdigit() and len(stated) <= 15):
        raise HTTPException(411, "the request must say how long it is", _CLOSE)
    size = int(stated)
    if size > most or (parts and (size % parts or not size)):
        limit = f"a multiple of {parts} and " if parts else ""
        raise HTTPException(
            413 if size > most else 400, f"expected {limit}at most {most} bytes, not {size}", _CLOSE
        )
    return size


T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]
_COLLECT_SECONDS = 5  # after which a collector may ask again
_QUERY_SIZE = 128  # bytes of a CollectionJobReq or an AggregateShareReq, at most
_MOST_UPLOADED = 16 << 20  # bytes of an upload of several reports
_KEYS_SECONDS = 3600  # for which a list of keys may be kept
_THREADS = 4
_ROOM = 1 << 20  # bytes of a disk below which a server is not ready
_GARBAGE_SECONDS = 3600.0


class Resources:
    """Resources that both servers have."""

    def __init__(
        self, folder: AggregatorFolder, engine: Leader | Helper, metrics: AggregatorMetrics
    ) -> None:
        self._path = folder.path
        self._engine = engine
        self._tokens = BearerTokens(folder)
        self._limits = folder.config.limits
        self._metrics = metrics
        self._tasks: dict[bytes, AggregatorTask] = {}
        self._threads = ThreadPoolExecutor(_THREADS, "request")

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            self._route(HPKE_CONFIG_PATH, "keys", GET=self._get_keys),
            self._route(SIGNED_KEYS_PATH, "keys", GET=self._get_signed_keys),
            self._route(TASK_PATH, "task", PUT=self._put_task),
            self._route(HEALTH_PATH, "health", GET=self._health),
            self._route("/metrics", "metrics", GET=self._get_metrics),
        ]

    async def start(self) -> None:
        """Start background work, before the first request."""

    async def stop(self) -> None:
        """Stop background work, after the last request."""
        self._threads.shutdown()

    def app(self) -> Starlette:
        """Return the Starlette application."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            await self.start()
            yield
            await self.stop()

        async def refuse(request: Request, error: Exception) -> Response:
            return problem_response(error)

        return Starlette(
            routes=self.routes(),
            lifespan=lifespan,
            middleware=[PUBLIC],
            exception_handlers={HTTPException: refuse},
        )

    def _route(self, path: str, resource: str, **handlers: Handler) -> Route:
        metrics = self._metrics
        metrics.begin(resource)
        seconds = metrics.requests.labels(resource)

        async def answer(request: Request) -> Response:
            with seconds.time():
                try:
                    # The answer to HEAD is that to GET; uvicorn leaves the body out.
                    method = "GET" if request.method == "HEAD" else request.method
                    response = await handlers[method](request)
                except Exception as error:  # the caller gets an answer, the log the kind of error
                    response = problem_response(error)
            metrics.answers.labels(resource, response.status_code).inc()
            event("answered", logging.DEBUG, resource=resource, status=response.status_code)
            return response

        return Route(path, answer, methods=list(handlers), include_in_schema=False)

    def _later(self, outcome: str, why: str) -> _TryLaterError:
        return _TryLaterError(outcome, why)

    def _check_clocks(self) -> None:
        """Raise if the clocks of the two servers differ: reports would be lost, or batches cut."""
        if self._engine.partner_clock.differs:
            raise self._later(
                "clock",
                "the clocks of the two servers differ; nothing is taken until they are right",
            )

    def _check_partner(self, request: Request) -> None:
        """Raise DapError unless the other server asks; look at its clock."""
        self._tokens.check_partner(request.headers)
        theirs = date_of(request.headers)
        if theirs is not None:
            self._engine.partner_clock.compare(theirs)

    async def _in_thread(self, work: Callable[..., T], *given: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    async def _task(self, request: Request) -> AggregatorTask:
        """Return the task in the path."""
        found_id = id_from_text(request.path_params["task_id"], TASK_ID_SIZE)
        found = self._tasks.get(found_id)
        if found is None:
            found = self._tasks[found_id] = await self._in_thread(self._engine.task, found_id)
        return found

    async def _get_keys(self, request: Request) -> Response:
        found = await self._in_thread(self._engine.keys)
        fresh = {"cache-control": f"max-age={_KEYS_SECONDS}"}
        return Response(found, media_type=MEDIA_TYPES[HpkeConfigList], headers=fresh)

    async def _get_signed_keys(self, request: Request) -> Response:
        found = await self._in_thread(self._engine.signed_keys)
        fresh = {"cache-control": "no-cache"}
        return Response(found, media_type=SIGNED_KEYS_MEDIA_TYPE, headers=fresh)

    async def _put_task(self, request: Request) -> Response:
        asking = await self._in_thread(self._tokens.collector, request.headers)
        stated = id_from_text(request.path_params["task_id"], TASK_ID_SIZE)
        body = await read_body(request, TASK_MEDIA_TYPE, TASK_BYTES)
        await self._in_thread(self._add_task, asking, stated, body)
        return Response(status_code=201)

    async def _own_task(self, request: Request) -> AggregatorTask:
        """Return the task in the path; raise DapError unless its collector asks."""
        asking = await self._in_thread(self._tokens.collector, request.headers)
        task = await self._task(request)
        if task.document.collector.identity != asking:
            raise DapError("this is another recommender's task", Problem.UNAUTHORIZED_REQUEST)
        return task

    def _add_task(self, asking: str, stated: bytes, body: bytes) -> None:
        task = read_task(body)
        if task_id(body) != stated:
            raise DapError("the id in the path is not that of the document")
        if task.collector.identity != asking:
            raise DapError(
                "a recommender gives tasks of its own only", Problem.UNAUTHORIZED_REQUEST
            )
        self._engine.add_task(body)

    async def _health(self, request: Request) -> Response:
        with suppress(DapError):  # it is for everybody
            self._check_partner(request)
        await self._in_thread(self._check_room)
        await self._in_thread(self._engine.check_database)
        return Response(b"ok\n", media_type="text/plain")

    def _check_room(self) -> None:
        with storage_errors(f"cannot look at the disk of {self._path}"):
            if shutil.disk_usage(self._path).free < _ROOM:
                raise StorageError("the disk is full; make room")

    async def _get_metrics(self, request: Request) -> Response:
        self._tokens.check_metrics(request.headers)
        return Response(
            await self._in_thread(self._metrics.text), media_type="text/plain; version=0.0.4"
        )


class LeaderResources(Resources):
    """The leader's resources."""

    def __init__(
        self, folder: AggregatorFolder, leader: Leader, metrics: AggregatorMetrics
    ) -> None:
        super().__init__(folder, leader, metrics)
        self._leader = leader
        self._driver = AggregationJobDriver(leader, metrics, self._limits)
        self._writer = ReportWriter(
            leader.upload_many, self._limits.waiting_uploads, self._driver.wake
        )

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            self._route(REPORTS_PATH, "reports", POST=self._upload),
            self._route(COLLECTION_JOBS_PATH, "collection", POST=self._collect),
            self._route(COLLECTION_JOBS_PATH + JOB_PATH, "collection", GET=self._get_collection),
            *super().routes(),
        ]

    async def start(self) -> None:
        """Start background work, before the first request."""
        self._writer.start()
        await asyncio.to_thread(self._driver.start)

    async def stop(self) -> None:
        """Stop background work, after the last request."""
        await self._writer.stop()
        await asyncio.to_thread(self._driver.stop)
        await super().stop()

    async def _upload(self, request: Request) -> Response:
        try:
            refused = await self._take_reports(request)
        except (DapError, _TryLaterError) as error:
            kind = error.kind if isinstance(error, DapError) else error.outcome
            self._metrics.uploads.labels(kind).inc()
            raise
        except Exception:
            self._metrics.uploads.labels("failed").inc()
            raise
        if not refused:
            return Response()
        return Response(UploadErrors(tuple(refused)).encode(), media_type=MEDIA_TYPES[UploadErrors])

    async def _take_reports(self, request: Request) -> list[ReportUploadStatus]:
        """Store the reports of a request; return which are refused. A token is for one report."""
        task = await self._task(request)
        each = task.report_size
        tokens = bool(task.document.token_key)
        most = each if tokens else max(each, _MOST_UPLOADED)
        size = check_body(request, MEDIA_TYPES[UploadRequest], most, each)
        token = _token(request) if tokens else None
        self._check_clocks()
        count = size // each
        held = 0
        try:
            while held < count:
                busy = self._driver.overloaded(self._writer.expected)
                if busy or not self._writer.reserve():
                    raise self._later("busy", "too many reports are waiting; come back later")
                held += 1
            body = await read_checked(request)
            reports = [body[at : at + each] for at in range(0, len(body), each)]
            results = await asyncio.gather(
                *(self._writer.put(Upload(task.id, report, token)) for report in reports),
                return_exceptions=True,
            )
        finally:
            for _ in range(held):
                self._writer.release()
        refused = []
        for report, error in zip(reports, results, strict=True):
            if isinstance(error, ReportRefusedError):
                refused.append(ReportUploadStatus(report[:REPORT_ID_SIZE], error.reason))
            elif error is not None:
                raise error
            outcome = "accepted" if error is None else error.kind
            self._metrics.uploads.labels(outcome).inc()
        return refused

    def _check_clocks(self) -> None:
        """Raise unless the helper was asked for its time, and it is about that of this server."""
        if self._leader.partner_clock.skew is None:
            raise self._later("clock", "the two servers have not compared their clocks yet")
        super()._check_clocks()

    async def _collect(self, request: Request) -> Response:
        task = await self._own_task(request)
        body = await read_body(request, MEDIA_TYPES[CollectionJobReq], _QUERY_SIZE)
        found = await self._in_thread(self._leader.collect, task.id, body)
        return _collection(task, job_id(body), found)

    async def _get_collection(self, request: Request) -> Response:
        task = await self._own_task(request)
        job = id_from_text(request.path_params["job_id"], JOB_ID_SIZE)
        return _collection(task, job, await self._in_thread(self._leader.collection, task.id, job))


class HelperResources(Resources):
    """The helper's resources."""

    def __init__(
        self, folder: AggregatorFolder, helper: Helper, metrics: AggregatorMetrics
    ) -> None:
        super().__init__(folder, helper, metrics)
        self._helper = helper
        self._housekeeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start background work, before the first request."""
        self._housekeeping = asyncio.create_task(self._collect_garbage())

    async def stop(self) -> None:
        """Stop background work, after the last request."""
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        await super().stop()

    async def _collect_garbage(self) -> None:
        """Delete expired data now and then; the leader does so between its jobs."""
        while True:
            try:
                await self._in_thread(self._helper.collect_garbage)
            except Exception as error:  # the server goes on, and tries again
                event("garbage-stays", logging.WARNING, error)
            await asyncio.sleep(_GARBAGE_SECONDS)

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            self._route(AGGREGATION_JOBS_PATH, "aggregation", POST=self._aggregate),
            self._route(AGGREGATION_JOBS_PATH + JOB_PATH, "aggregation", GET=self._get_job),
            self._route(AGGREGATE_SHARES_PATH, "share", POST=self._share),
            self._route(EPOCH_PATH, "epoch", POST=self._meet),
            *super().routes(),
        ]

    async def _meet(self, request: Request) -> Response:
        self._check_partner(request)
        theirs = read_epoch(await read_body(request, EPOCH_MEDIA_TYPE, EPOCH_SIZE))
        found = await self._in_thread(self._helper.meet, theirs)
        return Response(b"%d" % found, media_type=EPOCH_MEDIA_TYPE)

    async def _aggregate(self, request: Request) -> Response:
        self._check_partner(request)
        self._check_clocks()
        task = await self._task(request)
        most = 64 + JOB_REPORTS * task.verify_init_size
        body = await read_body(request, MEDIA_TYPES[AggregationJobInitReq], most)
        found = await self._in_thread(self._helper.aggregation_job, task.id, body)
        return _made(AGGREGATION_JOBS_PATH, task, job_id(body), AggregationJobResp, found)

    async def _get_job(self, request: Request) -> Response:
        self._check_partner(request)
        task = await self._task(request)
        job = id_from_text(request.path_params["job_id"], JOB_ID_SIZE)
        found = await self._in_thread(self._helper.answered, task.id, job)
        if found is None:
            raise DapError("there is no such job", Problem.UNRECOGNIZED_AGGREGATION_JOB)
        return _made(AGGREGATION_JOBS_PATH, task, job, AggregationJobResp, found)

    async def _share(self, request: Request) -> Response:
        self._check_partner(request)
        task = await self._task(request)
        body = await read_body(request, MEDIA_TYPES[AggregateShareReq], _QUERY_SIZE)
        found = await self._in_thread(self._helper.aggregate_share, task.id, body)
        return _made(AGGREGATE_SHARES_PATH, task, job_id(body), AggregateShare, found)


def _collection(task: AggregatorTask, job: bytes, found: bytes | None) -> Response:
    """Return the answer for a collection job; an empty one until it is done."""
    response = _made(COLLECTION_JOBS_PATH, task, job, CollectionJobResp, found or b"")
    if found is None:
        response.headers["retry-after"] = str(_COLLECT_SECONDS)
    return response


def _made(
    path: str, task: AggregatorTask, job: bytes, kind: type[Message], found: bytes
) -> Response:
    """Return a resource that a POST has made, and where it is."""
    where = (path + JOB_PATH).format(task_id=id_to_text(task.id), job_id=id_to_text(job))
    media = MEDIA_TYPES[kind] if found else None
    return Response(found, media_type=media, headers={"location": where})


def _token(request: Request) -> Token:
    """Return the device's token from the header, before the report is read."""
    try:
        return Token.from_header(request.headers.get(TOKEN_HEADER, ""))
    except ProtocolError:
        raise DapError(
            "this task is for enrolled devices, which show a token of the recommender's",
            Problem.UNAUTHORIZED_REQUEST,
        ) from None
