"""Solvers on a GPU for many runs at once: batch, sequential, joint, and users' least squares.

Batch is Algorithm 1, sequential the published procedure, joint non-private MF.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hdpmf.private.kernels.gpu import triton_engine as engine
from hdpmf.private.kernels.gpu.layout import (
    Levels,
    Queues,
    RatingColumns,
    RunTensors,
    Side,
    Table,
    Visits,
    begins,
    lay_out,
    of_view,
    padded,
    ranked,
    shuffled,
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Parameters that runs trained together have in common.

    Attributes:
        solver: ``batch``, ``sequential``, or ``joint`` (sequential, both vectors of a rating at
            once).
        noise: ``none``, ``item`` (Laplace, h per item) or ``shared`` (one h for all items).
        fresh_noise: Draw the noise anew in every epoch.
        unit_ball: Keep user vectors in the unit ball.
        scale_steps: In ``batch``, divide a step by the square root of the number of ratings behind
            it.
    """

    solver: str
    n_factors: int
    noise: str = "none"
    fresh_noise: bool = True
    unit_ball: bool = True
    scale_steps: bool = True


class BatchSolver:
    """Ratings laid out for both passes; factors are the caller's.

    Attributes:
        raters: Ratings of each item in each view.
    """

    def __init__(self, table: Table, recipe: Recipe) -> None:
        self._begin(
            recipe,
            table.counts(table.items, table.n_items),
            table.counts(table.users, table.n_users),
        )
        self._by_item, self._item_columns = self._side(table, by_item=True)
        # The coefficient protects what is sent; a device fits its own vector to all that it knows.
        self._by_user, self._user_columns = self._side(table, by_item=False)

    def _begin(self, recipe: Recipe, raters: Tensor, rated: Tensor) -> None:
        self._recipe = recipe
        self.raters = raters
        self._item_steps = steps_of(raters, recipe.scale_steps) * (raters > 0)
        self._user_steps = steps_of(rated, recipe.scale_steps)

    def _side(self, table: Table, by_item: bool) -> tuple[Side, RatingColumns]:
        rows, partners = (table.items, table.users) if by_item else (table.users, table.items)
        n_rows, n_partners = (
            (table.n_items, table.n_users) if by_item else (table.n_users, table.n_items)
        )
        given = (table.target, table.coefficient if by_item else None, table.members)
        side, sorted_columns = lay_out(
            rows,
            partners,
            n_rows,
            n_partners,
            [column for column in given if column is not None],
            4 * padded(self._recipe.n_factors),
        )
        columns = iter(sorted_columns)
        return side, RatingColumns(*(None if column is None else next(columns) for column in given))  # type: ignore[arg-type]

    def epoch(self, U: Tensor, V: Tensor, runs: RunTensors, rates: Tensor, number: int) -> None:
        """One epoch, in place.

        Args:
            U: User vectors, padded, of shape (users, runs, width).
            V: Item factors, in the same way.
            rates: Learning rate of each run.
            number: Selects the noise; the same number draws the same again.
        """
        recipe = self._recipe
        engine.step(
            self._by_item, self._item_sums(runs, V, U), V, runs, self._item_steps, rates,
            recipe.n_factors, noise=recipe.noise, epoch=number if recipe.fresh_noise else 0,
        )  # fmt: skip
        engine.step(
            self._by_user, self._user_sums(runs, U, V), U, runs, self._user_steps, rates,
            recipe.n_factors, unit_ball=recipe.unit_ball,
        )  # fmt: skip

    def _item_sums(self, runs: RunTensors, own: Tensor, other: Tensor) -> Tensor:
        return engine.residual_sums(self._by_item, self._item_columns, runs, own, other)

    def _user_sums(self, runs: RunTensors, own: Tensor, other: Tensor) -> Tensor:
        return engine.residual_sums(self._by_user, self._user_columns, runs, own, other)


def steps_of(counts: Tensor, scale_steps: bool) -> Tensor:
    """The factor of each row's step: one over the square root of its ratings, or 1."""
    return (
        torch.rsqrt(counts.clamp(min=1).float())
        if scale_steps
        else torch.ones_like(counts, dtype=torch.float32)
    )


class SequentialSolver:
    """Private methods, one noisy step per rating.

    Runs that are trained together visit ratings in the same random order, drawn from ``seed``; a
    run skips what is not in its view, which leaves the order that it would have alone.

    Attributes:
        raters: Ratings of each item in each view.
    """

    def __init__(self, table: Table, recipe: Recipe, seed: int) -> None:
        self._recipe = recipe
        self._table = table
        self._seed = seed
        self.raters = table.counts(table.items, table.n_items)
        self._shares = steps_of(self.raters, scale_steps=True)
        self._begins = (begins(table.items, table.n_items), begins(table.users, table.n_users))
        self._ranked = tuple(map(ranked, self._begins))

    def epoch(self, U: Tensor, V: Tensor, runs: RunTensors, rates: Tensor, number: int) -> None:
        """One epoch, in place; the arguments are those of ``BatchSolver.epoch``.

        Noise that is not fresh is that of epoch 0 and belongs to its rating, so items keep their
        order.
        """
        recipe = self._recipe
        drawn = number if recipe.fresh_noise else None
        visits, columns = self._visits(drawn, by_item=True)
        engine.visit_ratings(
            visits, columns, runs, V, U, rates, recipe.n_factors,
            noise=recipe.noise, shares=self._shares, epoch=drawn or 0,
        )  # fmt: skip
        visits, columns = self._visits(number, by_item=False)
        engine.visit_ratings(visits, columns, runs, U, V, rates, recipe.n_factors, unit_ball=True)

    def _visits(self, epoch: int | None, by_item: bool) -> tuple[Visits, RatingColumns]:
        table, side = self._table, 0 if by_item else 1
        rows, partners = (table.items, table.users) if by_item else (table.users, table.items)
        keys = None
        # Items and users take turns in drawing, so that their orders have nothing in common.
        if epoch is not None:
            keys = engine.random_words(self._seed, table.users, table.items, 2 * epoch + side)
        order = shuffled(rows, keys)
        columns = RatingColumns(
            table.target[:, order],
            table.coefficient[:, order] if table.coefficient is not None and by_item else None,
            None if table.members is None else table.members[order],
        )
        return Visits(self._begins[side], partners[order], self._ranked[side]), columns


_POSITIONS_AT_A_TIME = 100_000_000
"""Ratings of the epochs whose orders are cut into levels at a time, one program per order."""


class JointSolver:
    """Non-private MF: both vectors of a rating step at once.

    Args:
        seeds: Of the orders of each view, which its runs share.
        epochs: How many orders will be needed.

    Attributes:
        raters: Ratings of each item in each view.
    """

    def __init__(self, table: Table, seeds: Sequence[int], epochs: int) -> None:
        self._seeds = seeds
        self.raters = table.counts(table.items, table.n_items)
        self._views = [of_view(table, view) for view in range(table.n_views)]
        self._levels = self._all_levels(epochs)

    def epoch(self, U: Tensor, V: Tensor, runs: RunTensors, rates: Tensor, number: int) -> None:
        """The next epoch, in place; the arguments are those of ``BatchSolver.epoch``."""
        engine.step_levels(next(self._levels), runs, U, V, rates)

    def _all_levels(self, epochs: int) -> Iterator[Levels]:
        views = self._views
        device = views[0].users.device
        begin = torch.stack([begins(view.items, view.n_items) for view in views])
        sizes = [view.n for view in views]
        at_a_time = max(1, min(epochs, _POSITIONS_AT_A_TIME // max(sum(sizes), 1)))
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
            found = engine.find_levels(queues).split(sizes * len(numbers))
            for number in range(0, len(queued), len(views)):
                orders = [order for _, _, order in queued[number : number + len(views)]]
                yield self._cut(orders, found[number : number + len(views)])

    def _queue(self, view: Table, seed: int, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the users, their turns, and the positions of a view's ratings, item after item.

        ``seed`` and ``epoch`` choose the order of ratings. A rating's turn is its number in the
        order of its user.
        """
        keys = engine.random_words(seed, view.users, view.items, epoch)
        order, by_user = shuffled(view.items, keys), shuffled(view.users, keys)
        turn = torch.empty_like(view.users)
        begin = begins(view.users, view.n_users)
        turn[by_user] = (
            torch.arange(view.n, device=turn.device) - begin[view.users[by_user].long()]
        ).int()
        return view.users[order], turn[order], order

    def _cut(self, orders: list[Tensor], found: tuple[Tensor, ...]) -> Levels:
        positions = [
            order[torch.argsort(level, stable=True)]
            for order, level in zip(orders, found, strict=True)
        ]
        counts = [torch.bincount(level) for level in found]
        bases = [0]
        for view in self._views[:-1]:
            bases.append(bases[-1] + view.n)
        starts = [_cumulated(count) + base for count, base in zip(counts, bases, strict=True)]
        taken = list(zip(self._views, positions, strict=True))
        return Levels(
            first=_bounds([len(start) for start in starts], orders[0].device).int(),
            start=torch.cat(starts),
            users=torch.cat([view.users[position] for view, position in taken]),
            items=torch.cat([view.items[position] for view, position in taken]),
            target=torch.cat([view.target[0, position] for view, position in taken]),
        )


def _cumulated(counts: Tensor) -> Tensor:
    out = torch.zeros(len(counts) + 1, dtype=torch.int64, device=counts.device)
    out[1:] = torch.cumsum(counts, 0)
    return out


def _bounds(sizes: list[int], device: torch.device) -> Tensor:
    return _cumulated(torch.tensor(sizes, device=device))


_NUMBERS_AT_A_TIME = 1 << 26


def fit_users(
    begin: Tensor,
    partner: Tensor,
    target: Tensor,
    X: Tensor,
    weight: Tensor,
    precision: Tensor,
    mean_map: Tensor,
) -> Tensor:
    """Return the t of each user: ``(precision + sum w x x') t = sum w x y + mean_map z``.

    The arguments are those of ``kernels.batch.fit_users``.
    """
    size = X.shape[1]
    counts = torch.diff(begin)
    # Users of about equal length side by side, filled up to the longest of them with ratings that
    # count nothing.
    order = torch.argsort(counts, descending=True, stable=True)
    longest = counts[order].cpu()
    out = torch.empty((len(counts), size), dtype=torch.float64, device=X.device)
    first = 0
    while first < len(order):
        length = max(int(longest[first]), 1)
        end = min(first + max(1, _NUMBERS_AT_A_TIME // (length * size)), len(order))
        users = order[first:end]
        visit = torch.arange(length, device=X.device)
        present = visit < counts[users, None]
        positions = torch.where(present, begin[users, None] + visit, 0)
        rated = partner[positions].long()
        x = X[rated] * present[:, :, None]
        weighted = x * weight[rated][:, :, None]
        gram = precision + weighted.transpose(1, 2) @ x
        n = counts[users].clamp(min=1).double()[:, None]
        amount = torch.log(n / 80.0)
        described = torch.cat((x.sum(1) / n, amount, amount * amount), dim=1)
        side = (weighted * target[positions].double()[:, :, None]).sum(1) + described @ mean_map.T
        out[users] = torch.cholesky_solve(side[:, :, None], torch.linalg.cholesky(gram))[:, :, 0]
        first = end
    return out
