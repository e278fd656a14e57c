"""Running a kernel over rows on several threads, with results that do not depend on how many.

Kernels release the interpreter lock and write only their own rows; each row is summed by one thread
in a fixed order. So the number of threads decides who does the work, never what comes out.

Linear algebra of NumPy and SciPy brings threads of its own. On small systems they wait for each
other longer than they compute, and many times as long on a busy machine; beside ours there would be
too many. So these have one (``one_blas_thread``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from hdpmf.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")

MAX_THREADS = 1024
"""More than any machine has cores for; a hundred thousand would only starve each other."""

# Several chunks per thread even out rows that cost more than others; more would only add calls.
_CHUNKS_PER_THREAD = 4


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let linear algebra use one thread inside, for loops over small systems; also a decorator.

    Setting it takes milliseconds: put it around the loop, not into it. Of several threads that ask
    for it at the same time the first one's limit counts, until it leaves.
    """
    # here: tab completion reads this module. SciPy's library is another one than NumPy's, and a
    # limit holds only for what is loaded.
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield


_FIRST_USE = Lock()
_DECODABLE: set[type] = set()


def decodable(kind: type[T]) -> type[T]:
    """Return a type that msgspec knows: two threads that are the first to use one crash it."""
    import msgspec

    with _FIRST_USE:
        if kind not in _DECODABLE:
            msgspec.json.Decoder(kind)
            _DECODABLE.add(kind)
    return kind


class Workers:
    """A pool of threads for kernels; use it as a context manager.

    Inside, linear algebra has one thread for each of ours.
    """

    def __init__(self, n_threads: int | None = None) -> None:
        if n_threads is not None and not 1 <= n_threads <= MAX_THREADS:
            raise ConfigError(
                f"n_threads must be from 1 to {MAX_THREADS:,}, not {n_threads:,}; leave it out "
                "to use every core"
            )
        self.n_threads = n_threads or available_cores()
        self._pool = ThreadPoolExecutor(self.n_threads) if self.n_threads > 1 else None
        self._limits = ExitStack()

    def __enter__(self) -> Workers:
        self._limits.enter_context(one_blas_thread())
        return self

    def __exit__(self, *_: object) -> None:
        self._limits.close()
        if self._pool is not None:
            self._pool.shutdown()

    def over_rows(self, start: np.ndarray, kernel: Callable[[int, int], None]) -> None:
        """Call ``kernel(first_row, end_row)`` on chunks with about equally many ratings."""
        n_rows = len(start) - 1
        if self._pool is None:
            kernel(0, n_rows)
            return
        # here: the options of methods have a most of threads, and help reads those
        import numpy as np

        n_chunks = self.n_threads * _CHUNKS_PER_THREAD
        cuts = np.searchsorted(start, np.linspace(0, start[-1], n_chunks + 1)[1:-1]).tolist()
        edges = [0, *cuts, n_rows]
        for _ in self._pool.map(kernel, edges[:-1], edges[1:]):
            pass  # exhausting the iterator waits for the chunks and raises what they raised
