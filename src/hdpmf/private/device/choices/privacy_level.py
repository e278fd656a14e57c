"""Privacy levels: one for the owner, and others for items that are more private.

Both are privacy weights. A rating of weight W may spend W times the policy's epsilon in its whole
life.
"""

from __future__ import annotations

from collections.abc import Iterable

from hdpmf.common.privacy.spec import PrivacySpec
from hdpmf.errors import ConfigError
from hdpmf.private.device.store.device_store import DeviceStore

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


def group_of(weight: float) -> str:
    """The paper's group that a weight is in."""
    return max(
        (low, name) for name, low in GROUPS.items() if low <= weight or name == "conservative"
    )[1]


def privacy_weight(store: DeviceStore) -> float:
    """Return the owner's privacy weight."""
    return store.rated.beta


def set_privacy_weight(store: DeviceStore, weight: float) -> None:
    """Turn the dial. What was sent before stays sent."""
    check_weight(weight)
    store.set_weight(beta=weight)


def item_weights(store: DeviceStore, of: Iterable[str] | None = None) -> dict[str, float]:
    """Return the items that weigh less than 1, of all or of these few."""
    return {item: weight for item, weight in store.rated.gammas(of).items() if weight < 1}


def set_sensitive(store: DeviceStore, item: str, sensitive: bool = True) -> None:
    """Let an item weigh as little as what is sensitive, or as much as others."""
    before = store.rated.gammas([item]).get(item, 1.0)
    store.set_weight(item=item, gamma=min(SENSITIVE, before) if sensitive else 1.0)


def check_weight(weight: float) -> None:
    """Refuse what is no privacy level."""
    if not 0 < weight <= 1:
        raise ConfigError("the dial goes from more than 0 (most private) to 1")
