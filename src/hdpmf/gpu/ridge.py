"""Each user's vector with the item factors fixed: least squares within the unit ball, all users at once."""

from __future__ import annotations

import torch
from torch import Tensor

from hdpmf.gpu.orders import begins, shuffled
from hdpmf.gpu.table import Table

_HALVINGS = 60
_NUMBERS_AT_A_TIME = 1 << 27


def constrained_ridges(table: Table, factors: Tensor, ridge: float) -> Tensor:
    """The u that minimises ``|target - factors u|^2 + ridge |u|^2`` with ``|u| <= 1``, one row per user.

    Args:
        table: The ratings; the first view.
        factors: Item factors, one row per item, not padded.
        ridge: Regularisation.
    """
    K = factors.shape[1]
    matrix = factors.double()
    order = shuffled(table.users, None)
    items, target = table.items[order].long(), table.target[0, order].double()
    begin = begins(table.users, table.n_users)
    out = torch.zeros((table.n_users, K), device=factors.device)
    first = 0
    while first < table.n_users:
        # As many users as have outer products that fit; at least one, whatever that one has rated.
        limit = begin[first] + _NUMBERS_AT_A_TIME // (K * K)
        end = max(int(torch.searchsorted(begin, limit, right=True)) - 1, first + 1)
        end = min(end, table.n_users, first + _NUMBERS_AT_A_TIME // (K * K))
        places = slice(int(begin[first]), int(begin[end]))
        counts = torch.diff(begin[first : end + 1])
        rated = matrix[items[places]]
        outer = (rated[:, :, None] * rated[:, None, :]).flatten(1)
        # One thread sums a user in order: the same bits every time, which an index_add would not give.
        grams = torch.segment_reduce(outer, "sum", lengths=counts, axis=0, initial=0.0).view(-1, K, K)
        sides = torch.segment_reduce(rated * target[places][:, None], "sum", lengths=counts, axis=0, initial=0.0)
        out[first:end] = _solve(grams, sides, max(ridge, 1e-12)).float()
        first = end
    return out


def _solve(grams: Tensor, sides: Tensor, floor: float) -> Tensor:
    values, bases = torch.linalg.eigh(grams)
    values = values.clamp(min=0.0)
    projected = torch.einsum("nkl,nk->nl", bases, sides)

    def too_long(strength: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(projected / (values + strength), dim=1, keepdim=True)
        return length > 1.0

    # The length of the solution falls with the ridge, so the constraint asks for a larger one: found by halving.
    low = torch.full_like(projected[:, :1], floor)
    high = torch.where(too_long(low), torch.linalg.vector_norm(projected, dim=1, keepdim=True) + floor, low)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        longer = too_long(middle)
        low, high = torch.where(longer, middle, low), torch.where(longer, high, middle)
    return torch.einsum("nkl,nl->nk", bases, projected / (values + high))
