"""Seconds per exchange over Flower on loopback, with TLS, node authentication and a process per
device.

    python benchmarks/transport.py [--devices 8] [--bytes 100000] [--exchanges 40]
    python benchmarks/transport.py --looks 64,500,2000

Every device gets a message of its own and echoes it. A round of training is one exchange, with
secure sums six. ``--looks``: what it takes Flower to see whether there is mail for a device, by how
many messages it holds. Thousands of devices: ``benchmarks/load.py``.
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

from hdpmf.common.net.flower.device import FlowerDevice
from hdpmf.common.net.flower.recommender import FlowerRecommender
from hdpmf.common.net.keys import NodeKey


def device(address: str, authority: str, key: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    node = NodeKey.from_bytes(Path(key).read_bytes())
    FlowerDevice(address, Path(authority).read_bytes(), node).serve(lambda message: message, stop)


def processor_seconds(pid: int) -> float:
    return sum(
        map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])
    ) / os.sysconf("SC_CLK_TCK")


def megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(folder: Path, devices: int, size: int, exchanges: int) -> None:
    keys = {f"device-{number}": NodeKey.generate() for number in range(devices)}
    began = time.monotonic()
    with FlowerRecommender(
        folder, roster={name: key.public for name, key in keys.items()}
    ) as recommender:
        superlink = recommender.superlink
        assert superlink is not None
        print(f"SuperLink up after {time.monotonic() - began:.1f} s")
        authority = folder / "authority.pem"
        authority.write_bytes(recommender.authority)
        processes = []
        for name, key in keys.items():
            (folder / name).write_bytes(key.to_bytes())
            command = [
                sys.executable,
                __file__,
                "--device",
                recommender.address,
                str(authority),
                str(folder / name),
            ]
            processes.append(subprocess.Popen(command))
        try:
            while len(recommender.present()) < devices:
                time.sleep(0.1)
            print(f"{devices} devices connected after {time.monotonic() - began:.1f} s")
            seconds, before = [], processor_seconds(superlink.pid)
            for _ in range(exchanges):
                messages = {name: os.urandom(size) for name in keys}
                start = time.monotonic()
                replies = {
                    reply.device: reply.data for reply in recommender.exchange(messages, 60.0)
                }
                seconds.append(time.monotonic() - start)
                assert replies == messages
            busy = (processor_seconds(superlink.pid) - before) / exchanges
            print(
                f"exchange of {size:,} bytes: median {statistics.median(seconds):.3f} s, "
                f"longest {max(seconds):.3f} s"
            )
            print(
                f"SuperLink: {busy * 1000:.0f} ms of processor time per exchange, "
                f"{megabytes(superlink.pid):.0f} MB"
            )
            print(
                f"a device: {max(megabytes(one.pid) for one in processes):.0f} MB; load "
                f"{os.getloadavg()[0]:.1f}"
            )
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()


def looks(held: int, times: int = 20) -> float:
    """Milliseconds of one look, while Flower holds so many messages."""
    from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
    from flwr.supercore.task_identity import TaskIdentity

    from hdpmf.common.net.flower.link import superlink_app
    from hdpmf.common.net.flower.messages import Outgoing

    state = superlink_app(10.0).state.linkstate_factory.state()
    run = state.create_run(
        "hdpmf/look", "1.0.0", "0" * 64, {}, NOOP_FEDERATION_ID, None, "", TaskType.SERVER_APP
    )
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, run, 1
    for _ in range(held):
        node = state.create_node("", "", os.urandom(32), 10.0)
        message = Outgoing(node, b"", "token").to_flower(100.0)
        state.message_ins_store[os.urandom(32).hex()] = message
    begin = time.thread_time()
    for _ in range(times):
        state.get_message_ins(node_id=1, limit=1)
    return 1e3 * (time.thread_time() - begin) / times


def main() -> None:
    if sys.argv[1:2] == ["--device"]:
        device(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--bytes", type=int, default=100_000)
    parser.add_argument("--exchanges", type=int, default=40)
    parser.add_argument("--looks", metavar="N,...", help="messages that Flower holds")
    options = parser.parse_args()
    if options.looks:
        for held in map(int, options.looks.split(",")):
            print(f"{held:,} messages: {looks(held):.2f} ms of processor time per look")
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.devices, options.bytes, options.exchanges)


if __name__ == "__main__":
    main()
