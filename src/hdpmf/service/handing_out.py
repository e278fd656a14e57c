"""Giving a finished result to devices that were away at the end, or that only want the model."""

from __future__ import annotations

from collections.abc import Collection

from hdpmf.protocol import Accepted, Call, Here, Plan, Round
from hdpmf.protocol.catalogue import known_items
from hdpmf.service.mailroom import Mailroom
from hdpmf.service.public_model import PublicModel
from hdpmf.service.survey import facts_number


def hand_out(model: PublicModel, mailroom: Mailroom, devices: Collection[str], deadline: float) -> set[str]:
    """Offer the result to these devices; those that took it. Nothing is asked of them, so nothing is paid.

    A device that was no part of the run gets the items and the plan first: with these and the numbers it fits its own
    vector (fold-in).
    """
    wanting: set[str] = set()
    without: set[str] = set()
    fingerprint = known_items(model.catalogue).fingerprint
    for device, here in mailroom.ask(devices, 0, Call(), deadline, Here):
        knows = isinstance(here, Here) and here.catalogue == fingerprint
        (wanting if knows else without).add(device)
    wanting |= {device for device, _ in mailroom.ask(without, 0, model.catalogue, deadline, Accepted)}
    if isinstance(model.numbers, Round):
        number = model.numbers.number
        if isinstance(model.plan, Plan):
            # Its answer says nothing new: a member repeats what it said, another may decline and still take the rest.
            for _ in mailroom.ask(wanting, 0, model.plan, deadline, Accepted):
                pass
    else:
        number = facts_number(model.numbers)
    return {device for device, _ in mailroom.ask(wanting, number, model.numbers, deadline, Accepted)}
