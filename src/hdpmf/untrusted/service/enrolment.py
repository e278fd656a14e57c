"""Enrolment: who replaced whom, and how many devices a sum needs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hdpmf.common.aggregation.masks.primitives import is_identity_key
from hdpmf.common.protocol import DeviceCard
from hdpmf.common.protocol.enrolment import Enrolled, KeyHistory, check_fields
from hdpmf.errors import ConfigError


def read_card(data: bytes) -> DeviceCard:
    """Return a device's card, checked: the service could not start with a malformed key."""
    try:
        card = msgspec.json.decode(data, type=DeviceCard)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"this is not a device's card: {error}") from None
    return check_card(card)


def check_card(card: DeviceCard) -> DeviceCard:
    """Return the card; raise ConfigError if no device made it."""
    check_fields(card)
    if not is_identity_key(bytes.fromhex(card.identity)):
        raise ConfigError(
            f"the identity key on the card of {card.name[:32]!r} is malformed; ask for the card "
            "that the device wrote"
        )
    return card


def replaced(enrolled: Enrolled, name: str, signed: KeyHistory) -> Enrolled:
    """Return the same devices, one of them with the new card that its old key has signed."""
    for index, card in enumerate(enrolled.cards):
        if name in (card.name, card.identity):
            new = check_card(signed.card_after(card))
            return Enrolled((*enrolled.cards[:index], new, *enrolled.cards[index + 1 :]))
    raise ConfigError(f"no device {name!r} is enrolled")


def devices_needed(users: Sequence[int], minimum: int) -> int | None:
    """Return the smallest n such that any n devices hold ``minimum`` users; None if all do not."""
    total = 0
    for count, held in enumerate(sorted(users), start=1):
        total += held
        if total >= minimum:
            return count
    return None
