"""Synthetic worlds of any size, scale, mean and sparsity, the same for the same seed.

Items have genres; genres have directions in a small space of tastes; users like some directions and
dislike others: taste has low rank. A rating is an average plus the user's and the item's bias, plus
how well the two match, plus chance, rounded to the steps of the scale. A few items are rated by
many and most by few, and the same goes for how much users rate. Users rate what they like more
often than what they do not, as people do. Without options a world has MovieLens' shape.

The shape, in stars (a fourth of the scale): biases of users and items have deviations .52 and .45,
taste .7, chance .78. The number of an item's raters falls as 1 / (rank + 6 % of the items)^1.15;
activity is log-normal (deviation .9), from one rating on. The chance that somebody who comes across
an item takes it is 1 / (1 + exp(lag - pull * match)) with lag = max(0, pull - .7).
"""

from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from hdpmf.common.data.checks import (
    IMPLICIT_SCALE,
    RatingScale,
    RngLike,
    ScaleLike,
    as_generator,
    is_count,
)
from hdpmf.common.data.ids import IdIndex
from hdpmf.common.data.items import ItemTable
from hdpmf.common.data.table import Ratings
from hdpmf.errors import ConfigError

GENRES = (
    "Drama", "Comedy", "Action", "Thriller", "Romance", "Adventure", "Crime", "Science Fiction",
    "Horror", "Family", "Mystery", "Musical",
)  # fmt: skip

_FIRST = (
    "Amber", "Broken", "Crimson", "Distant", "Electric", "Forgotten", "Golden", "Hollow",
    "Invisible", "Jade", "Kindred", "Last", "Midnight", "Northern", "Open", "Paper", "Quiet",
    "Restless", "Silver", "Tender", "Unwritten", "Velvet", "Wandering", "Young",
)  # fmt: skip

_SECOND = (
    "Anchor", "Bridge", "Carnival", "Detective", "Empire", "Falcon", "Garden", "Harbour",
    "Island", "Journey", "Kingdom", "Lantern", "Mirror", "Night", "Orchard", "Parade", "Question",
    "River", "Station", "Theatre", "Umbrella", "Voyage", "Window", "Zephyr",
)  # fmt: skip

_THIRD = (
    "of Glass", "in Winter", "at Dawn", "Without Maps", "by the Sea", "for Two", "Returns",
    "Underground",
)  # fmt: skip


def _titles(n_items: int, generator: np.random.Generator) -> tuple[list[str], list[int]]:
    """Make up titles that all differ, with the year in brackets as MovieLens has it, and years.

    Words are combined in a shuffled order, and numbered like sequels when they run out.
    """
    words = len(_FIRST) * len(_SECOND) * (len(_THIRD) + 1)
    order = generator.permutation(words).tolist()
    # More recent years are more common, as in MovieLens.
    years = (2024 - np.minimum(generator.exponential(14, size=n_items), 90)).astype(int).tolist()
    titles = [_title(order[item % words], item // words, years[item]) for item in range(n_items)]
    return titles, years


def _title(combination: int, sequel: int, year: int) -> str:
    rest, first = divmod(combination, len(_FIRST))
    third, second = divmod(rest, len(_SECOND))
    ending = f" {_THIRD[third - 1]}" if third else ""
    number = f" {sequel + 1}" if sequel else ""
    return f"{_FIRST[first]} {_SECOND[second]}{ending}{number} ({year})"


_MEAN = 3.3

_USER_BIAS, _ITEM_BIAS, _TASTE, _CHANCE = 0.52, 0.45, 0.7, 0.78

# Sizes of the blocks that bound the memory beyond the result: ratings, and user-item pairs.
_RATINGS_PER_BLOCK = 500_000

_DENSE_PER_BLOCK = 4_000_000

_ROUNDS = 12

STARS = RatingScale(1, 5, 1)

_PULL, _MOST_PULL = 0.7, 4.0

_FIRST_TIME, _SECONDS_PER_YEAR = 946_684_800, 31_557_600


@dataclass(frozen=True)
class _World:
    """The users, items and tastes behind the ratings."""

    popularity: NDArray[np.float64]  # sums to 1
    item_bias: NDArray[np.float32]
    item_tastes: NDArray[np.float32]
    user_bias: NDArray[np.float32]
    user_tastes: NDArray[np.float32]
    counts: NDArray[np.int64]  # ratings per user
    pull: float  # of taste, on what is rated


def synthetic_world(
    n_users: int = 600,
    n_items: int = 400,
    n_ratings: int = 40_000,
    rng: RngLike = 0,
    *,
    n_tastes: int = 6,
    scale: ScaleLike = STARS,
    mean: float | None = None,
    pull: float = _PULL,
    implicit: bool = False,
    features: bool = True,
) -> Ratings:
    """Make a world of ratings; ten million take 8 seconds and half a gigabyte.

    Args:
        n_users: How many users; each rates at least one item.
        n_items: How many items there are; with few ratings, some may have none.
        n_ratings: How many ratings, exactly; at most one per user and item.
        rng: A seed or a generator.
        n_tastes: The dimension of the space of tastes.
        scale: The scale of the ratings, as ``(low, high, step)``: ``(1, 5, 1)``, ``(0.5, 5, 0.5)``,
            ``(0, 10, 1)``; without a step any number in between.
        mean: The mean of all ratings, on the scale; without it ratings lie as MovieLens' do.
        pull: How much taste decides what somebody rates: at 0 popularity alone does, at 0.7 (the
            default) it does nearly, at 2 taste decides as much as on MovieLens.
        implicit: Clicks: who chose what, without ratings. ``scale`` and ``mean`` are not used.
        features: Whether items have titles, years and genres.

    Returns:
        The ratings. Users are 1, 2, ...; items too.
    """
    if not (_is_number(pull) and 0 <= pull <= _MOST_PULL):
        raise ConfigError(f"pull must be from 0 to {_MOST_PULL:g}")
    public = IMPLICIT_SCALE if implicit else RatingScale.of(scale)
    if mean is not None and not (_is_number(mean) and public.low < mean < public.high):
        raise ConfigError(f"mean must be within the scale {public}")
    sizes = {"n_users": n_users, "n_items": n_items, "n_ratings": n_ratings, "n_tastes": n_tastes}
    for label, value in sizes.items():
        if not (is_count(value) and value < 2**31):
            raise ConfigError(f"{label} must be an integer of at least 1 and below 2^31")
    if not n_users <= n_ratings <= n_users * n_items:
        raise ConfigError(
            f"n_ratings must be between n_users ({n_users:,}: one each) and n_users * n_items "
            f"({n_users * n_items:,}: everyone rated everything)"
        )
    generator = as_generator(rng)
    genres = _draw_genres(n_items, generator)
    world = _draw_world(n_users, n_items, n_ratings, n_tastes, genres, generator, pull)
    user_codes, item_codes = _draw_pairs(world, generator)
    if implicit:
        values = np.ones(n_ratings, np.float32)
    else:
        values = _draw_stars(world, user_codes, item_codes, generator)
        _onto_scale(values, public, mean)
    ids = np.arange(1, n_items + 1)
    table = _describe(ids, genres, generator) if features else None
    return Ratings(
        users=IdIndex(np.arange(1, n_users + 1)),
        items=IdIndex(ids),
        user_codes=user_codes,
        item_codes=item_codes,
        values=values,
        timestamps=_draw_times(world.counts, generator),
        scale=public,
        item_table=table,
        name="Synthetic",
        implicit=implicit,
    )


def _is_number(value: object) -> bool:
    """Return whether something is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def _describe(
    ids: NDArray[np.int64], genres: NDArray[np.int64], generator: np.random.Generator
) -> ItemTable:
    titles, years = _titles(len(ids), generator)
    names = [tuple(GENRES[genre] for genre in dict.fromkeys(row)) for row in genres.tolist()]
    return ItemTable(IdIndex(ids), tuple(titles), tuple(names), tuple(years))


def _draw_genres(n_items: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Give each item a main genre and a second one, which may be the same."""
    share = 1 / np.arange(2, len(GENRES) + 2)
    return generator.choice(len(GENRES), size=(n_items, 2), p=share / share.sum())


def _draw_world(
    n_users: int,
    n_items: int,
    n_ratings: int,
    n_tastes: int,
    genres: NDArray[np.int64],
    generator: np.random.Generator,
    pull: float,
) -> _World:
    normal = generator.standard_normal
    directions = normal((len(GENRES), n_tastes), dtype=np.float32)
    # Two thirds of an item's character is its genre; the rest is its own.
    item_tastes = 0.6 * directions[genres[:, 0]] + 0.4 * directions[genres[:, 1]]
    item_tastes += 0.5 * normal((n_items, n_tastes), dtype=np.float32)
    item_tastes /= np.sqrt(np.mean(item_tastes**2) * n_tastes)
    quality = normal(n_items, dtype=np.float32)
    # Popular items tend to be liked, as in MovieLens.
    fame = 0.35 * quality + normal(n_items, dtype=np.float32)
    rank = np.empty(n_items)
    rank[np.argsort(-fame, kind="stable")] = np.arange(n_items)
    popularity = 1 / (rank + 1 + 0.06 * n_items) ** 1.15
    activity = np.exp(normal(n_users) * 0.9)
    return _World(
        popularity=popularity / popularity.sum(),
        item_bias=(_ITEM_BIAS * quality).astype(np.float32),
        item_tastes=item_tastes.astype(np.float32),
        user_bias=_USER_BIAS * normal(n_users, dtype=np.float32),
        user_tastes=normal((n_users, n_tastes), dtype=np.float32),
        counts=_share_out(activity, n_ratings, n_items),
        pull=pull,
    )


def _share_out(activity: NDArray[np.float64], n_ratings: int, n_items: int) -> NDArray[np.int64]:
    """Distribute ``n_ratings`` in proportion to activity, from one to ``n_items`` each."""
    # The cap bends proportions, so the factor that makes the sum right is found by halving.
    low, high = 0.0, n_ratings / float(activity.min()) + 1
    for _ in range(100):
        middle = (low + high) / 2
        if np.clip(activity * middle, 1, n_items).sum() < n_ratings:
            low = middle
        else:
            high = middle
    exact = np.clip(activity * low, 1, n_items)
    counts = np.floor(exact).astype(np.int64)
    missing = n_ratings - int(counts.sum())
    order = np.argsort(counts - exact, kind="stable")  # largest remainder first
    while missing > 0:
        chosen = order[counts[order] < n_items][:missing]
        counts[chosen] += 1
        missing -= len(chosen)
    return counts


def _draw_pairs(
    world: _World, generator: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Draw pairs without repetition, in blocks of users that bound the memory."""
    n_items = len(world.popularity)
    user_codes = np.repeat(np.arange(len(world.counts), dtype=np.int32), world.counts)
    item_codes = np.empty(len(user_codes), dtype=np.int32)
    starts = np.cumsum(world.counts) - world.counts
    # Drawing one at a time wastes draws on a user who rates much of what there is; drawing for all
    # items at once wastes them on everyone else.
    many = world.counts * 8 >= n_items
    left = [
        _draw_few(world, users, starts, item_codes, generator)
        for users in _by_ratings(world, ~many)
    ]
    everyone_left = np.concatenate([np.flatnonzero(many), *left])
    per_block = max(1, _DENSE_PER_BLOCK // n_items)
    for first in range(0, len(everyone_left), per_block):
        _draw_many(world, everyone_left[first : first + per_block], starts, item_codes, generator)
    return user_codes, item_codes


def _by_ratings(world: _World, chosen: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Cut the chosen users into blocks with about the same number of ratings."""
    users = np.flatnonzero(chosen)
    block = np.cumsum(world.counts[users]) // _RATINGS_PER_BLOCK
    return np.split(users, np.flatnonzero(np.diff(block)) + 1) if len(users) else []


def _draw_few(
    world: _World,
    users: NDArray[np.int64],
    starts: NDArray[np.int64],
    item_codes: NDArray[np.int32],
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw items by popularity, keep those of interest, once each; return users still short."""
    n_items = len(world.popularity)
    cumulated = np.cumsum(world.popularity)
    wanted = world.counts[users]
    # Keys: position of the user in the block * n_items + item, as drawn.
    kept = np.empty(0, dtype=np.int64)
    counts = np.zeros(len(users), dtype=np.int64)
    for _ in range(_ROUNDS):
        short = np.maximum(wanted - counts, 0)
        if not short.any():
            break
        position = np.repeat(np.arange(len(users)), np.where(short > 0, 3 * short + 4, 0))
        item = np.searchsorted(
            cumulated, generator.random(len(position)) * cumulated[-1], side="right"
        )
        item = np.minimum(item, n_items - 1)
        watched = generator.random(len(position)) < _interest(
            _match(world, users[position], item), world.pull
        )
        kept = np.concatenate([kept, position[watched] * n_items + item[watched]])
        _, first = np.unique(kept, return_index=True)
        # In the order of drawing, which makes it sampling without replacement.
        kept = kept[np.sort(first)]
        counts = np.bincount(kept // n_items, minlength=len(users))
    position = kept // n_items
    order = np.argsort(position, kind="stable")
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    position, item = position[order], kept[order] % n_items
    used = (rank < wanted[position]) & (counts >= wanted)[position]
    item_codes[starts[users[position[used]]] + rank[used]] = item[used]
    return users[counts < wanted]


def _draw_many(
    world: _World,
    users: NDArray[np.int64],
    starts: NDArray[np.int64],
    item_codes: NDArray[np.int32],
    generator: np.random.Generator,
) -> None:
    """Order all items at random for each user, the likely ones first, and take from the front."""
    n_items = len(world.popularity)
    match = world.user_tastes[users] @ world.item_tastes.T
    # Exponential races: the smallest of Exp(1)/weight is item i with probability proportional to
    # its weight.
    race = generator.standard_exponential((len(users), n_items), dtype=np.float32)
    race /= world.popularity.astype(np.float32) * _interest(match, world.pull)
    order = np.argsort(race, axis=1, kind="stable").astype(np.int32)
    taken = np.arange(n_items) < world.counts[users][:, None]
    rows = np.repeat(starts[users], world.counts[users]) + np.nonzero(taken)[1]
    item_codes[rows] = order[taken]


def _match(
    world: _World, users: NDArray[np.integer], items: NDArray[np.integer]
) -> NDArray[np.float32]:
    """Match users' tastes with items: about a standard normal over all pairs."""
    total = np.zeros(len(users), dtype=np.float32)
    # One taste at a time keeps the temporaries small.
    for taste in range(world.user_tastes.shape[1]):
        total += world.user_tastes[users, taste] * world.item_tastes[items, taste]
    return total


def _interest(match: NDArray[np.float32], pull: float) -> NDArray[np.float32]:
    """Give the chance that someone who comes across an item rates it."""
    lag = np.float32(max(0.0, pull - _PULL))
    chance: NDArray[np.float32] = 1 / (1 + np.exp(lag - np.float32(pull) * match))
    return chance


def _draw_stars(
    world: _World,
    user_codes: NDArray[np.int32],
    item_codes: NDArray[np.int32],
    generator: np.random.Generator,
) -> NDArray[np.float32]:
    stars = np.empty(len(user_codes), dtype=np.float32)
    for first in range(0, len(stars), _RATINGS_PER_BLOCK):
        block = slice(first, first + _RATINGS_PER_BLOCK)
        users, items = user_codes[block], item_codes[block]
        felt = np.float32(_TASTE) * _match(world, users, items)
        felt += world.user_bias[users] + world.item_bias[items] + np.float32(_MEAN)
        felt += np.float32(_CHANCE) * generator.standard_normal(len(users), dtype=np.float32)
        stars[block] = felt
    return stars


def _onto_scale(stars: NDArray[np.float32], scale: RatingScale, mean: float | None) -> None:
    """Turn stars as felt, which have no ends, into ratings on the scale, in place."""
    sample = stars[:: max(1, len(stars) // _RATINGS_PER_BLOCK)]
    low, high = -2.0 * STARS.width, 2.0 * STARS.width
    for _ in range(40 if mean is not None else 0):
        middle = (low + high) / 2
        below = _rated(sample + np.float32(middle), scale).mean(dtype=np.float64) < mean
        low, high = (middle, high) if below else (low, middle)
    shift = np.float32((low + high) / 2)
    for first in range(0, len(stars), _RATINGS_PER_BLOCK):
        block = slice(first, first + _RATINGS_PER_BLOCK)
        stars[block] = _rated(stars[block] + shift, scale)


def _rated(stars: NDArray[np.float32], scale: RatingScale) -> NDArray[np.float32]:
    values = (stars - STARS.low) / STARS.width * scale.width
    if scale.step is not None:
        values = np.rint(values / scale.step) * scale.step
    return np.asarray(scale.clip(values + scale.low), np.float32)


def _draw_times(counts: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """Let each user arrive some day and rate within the months after."""
    arrival = generator.integers(0, 2 * _SECONDS_PER_YEAR, size=len(counts))
    later = generator.integers(0, _SECONDS_PER_YEAR // 2, size=int(counts.sum()))
    return _FIRST_TIME + np.repeat(arrival, counts) + later
