"""An issuer of tests, whose key is made once in a process, and tokens that it has signed."""

from __future__ import annotations

import secrets
from functools import cache

from hdpmf.common.aggregation.two_servers.tokens import IssuerKey, Token, blind_token
from hdpmf.common.protocol.task import Task, token_challenge


@cache
def issuer(number: int = 0) -> IssuerKey:
    """The secret key of an issuer of tests; others have other numbers."""
    return IssuerKey.generate()


def make_token(
    task: Task, number: bytes, report_id: bytes | None = None, key: IssuerKey | None = None
) -> Token:
    """A token for a report to the task with this id, as an enrolled device gets it."""
    key = issuer() if key is None else key
    report_id = secrets.token_bytes(16) if report_id is None else report_id
    challenge = token_challenge(task, number)
    blinded = blind_token(key.public, challenge, report_id + secrets.token_bytes(16))
    return blinded.finish(key.public, challenge, key.sign(blinded.request))
