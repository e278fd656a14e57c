"""hdp-share where those who share publish their ratings: a curve of its own in ``sharers.toml``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hdpmf import HDPShare, PrivacyWeights, Ratings, add_method
from hdpmf.common.methods import method_named
from hdpmf.common.privacy.levels import OPEN, SEEN
from hdpmf.models.base import Callback


@dataclass(eq=False, repr=False)
class OpenSharers(HDPShare):
    """hdp-share in which whoever shares is open."""

    def _fit(
        self,
        train: Ratings,
        weights: PrivacyWeights,
        validation: Ratings | None,
        callbacks: Sequence[Callback],
    ) -> None:
        levels = weights.user_levels
        if levels is not None:
            weights = weights.with_levels(users=np.where(levels >= SEEN, OPEN, levels))
        super()._fit(train, weights, validation, callbacks)


SHARE = method_named("hdp-share")

add_method(
    "hdp-share-open",
    OpenSharers,
    label="HDP-Share, open",
    summary="hdp-share where those who share publish their ratings",
    form=SHARE.plain,
    family=SHARE.family,
    accounting=SHARE.accounting,
    headline=SHARE.headline,
    levels=SHARE.levels,
    colour="#7b3f8c",
)
