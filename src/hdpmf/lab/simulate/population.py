"""Users of a data set dealt to devices, each with its own ratings and weights alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hdpmf.common.data import IdIndex, Ratings
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.errors import ConfigError


@dataclass(frozen=True, slots=True, repr=False)
class DeviceRatings:
    """The ratings on one device.

    Attributes:
        ratings: Of its users, whose ids are text; the items are the whole catalogue's.
        gamma: Privacy weight of each item; one array for all devices.
    """

    ratings: Ratings
    beta: np.ndarray
    gamma: np.ndarray

    def __repr__(self) -> str:
        return f"DeviceRatings({self.ratings.n_users} users)"

    @property
    def weights(self) -> PrivacyWeights:
        """The users' privacy weights."""
        return PrivacyWeights(self.ratings.users, self.ratings.items, self.beta, self.gamma)


def only_users(ratings: Ratings, chosen: np.ndarray) -> Ratings:
    """The ratings of some users (a mask), over the same items."""
    part = ratings.take(chosen[ratings.user_codes])
    codes = (np.cumsum(chosen) - 1).astype(np.int32)
    return replace(
        part, users=IdIndex(ratings.users.ids[chosen]), user_codes=codes[part.user_codes]
    )


def deal(ratings: Ratings, weights: PrivacyWeights, devices: int, seed: int) -> list[DeviceRatings]:
    """Deal users to devices like cards from a shuffled deck; ConfigError with too few users."""
    n = ratings.n_users
    if not 1 <= devices <= n:
        raise ConfigError(f"{n:,} users can be dealt to 1 to {n:,} devices, not to {devices:,}")
    order = np.arange(n) if devices == n else np.random.default_rng([seed, 5]).permutation(n)
    home = np.empty(n, np.int64)
    home[order] = np.arange(n) % devices
    beta = weights.for_users(ratings.users)
    gamma = weights.for_items(ratings.items)
    names = np.array([str(user) for user in ratings.users.ids.tolist()])
    by_home = np.argsort(home[ratings.user_codes], kind="stable")
    ends = np.cumsum(np.bincount(home[ratings.user_codes], minlength=devices))
    rows = np.split(by_home, ends[:-1])
    members = np.split(
        np.argsort(home, kind="stable"), np.cumsum(np.bincount(home, minlength=devices))[:-1]
    )
    return [
        _part(ratings, beta, gamma, names, own, users)
        for own, users in zip(rows, members, strict=True)
    ]


def _part(
    ratings: Ratings,
    beta: np.ndarray,
    gamma: np.ndarray,
    names: np.ndarray,
    rows: np.ndarray,
    users: np.ndarray,
) -> DeviceRatings:
    index = IdIndex(names[users])
    codes = np.empty(len(names), np.int32)
    codes[users] = index.find(names[users])
    own = Ratings(
        users=index,
        items=ratings.items,
        user_codes=codes[ratings.user_codes[rows]],
        item_codes=ratings.item_codes[rows],
        values=ratings.values[rows],
        timestamps=None,
        scale=ratings.scale,
        item_table=None,
        name=ratings.name,
    )
    betas = np.empty(len(users))
    betas[codes[users]] = beta[users]
    return DeviceRatings(own, betas, gamma)
