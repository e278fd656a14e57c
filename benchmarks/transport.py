"""Seconds per exchange over Flower on loopback, with TLS, node authentication and a process per device.

    python benchmarks/transport.py [--devices 8] [--bytes 100000] [--exchanges 40]

Every device gets a message of its own and echoes it. A round of training is one exchange, with secure sums six.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from hdpmf.transport.flower.device import FlowerDevice
from hdpmf.transport.flower.recommender import FlowerRecommender
from hdpmf.transport.keys import NodeKey


def device(address: str, authority: str, key: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    node = NodeKey.from_bytes(Path(key).read_bytes())
    FlowerDevice(address, Path(authority).read_bytes(), node).serve(lambda message: message, stop)


def processor_seconds(pid: int) -> float:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])) / os.sysconf(
        "SC_CLK_TCK"
    )


def megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(folder: Path, devices: int, size: int, exchanges: int) -> None:
    keys = {f"device-{number}": NodeKey.generate() for number in range(devices)}
    began = time.monotonic()
    with FlowerRecommender(folder, roster={name: key.public for name, key in keys.items()}) as recommender:
        superlink = recommender.superlink
        assert superlink is not None
        print(f"SuperLink up after {time.monotonic() - began:.1f} s")
        authority = folder / "authority.pem"
        authority.write_bytes(recommender.authority)
        processes = []
        for name, key in keys.items():
            (folder / name).write_bytes(key.to_bytes())
            command = [sys.executable, __file__, "--device", recommender.address, str(authority), str(folder / name)]
            processes.append(subprocess.Popen(command))
        try:
            while len(recommender.present()) < devices:
                time.sleep(0.1)
            print(f"{devices} devices connected after {time.monotonic() - began:.1f} s")
            seconds, before = [], processor_seconds(superlink.pid)
            for _ in range(exchanges):
                messages = {name: os.urandom(size) for name in keys}
                start = time.monotonic()
                replies = {reply.device: reply.data for reply in recommender.exchange(messages, 60.0)}
                seconds.append(time.monotonic() - start)
                assert replies == messages
            busy = (processor_seconds(superlink.pid) - before) / exchanges
            print(
                f"exchange of {size:,} bytes: median {statistics.median(seconds):.3f} s, longest {max(seconds):.3f} s"
            )
            print(f"SuperLink: {busy * 1000:.0f} ms of processor time per exchange, {megabytes(superlink.pid):.0f} MB")
            print(f"a device: {max(megabytes(one.pid) for one in processes):.0f} MB; load {os.getloadavg()[0]:.1f}")
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()


def main() -> None:
    if sys.argv[1:2] == ["--device"]:
        device(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--bytes", type=int, default=100_000)
    parser.add_argument("--exchanges", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.devices, options.bytes, options.exchanges)


if __name__ == "__main__":
    main()
