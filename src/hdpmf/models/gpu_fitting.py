"""The last step of a one-round design on a GPU: every user's vector, fitted to what the recommender told everyone."""

from __future__ import annotations

import numpy as np

from hdpmf.gpu.availability import gpu
from hdpmf.public.device_fit import DeviceFit, to_stars
from hdpmf.ratings import Ratings
from hdpmf.shard.devices import Devices


def fit_devices(train: Ratings, fit: DeviceFit, beta: np.ndarray, gamma: np.ndarray) -> Devices:
    """The private state of the users of ``train`` after the fit, to the precision of what a CPU computes."""
    import torch

    from hdpmf.gpu.normal import fit_users
    from hdpmf.gpu.orders import begins, shuffled

    device = gpu()

    def put(values: np.ndarray) -> torch.Tensor:
        # Arrays of ratings are read-only, which PyTorch cannot express.
        return torch.from_numpy(np.array(values)).to(device)

    users = put(train.user_codes)
    order = shuffled(users, None)
    begin = begins(users, train.n_users)
    partner = put(train.item_codes)[order]
    stars = put(to_stars(train.values, train.scale))[order]
    target = stars - put(fit.offset.astype(np.float32))[partner.long()]
    theta = fit_users(
        begin, partner, target, *map(put, (fit.features, fit.weight, fit.precision, fit.mean_map))
    )  # fmt: skip
    vectors = np.ones((train.n_users, theta.shape[1] + 1), np.float32)
    vectors[:, :-1] = theta.float().cpu().numpy()
    return Devices.after_training(
        train, vectors, beta, gamma, (begin.cpu().numpy(), partner.cpu().numpy(), stars.cpu().numpy())
    )
