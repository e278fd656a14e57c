"""Uploads that a leader accepts per second on one core, durably: over TLS and without.

    python benchmarks/uploads.py                   3,706 items (ML-1M), 4,000 uploads each, a minute
    python benchmarks/uploads.py --items 94651 --uploads 500
    python benchmarks/uploads.py --workers 1 2 4   a PostgreSQL of its own, and SQLite beside it
    python benchmarks/uploads.py --json

The leader is a process on one core with a SQLite file on the disk (WAL, synchronous = FULL);
devices are threads here on the other cores, each with a connection that it keeps (``--fresh``: a
new one for every upload, with its handshake). Each report has its own id and its device's
signature, which are checked; what is in it is the same. An upload counts when an empty 200 came,
after the commit. Checking reports with the helper is measured in ``benchmarks/two_servers.py``, and
is off here. On a busy machine look at the second number, uploads per second of processor time.

With ``--workers`` so many processes share the port and a PostgreSQL that is started for the
measurement; nothing is bound to a core, and all is over TLS. Processor time per report is shown for
the workers and for PostgreSQL (all its processes), and the time within which 99 of 100 uploads were
answered. Each worker has 24 devices that upload all the time. The first row is one process with
SQLite, in the same run.
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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from hdpmf.common.net.server import listen
from hdpmf.untrusted.aggregator.aggregation_job_driver import AggregationJobDriver
from hdpmf.untrusted.aggregator.serve import open_server, run_worker
from tests.aggregator.server_processes import LEADER, Asked, Pair, make_task
from tests.world.tokens import make_token
from two_servers import make_row, sums_of

TARGET = 400
CLIENTS = 24


def run_leader(path: Path, listener: socket.socket, alone: bool, pipe: Connection) -> None:
    """The leader, or one of its workers; ``alone`` on the first core."""
    if alone:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    AggregationJobDriver.start = (  # type: ignore[method-assign]  # no helper here
        lambda self: self._leader.partner_clock.compare(time.time())
    )
    run_worker(path, [listener], lambda: pipe.send("ready"))


def requests(asked: Asked, count: int, fresh: bool) -> list[bytes]:
    """Uploads, ready to be sent."""
    rest = asked.report(make_row(asked.task.sums, np.random.default_rng(0)).tolist())[16:]
    return [put_request(asked, secrets.token_bytes(16) + rest, fresh=fresh) for _ in range(count)]


def put_request(asked: Asked, report: bytes, *, fresh: bool) -> bytes:
    """An upload of an enrolled device, ready to be sent."""
    token = make_token(asked.task, asked.id, report[:16])
    lines = [
        f"POST /tasks/{text(asked.id)}/reports HTTP/1.1",
        "host: localhost",
        "content-type: application/ppm-dap;message=upload-req",
        f"content-length: {len(report)}",
        f"authorization: {token.to_header()}",
        f"connection: {'close' if fresh else 'keep-alive'}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + report


def text(data: bytes) -> str:
    from hdpmf.common.aggregation.two_servers.dap.messages import id_to_text

    return id_to_text(data)


def upload_all(
    port: int,
    context: ssl.SSLContext | None,
    waiting: list[bytes],
    fresh: bool,
    clients: int = CLIENTS,
) -> tuple[float, list[float]]:
    """Seconds until all are answered, and of each; the first of them warm the server up."""
    faults: list[str] = []
    each: list[float] = []
    turn = threading.Lock()

    def device() -> None:
        stream = None
        while True:
            with turn:
                if not waiting or faults:
                    break
                request = waiting.pop()
            begun = time.perf_counter()
            if stream is None:
                stream = socket.create_connection(("localhost", port))
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if context is not None:
                    stream = context.wrap_socket(stream, server_hostname="localhost")
            stream.sendall(request)
            answer = stream.recv(4096)
            each.append(time.perf_counter() - begun)
            taken = answer.startswith(b"HTTP/1.1 200") and b"content-length: 0\r" in answer
            if not taken:
                faults.append(answer.decode(errors="replace"))
            if fresh:
                stream.close()
                stream = None

    threads = [threading.Thread(target=device) for _ in range(clients)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise SystemExit(f"an upload was refused: {faults[0]}")
    return time.perf_counter() - begin, each


def measure(
    items: int,
    uploads: int,
    *,
    tls: bool,
    fresh: bool,
    workers: int = 1,
    alone: bool = True,
    database: str = "",
) -> dict[str, Any]:
    """One row of the table."""
    with tempfile.TemporaryDirectory(prefix="hdpmf-uploads-") as place:
        pair = Pair(Path(place), databases={LEADER: database} if database else None)
        config = pair.folders[LEADER].path / "config.toml"
        if not tls:
            config.write_text(config.read_text().replace("proxy = false", "proxy = true"))
        asked = make_task(pair.servers, pair.collector.card, sums_of(items, 0), enrolled=True)
        with open_server(pair.folders[LEADER]) as leader:
            leader.add_task(asked.document)
        ours, theirs = multiprocessing.Pipe()
        port = pair.folders[LEADER].config.port
        spawn = multiprocessing.get_context("spawn")
        with listen("127.0.0.1", port) as listener:
            processes = [
                spawn.Process(
                    target=run_leader,
                    args=(pair.folders[LEADER].path, listener, alone, theirs),
                )
                for _ in range(workers)
            ]
            for process in processes:
                process.start()
            try:
                for _ in processes:
                    ours.recv()
                pids = [process.pid or 0 for process in processes]
                context = pair.context(LEADER) if tls else None
                upload_all(port, context, requests(asked, 50, fresh), fresh)
                ready = requests(asked, uploads, fresh)
                size = len(ready[0])
                before = sum(map(cpu_seconds, pids)), postgres_seconds(database)
                seconds, each = upload_all(port, context, ready, fresh, CLIENTS * workers)
                used = sum(map(cpu_seconds, pids)) - before[0]
                in_database = postgres_seconds(database) - before[1]
            finally:
                for process in processes:
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
        "workers": workers,
        "database": "postgresql" if database else "sqlite",
        "worker_ms": round(1e3 * used / uploads, 2),
        "postgres_ms": round(1e3 * in_database / uploads, 2),
        "p99_ms": round(1e3 * float(np.quantile(each, 0.99))),
    }


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far, with the kernel's on its behalf."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def postgres_seconds(database: str) -> float:
    """Processor time of all processes of a PostgreSQL on this machine; 0 without one."""
    if not database:
        return 0.0
    import psycopg

    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        backend = connection.info.backend_pid
    main_process = int(_stat(backend)[1])
    used = sum(map(int, _stat(main_process)[11:15]))  # with its children that have ended
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = _stat(int(path.name))
        except OSError:
            continue
        if int(fields[1]) == main_process:
            used += int(fields[11]) + int(fields[12])
    return used / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def with_workers(items: int, uploads: int, workers: list[int]) -> list[dict[str, Any]]:
    """A row for SQLite, and one for each number of workers with PostgreSQL."""
    from tests.aggregator.postgres import cluster, new_database

    options: dict[str, Any] = {"tls": True, "fresh": False, "alone": False}
    rows = [measure(items, uploads, **options)]
    with cluster() as url:
        for number in workers:
            database = new_database(url, f"workers-{number}")
            rows.append(measure(items, uploads, workers=number, database=database, **options))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=3706)
    parser.add_argument("--uploads", type=int, default=4000)
    parser.add_argument(
        "--fresh", action="store_true", help="a new connection for every upload, too"
    )
    parser.add_argument(
        "--workers", type=int, nargs="+", help="numbers of workers, with a PostgreSQL"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.workers:
        rows = with_workers(given.items, given.uploads, given.workers)
        if given.json:
            print(json.dumps({"items": given.items, "rows": rows}, indent=2))
            return
        print(f"{given.items:,} items, {rows[0]['bytes']:,} bytes each")
        for row in rows:
            print(
                f"{row['database']:10} {row['workers']} workers {row['per_second']:6,} uploads/s  "
                f"{row['worker_ms']:5.2f} ms of workers and {row['postgres_ms']:5.2f} ms of "
                f"PostgreSQL per report, 99 of 100 within {row['p99_ms']:,} ms"
            )
        return
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
