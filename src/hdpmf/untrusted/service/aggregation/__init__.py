"""Aggregation of participants' contributions: an interface, and three ways to do it.

``Direct`` sees every contribution, ``Masks`` only a masked sum over devices, ``TwoServers`` only a
sum that two servers made. A run is a row of jobs; each job states the question and how to read the
answer, whichever way it comes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from hdpmf.common.protocol import Grouping, Message
from hdpmf.common.protocol.layout import SumLayout
from hdpmf.common.protocol.task import Part

if TYPE_CHECKING:
    from hdpmf.untrusted.service.run import Run

T = TypeVar("T")


class Accumulator(ABC, Generic[T]):
    """Adds up contributions that the recommender sees, as they come."""

    expected: tuple[type, ...]

    @abstractmethod
    def take(self, device: str, message: Message) -> str | None:
        """Take a contribution in, or return the reason why it cannot be right."""

    @abstractmethod
    def total(self, devices: Collection[str]) -> T:
        """Return what the contributions of these devices come to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summation(Generic[T]):
    """A job's numbers in a masked sum.

    Attributes:
        layout: Returns the words of the sum, by the number of participants.
        read: Returns the answer in a sum over so many participants.
    """

    layout: Callable[[int], SumLayout]
    read: Callable[[int, np.ndarray], T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Generic[T]):
    """One question of a run.

    Attributes:
        words: The activity, for people.
        offer: The question to participants.
        devices: Those that the recommender asks; two servers take reports of the whole roster.
        kind: Type of the answer.
        accumulator: Reads contributions in clear; None where a job is only ever summed.
        summation: Reads a masked sum; None where a job is never summed.
        part: Of a survey, for two servers.
        grouping: Of ``labels``: by what devices draw their taste labels.
    """

    number: int
    words: str
    offer: Message | bytes
    devices: tuple[str, ...]
    kind: type[T]
    accumulator: Callable[[], Accumulator[T]] | None = None
    summation: Summation[T] | None = None
    part: Part = "whole"
    grouping: Grouping | None = None


@dataclass(frozen=True, slots=True, repr=False)
class JobResult(Generic[T]):
    """The answer to a job.

    Attributes:
        devices: Contributors; None where nobody knows.
        users: Number of users behind them.
        noises: How many times the whole noise is in it.
    """

    value: T
    devices: frozenset[str] | None
    users: int
    noises: float


class Aggregation(ABC):
    """A way from the contributions to a job to one answer.

    Attributes:
        noises: Fewest times that the whole noise is in a sum.
    """

    noises = 1.0

    def attach(self, run: Run) -> None:
        """Work for this run from now on."""
        self.run = run

    @abstractmethod
    def gather(self) -> None:
        """Find out who takes part, where that is asked before the first job."""

    @abstractmethod
    def collect(self, job: Job[T]) -> JobResult[T]:
        """Return the answer to a job; resume it where a killed run had begun it.

        Raises:
            FederationError: Too few took part. The run is kept and can go on later.
        """

    def surplus(self, devices: Collection[str]) -> float:
        """Return how many times the whole noise is in a sum over these devices."""
        return self.noises

    def forget(self, number: int) -> None:  # noqa: B027
        """Drop what was kept to go on with a job: its answer is in the checkpoint."""
