"""Item facts on a device: about the pinned items, or refused; then kept as the model that it recommends from."""

from __future__ import annotations

from hashlib import sha256

from hdpmf.device.local_model import LocalModel, kept_model
from hdpmf.device.store import DeviceStore
from hdpmf.errors import ProtocolError
from hdpmf.methods import METHODS
from hdpmf.protocol import ItemFacts, Terms

_ONE_ROUND = " or ".join(name for name, method in METHODS.items() if method.one_round)
"""By which method facts were made that come to a device which was no part of the run: they do not say it."""


def model_of_facts(
    store: DeviceStore,
    facts: ItemFacts,
    body: bytes,
    *,
    recommender: str,
    run: str,
    terms: Terms | None,
    survey: bytes | None,
) -> LocalModel:
    """The model that item facts are.

    Args:
        store: The device's store, with the item table.
        facts: What came.
        body: The same, as it came.
        recommender: From whom.
        run: Of which run.
        terms: What was agreed on, where the device was part of the run.
        survey: The survey, encoded, where the device knows it.

    Raises:
        ProtocolError: They are about other items.
    """
    pinned = store.pinned_catalogue
    known = None if pinned is None else pinned.named(facts.catalogue)  # a model may be older than the newest items
    if known is None or len(facts.bias) != len(known.positions):
        raise ProtocolError("refused: the item facts are about another item table than the pinned one")
    return LocalModel(
        recommender=recommender,
        run=run,
        method=_ONE_ROUND if terms is None else terms.method,
        view="nothing" if terms is None else terms.view,
        plan=survey,
        numbers=body,
    )


def kept_facts(store: DeviceStore) -> str:
    """SHA-256 of the facts, or whatever else the model here was made of; empty where there is none."""
    model = kept_model(store)
    return "" if model is None else sha256(model.numbers).hexdigest()
