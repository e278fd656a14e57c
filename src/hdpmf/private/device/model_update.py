"""Model updates: check item facts and list models, then replace the previous ones.

They are public and the same for everybody. A hostile list model can spoil recommendations and
nothing else; one that cannot be right is refused, and the one before stays in use.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

import msgspec

from hdpmf.common.methods import METHODS
from hdpmf.common.protocol import ItemFacts, Terms, decode
from hdpmf.common.protocol.lists import BYTES_PER_ITEM, FREE_BYTES, digest_of
from hdpmf.errors import ProtocolError
from hdpmf.private.device.errors import DeclinedError, OutOfTurnError
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.recommendations import keep_model, local_model
from hdpmf.private.device.store.catalogues import read_lists
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import LocalModel

_ONE_ROUND = " or ".join(name for name, method in METHODS.items() if method.one_round)
"""By which method facts were made that come to a device which was no part of the run: they do
not say it.
"""


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
    known = (
        None if pinned is None else pinned.named(facts.catalogue)
    )  # a model may be older than the newest items
    if known is None or len(facts.bias) != len(known.positions):
        raise ProtocolError(
            "refused: the item facts are about another item table than the pinned one"
        )
    return LocalModel(
        recommender=recommender,
        run=run,
        method=_ONE_ROUND if terms is None else terms.method,
        view="nothing" if terms is None else terms.view,
        plan=survey,
        numbers=body,
    )


def facts_digest(store: DeviceStore) -> str:
    """Return the SHA-256 of the facts that the model was made of; empty without one."""
    model = local_model(store)
    return "" if model is None else sha256(model.numbers).hexdigest()


def with_lists(model: LocalModel | None, run: bytes, body: bytes, policy: Policy) -> LocalModel:
    """The model with the lists that came for it.

    Args:
        model: What the device has.
        run: The run that they came in.
        body: The message, as it came.
        policy: The owner's.

    Raises:
        DeclinedError: They are larger than this device holds.
        ProtocolError: They are not those that the facts here name, or no model for these items.
    """
    facts = None if model is None or model.run != run.hex() else decode(model.numbers)
    if model is None or not isinstance(facts, ItemFacts) or facts.lists is None:
        raise OutOfTurnError(
            "refused: a model for lists comes after the facts of its run, which name it"
        )
    n_items = len(facts.bias)
    most = most_list_bytes(policy, n_items)
    if len(body) > most:
        raise DeclinedError(
            "policy",
            f"the model for lists has {len(body):,} bytes; for {n_items:,} items this "
            f"device holds {most:,} "
            "(max_list_bytes in its policy)",
        )
    if digest_of(body) != facts.lists:
        raise ProtocolError(
            "refused: the model for lists is not the one that the facts name (its SHA-256 differs)"
        )
    if read_lists(body).n_items != n_items:
        raise ProtocolError("refused: the model for lists is about other items than its facts")
    return msgspec.structs.replace(model, lists=body)


def most_list_bytes(policy: Policy, n_items: int) -> int:
    """Return the most bytes that a list model of so many items may have on this device."""
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
    """Return a new model with the previous lists until its own arrive, if it has any."""
    facts = decode(model.numbers) if before is not None and before.lists else None
    if before is None or not isinstance(facts, ItemFacts) or facts.lists is None:
        return model
    if read_lists(before.lists).n_items != len(facts.bias):  # the catalogue has grown since
        return model
    return msgspec.structs.replace(model, lists=before.lists)


class LastModel:
    """The model of the last finished run.

    Args:
        store: The device's store.
        in_memory: Keep it here and not in the store.

    Attributes:
        held: What is kept here.
    """

    def __init__(self, store: DeviceStore, *, in_memory: bool) -> None:
        self._store, self._in_memory = store, in_memory
        self.held: LocalModel | None = None
        self._lists_came = (
            b""  # the last run that lists came in, whether they were taken or refused
        )

    def __repr__(self) -> str:
        return f"LastModel(in {'memory' if self._in_memory else 'the store'})"

    @property
    def now(self) -> LocalModel | None:
        """As it is now."""
        return self.held if self._in_memory else local_model(self._store)

    @property
    def expects_lists(self) -> bool:
        """True while the item facts name a list model that has not come yet."""
        model = self.now
        return model is not None and model.run != self._lists_came.hex() and lack_lists(model)

    def keep(self, model: LocalModel) -> None:
        """Keep a newer one. Lists of before stay in use until its own come."""
        self._set(with_older_lists(model, self.now))

    def take_lists(self, run: bytes, body: bytes) -> None:
        """Keep a model for lists beside the facts that name it.

        Nothing is sent or paid, whatever it is.
        """
        self._lists_came = run
        with self._store.transaction():
            self._set(with_lists(self.now, run, body, self._store.policy))

    def suspend(self) -> LocalModel | None:
        """Return what memory has that the store has not.

        Public numbers are needed until lists have come for them.
        """
        if self.held is None or self.expects_lists:
            return self.held
        return msgspec.structs.replace(self.held, plan=None, numbers=b"", lists=b"")

    def resume(self, model: LocalModel | None) -> None:
        """Go on with what `suspend` returned."""
        self.held = model
        if model is not None and not model.numbers:
            self._lists_came = bytes.fromhex(model.run)

    def _set(self, model: LocalModel) -> None:
        if self._in_memory:
            self.held = msgspec.structs.replace(
                model, numbers=_one_copy(model.numbers), lists=_one_copy(model.lists)
            )
        else:
            keep_model(self._store, model)


@lru_cache(maxsize=4)
def _one_copy(numbers: bytes) -> bytes:
    """Return one object for equal bytes: simulated devices share public numbers."""
    return numbers
