"""The cost of enrolling participants, and of a token with few of them and with many.

Requests go through the recommender's whole application, some at a time, without a network. What
participants do (keys, signatures) is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text
from hdpmf.common.aggregation.two_servers.tokens import IssuerKey, blind_token, challenge_digest
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.enrolment import PARTICIPANTS_PATH, SignedEnrolment
from hdpmf.common.protocol.identity import Identity
from hdpmf.common.protocol.task import signed_token_request
from hdpmf.untrusted.service.participants import (
    FILE,
    KEY,
    Admission,
    EnrolmentDesk,
    EnrolmentRules,
    Invitations,
    Participants,
)
from hdpmf.untrusted.service.token_issuer import TokenIssuer
from hdpmf.untrusted.service.website import Website

SHOP = "https://shop.example"
AT_ONCE = 256
TOKENS = 200
TASK = sha256(b"task").digest()


async def post(app: Any, body: bytes) -> int:
    """Post an enrolment; return the status."""
    found = 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal found
        found = message.get("status", found)

    scope = {
        "type": "http",
        "method": "POST",
        "path": PARTICIPANTS_PATH,
        "query_string": b"",
        "headers": [(b"content-length", b"%d" % len(body))],
    }
    await app(scope, receive, send)
    return found


async def post_all(app: Any, bodies: list[bytes]) -> None:
    """Post enrolments at once."""
    if set(await asyncio.gather(*(post(app, body) for body in bodies))) != {201}:
        raise SystemExit("somebody was not enrolled")


def enrol(count: int, folder: Path, participants: Participants) -> dict[str, float]:
    """Enrol so many with a secret each; return the seconds of the recommender."""
    invitations = Invitations(folder / KEY)
    desk = EnrolmentDesk(folder, EnrolmentRules(), SHOP)
    app = Website(folder, TokenIssuer(participants), desk=desk).app
    wall = processor = 0.0
    for begin in range(0, count, AT_ONCE):
        bodies = [
            SignedEnrolment.make(Identity.generate(), SHOP, secret=invitations.make()).to_bytes()
            for _ in range(min(AT_ONCE, count - begin))
        ]
        before = time.perf_counter(), time.process_time()
        asyncio.run(post_all(app, bodies))
        wall += time.perf_counter() - before[0]
        processor += time.process_time() - before[1]
    return {"seconds": wall, "processor": processor}


def fill(count: int, participants: Participants) -> float:
    """Write so many rows of nobody; return the seconds."""
    begin = time.perf_counter()
    for first in range(0, count, 1000):
        rows = min(1000, count - first)
        participants.add([Admission(os.urandom(32), os.urandom(32)) for _ in range(rows)])
    return time.perf_counter() - begin


def token_ms(folder: Path, participants: Participants) -> Iterator[float]:
    """Yield the processor time of each of some tokens."""
    key = IssuerKey.generate()
    desk = TokenIssuer(participants)
    desk.create(TASK, key, folder)
    desk.open(TASK, folder)
    for number in range(TOKENS):
        who = Identity.generate()
        participants.add([Admission(who.public)])
        nonce = sha256(bytes([number])).digest()
        request = blind_token(key.public, challenge_digest("films", TASK), nonce).request
        signature = who.sign(signed_token_request(TASK, sha256(request).digest()))
        begin = time.process_time()
        status, _ = desk.take(id_to_text(TASK), to_base64(who.public), signature, request)
        yield 1000 * (time.process_time() - begin)
        if status != 200:
            raise SystemExit(f"a token was refused ({status})")
    desk.drop(folder)


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--people", type=int, default=100_000, help="who post an enrolment")
    parser.add_argument("--rows", type=int, default=0, help="rows that are there before")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hdpmf-enrolment-") as place:
        folder = Path(place)
        participants = Participants(folder / FILE)
        few = sorted(token_ms(folder, participants))[TOKENS // 2]
        if given.rows:
            print(f"{given.rows:,} rows: {fill(given.rows, participants):.0f} s")
        found = enrol(given.people, folder, participants)
        many = sorted(token_ms(folder, participants))[TOKENS // 2]
        size = sum(path.stat().st_size for path in folder.glob(f"{FILE}*"))
        people = len(participants)
    each = 1000 / given.people
    print(f"{given.people:,} enrolments: {found['seconds']:.0f} s, each ", end="")
    print(f"{each * found['seconds']:.2f} ms, {each * found['processor']:.2f} ms of processor")
    print(f"a token: {few:.2f} ms of processor with {TOKENS} participants, ", end="")
    print(f"{many:.2f} ms with {people:,}; {size / people:.0f} bytes for each participant")


if __name__ == "__main__":
    main()
