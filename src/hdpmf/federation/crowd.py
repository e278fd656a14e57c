"""Many devices in one process, or in a few: each with its own store and agent, reached through encoded letters only."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np

from hdpmf.errors import FederationError
from hdpmf.federation.memory import Tidy
from hdpmf.federation.population import Household
from hdpmf.protocol import DeviceCard
from hdpmf.transport import DeviceReply, InProcessNetwork, RecommenderTransport


@dataclass(frozen=True, slots=True, repr=False)
class Vectors:
    """The user vectors of devices, for whoever owns all of them: a simulation."""

    users: list[str]
    vectors: np.ndarray


_AT_A_TIME = 100  # letters in a pipe: bounds the memory


class Crowd(Protocol):
    """Devices, and a way to reach them."""

    cards: tuple[DeviceCard, ...]
    network: RecommenderTransport

    def pin_roster(self, cards: Sequence[DeviceCard]) -> None:
        """Every device pins the same roster."""
        ...

    def vectors(self) -> list[Vectors]:
        """User vectors of the devices that have finished a run."""
        ...

    def close(self) -> None:
        """Let all of it go."""
        ...


class CrowdHere:
    """Devices in this process.

    Args:
        households: What is on them.
        policy: What they agree to (a ``Policy`` as TOML, so that it can travel).
        seed: Of all draws.
        first: Number of the first device: draws differ between devices.
    """

    def __init__(self, households: Sequence[Household], policy: str, seed: int, first: int = 0) -> None:
        from hdpmf.device.agent import DeviceAgent
        from hdpmf.device.policy import Policy
        from hdpmf.device.store import DeviceStore
        from hdpmf.privacy.sampling import SeededNoise

        agreed = Policy.from_toml(policy)
        self._stores: list[DeviceStore] = []
        self._agents: list[DeviceAgent] = []
        cards, answers = [], {}
        for number, one in enumerate(households, start=first):
            store = DeviceStore.create(":memory:", users=one.ratings.n_users, policy=agreed)
            store.add(one.ratings)
            store.set_weights(one.weights, one.ratings)
            agent = DeviceAgent(store, noise=SeededNoise(seed, stream=100 + number), simulation=True, seed=seed)
            name = store.identity.public.hex()
            cards.append(DeviceCard(name=f"device {number}", identity=name, node=name, users=store.users))
            answers[name] = agent.answer
            self._stores.append(store)
            self._agents.append(agent)
        self.cards = tuple(cards)
        self.network: RecommenderTransport = InProcessNetwork(answers)

    def pin_roster(self, cards: Sequence[DeviceCard]) -> None:
        """Every device pins the same roster."""
        keys, users = [bytes.fromhex(one.identity) for one in cards], [one.users for one in cards]
        for store in self._stores:
            store.pin_roster(keys, users)

    def vectors(self) -> list[Vectors]:
        """User vectors of the devices that have finished a run."""
        found = []
        for agent in self._agents:
            model = agent.model
            if model is not None and model.users:
                flat = np.frombuffer(model.vectors, np.float32)
                found.append(Vectors(list(model.users), flat.reshape(len(model.users), -1)))
        return found

    def close(self) -> None:
        """Let all of it go."""
        self.network.close()
        for store in self._stores:
            store.close()


class CrowdInProcesses:
    """Devices dealt to a few processes, because Python computes with one core at a time.

    Args:
        households: What is on the devices.
        policy: What they agree to.
        seed: Of all draws.
        processes: How many.
    """

    def __init__(self, households: Sequence[Household], policy: str, seed: int, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._workers = []
        ends = [len(households) * part // processes for part in range(processes + 1)]
        for begin, end in pairwise(ends):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_work, args=(theirs,), daemon=True)
            worker.start()
            theirs.close()
            ours.send((list(households[begin:end]), policy, seed, begin))
            self._pipes.append(ours)
            self._workers.append(worker)
        parts = [self._result(pipe) for pipe in self._pipes]
        self.cards: tuple[DeviceCard, ...] = tuple(card for part in parts for card in part)
        homes = {card.identity: place for place, part in enumerate(parts) for card in part}
        self.network: RecommenderTransport = _Network(self._pipes, homes)

    def pin_roster(self, cards: Sequence[DeviceCard]) -> None:
        """Every device pins the same roster."""
        self._ask_all("pin_roster", tuple(cards))

    def vectors(self) -> list[Vectors]:
        """User vectors of the devices that have finished a run."""
        return [one for part in self._ask_all("vectors") for one in part]

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
            raise FederationError("a process with simulated devices has ended; see its message above") from None


class _Network:
    """Letters through pipes. A letter that is the same for many devices goes through each pipe once.

    Replies are read from the processes in turn, so that what is added up is added in the same order every time.
    """

    def __init__(self, pipes: Sequence[Connection], homes: Mapping[str, int]) -> None:
        self._pipes = pipes
        self._homes = homes
        self._tidy = Tidy()

    def present(self) -> frozenset[str]:
        """All devices, always."""
        return frozenset(self._homes)

    def exchange(self, letters: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        """As in ``RecommenderTransport``; the deadline is each process's."""
        queues = []
        for place, pipe in enumerate(self._pipes):
            names = [name for name in letters if self._homes.get(name) == place]
            queues.append((pipe, [names[at : at + _AT_A_TIME] for at in range(0, len(names), _AT_A_TIME)]))
        waiting = [(pipe, parts) for pipe, parts in queues if self._send(pipe, parts, letters, deadline)]
        while waiting:
            for pipe, parts in list(waiting):
                arrival = CrowdInProcesses._result(pipe)
                if arrival is not None:
                    yield DeviceReply(*arrival)
                elif not self._send(pipe, parts, letters, deadline):
                    waiting.remove((pipe, parts))
                    self._tidy()

    @staticmethod
    def _send(pipe: Connection, parts: list[list[str]], letters: Mapping[str, bytes], deadline: float) -> bool:
        """Send the next part, if there is one."""
        if not parts:
            return False
        names = parts.pop(0)
        blobs = {id(letters[name]): letters[name] for name in names}
        pipe.send(("exchange", blobs, {name: id(letters[name]) for name in names}, deadline))
        return True

    def close(self) -> None:
        """The crowd owns the pipes."""


def _work(pipe: Connection) -> None:
    """A process with devices: does what comes through the pipe until it is closed."""
    try:
        crowd, tidy = CrowdHere(*pipe.recv()), Tidy()
        pipe.send(crowd.cards)
        while True:
            order = pipe.recv()
            if order[0] == "exchange":
                _, blobs, own, deadline = order
                for arrival in crowd.network.exchange({name: blobs[key] for name, key in own.items()}, deadline):
                    pipe.send((arrival.device, arrival.data))
                pipe.send(None)
                tidy()
            else:
                pipe.send(getattr(crowd, order[0])(*order[1:]))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return
