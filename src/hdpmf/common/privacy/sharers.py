"""People who share in a simulation: a random part of all, or a group of the specification.

Real people choose their level themselves; a study has to say who would.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.privacy.levels import LEVELS, Level, check_level
from hdpmf.common.privacy.spec import PrivacySpec
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.errors import ConfigError

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
