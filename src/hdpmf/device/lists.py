"""A model for lists on a device: measured before it is decoded, checked before it is kept.

It is public and the same for everybody. A hostile one can spoil recommendations and nothing else; one that cannot be
right is refused, and the one before stays in use.
"""

from __future__ import annotations

import msgspec

from hdpmf.device.declined import DeclinedError, OutOfTurnError
from hdpmf.device.local_model import LocalModel
from hdpmf.device.policy import Policy
from hdpmf.device.public import read_lists
from hdpmf.errors import ProtocolError
from hdpmf.protocol import ItemFacts, decode
from hdpmf.protocol.lists import BYTES_PER_ITEM, FREE_BYTES, digest_of


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
        raise OutOfTurnError("refused: a model for lists comes after the facts of its run, which name it")
    n_items = len(facts.bias)
    most = most_list_bytes(policy, n_items)
    if len(body) > most:
        raise DeclinedError(
            "policy",
            f"the model for lists has {len(body):,} bytes; for {n_items:,} items this device holds {most:,} "
            "(max_list_bytes in its policy)",
        )
    if digest_of(body) != facts.lists:
        raise ProtocolError("refused: the model for lists is not the one that the facts name (its SHA-256 differs)")
    if read_lists(body).n_items != n_items:
        raise ProtocolError("refused: the model for lists is about other items than its facts")
    return msgspec.structs.replace(model, lists=body)


def most_list_bytes(policy: Policy, n_items: int) -> int:
    """What a model for lists of so many items may have on this device."""
    return min(policy.max_list_bytes, FREE_BYTES + BYTES_PER_ITEM * n_items)


def lack_lists(model: LocalModel) -> bool:
    """Whether the facts of a model name lists that it does not have."""
    facts = decode(model.numbers)
    return isinstance(facts, ItemFacts) and facts.lists is not None and digest_of(model.lists) != facts.lists


def with_older_lists(model: LocalModel, before: LocalModel | None) -> LocalModel:
    """A new model with the lists of the one before, until its own come; without where it has none of its own."""
    facts = decode(model.numbers) if before is not None and before.lists else None
    if before is None or not isinstance(facts, ItemFacts) or facts.lists is None:
        return model
    if read_lists(before.lists).n_items != len(facts.bias):  # the catalogue has grown since
        return model
    return msgspec.structs.replace(model, lists=before.lists)
