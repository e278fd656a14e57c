"""What a browser sends with a request, whatever it is: never too long, never for ever, never a surprise."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import parse_qsl

from hdpmf.transport.extras import needs

with needs("starlette", "page"):
    from starlette.requests import ClientDisconnect, Request

SLOWEST = 60.0
"""Seconds that a body may take to come. It comes from this machine, or from a proxy beside it."""

_MOST_FIELDS = 50


async def read_body(request: Request, most: int) -> bytes:
    """The body of a request; nothing where it is longer than it may be, or does not come."""
    body = bytearray()
    try:
        async with asyncio.timeout(SLOWEST):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    return b""
    except (ClientDisconnect, TimeoutError):
        return b""
    return bytes(body)


def json_fields(data: bytes) -> dict[str, str]:
    """The fields of an object in JSON; none where it is something else."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return {_text(name): _text(value) for name, value in found.items()} if isinstance(found, dict) else {}


def form_fields(data: bytes) -> dict[str, str]:
    """The fields of a form; none where it is something else."""
    try:
        return dict(parse_qsl(data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        return {}


def _text(value: object) -> str:
    """As text that can be written anywhere: JSON can say half of a letter."""
    return str(value).encode("utf-8", "replace").decode()
