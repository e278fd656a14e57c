"""What all tests share: where real data is, and a cache of their own."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from hdpmf.common.methods import Method

# The same examples every time: a test that fails only sometimes tells nobody anything.
settings.register_profile("hdpmf", derandomize=True, deadline=None)
settings.load_profile("hdpmf")

HERE = Path(__file__).resolve().parent
# Federations of real processes and browsers: slow whatever they do.
_MACHINES = ("tests/aggregator/", "tests/deploy/", "tests/federation/", "tests/e2e/")
# What tests of these folders share takes long to prepare: kernels to compile, PyTorch to import, a
# store to fill, a browser to start.
_TOGETHER = {
    "tests/e2e/": "browser",
    "tests/paper/": "paper",
    "tests/unit/paper/": "report",
    "tests/unit/report/": "report",
    "tests/unit/gpu/": "gpu",
    "tests/unit/aggregator/": "prio",
    "tests/unit/prio/": "prio",
}
# Seconds on CI's two cores of what takes long: that begins first, or the other workers wait for it
# in the end. The rest begins by how many slow tests it has.
_SECONDS = {
    "tests/deploy/test_three_hosts.py": 200,
    "browser": 150,
    "paper": 150,
    "tests/deploy/test_prometheus.py": 100,
    "tests/aggregator/test_clocks.py": 85,
    "tests/flower/test_engines.py": 90,
    "tests/aggregator/test_postgres.py": 55,
    "tests/aggregator/test_processes.py": 50,
    "tests/aggregator/test_whole_federation.py": 50,
    "tests/privacy/test_controls.py": 50,
    "gpu": 40,
}
# All tests of these folders are slow, and importing what they need takes seconds.
_ALL_SLOW = (
    *("tests/aggregator", "tests/deploy", "tests/e2e", "tests/federation", "tests/paper"),
    "tests/unit/gpu",
)
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need a whole machine are slow whatever they do. Several workers begin with what
    takes long.
    """
    # Once per function: the cases of a parametrized test share one, and forty times forty would
    # never end.
    for test in {
        id(item.obj): item.obj for item in items if isinstance(item, pytest.Function)
    }.values():
        _longer(test)
    for item in items:
        if item.nodeid.startswith(_MACHINES):
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):
        slow = Counter(share_of(item.nodeid) for item in items if item.get_closest_marker("slow"))
        items.sort(key=lambda item: _place(item.nodeid, slow))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Each worker begins to collect elsewhere. In a fresh clone it takes 17 s to rewrite what tests
    assert: what one has rewritten, the others read.
    """
    report = yield
    given: dict[str, Any] = getattr(collector.config, "workerinput", {})
    if given and isinstance(collector, pytest.Directory) and report.passed:
        number = int(given["workerid"].removeprefix("gw"))
        first = number * len(report.result) // given["workercount"]
        report.result = report.result[first:] + report.result[:first]
    return report


def pytest_collection_finish() -> None:
    """Six thousand tests and what they import stay: the garbage collector need not look through
    them again and again.
    """
    gc.freeze()


def _place(nodeid: str, slow: Counter[str]) -> tuple[int, int, str, str]:
    """Return where a test comes: the same for all workers, and in a file as they stand there."""
    share = share_of(nodeid)
    return -_SECONDS.get(share, 0), -slow[share], share, nodeid.partition("::")[0]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """``make check`` does not import what it leaves out anyway."""
    slow = [HERE.parent / folder for folder in _ALL_SLOW]
    return True if _only_fast(config) and collection_path in slow else None


def _only_fast(config: pytest.Config) -> bool:
    return "not slow and not paper" in config.option.markexpr


def share_of(nodeid: str) -> str:
    """What goes to one worker as a whole: the tests of some folders, else those of a file."""
    file = nodeid.partition("::")[0]
    if file in _SECONDS:
        return file
    return next((share for place, share in _TOGETHER.items() if file.startswith(place)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of workers: three more than there are cores, for who runs federations and
    browsers waits most of the time. Fast tests compute, and wait a little.
    """
    from hdpmf.common.base.threads import available_cores

    return available_cores() + (1 if _only_fast(config) else 3)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return who does which tests. Not by marks: with pytest 9.2 xdist's ``loadgroup`` does not
    see them (its issue 1386).
    """
    from xdist.scheduler import LoadScopeScheduling

    class Shares(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return share_of(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            """Workers are given a share before they have done the last: behind a long one, the
            shortest that is left.
            """
            begun = self.assigned_work.get(node, {})
            if any(share in _SECONDS and not all(begun[share].values()) for share in begun):
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

    config.option.loadscopereorder = False  # by how many tests there are: the order is ours
    return Shares(config, log)


def _longer(test: Any) -> None:
    """HDPMF_FUZZ=40 tries forty times as many examples, and other ones each time."""
    times = int(os.environ.get("HDPMF_FUZZ", "1"))
    given = getattr(test, "_hypothesis_internal_use_settings", None)
    if times > 1 and given is not None:
        more = settings(
            given, max_examples=times * given.max_examples, derandomize=False, deadline=None
        )
        test._hypothesis_internal_use_settings = more


def _data_folder() -> Path | None:
    named = os.environ.get("HDPMF_DATA")
    if named:
        return Path(named)
    return SHARED_DATA if SHARED_DATA.is_dir() else None


@pytest.fixture(scope="session", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Point HDPMF_DATA at the shared data if it is there, and keep the user's own cache out of
    the tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        folder = _data_folder()
        if folder is not None:
            patch.setenv("HDPMF_DATA", str(folder))
        patch.setenv("HDPMF_CACHE", str(tmp_path_factory.mktemp("hdpmf-cache")))
        yield


@pytest.fixture
def register() -> Iterator[Callable[[Method], None]]:
    """Register a method, in the place of one of its name, until the test ends."""
    from hdpmf.common.methods import METHODS

    def arrange(methods: Iterable[Method]) -> None:
        for name in list(METHODS):
            METHODS.discard(name)
        for method in methods:
            METHODS.add(method)

    before = dict(METHODS)
    yield lambda method: arrange([*(dict(METHODS) | {method.name: method}).values()])
    arrange(before.values())


@pytest.fixture(scope="session")
def data_folder(_surroundings: None) -> Path:
    """The folder with real data sets; without it a test is skipped, but on CI it fails instead."""
    folder = _data_folder()
    if folder is None or not folder.is_dir():
        reason = "needs real data: set HDPMF_DATA to the folder that has ml-100k.zip and the others"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder
