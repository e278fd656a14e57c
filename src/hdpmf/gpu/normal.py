"""Each user's own vector by weighted least squares with a Gaussian prior, many users at once, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

_NUMBERS_AT_A_TIME = 1 << 26


def fit_users(
    begin: Tensor, partner: Tensor, target: Tensor, X: Tensor, weight: Tensor, precision: Tensor, mean_map: Tensor
) -> Tensor:
    """Vectors t that solve ``(precision + sum w x x') t = sum w x y + mean_map z``, one row per user.

    The arguments are those of ``kernels.normal.fit_users``.
    """
    size = X.shape[1]
    counts = torch.diff(begin)
    # Users of about equal length side by side, filled up to the longest of them with ratings that count nothing.
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
        places = torch.where(present, begin[users, None] + visit, 0)
        rated = partner[places].long()
        x = X[rated] * present[:, :, None]
        weighted = x * weight[rated][:, :, None]
        gram = precision + weighted.transpose(1, 2) @ x
        n = counts[users].clamp(min=1).double()[:, None]
        amount = torch.log(n / 80.0)
        described = torch.cat((x.sum(1) / n, amount, amount * amount), dim=1)
        side = (weighted * target[places].double()[:, :, None]).sum(1) + described @ mean_map.T
        out[users] = torch.cholesky_solve(side[:, :, None], torch.linalg.cholesky(gram))[:, :, 0]
        first = end
    return out
