"""Many devices in one process, or in a few, each reached by encoded messages only."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from hdpmf.common.aggregation.two_servers.prio import compile_kernels
from hdpmf.common.net import DeviceReply, InProcessNetwork, RecommenderTransport
from hdpmf.common.protocol import DeviceCard
from hdpmf.common.protocol.servers import Servers
from hdpmf.errors import FederationError
from hdpmf.lab.simulate.virtual_device import DeviceRatings, SentReport, Vectors, VirtualDevice
from hdpmf.private.device.policy import Policy

_TRIM_STEP = 16 * 1024 * 1024
_AT_A_TIME = 100  # messages in a pipe: bounds the memory


class SimulatedDevices(Protocol):
    """The devices of a simulation, wherever they are."""

    cards: tuple[DeviceCard, ...]
    network: RecommenderTransport

    def pin_roster(self, cards: Sequence[DeviceCard]) -> None:
        """Make every device pin the same roster."""
        ...

    def learn(self, files: Mapping[str, bytes]) -> None:
        """Let every device learn from what the recommender publishes now."""
        ...

    def reports(
        self, servers: Servers, files: Mapping[str, bytes], now: float
    ) -> Iterator[SentReport]:
        """Return every device's reports to two servers, for the task that is published."""
        ...

    def vectors(self) -> list[Vectors]:
        """Return the user vectors of devices that have finished a run."""
        ...

    def close(self) -> None:
        """Let all of it go."""
        ...


Engine = Callable[[Sequence[DeviceRatings], str, int], SimulatedDevices]
"""Makes devices, given their ratings, a ``Policy`` as TOML and the seed of all draws."""


def make_devices(
    parts: Sequence[DeviceRatings], policy: str, seed: int, processes: int = 1
) -> SimulatedDevices:
    """Return devices in this process, or in several."""
    processes = min(processes, len(parts))
    if processes == 1:
        return DevicesHere(parts, policy, seed)
    return DevicesInProcesses(parts, policy, seed, processes)


class DevicesHere:
    """Devices in this process.

    ``policy`` is a ``Policy`` as TOML, so that it can travel; ``first`` is the number of the first
    device: draws differ between devices.
    """

    def __init__(
        self, parts: Sequence[DeviceRatings], policy: str, seed: int, first: int = 0
    ) -> None:
        compile_kernels()  # there are many of them
        agreed = Policy.from_toml(policy)
        self._devices = [
            VirtualDevice.create(part, agreed, number, seed)
            for number, part in enumerate(parts, start=first)
        ]
        self.cards = tuple(device.card for device in self._devices)
        self.network: RecommenderTransport = InProcessNetwork(
            {
                card.identity: device.answer
                for card, device in zip(self.cards, self._devices, strict=True)
            }
        )

    def pin_roster(self, cards: Sequence[DeviceCard]) -> None:
        """Every device pins the same roster."""
        for device in self._devices:
            device.pin_roster(cards)

    def learn(self, files: Mapping[str, bytes]) -> None:
        """Every device learns from the files."""
        for device in self._devices:
            device.learn(files)

    def reports(
        self, servers: Servers, files: Mapping[str, bytes], now: float
    ) -> Iterator[SentReport]:
        """Every device's reports to two servers, for the task that is published."""
        for device in self._devices:
            yield from device.reports(servers, files, now)

    def vectors(self) -> list[Vectors]:
        """User vectors of the devices that have finished a run."""
        return [vectors for device in self._devices if (vectors := device.vectors) is not None]

    def close(self) -> None:
        """Let all of it go."""
        self.network.close()
        for device in self._devices:
            device.close()


class DevicesInProcesses:
    """Devices dealt to a few processes, because Python computes with one core at a time."""

    def __init__(
        self, parts: Sequence[DeviceRatings], policy: str, seed: int, processes: int
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._workers = []
        ends = [len(parts) * part // processes for part in range(processes + 1)]
        for begin, end in pairwise(ends):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_work, args=(theirs,), daemon=True)
            worker.start()
            theirs.close()
            ours.send((list(parts[begin:end]), policy, seed, begin))
            self._pipes.append(ours)
            self._workers.append(worker)
        dealt = [self._result(pipe) for pipe in self._pipes]
        self.cards: tuple[DeviceCard, ...] = tuple(card for cards in dealt for card in cards)
        worker_of = {card.identity: worker for worker, cards in enumerate(dealt) for card in cards}
        self.network: RecommenderTransport = _Network(self._pipes, worker_of)

    def pin_roster(self, cards: Sequence[DeviceCard]) -> None:
        """Every device pins the same roster."""
        self._ask_all("pin_roster", tuple(cards))

    def learn(self, files: Mapping[str, bytes]) -> None:
        """Every device learns from the files."""
        self._ask_all("learn", dict(files))

    def reports(
        self, servers: Servers, files: Mapping[str, bytes], now: float
    ) -> Iterator[SentReport]:
        """As in ``DevicesHere``; read from the processes in turn."""
        for pipe in self._pipes:
            pipe.send(("reports", servers, dict(files), now))
        waiting = list(self._pipes)
        while waiting:
            for pipe in list(waiting):
                report = self._result(pipe)
                if report is None:
                    waiting.remove(pipe)
                else:
                    yield report

    def vectors(self) -> list[Vectors]:
        """User vectors of the devices that have finished a run."""
        return [vectors for part in self._ask_all("vectors") for vectors in part]

    def close(self) -> None:
        """Let all of it go."""
        for pipe in self._pipes:
            pipe.close()  # the worker's end of its pipe ends it
        for worker in self._workers:
            worker.join(timeout=10)
            if worker.is_alive():
                worker.terminate()
                worker.join()

    def _ask_all(self, *order: Any) -> list[Any]:
        for pipe in self._pipes:
            pipe.send(order)
        return [self._result(pipe) for pipe in self._pipes]

    @staticmethod
    def _result(pipe: Connection) -> Any:
        try:
            return pipe.recv()
        except EOFError:
            raise FederationError(
                "a process with simulated devices has ended; see its message above"
            ) from None


class _Network:
    """Messages through pipes; one that is the same for many devices goes through each pipe once.

    Replies are read from the processes in turn, so that sums are added in the same order every
    time.
    """

    def __init__(self, pipes: Sequence[Connection], worker_of: Mapping[str, int]) -> None:
        self._pipes = pipes
        self._worker_of = worker_of
        self._trim = MemoryTrim()

    def present(self) -> frozenset[str]:
        """All devices, always."""
        return frozenset(self._worker_of)

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        """As in ``RecommenderTransport``; the deadline is each process's."""
        queues = []
        for worker, pipe in enumerate(self._pipes):
            names = [name for name in messages if self._worker_of.get(name) == worker]
            queues.append(
                (pipe, [names[at : at + _AT_A_TIME] for at in range(0, len(names), _AT_A_TIME)])
            )
        waiting = [
            (pipe, parts) for pipe, parts in queues if self._send(pipe, parts, messages, deadline)
        ]
        while waiting:
            for pipe, parts in list(waiting):
                reply = DevicesInProcesses._result(pipe)
                if reply is not None:
                    yield DeviceReply(*reply)
                elif not self._send(pipe, parts, messages, deadline):
                    waiting.remove((pipe, parts))
                    self._trim()

    @staticmethod
    def _send(
        pipe: Connection, parts: list[list[str]], messages: Mapping[str, bytes], deadline: float
    ) -> bool:
        if not parts:
            return False
        names = parts.pop(0)
        blobs = {id(messages[name]): messages[name] for name in names}
        pipe.send(("exchange", blobs, {name: id(messages[name]) for name in names}, deadline))
        return True

    def close(self) -> None:
        """Its owner closes the pipes."""


def _work(pipe: Connection) -> None:
    """A process with devices: does what comes through the pipe until it is closed."""
    try:
        devices = DevicesHere(*pipe.recv())
        trim = MemoryTrim()
        pipe.send(devices.cards)
        while True:
            order = pipe.recv()
            if order[0] == "exchange":
                _, blobs, own, deadline = order
                for reply in devices.network.exchange(
                    {name: blobs[key] for name, key in own.items()}, deadline
                ):
                    pipe.send((reply.device, reply.data))
                pipe.send(None)
                trim()
            elif order[0] == "reports":
                for report in devices.reports(*order[1:]):
                    pipe.send(report)
                pipe.send(None)
            else:
                pipe.send(getattr(devices, order[0])(*order[1:]))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


class MemoryTrim:
    """Gives freed memory back to the system when a process has grown.

    Devices free long vectors of almost the same length one after another, and the holes that they
    leave in the C library's heap are a little too short for the next ones. Where there is no glibc,
    nothing happens.
    """

    def __init__(self) -> None:
        self._trim: Callable[[int], object] | None = None
        with suppress(OSError, AttributeError):
            self._trim = ctypes.CDLL("libc.so.6").malloc_trim
            self._last = _resident()

    def __call__(self) -> None:
        """Look, and give back if it is worth it."""
        if self._trim is not None and _resident() > self._last + _TRIM_STEP:
            self._trim(0)
            self._last = _resident()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
