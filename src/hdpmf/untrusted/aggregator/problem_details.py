"""Error responses (RFC 9457), and bounded reading of request bodies."""

from __future__ import annotations

import logging

from hdpmf.common.aggregation.two_servers.dap import PROBLEM_MEDIA_TYPE, Problem, problem_details
from hdpmf.common.base.logs import event
from hdpmf.common.net.extras import needs
from hdpmf.errors import DapError, PrioError, ProtocolError, StorageError, TransportError

with needs("starlette", "servers"):
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response

_STATUS = {
    Problem.UNRECOGNIZED_TASK: 404,
    Problem.UNRECOGNIZED_AGGREGATION_JOB: 404,
    Problem.UNAUTHORIZED_REQUEST: 403,
}
_CLOSE = {"connection": "close"}


def problem_response(error: Exception, retry_after: int) -> Response:
    """Return the problem document (RFC 9457) for an error; unexpected errors disclose nothing."""
    if isinstance(error, HTTPException):
        details = {"type": "about:blank", "status": error.status_code, "detail": error.detail}
        return _json(details, error.status_code, dict(error.headers or {}))
    if isinstance(error, (StorageError, TransportError)):
        event("unavailable", logging.ERROR, error)
        details = {
            "type": "about:blank",
            "status": 503,
            "detail": "not possible at the moment; try again later",
        }
        return _json(details, 503, {"retry-after": str(retry_after)})
    if isinstance(error, (PrioError, ProtocolError)):
        dap = error if isinstance(error, DapError) else DapError(str(error))
        status = _STATUS.get(Problem(dap.kind), 400)
        return _json(problem_details(dap, status=status), status)
    event("failed", logging.ERROR, error)
    return _json({"type": "about:blank", "status": 500, "detail": "an error of this server"}, 500)


def busy_error(retry_after: int) -> HTTPException:
    """Return the error for an overloaded server."""
    return HTTPException(
        503, "too many reports are waiting; come back later", {"retry-after": str(retry_after)}
    )


async def read_body(
    request: Request, media_type: str, most: int, *, exactly: bool = False
) -> bytes:
    """Read a body of announced length; raise HTTPException, before reading, if it is wrong."""
    size = check_body(request, media_type, most, exactly=exactly)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > size:
                raise HTTPException(413, "more was sent than was announced", _CLOSE)
    except ClientDisconnect:
        raise HTTPException(400, "the request was cut") from None
    if len(body) != size:
        raise HTTPException(400, "less was sent than was announced", _CLOSE)
    return bytes(body)


def check_body(request: Request, media_type: str, most: int, *, exactly: bool = False) -> int:
    """Return the announced length of the body; raise HTTPException unless it is acceptable."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != media_type:
        raise HTTPException(415, f"expected {media_type}", _CLOSE)
    stated = request.headers.get("content-length", "")
    if not (stated.isascii() and stated.isdigit() and len(stated) <= 15):
        raise HTTPException(411, "the request must say how long it is", _CLOSE)
    size = int(stated)
    if size > most or (exactly and size != most):
        limit = f"exactly {most}" if exactly else f"at most {most}"
        raise HTTPException(
            413 if size > most else 400, f"expected {limit} bytes, not {size}", _CLOSE
        )
    return size


def _json(
    details: dict[str, object], status: int, headers: dict[str, str] | None = None
) -> Response:
    return JSONResponse(details, status, headers, PROBLEM_MEDIA_TYPE)
