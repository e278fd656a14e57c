"""Non-private MF, sequential: both vectors of a rating step at once, in a random order of all ratings.

Serial by its nature, and yet most of it can be done side by side without changing a bit: two ratings that share neither
user nor item may be exchanged. So an order is cut into levels: a rating's level is one more than that of the last
rating before it with the same user or the same item. Levels follow each other, the ratings of a level are done at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType

import torch
from torch import Tensor

from hdpmf.gpu.columns import RunTensors
from hdpmf.gpu.orders import Levels, Queues, begins, shuffled
from hdpmf.gpu.table import Table, engine_for, of_view

_PLACES_AT_A_TIME = 100_000_000
"""Orders are cut into levels many at a time, until they have so many ratings: each is the work of one program."""


class JointSolver:
    """Both vectors of a rating step at once.

    Args:
        seeds: Of the orders of each view, which its runs share.
        epochs: How many orders will be needed.
        engine: Does the work; by default the one for the table's device.

    Attributes:
        raters: Ratings of each item in each view.
    """

    def __init__(self, table: Table, seeds: Sequence[int], epochs: int, engine: ModuleType | None = None) -> None:
        self._engine = engine or engine_for(table.users.device)
        self._seeds = seeds
        self.raters = table.counts(table.items, table.n_items)
        self._views = [of_view(table, view) for view in range(table.n_views)]
        self._levels = self._all_levels(epochs)

    def epoch(self, U: Tensor, V: Tensor, runs: RunTensors, rates: Tensor) -> None:
        """The next epoch, in place; factors are padded, of shape (rows, runs, width)."""
        self._engine.step_levels(next(self._levels), runs, U, V, rates)

    def _all_levels(self, epochs: int) -> Iterator[Levels]:
        views = self._views
        device = views[0].users.device
        begin = torch.stack([begins(view.items, view.n_items) for view in views])
        sizes = [view.n for view in views]
        at_a_time = max(1, min(epochs, _PLACES_AT_A_TIME // max(sum(sizes), 1)))
        for first in range(1, epochs + 1, at_a_time):
            numbers = range(first, min(first + at_a_time, epochs + 1))
            queued = [
                self._queue(view, seed, number)
                for number in numbers
                for view, seed in zip(views, self._seeds, strict=True)
            ]
            queues = Queues(
                base=_bounds(sizes * len(numbers), device),
                view=torch.arange(len(views), device=device).repeat(len(numbers)).int(),
                begin=begin,
                n_users=views[0].n_users,
                user=torch.cat([user for user, _, _ in queued]),
                turn=torch.cat([turn for _, turn, _ in queued]),
            )
            found = self._engine.find_levels(queues).split(sizes * len(numbers))
            for number in range(0, len(queued), len(views)):
                orders = [order for _, _, order in queued[number : number + len(views)]]
                yield self._cut(orders, found[number : number + len(views)])

    def _queue(self, view: Table, seed: int, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Users and their turns, item after item, and the places in the view's table, for one order of its ratings."""
        keys = self._engine.random_words(seed, view.users, view.items, epoch)
        order, by_user = shuffled(view.items, keys), shuffled(view.users, keys)
        turn = torch.empty_like(view.users)
        begin = begins(view.users, view.n_users)
        turn[by_user] = (torch.arange(view.n, device=turn.device) - begin[view.users[by_user].long()]).int()
        return view.users[order], turn[order], order

    def _cut(self, orders: list[Tensor], found: tuple[Tensor, ...]) -> Levels:
        places = [order[torch.argsort(level, stable=True)] for order, level in zip(orders, found, strict=True)]
        counts = [torch.bincount(level) for level in found]
        bases = [0]
        for view in self._views[:-1]:
            bases.append(bases[-1] + view.n)
        starts = [_cumulated(count) + base for count, base in zip(counts, bases, strict=True)]
        taken = list(zip(self._views, places, strict=True))
        return Levels(
            first=_bounds([len(start) for start in starts], orders[0].device).int(),
            start=torch.cat(starts),
            users=torch.cat([view.users[place] for view, place in taken]),
            items=torch.cat([view.items[place] for view, place in taken]),
            target=torch.cat([view.target[0, place] for view, place in taken]),
        )


def _cumulated(counts: Tensor) -> Tensor:
    out = torch.zeros(len(counts) + 1, dtype=torch.int64, device=counts.device)
    out[1:] = torch.cumsum(counts, 0)
    return out


def _bounds(sizes: list[int], device: torch.device) -> Tensor:
    return _cumulated(torch.tensor(sizes, device=device))
