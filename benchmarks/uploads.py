"""Uploads that a leader accepts per second on one core, durably: over TLS and without.

    python benchmarks/uploads.py                   3,706 items (ML-1M), 4,000 uploads each, a minute
    python benchmarks/uploads.py --items 94651 --uploads 500
    python benchmarks/uploads.py --json

The leader is a process on one core with a SQLite file on the disk (WAL, synchronous = FULL);
devices are threads here on the other cores, each with a connection that it keeps (``--fresh``: a
new one for every upload, with its handshake). Each report has its own id and its device's
signature, which are checked; what is in it is the same. An upload counts when its 201 has come,
after the commit. Checking reports with the helper is measured in ``benchmarks/two_servers.py``, and
is off here. On a busy machine look at the second number, uploads per second of processor time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import secrets
import socket
import ssl
import sys
import tempfile
import threading
import time
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from hdpmf.common.net.server import listen
from hdpmf.common.protocol.task import OneRating, signed_bytes
from hdpmf.untrusted.aggregator.aggregation_job_driver import AggregationJobDriver
from hdpmf.untrusted.aggregator.folder import Limits
from hdpmf.untrusted.aggregator.prefork import open_server, run_worker
from tests.aggregator.server_processes import LEADER, Asked, Pair, make_task

CODES, RULERS = (-5, -5, -2, 3, 5), (-2, -1, 0, 1, 2)
TARGET = 400
CLIENTS = 24


def run_leader(path: Path, port: int, tls: bool, pipe: Connection) -> None:
    """The leader, on the first core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    AggregationJobDriver.start = (  # type: ignore[method-assign]  # no helper here
        lambda self: self._leader.partner_clock.compare(time.time())
    )
    run_worker(path, listen("127.0.0.1", port), lambda: pipe.send("ready"), tls=tls)


def requests(asked: Asked, count: int, fresh: bool) -> list[bytes]:
    """Uploads, ready to be sent."""
    items = asked.prio.circuit.output_length // 2
    rng = np.random.default_rng(0)
    rest = asked.report(
        [*(rng.integers(1, 65, items) * (rng.random(items) < 0.05)), *rng.integers(0, 5, items)]
    )[16:]
    return [put_request(asked, secrets.token_bytes(16) + rest, fresh=fresh) for _ in range(count)]


def put_request(asked: Asked, report: bytes, *, fresh: bool) -> bytes:
    """An upload of the task's only device, ready to be sent."""
    ((device, key),) = asked.devices.items()
    signature = key.sign(signed_bytes(asked.id, sha256(report).digest())).hex()
    lines = [
        f"PUT /tasks/{text(asked.id)}/reports HTTP/1.1",
        "host: localhost",
        "content-type: application/dap-report",
        f"content-length: {len(report)}",
        f"hdpmf-device: {device}",
        f"hdpmf-signature: {signature}",
        f"connection: {'close' if fresh else 'keep-alive'}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + report


def text(data: bytes) -> str:
    from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text

    return id_to_text(data)


def upload_all(
    port: int, context: ssl.SSLContext | None, waiting: list[bytes], fresh: bool
) -> float:
    """Seconds until all are answered; the first of them warm the server up."""
    faults: list[str] = []
    turn = threading.Lock()

    def device() -> None:
        stream = None
        while True:
            with turn:
                if not waiting or faults:
                    break
                request = waiting.pop()
            if stream is None:
                stream = socket.create_connection(("localhost", port))
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if context is not None:
                    stream = context.wrap_socket(stream, server_hostname="localhost")
            stream.sendall(request)
            answer = stream.recv(4096)
            if not answer.startswith(b"HTTP/1.1 201"):
                faults.append(answer.decode(errors="replace"))
            if fresh:
                stream.close()
                stream = None

    threads = [threading.Thread(target=device) for _ in range(CLIENTS)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise SystemExit(f"an upload was refused: {faults[0]}")
    return time.perf_counter() - begin


def measure(items: int, uploads: int, *, tls: bool, fresh: bool) -> dict[str, Any]:
    """One row of the table."""
    with tempfile.TemporaryDirectory(prefix="hdpmf-uploads-") as place:
        pair = Pair(Path(place), limits=Limits(per_address=1000))
        circuit = OneRating(items=items, codes=CODES, rulers=RULERS)
        asked = make_task(pair.servers, pair.collector.card, circuit, devices=1)
        with open_server(pair.folders[LEADER]) as leader:
            leader.add_task(asked.document, [(next(iter(asked.devices)), 1_000_000)])
        ours, theirs = multiprocessing.Pipe()
        port = pair.folders[LEADER].config.port
        process = multiprocessing.get_context("spawn").Process(
            target=run_leader, args=(pair.folders[LEADER].path, port, tls, theirs)
        )
        process.start()
        try:
            ours.recv()
            context = pair.context(LEADER) if tls else None
            upload_all(port, context, requests(asked, 50, fresh), fresh)
            ready = requests(asked, uploads, fresh)
            size = len(ready[0])
            before = cpu_seconds(process.pid or 0)
            seconds = upload_all(port, context, ready, fresh)
            used = cpu_seconds(process.pid or 0) - before
        finally:
            process.terminate()
            process.join()
        with open_server(pair.folders[LEADER]) as leader:
            assert leader.counts(asked.id).waiting == uploads + 50
    return {
        "tls": tls,
        "fresh": fresh,
        "bytes": size,
        "uploads": uploads,
        "per_second": round(uploads / seconds),
        "per_cpu_second": round(uploads / used),
    }


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far, with the kernel's on its behalf."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=3706)
    parser.add_argument("--uploads", type=int, default=4000)
    parser.add_argument(
        "--fresh", action="store_true", help="a new connection for every upload, too"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    kinds = [(False, False), (True, False), *([(True, True)] if given.fresh else [])]
    rows = [measure(given.items, given.uploads, tls=tls, fresh=fresh) for tls, fresh in kinds]
    if given.json:
        print(json.dumps({"items": given.items, "rows": rows, "target": TARGET}, indent=2))
        return
    print(f"{given.items:,} items, {rows[0]['bytes']:,} bytes each; target {TARGET} per second")
    for row in rows:
        kind = ("TLS" if row["tls"] else "no TLS") + (", a connection each" if row["fresh"] else "")
        print(
            f"{kind:24} {row['per_second']:6,} uploads/s  {row['per_cpu_second']:6,} per "
            "second of processor time"
        )


if __name__ == "__main__":
    main()
