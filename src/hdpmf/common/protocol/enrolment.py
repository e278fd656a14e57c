"""The roster of devices that may take part: their public keys, and a digest that people compare.

A device's new keys are signed with its old ones, so that the new card replaces the old one.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256

import msgspec

from hdpmf.common.aggregation.masks import DeviceIdentity, Roster
from hdpmf.common.aggregation.masks.primitives import is_identity_key, verifies
from hdpmf.common.base.names import claimed_name, plain_name
from hdpmf.common.protocol.federation import DeviceCard
from hdpmf.common.protocol.servers import Servers, check_address
from hdpmf.errors import ConfigError

MOST_ROSTER_BYTES = 64 << 20
"""Of a roster's file. The longest roster that can be summed over has half of that."""

_KEY_HEX = 64
_MOST_USERS = 1 << 31


class Enrolled:
    """The devices on the roster, in the order of enrolment, each known by its identity key (hex).

    For sums by masks a device is an organisation. Its card is its certificate: the name that others
    know it by, and the key that signs all it sends. The digest covers both, and a device checks its
    own line, so that whoever compares digests with an organisation has its key.

    Devices pin the roster, so that a recommender cannot play a device; people compare the digest in
    a way that does not go through the recommender.
    """

    def __init__(self, cards: Iterable[DeviceCard] = ()) -> None:
        self.cards = tuple(cards)
        for card in self.cards:
            check_fields(card)
        for field in ("name", "identity"):
            counts = Counter(getattr(card, field) for card in self.cards)
            for twice in (value for value, count in counts.items() if count > 1):
                raise ConfigError(
                    f"two devices have the same {field} {twice[:32]!r}; a device may be counted "
                    "once. If it was set up again, remove its old card"
                )
        seen: dict[str, str] = {}
        for card in self.cards:
            other = seen.setdefault(plain_name(card.name), card.name)
            if other != card.name:
                raise ConfigError(
                    f"the names {other[:32]!r} and {card.name[:32]!r} look the same, and people "
                    "would take them for one device; rename one of them"
                )

    def __len__(self) -> int:
        return len(self.cards)

    def __repr__(self) -> str:
        return f"Enrolled({len(self)} devices)"

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {card.identity: index for index, card in enumerate(self.cards)}

    @cached_property
    def users(self) -> Mapping[str, int]:
        """Users behind each device."""
        return {card.identity: card.users for card in self.cards}

    @cached_property
    def roster(self) -> Roster:
        """For secure sums."""
        return Roster(bytes.fromhex(card.identity) for card in self.cards)

    @property
    def digest(self) -> str:
        """The digest that people compare: of all names, keys and users, in groups of four."""
        return _groups(
            b"hdpmf roster 2 ", [[card.name, card.identity, card.users] for card in self.cards]
        )

    def _digest_without_names(self) -> str:
        return _groups(b"hdpmf roster ", [[card.identity, card.users] for card in self.cards])

    def index(self, device: str) -> int:
        """A device's number on the roster."""
        return self._indices[device]

    def device(self, index: int) -> str:
        """The device with this number."""
        return self.cards[index].identity

    def count_users(self, devices: Iterable[str]) -> int:
        """Users behind these devices."""
        return sum(self.users[device] for device in devices)

    def without(self, name: str) -> Enrolled:
        """One device less, by its name or key."""
        kept = [card for card in self.cards if name not in (card.name, card.identity)]
        if len(kept) == len(self.cards):
            raise ConfigError(f"no device {name!r} is enrolled")
        return Enrolled(kept)

    def to_json(self) -> bytes:
        """For the roster's file, which devices pin."""
        return msgspec.json.format(
            msgspec.json.encode({"devices": self.cards, "digest": self.digest}), indent=1
        )

    @classmethod
    def from_json(cls, data: bytes) -> Enrolled:
        """Return what ``to_json`` wrote; ConfigError if the digest does not fit.

        Files of earlier versions have a digest without names. It is never shown: people compare
        the new one.
        """
        if len(data) > MOST_ROSTER_BYTES:
            raise ConfigError(f"a roster has at most {MOST_ROSTER_BYTES:,} bytes")
        try:
            read = msgspec.json.decode(data, type=_File)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(f"this is not a roster: {error}") from None
        enrolled = cls(read.devices)
        if read.digest not in (enrolled.digest, enrolled._digest_without_names()):
            raise ConfigError("the roster was changed by hand: its digest does not fit its devices")
        return enrolled


def _groups(domain: bytes, rows: list[list[str | int]]) -> str:
    plain = sha256(domain + msgspec.json.encode(rows)).hexdigest()[:32]
    return " ".join(plain[at : at + 4] for at in range(0, len(plain), 4))


class _File(msgspec.Struct, forbid_unknown_fields=True):
    devices: tuple[DeviceCard, ...]
    digest: str


def check_fields(card: DeviceCard) -> None:
    """Raise ConfigError where a card has something in it that no device writes."""
    hexadecimal = len(card.identity) == _KEY_HEX and set(card.identity) <= set("0123456789abcdef")
    if not hexadecimal:
        raise ConfigError(
            f"the card of {card.name[:32]!r} has no identity key of {_KEY_HEX} hexadecimal digits"
        )
    if not (1 <= len(card.name) <= 200 and card.name.isprintable()):
        raise ConfigError("a device's name must have 1 to 200 printable characters")
    if not 1 <= card.users < _MOST_USERS:
        raise ConfigError(f"the card of {card.name[:32]!r} must speak for at least one user")


MOST_INVITATION_BYTES = 64 << 10
"""Of an invitation."""

_MARK = "#hdpmf-join="


class Invitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An invitation, whose digest people compare in a way that does not go through the recommender.

    Attributes:
        address: Of the recommender, ``https://`` with host and port.
        servers: The two servers that sum for it; None if devices send it noisy numbers directly.
        authority: Issuer of its TLS certificate (PEM); empty for the public ones.
        name: What the recommender calls itself (``claimed_name``); empty if nothing. Nobody has
            checked it, so that its address is shown beside it.
    """

    address: str
    servers: Servers | None = None
    authority: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        check_address(self.address)
        if self.name and claimed_name(self.name) != self.name:
            raise ConfigError("the name in an invitation has spaces too many, or is not NFC")

    @property
    def digest(self) -> str:
        """Of everything in it, in groups of four digits."""
        plain = sha256(b"hdpmf invitation " + self._encoded()).hexdigest()[:32]
        return " ".join(plain[at : at + 4] for at in range(0, len(plain), 4))

    def _encoded(self) -> bytes:
        """As JSON; without a name as version 1.0.0 wrote it, so that its digest stays."""
        fields = msgspec.structs.asdict(self)
        if not self.name:
            del fields["name"]
        return msgspec.json.encode(fields)

    def to_json(self) -> bytes:
        """As a file."""
        return msgspec.json.format(self._encoded(), indent=1)

    def to_link(self) -> str:
        """As a link. What it says is behind the ``#``, which browsers do not send to anybody."""
        packed = base64.urlsafe_b64encode(zlib.compress(self._encoded(), 9)).decode().rstrip("=")
        return f"{self.address}{_MARK}{packed}"

    @classmethod
    def read(cls, data: bytes) -> Invitation:
        """Return the invitation in a file or a link; ConfigError if there is none."""
        if len(data) > MOST_INVITATION_BYTES:
            raise ConfigError(f"an invitation has at most {MOST_INVITATION_BYTES:,} bytes")
        try:
            text = data.decode()
            if _MARK in text:
                packed = text.strip().rpartition(_MARK)[2]
                unpacker = zlib.decompressobj()
                data = unpacker.decompress(
                    base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)),
                    MOST_INVITATION_BYTES,
                )
                if not unpacker.eof:
                    raise ConfigError("this is no invitation: its link is cut off or too long")
            return msgspec.json.decode(data, type=cls)
        except (UnicodeDecodeError, binascii.Error, zlib.error, ValueError, msgspec.MsgspecError):
            raise ConfigError(
                "this is no invitation of a recommender: neither its file nor its link"
            ) from None


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
                f"for {now.users}; new keys do not change that"
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
