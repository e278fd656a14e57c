"""The paper's privacy specification (Table II): groups of users and items; and who shares.

Real people choose their level themselves; a study has to say who would: a random part of all, or a
group of the specification.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.privacy.levels import ITEM_DEFAULT, LEVELS, USER_DEFAULT, Level, check_level
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.errors import ConfigError, PrivacyError


@dataclass(frozen=True, slots=True)
class Group:
    """A group of users or of items.

    Attributes:
        name: What to call it.
        ratio: Its part of all users (or items).
        low: Smallest weight.
        high: Weights are drawn uniformly from [low, high); equal to ``low`` for a fixed weight.
        level: What they hide; None is hidden for users, and open (no restriction) for items.
    """

    name: str
    ratio: float
    low: float
    high: float
    level: Level | None = None

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
        if self.level is not None:
            check_level(self.level, f"group {self.name!r}")


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
        is random. Levels are those of the groups; they draw nothing.
        """
        generator = np.random.default_rng(rng)
        beta, users = _draw(self.user_groups, ratings.n_users, generator)
        gamma, items = _draw(self.item_groups, ratings.n_items, generator)
        return PrivacyWeights(
            ratings.users,
            ratings.items,
            beta,
            gamma,
            user_levels=_levels(self.user_groups, users, USER_DEFAULT),
            item_levels=_levels(self.item_groups, items, ITEM_DEFAULT),
        )


def _levels(groups: tuple[Group, ...], members: np.ndarray, default: Level) -> np.ndarray | None:
    """The level of each member, given its group; None where no group states one."""
    if all(group.level is None for group in groups):
        return None
    codes = np.array([LEVELS.index(group.level or default) for group in groups], np.int8)
    return np.asarray(codes[members])


def _draw(
    groups: tuple[Group, ...], n: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A weight for each of n members, and the position of its group."""
    members = generator.permutation(n)
    edges = np.rint(np.cumsum([group.ratio for group in groups]) * n).astype(int)
    edges[-1] = n
    weights, group_of = np.empty(n), np.empty(n, np.intp)
    begin = 0
    for position, (group, end) in enumerate(zip(groups, edges, strict=True)):
        weights[members[begin:end]] = generator.uniform(group.low, group.high, max(end - begin, 0))
        group_of[members[begin:end]] = position
        begin = end
    return weights, group_of


_STREAM = 25  # apart from the streams of weights, splits and noise


@dataclass(frozen=True, slots=True)
class Sharers:
    """Some people and the level that they have; everybody else hides everything.

    Attributes:
        who: A part of all people, from 0 to 1, drawn at random; or the name of a user group.
        level: Theirs.
    """

    who: float | str
    level: Level = "seen"

    @classmethod
    def parse(cls, text: str, where: str = "share_levels") -> Sharers:
        """Read ``0.09``, ``liberal`` or one of these with ``:seen`` or ``:open`` after it.

        Args:
            text: To read.
            where: What to call it in an error's message.

        Raises:
            ConfigError: It is none of these.
        """
        who, colon, level = text.partition(":")
        try:
            part = float(who)
        except ValueError:
            part = None
        known = not colon or level in LEVELS[1:]
        if not who or not known or (part is not None and not 0 <= part <= 1):
            raise ConfigError(
                f"{where} takes a part of all people from 0 to 1 or the name of a user group, with "
                f":seen or :open after it if wished (as 0.09, liberal or 0.05:open), not {text!r}"
            )
        return cls(who if part is None else part, check_level(level, where) if colon else "seen")

    def __str__(self) -> str:
        who = self.who if isinstance(self.who, str) else f"{self.who:g}"
        return f"{who}:{self.level}"

    def in_words(self) -> str:
        """A description of them."""
        who = f"the {self.who}" if isinstance(self.who, str) else f"{self.who:.3g} of people"
        shown = "show what they rated" if self.level == "seen" else "publish their ratings"
        return f"{who}{'' if isinstance(self.who, str) else ', drawn at random,'} {shown}"

    def in_spec(self, spec: PrivacySpec) -> PrivacySpec:
        """The specification with their group's level; as it is where they are no group.

        Raises:
            ConfigError: There is no such user group.
        """
        if not isinstance(self.who, str):
            return spec
        names = [group.name for group in spec.user_groups]
        if self.who not in names:
            raise ConfigError(
                f"there is no user group {self.who!r} to share; there are {', '.join(names)}"
            )
        groups = tuple(
            replace(group, level=self.level) if group.name == self.who else group
            for group in spec.user_groups
        )
        return replace(spec, user_groups=groups)

    def drawn(self, weights: PrivacyWeights, seed: int) -> PrivacyWeights:
        """The weights with the level of people who are drawn; as they are where it is a group's.

        Raises:
            ConfigError: The weights have levels already.
        """
        if isinstance(self.who, str):
            return weights
        if weights.has_levels:
            raise ConfigError("these weights say everybody's level; leave share_levels out")
        n = len(weights.users)
        chosen = np.random.default_rng([seed, _STREAM]).permutation(n)[: round(self.who * n)]
        if len(chosen) == 0:
            return weights
        levels = np.zeros(n, np.int8)
        levels[chosen] = LEVELS.index(self.level)
        return weights.with_levels(users=levels)


def people_by_level(ratings: Ratings, weights: PrivacyWeights) -> dict[str, dict[str, int]]:
    """Count people, each by the least hidden of their ratings, and ratings, by level."""
    levels = weights.levels_for(ratings)
    shown = np.full(ratings.n_users, -1, np.int8)
    np.maximum.at(shown, ratings.user_codes, levels)
    return {
        name: {"people": int((shown == code).sum()), "ratings": int((levels == code).sum())}
        for code, name in enumerate(LEVELS)
    }
