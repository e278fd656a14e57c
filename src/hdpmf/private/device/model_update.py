"""Model updates: check item facts and list models, then replace the previous ones.

They are public and the same for everybody. A hostile list model can make recommendations worse and
nothing else. One that is malformed is refused, and the previous one stays in use.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from hdpmf.common.protocol import ItemFacts, decode
from hdpmf.common.protocol.lists import BYTES_PER_ITEM, FREE_BYTES, digest_of
from hdpmf.errors import ProtocolError
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.recommendations import local_model
from hdpmf.private.device.store.catalogues import read_lists
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import LocalModel


def check_facts(store: DeviceStore, body: bytes) -> None:
    """Raise ProtocolError unless these are item facts about items that are pinned here."""
    facts, pinned = decode(body), store.pinned_catalogue
    if not isinstance(facts, ItemFacts):
        raise ProtocolError(f"refused: a {type(facts).__name__} is no model")
    # A model may be older than the newest items.
    known = None if pinned is None else pinned.named(facts.catalogue)
    if known is None or len(facts.bias) != len(known.positions):
        raise ProtocolError(
            "refused: the item facts are about another item table than the pinned one"
        )


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
