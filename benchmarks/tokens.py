"""What a blind token costs: the recommender that issues it, the device, and the leader.

Processor time per token, the median of blocks of 50. The issuer writes each device down in its
file, durably, before it answers; what the disk takes is not in it.

Usage:
    python benchmarks/tokens.py [--tokens 500] [--without-gmp] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from hdpmf.common.aggregation.two_servers import tokens as arithmetic
from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text
from hdpmf.common.aggregation.two_servers.tokens import (
    IssuerKey,
    Token,
    blind_token,
    challenge_digest,
)
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.identity import Identity
from hdpmf.common.protocol.task import signed_token_request
from hdpmf.untrusted.service.participants import Participants
from hdpmf.untrusted.service.token_issuer import TokenIssuer

TASK = sha256(b"a task").digest()
CHALLENGE = challenge_digest("films", TASK)
BLOCK = 50
WRITES = 10_000


def milliseconds(count: int, work: Callable[[int], object]) -> float:
    """Processor milliseconds of one call, the median over blocks."""
    laps = []
    for start in range(0, count, BLOCK):
        begin = time.process_time()
        for number in range(start, min(start + BLOCK, count)):
            work(number)
        laps.append(1e3 * (time.process_time() - begin) / min(BLOCK, count - start))
    return statistics.median(laps)


def measure(count: int) -> dict[str, float]:
    """All parts of so many tokens."""
    begin = time.process_time()
    key = IssuerKey.generate()
    found = {"tokens": float(count), "key_ms": 1e3 * (time.process_time() - begin)}
    devices = [Identity.generate() for _ in range(count)]
    asked = [None] * count
    answers = [b""] * count
    tokens: list[Token] = []

    def blind(number: int) -> None:
        asked[number] = blind_token(key.public, CHALLENGE, sha256(bytes([number % 256])).digest())  # type: ignore[call-overload]

    found["blind_ms"] = milliseconds(count, blind)
    requests = [blinded.request for blinded in asked]  # type: ignore[attr-defined]
    signed = [
        device.sign(signed_token_request(TASK, sha256(request).digest()))
        for device, request in zip(devices, requests, strict=True)
    ]
    with tempfile.TemporaryDirectory(prefix="hdpmf-tokens-") as place:
        desk = TokenIssuer(Participants.of(*(device.public for device in devices)))
        desk.create(TASK, key, Path(place))
        desk.open(TASK, Path(place))

        def issue(number: int) -> None:
            status, answers[number] = desk.take(
                id_to_text(TASK),
                to_base64(devices[number].public),
                signed[number],
                requests[number],
            )
            if status != 200:
                raise SystemExit(f"a token was refused ({status})")

        found["issue_ms"] = milliseconds(count, issue)
        desk.close()
        found |= measure_file(key, Path(place))

    def finish(number: int) -> None:
        tokens.append(asked[number].finish(key.public, CHALLENGE, answers[number]))  # type: ignore[attr-defined]

    found["finish_ms"] = milliseconds(count, finish)

    def verify(number: int) -> None:
        shown = Token.from_header(tokens[number].to_header())
        if not key.public.holds(shown):
            raise SystemExit("a token does not hold")

    found["verify_ms"] = milliseconds(count, verify)
    return found


def measure_file(key: IssuerKey, folder: Path) -> dict[str, float]:
    """The bytes of a file for each device, and how many tokens of one process it takes a second."""
    task = sha256(b"a file").digest()
    desk = TokenIssuer(Participants())
    desk.create(task, key, folder)
    desk.open(task, folder)
    file = desk._file
    if file is None:
        raise SystemExit("the file is not there")
    begin = time.perf_counter()
    with ThreadPoolExecutor(16) as pool:
        if set(pool.map(lambda number: file.enter(number, os.urandom(32)), range(WRITES))) != {200}:
            raise SystemExit("a token was refused")
    seconds = time.perf_counter() - begin
    desk.close()
    size = sum(path.stat().st_size for path in folder.glob(f".tokens-{task.hex()[:8]}*"))
    return {"file_bytes_per_device": size / WRITES, "file_writes_per_second": WRITES / seconds}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--without-gmp", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.without_gmp:
        vars(arithmetic)["_arithmetic"] = lambda: (int, pow)
    elif arithmetic._arithmetic()[0] is int:
        raise SystemExit("gmpy2 is not installed: pip install 'hdpmf[tokens]', or --without-gmp")
    found = measure(given.tokens)
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:24} {value:10.3f}")


if __name__ == "__main__":
    main()
