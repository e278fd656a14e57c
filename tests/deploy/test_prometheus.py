"""Shipped rules, example and panels in a real Prometheus: each alert fires by a fault, and ends.

Alerts of the rules as they are shipped fire on series that are written down here (``promtool test
rules``): their hours would take hours. Each of them also fires by a real fault of two servers as
processes or of a recommender's folder, with rules in which hours are seconds.
"""

from __future__ import annotations

import datetime
import os
import resource
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path

import httpx
import msgspec
import pytest

pytest.importorskip("prometheus_client")

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.untrusted.aggregator.folder import Limits
from hdpmf.untrusted.service.folder import Config, RunRecord, ServiceFolder
from hdpmf.untrusted.service.health import inspect_folder
from hdpmf.untrusted.service.metrics import Metrics
from hdpmf.untrusted.service.settings import RunSettings
from hdpmf.untrusted.service.telemetry import endpoint
from tests.aggregator.server_processes import (
    HELPER,
    LEADER,
    Asked,
    Pair,
    faketime_library,
    make_task,
)
from tests.deploy.prometheus import (
    ALERTS,
    PATIENT,
    Prometheus,
    alert_names,
    example_for,
    missing,
    promtool,
)
from tests.world import table

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.skipif(
    "CI" not in os.environ and bool(missing() or os.geteuid() or not faketime_library()),
    reason="needs root for a disk of its own, and apt-get install prometheus libfaketime",
)

_AT = 'job="hdpmf-server",instance="sums:9444"'
_BUILD = f'hdpmf_build_info{{{_AT},role="leader",version="1",python="3"}}'
_HEALTHY = {f"up{{{_AT}}}": "1x400", _BUILD: "1x400"}


def during(before: str, fault: str, after: str) -> str:
    """Values of a series: ten minutes, then 130 minutes of a fault, then 260 minutes."""
    return f"{before}x9 {fault}x129 {after}x260"


def of_recommender(alert: str) -> dict[str, str]:
    name = f'hdpmf_alert{{job="hdpmf-recommender",instance="rec:9500",name="{alert}"}}'
    return {name: during("0", "1", "0")}


def of_server(metric: str, labels: str, values: str) -> dict[str, str]:
    return {f"hdpmf_aggregator_{metric}{{{_AT}{labels}}}": values}


_GROWS = "0x9 0+1x129 129x260"

SERIES = {
    "HdpmfNothingWatched": {f"up{{{_AT}}}": during("1", "_", "1")},
    "HdpmfDown": {f"up{{{_AT}}}": during("1", "0", "1")},
    "HdpmfWrongTarget": {
        f'hdpmf_build_info{{{_AT},role="leader",version="1",python="3"}}': during(
            "1", "stale _", "1"
        )
    },
    "HdpmfRestarting": {f"process_start_time_seconds{{{_AT}}}": "1x9 1+60x129 7741x260"},
    "HdpmfFilesRunningOut": {
        f"process_open_fds{{{_AT}}}": during("10", "95", "10"),
        f"process_max_fds{{{_AT}}}": "100x400",
    },
    "HdpmfCohortTooSmall": of_recommender("cohort"),
    "HdpmfRefusalsRising": of_recommender("refusals"),
    "HdpmfCertificateEnding": of_recommender("certificate"),
    "HdpmfRunGivenUpOrStopped": of_recommender("run"),
    "HdpmfDiskNearlyFull": of_recommender("disk"),
    "HdpmfFolderUnreadable": of_recommender("unreadable"),
    "HdpmfCertificateEnded": {
        'hdpmf_recommender_certificate_seconds{certificate="server"}': during("9e6", "8e4", "9e6")
    },
    "HdpmfServerTroubles": of_server("troubles_total", ',what="TransportError"', _GROWS),
    "HdpmfServerErrors": of_server("answers_total", ',resource="task",status="500"', _GROWS),
    "HdpmfServerOverloaded": of_server("uploads_total", ',outcome="busy"', _GROWS),
    "HdpmfServerSlow": {
        **of_server("transaction_seconds_bucket", ',kind="write",le="1.0"', "0x400"),
        **of_server("transaction_seconds_bucket", ',kind="write",le="5.0"', _GROWS),
        **of_server("transaction_seconds_bucket", ',kind="write",le="+Inf"', _GROWS),
    },
    "HdpmfReportsWaiting": {
        **of_server("waiting_reports", "", during("0", "5", "0")),
        **of_server("aggregated_reports_total", "", "7x400"),
    },
    "HdpmfReportsLost": of_server("uploads_total", ',outcome="failed"', _GROWS),
    "HdpmfReportsRejected": of_server("rejected_reports", ',reason="hpke_decrypt_error"', _GROWS),
    "HdpmfClocksDiffer": of_server("clock_skew_seconds", "", during("1", "-31", "-2")),
    "HdpmfPartnerAway": of_server("partner_reachable", "", during("1", "0", "1")),
    "HdpmfServerDiskNearlyFull": {
        **of_server("free_bytes", "", during("9e11", "4e9", "9e11")),
        **of_server("disk_bytes", "", "1e12x400"),
    },
    "HdpmfServerCertificateEnding": of_server(
        "certificate_seconds", ',certificate="server"', during("2e6", "1e6", "3e6")
    ),
}


def test_every_alert_as_it_is_shipped_fires_on_its_series_alone_and_ends(tmp_path: Path) -> None:
    assert set(SERIES) == set(alert_names())
    checks = {"9m": [], "130m": [1], "395m": []}
    tests = [
        {
            "name": alert,
            "interval": "1m",
            "input_series": [
                {"series": name, "values": values} for name, values in (_HEALTHY | fault).items()
            ],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": when,
                    "exp_samples": [
                        {"labels": f'{{alertname="{alert}"}}', "value": value} for value in values
                    ],
                }
                for when, values in checks.items()
            ],
        }
        for alert, fault in SERIES.items()
    ]
    document = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(document, sort_keys=False))
    promtool("check", "rules", str(ALERTS), cwd=tmp_path)
    promtool("test", "rules", "tests.yml", cwd=tmp_path)


ROOMY = "20g"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk in memory, which can be made smaller."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOMY}", "none", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)


def short_certificate(hours: float) -> bytes:
    """A certificate that ends soon."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now).not_valid_after(now + datetime.timedelta(hours=hours))
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


class World:
    """Two servers as processes, a recommender's folder with its exporter, and Prometheus.

    Attributes:
        old: Folder with a copy of the helper's database, from before the first task.
    """

    def __init__(self, tmp_path: Path, disk: Path, stack: ExitStack) -> None:
        self.disk = disk
        self.folder = ServiceFolder.create(disk / "recommender", Config(name="town"), table())
        ensure_certificates(self.folder.tls_folder, ("localhost",))
        limits = Limits(waiting_reports=4, job_reports=1)  # each report that fails is a trouble
        self.pair = stack.enter_context(Pair(disk / "servers", limits=limits, clocks=True))
        self.port = stack.enter_context(
            endpoint(Metrics(), 0, inspect_folder=lambda: inspect_folder(self.folder))
        )
        self.pair.start(HELPER, LEADER)
        self.old = disk / "old"
        self.old.mkdir()
        names = self.pair.folders[HELPER].path / "data.sqlite", self.old / "data.sqlite"
        with closing(sqlite3.connect(names[0])) as now, closing(sqlite3.connect(names[1])) as copy:
            now.backup(copy)
        self.prometheus = stack.enter_context(Prometheus(tmp_path / "prometheus", self.config()))

    def config(self, *more: str) -> str:
        """Its configuration of Prometheus; more targets belong to the recommender's job."""
        targets = [f"127.0.0.1:{self.port}", *more]
        return example_for(targets, self.pair.folders.values())

    def finds(self, expression: str) -> None:
        self.prometheus.wait(expression, lambda: bool(self.prometheus.query(expression)))

    def fires(self, alerts: set[str]) -> None:
        self.prometheus.wait(f"{alerts} fire", lambda: alerts <= self.prometheus.firing())

    def ends(self, but: frozenset[str] = frozenset()) -> None:
        self.prometheus.wait("no alert fires any more", lambda: self.prometheus.firing() <= but)

    def give_task(self, seconds: int) -> Asked:
        asked = make_task(self.pair.servers, self.pair.collector.card, seconds=seconds)
        self.pair.give(asked)
        return asked

    def begin_run(self, number: int, minimum: int = 2) -> bytes:
        cards, run = self.folder.enrolled.cards, bytes([number]) * 16
        settings = RunSettings(method="mf", view="messages", minimum=minimum)
        cohort = tuple(card.identity for card in cards)
        self.folder.begin_run(run, RunRecord(settings=settings, devices=cards, cohort=cohort))
        return run

    def finish(self, run: bytes, refusals: int = 0) -> None:
        summary = {"refusals": {"policy": refusals}, "users": 2}
        self.folder.finish(run, None, msgspec.json.encode(summary))


@contextmanager
def replaced(path: Path, data: bytes) -> Iterator[None]:
    """A file has other bytes for a while."""
    before = path.read_bytes()
    path.write_bytes(data)
    yield
    path.write_bytes(before)


@contextmanager
def again(act: Callable[[], object]) -> Iterator[None]:
    """Do something again and again while inside, as devices do that get no answer."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.1):
            with suppress(httpx.HTTPError):
                act()

    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(work)
        try:
            yield
        finally:
            over.set()
        working.result()


def uploads(world: World, asked: Asked) -> AbstractContextManager[None]:
    return again(lambda: world.pair.upload(asked, asked.report([1, 2, 3, 4])))


def power_is_cut(world: World, asked: Asked) -> Iterator[tuple[str, ...]]:
    """Both servers go down; the leader starts and dies again and again, the helper stays away."""
    world.pair.kill(HELPER)
    starts = 'changes(process_start_time_seconds{job="hdpmf-server-leader"}[5m])'
    for number in range(1, 5):
        world.pair.kill(LEADER)
        world.pair.serve(LEADER)
        world.finds(f"{starts} >= {number}")
    yield "HdpmfDown", "HdpmfRestarting", "HdpmfPartnerAway"
    world.pair.start(HELPER)
    world.pair.wait_for_clocks()


def database_is_old(world: World, asked: Asked) -> Iterator[tuple[str, ...]]:
    """The helper gets a copy of its database that knows no task, without the counter beside it."""
    pair, folder, newest = world.pair, world.pair.folders[HELPER].path, world.disk / "newest"
    newest.mkdir()
    pair.kill(HELPER)
    move_database(folder, newest)
    move_database(world.old, folder)
    pair.start(HELPER)
    with uploads(world, asked):
        yield ("HdpmfServerTroubles",)
    pair.kill(HELPER)
    move_database(folder, world.old)
    move_database(newest, folder)
    pair.start(HELPER)


def move_database(source: Path, target: Path) -> None:
    for path in source.glob("data.sqlite*"):
        path.rename(target / path.name)


def helper_goes_away(world: World, asked: Asked) -> Iterator[tuple[str, ...]]:
    """The helper is killed; the leader takes no more reports than may wait."""
    world.pair.kill(HELPER)
    with uploads(world, asked):
        yield "HdpmfDown", "HdpmfReportsWaiting", "HdpmfServerOverloaded"
    world.pair.start(HELPER)


def database_is_taken(world: World, asked: Asked) -> Iterator[tuple[str, ...]]:
    """Another program has the leader's database for two seconds at a time."""
    database = world.pair.folders[LEADER].path / "data.sqlite"

    def take() -> None:
        with closing(sqlite3.connect(database, timeout=60.0)) as other:
            other.execute("BEGIN IMMEDIATE")
            time.sleep(2.0)

    with uploads(world, asked), again(take):
        yield ("HdpmfServerSlow",)


def reports_are_broken(world: World, asked: Asked) -> Iterator[tuple[str, ...]]:
    """Devices encrypt in a wrong way: what was taken has to be rejected."""

    def upload() -> None:
        report = asked.report([1, 2, 3, 4])
        world.pair.upload(asked, report[:-1] + bytes([report[-1] ^ 1]))

    with again(upload):
        yield ("HdpmfReportsRejected",)


def disk_is_full(world: World, asked: Asked) -> Iterator[tuple[str, ...]]:
    """Nothing can be written: reports are not confirmed."""
    resize(world.disk, str(shutil.disk_usage(world.disk).used))
    with uploads(world, asked):
        yield "HdpmfDiskNearlyFull", "HdpmfServerDiskNearlyFull", "HdpmfReportsLost"
    resize(world.disk, ROOMY)


def card_is_damaged(world: World, asked: Asked) -> Iterator[tuple[str, ...]]:
    """Among the cards of recommenders that the leader admits is a file that is none."""
    damaged = world.pair.folders[LEADER].path / "collectors" / "damaged.json"
    damaged.touch()
    with again(lambda: world.pair.put_task(LEADER, asked.id, asked.document)):
        yield ("HdpmfServerErrors",)
    assert damaged.name in world.pair.log(LEADER)
    damaged.unlink()


def certificates_end(world: World, asked: Asked) -> Iterator[tuple[str, ...]]:
    """Certificates of the recommender and of the leader were not renewed."""
    folders = world.folder.tls_folder, world.pair.folders[LEADER].path / "tls"
    with (
        replaced(folders[0] / "server.pem", short_certificate(12)),
        replaced(folders[1] / "server.pem", short_certificate(10 * 24)),
    ):
        yield "HdpmfCertificateEnding", "HdpmfCertificateEnded", "HdpmfServerCertificateEnding"


def clocks_differ(world: World, asked: Asked) -> Iterator[tuple[str, ...]]:
    """Somebody has set the helper's clock an hour ahead."""
    world.pair.set_clock(HELPER, 3600)
    yield ("HdpmfClocksDiffer",)
    world.pair.set_clock(HELPER, 0)


def files_run_out(world: World, asked: Asked) -> Iterator[tuple[str, ...]]:
    """The leader may have hardly more files and connections than it has."""
    pid = world.pair.deployment.child(LEADER).process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    some = len(list(Path(f"/proc/{pid}/fd").iterdir())) + 2
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (some, before[1]))
    yield ("HdpmfFilesRunningOut",)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def runs_go_wrong(world: World, asked: Asked) -> Iterator[tuple[str, ...]]:
    """A run stops, needs more people than there are, and more refuse than before."""
    world.finish(world.begin_run(1))
    world.finish(world.begin_run(2), refusals=1)
    last = world.begin_run(3, minimum=3)
    yield "HdpmfRunGivenUpOrStopped", "HdpmfCohortTooSmall", "HdpmfRefusalsRising"
    world.finish(last)
    world.finish(world.begin_run(4))


def folder_is_damaged(world: World, asked: Asked) -> Iterator[tuple[str, ...]]:
    """A run's record cannot be read."""
    with replaced(world.folder.path / "runs" / ("04" * 16) / "settings.json", b"x"):
        yield ("HdpmfFolderUnreadable",)


def another_program_answers(world: World, asked: Asked) -> Iterator[tuple[str, ...]]:
    """A target is not the recommender, but Prometheus itself."""
    world.prometheus.configure(world.config(world.prometheus.address))
    yield ("HdpmfWrongTarget",)
    world.prometheus.configure(world.config())


def nothing_is_watched(world: World, asked: Asked) -> Iterator[tuple[str, ...]]:
    """Somebody took the jobs out of the configuration."""
    world.prometheus.configure("global: {evaluation_interval: 1s}\nrule_files: [alerts.yml]\n")
    yield ("HdpmfNothingWatched",)
    world.prometheus.configure(world.config())


FAULTS = (
    (power_is_cut, certificates_end),
    (database_is_old, runs_go_wrong),
    (helper_goes_away, folder_is_damaged),
    (database_is_taken, another_program_answers),
    (reports_are_broken, card_is_damaged),
    (disk_is_full,),
    (clocks_differ, files_run_out),
    (nothing_is_watched,),
)


def test_faults_fire_alerts_that_end_with_them(tmp_path: Path, disk: Path) -> None:
    fired: set[str] = set()
    with ExitStack() as stack:
        world = World(tmp_path, disk, stack)
        world.finds("count(hdpmf_build_info) == 3")
        world.ends()
        asked = world.give_task(seconds=3600)
        for together in FAULTS:
            faults = [contextmanager(fault)(world, asked) for fault in together]
            begin = time.monotonic()
            with ExitStack() as under_way:
                expected = {name for fault in faults for name in under_way.enter_context(fault)}
                world.fires(expected)
                fired |= expected
            world.ends(but=PATIENT)
            print([fault.__name__ for fault in together], round(time.monotonic() - begin, 1), "s")
        world.ends()
    assert fired == set(alert_names())
