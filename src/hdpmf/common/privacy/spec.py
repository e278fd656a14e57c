"""The paper's privacy specification (Table II): groups of users and items."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.privacy.weights import PrivacyWeights, check_ratings
from hdpmf.errors import PrivacyError


@dataclass(frozen=True, slots=True)
class Group:
    """A group of users or of items.

    Attributes:
        name: What to call it.
        ratio: Its part of all users (or items).
        low: Smallest weight.
        high: Weights are drawn uniformly from [low, high); equal to ``low`` for a fixed weight.
    """

    name: str
    ratio: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not (0.0 <= self.ratio <= 1.0):
            raise PrivacyError(
                f"group {self.name!r}: its ratio must be from 0 to 1, not {self.ratio}"
            )
        if not (0.0 < self.low <= self.high <= 1.0):
            raise PrivacyError(
                f"group {self.name!r}: weights must satisfy 0 < low <= high <= 1, not "
                f"[{self.low}, {self.high})"
            )


def _three(
    conservative: float, moderate: float, low: float, middle: float, high: float
) -> tuple[Group, ...]:
    liberal = 1.0 - conservative - moderate
    if liberal < -1e-9:
        raise PrivacyError(
            f"the conservative and moderate ratios sum to {conservative + moderate:g}; they "
            "may be at most 1"
        )
    return (
        Group("conservative", conservative, low, middle),
        Group("moderate", moderate, middle, high),
        Group("liberal", max(liberal, 0.0), high, high),
    )


@dataclass(frozen=True, slots=True)
class PrivacySpec:
    """A distribution of privacy weights over users and items; the default is the paper's.

    ``PrivacySpec()`` has the paper's values, ``PrivacySpec.paper(f_uc=0.3)`` varies them by the
    paper's names, and ``PrivacySpec(user_groups=(...), item_groups=(...))`` takes any groups.

    Attributes:
        user_groups: Groups of users; their ratios sum to 1.
        item_groups: Groups of items; their ratios sum to 1.
    """

    user_groups: tuple[Group, ...] = _three(0.54, 0.37, 0.1, 0.5, 1.0)
    item_groups: tuple[Group, ...] = _three(0.33, 0.33, 0.1, 0.5, 1.0)

    def __post_init__(self) -> None:
        for side, groups in (("user", self.user_groups), ("item", self.item_groups)):
            total = sum(group.ratio for group in groups)
            if not math.isclose(total, 1.0, abs_tol=1e-6):
                raise PrivacyError(
                    f"the ratios of the {side} groups sum to {total:g}; they must sum to 1"
                )

    @classmethod
    def paper(
        cls,
        f_uc: float = 0.54,
        f_um: float = 0.37,
        f_ic: float = 0.33,
        f_im: float = 0.33,
        epsilon_uc: float = 0.1,
        epsilon_um: float = 0.5,
        epsilon_ul: float = 1.0,
        epsilon_ic: float = 0.1,
        epsilon_im: float = 0.5,
        epsilon_il: float = 1.0,
    ) -> PrivacySpec:
        """Table II's names: f ratios, epsilon weights; u users, i items; c, m, l groups."""
        return cls(
            _three(f_uc, f_um, epsilon_uc, epsilon_um, epsilon_ul),
            _three(f_ic, f_im, epsilon_ic, epsilon_im, epsilon_il),
        )

    def draw(
        self, ratings: Ratings, rng: int | np.random.Generator | None = None
    ) -> PrivacyWeights:
        """Assign every user and item of ``ratings`` to a group at random and draw its weight.

        Group sizes are the ratios times the number of users (items), rounded; who is in which group
        is random.
        """
        check_ratings(ratings)
        generator = np.random.default_rng(rng)
        beta = _draw(self.user_groups, ratings.n_users, generator)
        gamma = _draw(self.item_groups, ratings.n_items, generator)
        return PrivacyWeights(ratings.users, ratings.items, beta, gamma)


def _draw(groups: tuple[Group, ...], n: int, generator: np.random.Generator) -> np.ndarray:
    """A weight for each of n members."""
    members = generator.permutation(n)
    edges = np.rint(np.cumsum([group.ratio for group in groups]) * n).astype(int)
    edges[-1] = n
    weights = np.empty(n)
    begin = 0
    for group, end in zip(groups, edges, strict=True):
        weights[members[begin:end]] = generator.uniform(group.low, group.high, max(end - begin, 0))
        begin = end
    return weights
