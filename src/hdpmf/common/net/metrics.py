"""Prometheus metrics that all our services have: the version, the process, the disk."""

import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

from hdpmf.errors import needs

with needs("prometheus_client"):
    from prometheus_client import ProcessCollector
    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

_NOT_SUMMED = {"process_start_time_seconds": min, "process_max_fds": min}


def this_process() -> Iterable[int]:
    """Return the id of this process alone."""
    return (os.getpid(),)


class ProcessMetrics(Collector):
    """``hdpmf_build_info``, and Prometheus' own ``process_*`` summed over the given processes."""

    def __init__(self, role: str, pids: Callable[[], Iterable[int]] = this_process) -> None:
        self._role = role
        self._pids = pids

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        facts = {
            "role": self._role,
            "version": version("hdpmf"),
            "python": platform.python_version(),
        }
        build = GaugeMetricFamily("hdpmf_build_info", "1: this version runs.", labels=list(facts))
        build.add_metric(list(facts.values()), 1)
        yield build
        yield from self._processes()

    def _processes(self) -> Iterable[Metric]:
        found: dict[str, list[Metric]] = {}
        for pid in self._pids():
            for metric in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
                found.setdefault(metric.name, []).append(metric)
        for name, metrics in found.items():
            first = metrics[0].samples[0]
            combine = _NOT_SUMMED.get(name, sum)
            value = combine([metric.samples[0].value for metric in metrics])
            metrics[0].samples = [first._replace(value=value)]
        return [metrics[0] for metrics in found.values()]


def disk_metrics(prefix: str, folder: Path) -> list[Metric]:
    """Return the size and the free bytes of a folder's disk; nothing if it cannot be read."""
    try:
        disk = shutil.disk_usage(folder)
    except OSError:
        return []
    return [
        GaugeMetricFamily(f"{prefix}disk_bytes", "Size of the folder's disk.", disk.total),
        GaugeMetricFamily(f"{prefix}free_bytes", "Free bytes of the folder's disk.", disk.free),
    ]
