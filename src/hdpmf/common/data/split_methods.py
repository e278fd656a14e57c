"""The methods of `Ratings` that split it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from hdpmf.common.data.checks import RngLike

if TYPE_CHECKING:
    from hdpmf.common.data.table import Ratings


class SplitMethods:
    """Splits and smaller tables as methods; `hdpmf.common.data.splits` has the functions."""

    def hold_out(self, per_user: int = 10, *, rng: RngLike = 0) -> tuple[Ratings, Ratings]:
        """Hold out ``per_user`` ratings of each user for the test (`splits.hold_out`)."""
        from hdpmf.common.data import splits

        return splits.hold_out(_ratings(self), per_user, rng=rng)

    def leave_one_out(self, *, rng: RngLike = 0) -> tuple[Ratings, Ratings]:
        """Hold out one rating of each user for the test (`splits.leave_one_out`)."""
        from hdpmf.common.data import splits

        return splits.leave_one_out(_ratings(self), rng=rng)

    def hold_out_last(self, per_user: int = 1) -> tuple[Ratings, Ratings]:
        """Split by time: each user's last ratings are the test (`splits.hold_out_last`)."""
        from hdpmf.common.data import splits

        return splits.hold_out_last(_ratings(self), per_user)

    def split(self, fraction: float = 0.2, *, rng: RngLike = 0) -> tuple[Ratings, Ratings]:
        """Split at random: that fraction of all ratings is the test (`splits.ratio`)."""
        from hdpmf.common.data import splits

        return splits.ratio(_ratings(self), fraction, rng=rng)

    def split_by_time(
        self, fraction: float = 0.2, *, per_user: bool = False
    ) -> tuple[Ratings, Ratings]:
        """Test on the last fraction of all ratings, or of each user's (`splits.by_time`)."""
        from hdpmf.common.data import splits

        return splits.by_time(_ratings(self), fraction, per_user=per_user)

    def k_fold(self, k: int = 5, *, rng: RngLike = 0) -> Iterator[tuple[Ratings, Ratings]]:
        """Go through ``k`` pairs of training and validation (`splits.k_fold`)."""
        from hdpmf.common.data import splits

        return splits.k_fold(_ratings(self), k, rng=rng)

    def sparsify(self, fraction: float, *, rng: RngLike = 0) -> Ratings:
        """Keep that fraction of each user's ratings, at least one (`splits.sparsify`)."""
        from hdpmf.common.data import splits

        return splits.sparsify(_ratings(self), fraction, rng=rng)

    def min_ratings(self, per_user: int = 20) -> Ratings:
        """Keep users with at least ``per_user`` ratings; unused ids leave the indexes."""
        from hdpmf.common.data import splits

        return splits.min_ratings(_ratings(self), per_user)

    def k_core(self, k: int = 5) -> Ratings:
        """Keep users and items with ``k`` or more of the kept ratings (`splits.k_core`)."""
        from hdpmf.common.data import splits

        return splits.k_core(_ratings(self), k)


def _ratings(whole: SplitMethods) -> Ratings:
    return cast("Ratings", whole)
