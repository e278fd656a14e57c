"""Cost of the two servers: time per report for the leader and the helper, everything included, and
memory.

    python benchmarks/two_servers.py                   rows over 3,706 items (ML-1M), 2,000 reports
    python benchmarks/two_servers.py --heads 300       pairs of 300 heads
    python benchmarks/two_servers.py --reports 100000  as many real reports: most of an hour
    python benchmarks/two_servers.py --database postgresql+psycopg://user@host/NAME
    python benchmarks/two_servers.py --processes       as operators start them: HTTP and TLS, too
    python benchmarks/two_servers.py --json

Both servers run in this process, each with a database on the disk; there is no HTTP and no TLS.
Every report is a real one, with an id, shares and a proof of its own, because the id is in the
proof: devices make them in blocks (their time is shown, but not the servers'), upload a block with
their signatures, and the servers check and add it before the next. The leader's time has decoding,
signature, digest, storing, decryption, preparing, the sum and dropping the report; the helper's has
decryption, preparing, deciding and the sum. Processor time counts, the median over blocks; a disk's
waits are in the other column. At the end the collector opens both shares, and the sum less the
noise must be the plain one. Memory is the largest that the whole process ever had: both servers,
the devices and Python.

With ``--processes`` each server is a process (``hdpmf aggregator serve``), and devices upload over
connections that they keep (``--fresh``: a new one each). Processor time is that of each process,
with the kernel's on its behalf, until the last report is summed; what a process uses by itself is
measured before, and is not taken off: it is shown.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import secrets
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hdpmf.common.aggregation.two_servers.dap.hpke import (
    KeyPair,
    aggregate_share_info,
    input_share_info,
    seal,
)
from hdpmf.common.aggregation.two_servers.dap.messages import (
    AggregateShareAad,
    CollectionJobReq,
    CollectionJobResp,
    InputShareAad,
    Interval,
    PlaintextInputShare,
    Report,
    ReportMetadata,
    Role,
    TaskConfiguration,
)
from hdpmf.common.aggregation.two_servers.prio import Prio3
from hdpmf.common.aggregation.two_servers.tokens import NONCE_SIZE, IssuerKey, blind_token
from hdpmf.common.privacy.pairs import LINEAR_BITS, PAIR_BITS, limit_of
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.identity import Identity, PartyKey
from hdpmf.common.protocol.servers import Collector, Server
from hdpmf.common.protocol.task import (
    EVERYBODY,
    Linear,
    Pairs,
    Task,
    configuration_of,
    prio_of,
    token_challenge,
)
from hdpmf.untrusted.aggregator.datastore import ServerDatabase
from hdpmf.untrusted.aggregator.helper import Helper
from hdpmf.untrusted.aggregator.hpke_keys import HpkeKeyRing
from hdpmf.untrusted.aggregator.leader import Leader
from hdpmf.untrusted.aggregator.report_writer import Upload
from hdpmf.untrusted.aggregator.tasks import ServerKeys, SimulationRules

HOUR, BEGIN = 3600, 500_000 * 3600
JOB, COMMIT = 256, 64  # reports in an aggregation job, and in a commit of uploads
IDLE_SECONDS = 5.0
TARGETS = {"leader_ms": 2.5, "helper_ms": 2.0, "memory_mb": 1000.0}


class Stopwatch:
    """Processor and wall seconds of each part, and milliseconds per report of each block of
    reports.
    """

    def __init__(self) -> None:
        self.cpu: dict[str, float] = defaultdict(float)
        self.wall: dict[str, float] = defaultdict(float)
        self.blocks: list[tuple[float, ...]] = []

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Count what happens inside as a part."""
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.cpu[part] += time.process_time() - cpu
        self.wall[part] += time.perf_counter() - wall

    def block(self, reports: int, *, counts: bool) -> None:
        """The end of a block."""
        laps = (
            self.cpu["device"],
            self.cpu["upload"],
            *(
                seconds["upload"] + seconds["both"] - seconds["helper"]
                for seconds in (self.cpu, self.wall)
            ),
            *(seconds["helper"] for seconds in (self.cpu, self.wall)),
        )
        if counts:
            self.blocks.append(tuple(1e3 * lap / reports for lap in laps))
        self.cpu.clear()
        self.wall.clear()


class KnownNoise:
    """The same number everywhere, so that the sum can be compared."""

    def discrete_gaussian(self, sigma: np.ndarray) -> np.ndarray:
        """As real noise does."""
        return np.full(sigma.shape, 1000, np.int64)


class TimedHelper:
    """The helper, with a clock on it."""

    def __init__(self, helper: Helper, watch: Stopwatch) -> None:
        self.helper, self.watch = helper, watch

    def aggregation_job(self, task_id: bytes, body: bytes) -> bytes:
        """As the helper does."""
        with self.watch("helper"):
            return self.helper.aggregation_job(task_id, body)

    def aggregate_share(self, task_id: bytes, body: bytes) -> bytes:
        """As the helper does."""
        return self.helper.aggregate_share(task_id, body)

    def meet(self, theirs: int) -> int:
        """As the helper does."""
        return self.helper.meet(theirs)


def keys(folder: Path) -> tuple[ServerKeys, ServerKeys]:
    """Of both servers."""
    made = []
    for name in ("library", "university"):
        party, signing = PartyKey.generate(), Identity.generate()
        state = folder / f"{name}-keys"
        state.mkdir()
        hpke = HpkeKeyRing(state, signing)
        hpke.rotate(BEGIN)
        card = Server(
            organisation=name,
            url=f"https://{name}.example",
            identity=party.public,
            signing=to_base64(signing.public),
        )
        made.append((party, hpke, card))
    (first, hpke, leader), (second, other, helper) = made
    return (
        ServerKeys(role="leader", party=first, hpke=hpke, own=leader, partner=helper),
        ServerKeys(role="helper", party=second, hpke=other, own=helper, partner=leader),
    )


def sums_of(items: int, heads: int) -> Linear | Pairs:
    """What a task of a run sums: rows with stars over items, or pairs of heads."""
    if heads:
        return Pairs(
            heads=tuple(range(heads)),
            weights=(64,) * heads,
            bits=PAIR_BITS,
            bound=limit_of(PAIR_BITS),
            cap=16,
            deviation=10_000_000,
        )
    bound = limit_of(LINEAR_BITS)
    return Linear(items=items, bits=LINEAR_BITS, bound=bound, cap=16, presence=1774, values=997)


def make_row(sums: Linear | Pairs, rng: np.random.Generator) -> np.ndarray:
    """A person's row; how many ratings there are takes no time of the servers."""
    if isinstance(sums, Pairs):
        return rng.integers(0, 100, len(sums.heads)) * (rng.random(len(sums.heads)) < 0.2)
    signs = np.where(np.arange(sums.entries) < sums.items, 1, rng.choice([-1, 1], sums.entries))
    return signs * rng.integers(0, 20, sums.entries) * (rng.random(sums.entries) < 0.05)


def make_report(
    sums: Linear | Pairs,
    prio: Prio3,
    configuration: TaskConfiguration,
    both: tuple[ServerKeys, ServerKeys],
    rng: np.random.Generator,
    report_id: bytes,
) -> tuple[bytes, np.ndarray]:
    """A device's report, and what it adds to the sums."""
    row = make_row(sums, rng)
    adds = row
    if isinstance(sums, Pairs):
        adds = np.outer(row, row)[np.triu_indices(len(row))]
    metadata = ReportMetadata(report_id, BEGIN // HOUR)
    sharded = prio.shard(prio.circuit.encode(row), metadata.report_id)  # type: ignore[attr-defined]
    aad = InputShareAad(
        configuration.task_info, configuration, metadata, sharded.public_share
    ).encode()
    sealed = [
        seal(server.hpke.config, input_share_info(role), aad, PlaintextInputShare(share).encode())
        for server, role, share in zip(
            both, (Role.LEADER, Role.HELPER), sharded.input_shares, strict=True
        )
    ]
    return Report(metadata, sharded.public_share, sealed[0], sealed[1]).encode(), adds


def measure(sums: Linear | Pairs, reports: int, folder: Path, url: str | None) -> dict[str, Any]:
    """Everything, once."""
    both, watch, rng = keys(folder), Stopwatch(), np.random.default_rng(0)
    now = [BEGIN + 1.0]
    rules = SimulationRules(minimum=2)
    databases = [
        ServerDatabase((url or f"sqlite:///{folder}/NAME.sqlite").replace("NAME", role))
        for role in ("leader", "helper")
    ]
    options: dict[str, Any] = {"clock": lambda: now[0], "rules": rules, "noise": KnownNoise()}
    states = [folder / role for role in ("leader", "helper")]
    for state in states:
        state.mkdir()
    helper = Helper(both[1], databases[1], states[1], **options)
    leader = Leader(
        both[0],
        databases[0],
        states[0],
        TimedHelper(helper, watch),
        **options,
    )
    collector, issuer = KeyPair.generate(), IssuerKey.generate()
    card = Collector(
        organisation="shop",
        hpke=to_base64(collector.config.encode()),
        identity=PartyKey.generate().public,
    )
    task = Task(
        servers=both[0].servers,
        collector=card,
        sums=sums,
        catalogue="items",
        run=to_base64(bytes(16)),
        asked=EVERYBODY,
        begin=BEGIN,
        end=BEGIN + HOUR,
        precision=HOUR,
        minimum=2,
        token_key=to_base64(issuer.public.encoded),
    )
    document = task.to_bytes()
    helper.add_task(document)
    task_id = leader.add_task(document)
    challenge = token_challenge(task, task_id)
    configuration = configuration_of(task, task_id)
    prio, plain, size = prio_of(task, task_id), np.zeros(sums.entries, np.int64), 0

    done = -JOB  # the first block compiles, and is not counted
    while done < reports:
        block = []
        for _ in range(min(JOB, reports - max(done, 0)) if done >= 0 else 3):
            with watch("device"):
                blinded = blind_token(issuer.public, challenge, secrets.token_bytes(NONCE_SIZE))
                report, adds = make_report(sums, prio, configuration, both, rng, blinded.report_id)
            answer = issuer.sign(blinded.request)  # the recommender's (tokens.py)
            with watch("device"):
                token = blinded.finish(issuer.public, challenge, answer)
            plain += adds
            block.append(Upload(task_id, report, token))
            size = len(report)
        for start in range(0, len(block), COMMIT):
            with watch("upload"):
                refused = [
                    error
                    for error in leader.upload_many(block[start : start + COMMIT])
                    if error is not None
                ]
            if refused:
                raise SystemExit(f"a report was refused: {refused[0]}")
        with watch("both"):
            while leader.aggregate(JOB):
                pass
        watch.block(len(block), counts=done >= 0 and (len(block) == JOB or reports < JOB))
        done = max(done, 0) + (len(block) if done >= 0 else 0)
    now[0] = BEGIN + HOUR + 1.0
    request = CollectionJobReq(Interval(BEGIN // HOUR, 1))
    with watch("close"):
        found = CollectionJobResp.decode(leader.collect(task_id, request.encode()) or b"")
    aad = AggregateShareAad(task_id, leader.task(task_id).configuration, request).encode()
    shares = [
        collector.open(share, aggregate_share_info(role), aad)
        for share, role in (
            (found.leader_encrypted_agg_share, Role.LEADER),
            (found.helper_encrypted_agg_share, Role.HELPER),
        )
    ]
    if [number - 2000 for number in prio.unshard(shares)] != plain.tolist():
        raise SystemExit("the sums are wrong")

    names = ("device_ms", "upload_ms", "leader_ms", "leader_wall_ms", "helper_ms", "helper_wall_ms")
    medians = (statistics.median(lap) for lap in zip(*watch.blocks, strict=True))
    return {
        "sums": about(sums),
        "reports": reports,
        "report_bytes": size,
        **dict(zip(names, medians, strict=True)),
        "close_ms": 1e3 * watch.wall["close"],
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def about(sums: Linear | Pairs) -> str:
    """What a report is about."""
    if isinstance(sums, Pairs):
        return f"pairs of {len(sums.heads)} heads"
    return f"rows over {sums.items:,} items"


def measure_processes(
    sums: Linear | Pairs, reports: int, folder: Path, *, fresh: bool
) -> dict[str, Any]:
    """Both servers as processes."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from hdpmf.untrusted.aggregator.folder import Limits
    from hdpmf.untrusted.aggregator.serve import open_server
    from tests.aggregator.server_processes import HELPER, LEADER, Pair, make_task
    from uploads import cpu_seconds, put_request, upload_all

    rng = np.random.default_rng(0)
    with Pair(folder, limits=Limits(per_address=1000)) as pair:
        asked = make_task(pair.servers, pair.collector.card, sums, enrolled=True)
        with (
            open_server(pair.folders[LEADER]) as leader,
            open_server(pair.folders[HELPER]) as other,
        ):
            leader.add_task(asked.document)
            other.add_task(asked.document)

        def made(count: int) -> list[bytes]:
            found = []
            for _ in range(count):
                report = asked.report(make_row(sums, rng).tolist())
                found.append(put_request(asked, report, fresh=fresh))
            return found

        warm, rest = made(COMMIT), made(reports)
        pair.start(HELPER, LEADER)
        pids = {role: pair.deployment.child(role).process.pid for role in (LEADER, HELPER)}
        port = pair.folders[LEADER].config.port
        token = {"authorization": f"Bearer {pair.folders[LEADER].metrics_token}"}

        def wait(count: int) -> None:
            """Until so many reports are summed."""
            url, summed = pair.cards[LEADER].endpoint("/metrics"), 0.0
            while summed < count:
                time.sleep(0.5)
                text = pair.clients[LEADER].get(url, headers=token).text
                summed = float(re.search(r"aggregated_reports_total (\d\S*)", text)[1])  # type: ignore[index]

        def used() -> dict[str, float]:
            return {role: cpu_seconds(pid) for role, pid in pids.items()}

        upload_all(port, pair.context(LEADER), warm, fresh)
        wait(COMMIT)
        idle = used()
        time.sleep(IDLE_SECONDS)
        begin, before = time.perf_counter(), used()
        upload_all(port, pair.context(LEADER), rest, fresh)
        wait(COMMIT + reports)
        seconds, after = time.perf_counter() - begin, used()
    return {
        "sums": about(sums),
        "reports": reports,
        "report_bytes": asked.prio.input_share_size(0),
        "fresh": fresh,
        **{f"{role}_ms": 1e3 * (after[role] - before[role]) / reports for role in pids},
        **{f"{role}_idle": (before[role] - idle[role]) / IDLE_SECONDS for role in pids},
        "seconds": seconds,
    }


def print_processes(row: dict[str, Any]) -> None:
    kind = "a connection each" if row["fresh"] else "connections that are kept"
    print(f"{row['sums']}, {row['reports']} reports over TLS, {kind}; ms per report")
    for role in ("leader", "helper"):
        print(f"{role:10} {row[f'{role}_ms']:10.2f}   idle: {row[f'{role}_idle']:.2%} of a core")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=3706)
    parser.add_argument("--heads", type=int, default=0, help="pairs of so many, not rows")
    parser.add_argument("--reports", type=int, default=2000)
    parser.add_argument(
        "--database",
        help="of both servers, one database each: NAME is replaced by leader and helper",
    )
    parser.add_argument("--processes", action="store_true", help="with HTTP and TLS")
    parser.add_argument("--fresh", action="store_true", help="a connection for every upload")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sums = sums_of(given.items, given.heads)
    if given.processes:
        with tempfile.TemporaryDirectory() as folder:
            row = measure_processes(sums, given.reports, Path(folder), fresh=given.fresh)
        if given.json:
            print(json.dumps(row))
        else:
            print_processes(row)
        return
    with tempfile.TemporaryDirectory() as folder:
        row = measure(sums, given.reports, Path(folder), given.database)
    missed = [name for name, most in TARGETS.items() if row[name] > most]
    if given.json:
        print(json.dumps(row | {"missed": missed}))
        return
    print(
        f"{row['sums']}, {row['reports']} reports of "
        f"{row['report_bytes'] / 1e3:.0f} KB; ms per report"
    )
    print(f"{'':10} {'processor':>10} {'wall':>8}")
    print(
        f"{'leader':10} {row['leader_ms']:10.2f} {row['leader_wall_ms']:8.2f}   of "
        f"which uploads {row['upload_ms']:.2f}"
    )
    print(f"{'helper':10} {row['helper_ms']:10.2f} {row['helper_wall_ms']:8.2f}")
    print(f"{'device':10} {row['device_ms']:10.2f}")
    print(
        f"closing the batch at both: {row['close_ms']:.0f} ms; memory of everything: "
        f"{row['memory_mb']:.0f} MB"
    )
    verdict = "missed: " + ", ".join(missed) if missed else "all met"
    print(f"targets, 2.5 ms, 2.0 ms and 1,000 MB: {verdict}")


if __name__ == "__main__":
    main()
