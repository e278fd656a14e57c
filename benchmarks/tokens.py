"""What a blind token costs: the recommender that issues it, the device, and the leader.

Processor time per token, the median of blocks of 50. The issuer writes each device down in its
file, durably, before it answers; what the disk takes is not in it.

With --processes, issuers as operators start them (hdpmf recommender issue): each token over a TLS
connection of its own, the given numbers of processes in turn. Processor time of the issuers is from
/proc, so this is for Linux. The clients, eight threads of this process, share the cores.

Usage:
    python benchmarks/tokens.py [--tokens 500] [--without-gmp] [--json]
    python benchmarks/tokens.py --processes 1 2 --repeat 3 [--tokens 500] [--json]
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
from http.client import HTTPSConnection
from pathlib import Path

from hdpmf.common.aggregation.two_servers import tokens as arithmetic
from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text
from hdpmf.common.aggregation.two_servers.tokens import (
    RESPONSE_SIZE,
    TOKENS_PATH,
    IssuerKey,
    Token,
    blind_token,
    challenge_digest,
)
from hdpmf.common.data import synthetic_world
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.net.https import client_context
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.common.protocol.identity import Identity
from hdpmf.common.protocol.task import signed_token_request
from hdpmf.lab.simulate.deploy import Deployment, free_port
from hdpmf.private.client.outgoing import token_headers
from hdpmf.untrusted.service.folder import Config, ServiceFolder
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
        desk = TokenIssuer()
        desk.create(TASK, key, {device.public.hex(): 1 for device in devices}, Path(place))
        desk.open(TASK, Path(place))

        def issue(number: int) -> None:
            status, answers[number] = desk.take(
                id_to_text(TASK), devices[number].public.hex(), signed[number], requests[number]
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
    devices = [os.urandom(32) for _ in range(WRITES)]
    desk = TokenIssuer()
    desk.create(task, key, {device.hex(): 1 for device in devices}, folder)
    desk.open(task, folder)
    file = desk._file
    if file is None:
        raise SystemExit("the file is not there")
    begin = time.perf_counter()
    with ThreadPoolExecutor(16) as pool:
        if set(pool.map(lambda device: file.enter(device, os.urandom(32)), devices)) != {200}:
            raise SystemExit("a token was refused")
    seconds = time.perf_counter() - begin
    desk.close()
    size = sum(path.stat().st_size for path in folder.glob(f".tokens-{task.hex()[:8]}*"))
    return {"file_bytes_per_device": size / WRITES, "file_writes_per_second": WRITES / seconds}


def measure_processes(numbers: list[int], count: int, repeat: int) -> list[dict[str, float]]:
    """So many tokens of so many issuers over one file, one number of issuers after the other."""
    ratings = synthetic_world(3, 5, 9, rng=1)
    table = catalogue_table(ratings.items, ratings.scale, ratings.item_table)
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="hdpmf-tokens-") as place,
        Deployment(Path(place)) as issuers,
    ):
        folder = ServiceFolder.create(Path(place) / "shop", Config(name="shop"), table)
        authority = ensure_certificates(folder.tls_folder, folder.config.names).authority
        trust = client_context(authority.read_bytes())
        (folder.path / "runs" / "ab").mkdir()
        ports = [free_port() for _ in range(max(numbers))]
        for port in ports:
            options = ("issue", str(folder.path), "--port", str(port))
            issuers.start(str(port), "hdpmf", "recommender", *options)

        def used() -> float:
            """Processor seconds of all issuers."""
            found = 0.0
            for port in ports:
                stat = Path(f"/proc/{issuers.child(str(port)).process.pid}/stat").read_text()
                user, system = stat.rpartition(")")[2].split()[11:13]
                found += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
            return found

        for turn, number in enumerate(numbers * repeat):
            task, key = sha256(bytes([turn])).digest(), IssuerKey.generate()
            devices = [Identity.generate() for _ in range(count)]
            users = {device.public.hex(): 1 for device in devices}
            TokenIssuer().create(task, key, users, folder.path / "runs" / "ab")
            asked = [blind_token(key.public, task, sha256(b"nonce").digest()) for _ in devices]
            headers = [
                token_headers(device, task, blinded.request)
                for device, blinded in zip(devices, asked, strict=True)
            ]

            def ask(index: int) -> None:
                port = ports[index % number]  # noqa: B023  # called in this turn only
                for _ in range(600):
                    connection = HTTPSConnection("localhost", port, timeout=60, context=trust)
                    try:
                        path = TOKENS_PATH.format(task_id=id_to_text(task))  # noqa: B023
                        request = asked[index].request  # noqa: B023
                        connection.request("POST", path, request, headers[index])  # noqa: B023
                        answer = connection.getresponse()
                        if answer.status != 200 or len(answer.read()) != RESPONSE_SIZE:
                            raise SystemExit(f"a token was refused ({answer.status})")
                        return
                    except ConnectionRefusedError:
                        time.sleep(0.1)
                    finally:
                        connection.close()

            with ThreadPoolExecutor(8) as pool:
                list(pool.map(ask, range(len(ports))))  # they run, and have opened the file
                before, begin = used(), time.perf_counter()
                list(pool.map(ask, range(len(ports), count)))
                seconds, spent = time.perf_counter() - begin, used() - before
            done = count - len(ports)
            rows.append(
                {"processes": number, "issue_ms": 1e3 * spent / done, "per_second": done / seconds}
            )
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--processes", type=int, nargs="+", default=[])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--without-gmp", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.without_gmp:
        vars(arithmetic)["_arithmetic"] = lambda: (int, pow)
    elif arithmetic._arithmetic()[0] is int:
        raise SystemExit("gmpy2 is not installed: pip install 'hdpmf[tokens]', or --without-gmp")
    if given.processes:
        rows = measure_processes(given.processes, given.tokens, given.repeat)
        print(json.dumps(rows) if given.json else "\n".join(map(str, rows)))
        return
    found = measure(given.tokens)
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:24} {value:10.3f}")


if __name__ == "__main__":
    main()
