"""List models, trained on who rated what: released by ``hdp-bit``, or raw data.

Everything here is post-processing of what was released. What devices get is a
`hdpmf.common.model.list_model.ListModel`.
"""

from hdpmf.untrusted.recommender.lists.presence import Presence
from hdpmf.untrusted.recommender.lists.training import (
    LIST_MODELS,
    check_trainable,
    popular_lists,
    train_list_model,
)

__all__ = ["LIST_MODELS", "Presence", "check_trainable", "popular_lists", "train_list_model"]
