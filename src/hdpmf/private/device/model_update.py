"""Model updates: check item facts, final factors and list models, then replace the previous ones.

They are public and the same for everybody. A hostile list model can make recommendations worse and
nothing else. One that is malformed is refused, and the previous one stays in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import msgspec

from hdpmf.common.methods import METHODS, method_with
from hdpmf.common.protocol import ItemFacts, Plan, Round, Terms, decode
from hdpmf.common.protocol.lists import BYTES_PER_ITEM, FREE_BYTES, digest_of
from hdpmf.errors import ProtocolError
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.recommendations import local_model
from hdpmf.private.device.store.catalogues import read_lists
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import LocalModel

_ONE_ROUND = " or ".join(name for name, method in METHODS.items() if method.one_round)


MAX_NUMBERS = 1 << 23
"""Of a round: items times factors."""


@dataclass(frozen=True, slots=True, repr=False)
class PublishedModel:
    """The model of a run, as it was published.

    Attributes:
        run: Of which run, in hexadecimal.
        numbers: Item facts, or the final factors of a training.
        body: The same, as they came.
        plan: Of final factors: what they belong to, checked against the pinned items.
        document: The same, as it came.
    """

    run: str
    numbers: ItemFacts | Round
    body: bytes
    plan: Plan | None = None
    document: bytes | None = None

    def local(self, recommender: str, terms: Terms | None, survey: bytes | None) -> LocalModel:
        """Return it as this device keeps it.

        Args:
            terms: What was agreed on, where the device was part of the run.
            survey: The survey, encoded, where the device knows it.
        """
        # Facts do not say by which method they were made.
        method = _ONE_ROUND if self.plan is None else method_with(self.plan.mechanism).name
        return LocalModel(
            recommender=recommender,
            run=self.run,
            method=method if terms is None else terms.method,
            view="nothing" if terms is None else terms.view,
            plan=survey if self.plan is None else self.document,
            numbers=self.body,
        )


def read_facts(store: DeviceStore, run: str, body: bytes) -> PublishedModel:
    """Read item facts; ProtocolError unless they are about items that are pinned here."""
    facts, pinned = decode(body), store.pinned_catalogue
    if not isinstance(facts, ItemFacts):
        raise ProtocolError(f"refused: a {type(facts).__name__} is no model")
    # A model may be older than the newest items.
    known = None if pinned is None else pinned.named(facts.catalogue)
    if known is None or len(facts.bias) != len(known.positions):
        raise ProtocolError(
            "refused: the item facts are about another item table than the pinned one"
        )
    return PublishedModel(run, facts, body)


def read_plan(store: DeviceStore, document: bytes) -> Plan:
    """Read the plan of a model; ProtocolError unless it is for items that are pinned here."""
    plan = decode(document)
    if not isinstance(plan, Plan):
        raise ProtocolError(f"refused: a {type(plan).__name__} is no plan")
    check_plan(store, plan)
    return plan


def read_factors(run: str, body: bytes, plan: Plan, document: bytes) -> PublishedModel:
    """Read final factors; ProtocolError unless they are those of the plan."""
    final = decode(body)
    if not isinstance(final, Round) or final.number != plan.epochs + 1:
        raise ProtocolError("refused: these are no final factors of the plan")
    if final.item_factors.shape != (plan.n_items, plan.n_factors):
        raise ProtocolError("refused: the item factors do not have the shape of the plan")
    return PublishedModel(run, final, body, plan, document)


def check_plan(store: DeviceStore, plan: Plan) -> None:
    """Refuse a plan for items, or a scale, that are not pinned here; earlier versions are."""
    known = store.pinned_catalogue
    if known is None:
        raise ProtocolError("the item table must come before a plan")
    scale = known.known.scale
    same = known.sized(plan.n_items) is not None
    if not same or (plan.scale_low, plan.scale_high) != (scale.low, scale.high):
        raise ProtocolError(
            "refused: the plan is for other items or another scale than the pinned ones"
        )
    if plan.n_items * plan.n_factors > MAX_NUMBERS:
        raise ProtocolError(f"refused: the plan has more than {MAX_NUMBERS} numbers in a round")


def facts_digest(store: DeviceStore) -> str:
    """Return the SHA-256 of the public numbers of the model here; empty without a model."""
    model = local_model(store)
    return "" if model is None else sha256(model.numbers).hexdigest()


def with_lists(model: LocalModel, body: bytes) -> LocalModel:
    """The model with the lists that came for it, in a file that this device has room for.

    Raises:
        ProtocolError: They are not those that the facts here name, or no model for these items.
    """
    facts = decode(model.numbers)
    if not isinstance(facts, ItemFacts) or digest_of(body) != facts.lists:
        raise ProtocolError(
            "refused: the model for lists is not the one that the facts name (its SHA-256 differs)"
        )
    if read_lists(body).n_items != len(facts.bias):
        raise ProtocolError("refused: the model for lists is about other items than its facts")
    return msgspec.structs.replace(model, lists=body)


def most_list_bytes(policy: Policy, n_items: int) -> int:
    """Return the most bytes of a list model of ``n_items`` items, by the policy of this device."""
    return min(policy.max_list_bytes, FREE_BYTES + BYTES_PER_ITEM * n_items)


def lack_lists(model: LocalModel) -> bool:
    """Return True if the facts of a model name lists that it does not have."""
    facts = decode(model.numbers)
    return (
        isinstance(facts, ItemFacts)
        and facts.lists is not None
        and digest_of(model.lists) != facts.lists
    )


def with_older_lists(model: LocalModel, before: LocalModel | None) -> LocalModel:
    """Return a new model with the lists of the one before, until its own arrive.

    Without, if it names no lists of its own or the catalogue has grown since.
    """
    facts = decode(model.numbers) if before is not None and before.lists else None
    if before is None or not isinstance(facts, ItemFacts) or facts.lists is None:
        return model
    if read_lists(before.lists).n_items != len(facts.bias):  # the catalogue has grown since
        return model
    return msgspec.structs.replace(model, lists=before.lists)
