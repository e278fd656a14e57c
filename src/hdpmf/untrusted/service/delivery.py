"""Giving a finished result to devices that were away at the end, or that only want the model."""

from __future__ import annotations

from collections.abc import Collection

from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.protocol import AnyCatalogue, Plan, Round, encode
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.untrusted.service.aggregation.channel import RunChannel
from hdpmf.untrusted.service.survey import facts_number


def hand_out(
    model: PublicModel,
    items: AnyCatalogue,
    channel: RunChannel,
    devices: Collection[str],
    deadline: float,
) -> tuple[set[str], set[str]]:
    """Offer the result to these devices; those that took it, and those that refuse the items.

    Nothing is asked of them, so nothing is paid. The model may be about an earlier version of the
    items.

    A device that was no part of the run gets the items and the plan first: with these and the
    numbers it fits its own vector (fold-in).
    """
    ready, refused = channel.send_items(devices, items, known_items(items).fingerprint, deadline)
    numbers = model.numbers
    if isinstance(numbers, Round) and isinstance(model.plan, Plan):
        # Its answer says nothing new: a member repeats what it said, another may decline and still
        # take the rest.
        channel.tell(ready, 0, model.plan, deadline)
    number = numbers.number if isinstance(numbers, Round) else facts_number(numbers)
    lists = b"" if model.lists is None else encode(model.lists)
    return channel.give(ready, number, numbers, lists, deadline), refused
