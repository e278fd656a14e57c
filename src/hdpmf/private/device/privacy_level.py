"""Privacy levels: one for the owner, and others for items that are more private.

Both are privacy weights. A rating of weight W may spend W times the policy's epsilon in its whole
life.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hdpmf.common.methods.registry import guess_at
from hdpmf.common.privacy.accounting import DELTA, cost
from hdpmf.common.privacy.spec import PrivacySpec
from hdpmf.errors import ConfigError
from hdpmf.private.device.own_items import current_catalogue
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.ratings_table import ME

GROUPS = {group.name: group.low for group in PrivacySpec().user_groups}
"""The paper's groups of people, and the weight at which each begins."""

SENSITIVE = GROUPS["conservative"]
"""The weight of an item that is marked as sensitive."""

MISSES = {0.25: 0.779, 0.5: 0.765, 1.0: 0.754, 2.0: 0.747}
"""How many stars predictions miss by on average, by epsilon, if everybody allows so much: hdp-sum
on MovieLens 100K with the paper's weights, K = 10, five seeds (``hdpmf paper run``;
docs/results/csv/figure_epsilon.csv)."""

MISS_ALONE = 0.833
"""The same where nobody sends anything, and each device predicts its owner's own mean."""


@dataclass(frozen=True, slots=True)
class PrivacyLevel:
    """A privacy level, and what it means.

    Attributes:
        weight: The owner's weight, above 0 and at most 1.
        group: The paper's group that it is in.
        guess: How often somebody is right at most who guesses whether a rating was the lowest or
            the highest one and has seen everything that was ever sent: instead of 0.5.
        ratings: How many ratings there are.
        all_epsilon: What all of them together may spend in their whole life.
        all_at_delta: The same at ``delta``, by the accountant.
        delta: For that.
        proved: The policy allows only what has a proof, so that these numbers hold.
    """

    weight: float
    group: str
    guess: float
    ratings: int
    all_epsilon: float
    all_at_delta: float
    proved: bool
    delta: float = DELTA


def group_of(weight: float) -> str:
    """The paper's group that a weight is in."""
    return max(
        (low, name) for name, low in GROUPS.items() if low <= weight or name == "conservative"
    )[1]


def privacy_level(store: DeviceStore, weight: float | None = None) -> PrivacyLevel:
    """Return the owner's privacy level, or the one of a weight."""
    own = privacy_weight(store)
    chosen = own if weight is None else weight
    _check(chosen)
    policy = store.policy
    weights = [min((record.weight or 0.0) * chosen / own, 1.0) for record in store.records()]
    budgets = [policy.own_epsilon * each for each in weights]
    together = min(math.fsum(budgets), policy.own_total)
    at_delta = 0.0
    if weights:
        whole = cost("hdp-sum", "sums", unit="user", weight=weights, epsilon=policy.own_epsilon)
        at_delta = min(whole.epsilon_at_delta, policy.own_total)
    proved = not (policy.allow_nominal or policy.allow_unprotected)
    guess = guess_at(policy.own_epsilon * chosen)
    return PrivacyLevel(chosen, group_of(chosen), guess, len(weights), together, at_delta, proved)


def privacy_weight(store: DeviceStore) -> float:
    """Return the owner's privacy weight."""
    return store.rated.betas().get(ME, 1.0)


def set_privacy_weight(store: DeviceStore, weight: float) -> None:
    """Turn the dial. What was sent before stays sent."""
    _check(weight)
    store.set_weight(beta=weight)


def item_weights(store: DeviceStore, of: Iterable[str] | None = None) -> dict[str, float]:
    """The items with a weight of their own below 1, by id; only of these few, if they are given."""
    return {item: weight for item, weight in store.rated.gammas(of).items() if weight < 1}


def genres(store: DeviceStore) -> dict[str, list[str]]:
    """The genres of the items that the owner sees, each with its items."""
    shown = current_catalogue(store)
    found: dict[str, list[str]] = {}
    if shown is not None:
        for item, own in zip(
            shown.table.ids, shown.table.genres or ((),) * len(shown.table.ids), strict=True
        ):
            for genre in own:
                found.setdefault(genre, []).append(item)
    return dict(sorted(found.items()))


def mark(store: DeviceStore, items: Sequence[str], weight: float = SENSITIVE) -> None:
    """Give items a weight of their own; 1 takes the mark away."""
    _check(weight)
    with store.transaction():
        store.rated.weigh({}, dict.fromkeys(items, weight))


def mark_genre(store: DeviceStore, genre: str, weight: float = SENSITIVE) -> int:
    """Give all items of a genre a weight of their own; how many there are."""
    items = genres(store).get(genre)
    if not items:
        raise ConfigError("the catalogue has no such genre; nothing was changed")
    mark(store, items, weight)
    return len(items)


def _check(weight: float) -> None:
    if not 0 < weight <= 1:
        raise ConfigError("the dial goes from more than 0 (most private) to 1")
