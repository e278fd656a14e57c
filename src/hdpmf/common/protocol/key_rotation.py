"""A device's new keys, signed with its old ones, so that the new card replaces the old one."""

from __future__ import annotations

import msgspec

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.aggregation.masks.primitives import verifies
from hdpmf.common.protocol.federation import DeviceCard
from hdpmf.errors import ConfigError

MOST_LINKS = 64
_DOMAIN = b"hdpmf device card in place of mine v1 "


class SignedStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A step from old keys to new ones.

    Attributes:
        old: The identity that signs (hex).
        card: The card with the new keys.
        signature: Of the card, by the old identity (hex).
    """

    old: str
    card: DeviceCard
    signature: str


class KeyHistory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All changes of a device's keys, oldest first; the last card is the one in use."""

    links: tuple[SignedStep, ...]

    @classmethod
    def from_json(cls, data: bytes) -> KeyHistory:
        """Return what ``to_json`` wrote."""
        try:
            found = msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"this is not a signed card (hdpmf device rotate writes one): {error}"
            ) from None
        if not 1 <= len(found.links) <= MOST_LINKS:
            raise ConfigError(f"a signed card has 1 to {MOST_LINKS} links, not {len(found.links)}")
        return found

    def to_json(self) -> bytes:
        """As a file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    def extended(self, old: DeviceIdentity, card: DeviceCard) -> KeyHistory:
        """One more step, to this card."""
        link = SignedStep(
            old=old.public.hex(), card=card, signature=old.sign(_text(old.public.hex(), card)).hex()
        )
        return KeyHistory(links=(*self.links, link)[-MOST_LINKS:])

    def card_after(self, card: DeviceCard) -> DeviceCard:
        """Return the card that replaces this one.

        Raises:
            ConfigError: No valid signatures lead there from this card, or it speaks for other
                users.
        """
        now = card
        steps = 0
        for link in self.links:
            if link.old != now.identity:
                if steps:
                    raise ConfigError(
                        "the signed card has a gap: one of its links does not follow from the one "
                        "before"
                    )
                continue
            if not _holds(link):
                raise ConfigError(
                    f"a signature on the signed card is not that of device {card.name[:32]!r}"
                )
            now = link.card
            steps += 1
        if not steps:
            raise ConfigError(
                f"the signed card is not of device {card.name[:32]!r}: its key signed none of it"
            )
        if now.users != card.users:
            raise ConfigError(
                f"device {card.name[:32]!r} is enrolled for {card.users} users, the new card is "
                f"for {now.users}; new "
                "keys do not change that"
            )
        return now


def _holds(link: SignedStep) -> bool:
    try:
        return verifies(
            bytes.fromhex(link.old), bytes.fromhex(link.signature), _text(link.old, link.card)
        )
    except ValueError:
        return False


def _text(old: str, card: DeviceCard) -> bytes:
    return _DOMAIN + msgspec.json.encode([old, card.name, card.identity, card.users])
