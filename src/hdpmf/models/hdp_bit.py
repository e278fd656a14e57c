"""HDPBit: one bit per rating, visible to the recommender."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hdpmf.common.base.progress import stage
from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.methods.options import BitOptions
from hdpmf.common.model.list_model import ListModel
from hdpmf.common.privacy.sampling import seed_of
from hdpmf.common.protocol import BitContribution, ItemFacts, Survey
from hdpmf.models.one_round import OneRound
from hdpmf.private.client.ranking import ByListModel, ListOrder
from hdpmf.untrusted.recommender.bits import numbered
from hdpmf.untrusted.recommender.lists.training import Presence, train_list_model
from hdpmf.untrusted.recommender.pattern_choice import PATTERNS, facts_by_choice


@dataclass(eq=False, repr=False)
class HDPBit(BitOptions, OneRound):
    """One bit per rating: the recommender may see every message.

    Every rating has W_ij * epsilon pure local differential privacy against the whole transcript.
    Which items a user rated, and the weights, are visible.

    Args:
        epsilon: The largest budget of a rating; rating (i, j) has W_ij times this.
        max_ratings: As for HDPSum.
        coding: What the bit is about; ``auto`` is a threshold at four of five stars.
        patterns: How many factors of who rates what with whom to look for, beside the similarity of
            items. Who rated what is visible in this design, so it costs nothing; 0 uses neither.
            None: 8, unless the released bits say that they do not help.
        features: As for HDPSum.
        prior: As for HDPSum.
        n_threads: As for HDPSum.
        rng: As for HDPSum.

    Attributes:
        bits_: What the recommender holds: who rated what, weights and bits; None after loading.
        lists_: The model for lists, trained on who rated what.
    """

    bits_: BitContribution | None = field(init=False, default=None)
    _lists: ListModel | None = field(init=False, default=None)

    @property
    def lists_(self) -> ListModel | None:  # noqa: D102
        if self._lists is None and self.bits_ is not None:
            stage(f"training the model for lists ({self.list_model})")
            users = numbered(self.bits_.senders)
            n_users, n_items = int(users.max(initial=-1)) + 1, len(self.catalogue_.items)
            self._lists = train_list_model(
                self.list_model,
                Presence(users, self.bits_.items, n_users, n_items),
                seed=seed_of(self.rng) % 2**31,
            )
        return self._lists

    @lists_.setter
    def lists_(self, lists: ListModel | None) -> None:
        self._lists = lists

    @property
    def n_patterns_(self) -> int:
        """How many patterns of who rates what were looked for; 0 if who rated what is not used."""
        if self.patterns is not None:
            return self.patterns
        return 0 if self.facts_.similarity is None else PATTERNS

    def _facts(
        self, survey: Survey, answer: BitContribution, features: ItemFeatures | None
    ) -> ItemFacts:
        return facts_by_choice(survey, answer, features, self.patterns)

    def _keep(self, answer: Any) -> None:
        self.bits_, self._lists = answer, None

    def _train_lists(self) -> None:
        self._lists = self.lists_

    def _order(self) -> ListOrder:
        lists, otherwise = self.lists_, super()._order()
        return otherwise if lists is None else ByListModel(self.devices_, lists, otherwise)

    def _design(self) -> str:
        return "L"
