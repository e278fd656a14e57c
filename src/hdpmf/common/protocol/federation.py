"""Messages between a recommender and devices on other machines, around the two conversations.

::

    recommender                         device
        Terms             ────────────▶   checked against the device's own policy
                          ◀────────────   Accepted or Refusal
        Plan, Opening, Round 1 ... T, or Survey (and Grouping), as in the others

The catalogue and the model are public files that devices fetch: a newer catalogue has to follow
from the pinned one.

Where the terms say ``sums``, a device answers an Opening, a Round, a Survey or a Grouping with
``Ready``, and the numbers that it would have sent go through a secure sum instead; where they say
``messages`` it answers as drawn there. What needs no answer gets ``Accepted``. Every message
travels in a ``Envelope``, every reply in a ``Reply``.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Literal

import msgspec

from hdpmf.common.methods import METHODS, View, federated
from hdpmf.common.protocol.messages import MAX_ITEMS, _Message, _positive, check_scale

RUN_BYTES = 16

MAX_VERSIONS = 4096
"""Of a catalogue: one a week for 78 years."""

MAX_LEVELS = 1 << 16

MAX_RATING = 1_000_000

Reason = Literal[
    "policy",  # the device's own policy forbids it
    "protocol",  # malformed, out of turn, or not what was agreed
    "catalogue",  # the item table does not follow from the one that the device has seen last
    "secure-sum",  # the secure sum was refused or broken off
    # not in this moment: another run is under way on this device, or its owner has not answered yet
    "busy",
    "storage",  # the device's disk refused
    # the device cannot do what is asked (an extra that is not installed, no ratings)
    "unavailable",
]
"""Reasons of a refusal: a word and no text, because the details stay in the device's own log."""


class CatalogueTable(_Message, frozen=True):
    """Recommender to device: the items, in their order, and public facts about them.

    Attributes:
        ids: Item ids; an item is known by its position.
        integer_ids: The ids are whole numbers.
        scale_step: Of the public rating scale, where it has one.
        titles: One per item, or none at all.
        genres: One list per item, or none at all.
        years: One per item (None where unknown), or none at all.
    """

    ids: tuple[str, ...]
    integer_ids: bool
    scale_low: float
    scale_high: float
    scale_step: float | None
    titles: tuple[str, ...] = ()
    genres: tuple[tuple[str, ...], ...] = ()
    years: tuple[int | None, ...] = ()

    def _check(self) -> None:
        n = len(self.ids)
        self._require(1 <= n <= MAX_ITEMS, f"a catalogue has 1 to {MAX_ITEMS} items")
        self._require(len(set(self.ids)) == n, "item ids must differ")
        for name in ("titles", "genres", "years"):
            self._require(
                len(getattr(self, name)) in (0, n), f"{name} must be one per item or none"
            )
        low = self.scale_low
        high = self.scale_high
        step = self.scale_step
        check_scale(self, low, high, step)
        self._require(
            max(abs(low), abs(high)) <= MAX_RATING, f"no rating may be beyond {MAX_RATING:,}"
        )
        few = step is None or (high - low) / step <= MAX_LEVELS
        self._require(few, f"a scale has at most {MAX_LEVELS:,} levels")


class CatalogueLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A signed version of the catalogue; the items of earlier ones keep their positions.

    Attributes:
        number: From 1.
        previous: Digest of the version before; empty for the first.
        items: Number of items: those of the version before, and new ones after them.
        retired: Positions of the items that this version retires, ascending.
        content: Digest of the scale and of all that is said of these items.
        signature: Of the version's digest, by the recommender's catalogue key.
    """

    number: int
    previous: bytes
    items: int
    retired: tuple[int, ...]
    content: bytes
    signature: bytes

    @property
    def digest(self) -> bytes:
        """Of everything but the signature; so of all versions before, too."""
        plain = [self.number, self.previous, self.items, self.retired, self.content]
        return sha256(b"hdpmf catalogue version " + msgspec.msgpack.encode(plain)).digest()


class CatalogueVersion(_Message, frozen=True):
    """Recommender to device: the newest version of the items, and the signed chain to it.

    ``catalogue.check_chain`` checks the chain; a device takes what follows from its own.

    Attributes:
        table: All items, retired ones included: positions never change.
        links: Every version, from the first.
        key: Ed25519 public key that they are signed by.
    """

    table: CatalogueTable
    links: tuple[CatalogueLink, ...]
    key: bytes

    def _check(self) -> None:
        self._require(
            1 <= len(self.links) <= MAX_VERSIONS, f"a catalogue has 1 to {MAX_VERSIONS} versions"
        )
        self._require(len(self.key) == 32, "a key has 32 bytes")
        self._require(
            self.links[-1].items == len(self.table.ids),
            "the last version must have all of the items",
        )


AnyCatalogue = CatalogueTable | CatalogueVersion
"""The items, in a simulation without any signed version."""


class Terms(_Message, frozen=True):
    """Recommender to device: everything that a run will ask for. The device holds the run to it.

    Attributes:
        view: What the recommender will see.
        epsilon: The largest budget of a rating.
        rounds: How often a device is asked for numbers (1 for the one-round designs, 2 with
            labels).
        catalogue: Fingerprint of the item table.
        users: Users whom the recommender expects to take part.
        minimum: Fewest users that a sum is over (for ``sums``).
        sharing: Of these, users whose shares make the whole noise; the others may collude.
        credit: Most users that one device counts for: a machine is one party.
        labels: The run is by taste labels.
        cohort: Devices of the roster that are asked, if not all.
        beacon: The public text that chooses them.
    """

    method: str
    view: View
    epsilon: float
    rounds: int
    catalogue: str
    users: int
    minimum: int
    sharing: int
    credit: int = 1
    labels: bool = False
    cohort: int | None = None
    beacon: str = ""

    def _check(self) -> None:
        self._require(
            is_beacon(self.beacon) and self.cohort >= 3
            if self.cohort is not None
            else not self.beacon,
            "a cohort of 3 devices or more and its beacon belong together",
        )
        self._require(
            1 <= self.sharing <= self.minimum and self.credit >= 1,
            "sharing must be from 1 to minimum",
        )
        self._require(_positive(self.epsilon), "epsilon must be a positive number")
        self._require(1 <= self.rounds <= 1_000_000, "rounds must be from 1 to 1,000,000")
        self._require(0 < len(self.catalogue) <= 128, "catalogue must be a fingerprint")
        self._require(1 <= self.minimum <= self.users, "minimum must be from 1 to users")
        self._require(self.method in federated(), "this method does not run between machines")
        method = METHODS[self.method]
        self._require(
            self.view in method.views, f"{self.method} cannot run under the view {self.view}"
        )
        self._require(
            not self.labels or method.labelled is not None, f"{self.method} has no taste labels"
        )
        rounds = method.form(self.labels).rounds
        self._require(
            rounds in (None, self.rounds), f"{self.method} has rounds = {rounds}, not {self.rounds}"
        )


class Accepted(_Message, frozen=True):
    """Device to recommender: agreed, or received; there is nothing else to say."""


class Ready(_Message, frozen=True):
    """Device to recommender: the numbers of this job are ready for a secure sum.

    Attributes:
        number: Of the job: 0 for counts or a survey, 1 for a grouping, else the round.
    """

    number: int

    def _check(self) -> None:
        self._require(self.number >= 0, "jobs are numbered from 0")


class Refusal(_Message, frozen=True):
    """Device to recommender: no."""

    reason: Reason


class Envelope(_Message, frozen=True):
    """Any message of the recommender, as it travels.

    Attributes:
        number: Its job: 0 for everything before the first round, else the round.
        part: ``job``: a message of the protocol; ``sum``: one of a secure sum for that job.
        body: The message, encoded.
    """

    run: bytes
    number: int
    part: Literal["job", "sum"]
    body: bytes

    def _check(self) -> None:
        self._require(len(self.run) == RUN_BYTES, f"run must have {RUN_BYTES} bytes")
        self._require(self.number >= 0, "jobs are numbered from 0")


class Reply(_Message, frozen=True):
    """Any reply of a device: like its envelope, or a ``refusal`` with a Refusal as body."""

    run: bytes
    number: int
    part: Literal["job", "sum", "refusal"]
    body: bytes

    def _check(self) -> None:
        self._require(len(self.run) == RUN_BYTES, f"run must have {RUN_BYTES} bytes")
        self._require(self.number >= 0, "jobs are numbered from 0")


FederationMessage = AnyCatalogue | Terms | Accepted | Ready | Refusal | Envelope | Reply


class DeviceCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A device's public card for the roster.

    Attributes:
        identity: Ed25519 public key (hex): signs requests, reports, and messages of secure sums.
        users: Users behind this device: 1 for a person's, more for a silo.
    """

    name: str
    identity: str
    users: int = 1


MAX_BEACON = 200
"""Characters of a beacon."""


def is_beacon(text: str) -> bool:
    """Return whether this can be a beacon: a text that people can read out and compare."""
    return 0 < len(text) <= MAX_BEACON and text.isascii() and text.isprintable()


def cohort_of(beacon: str, devices: Iterable[str], size: int) -> frozenset[str]:
    """So many of the devices, which are named by their identities (hex)."""
    head = b"hdpmf cohort 1\n" + beacon.encode("ascii") + b"\n"
    ranked = sorted(set(devices), key=lambda device: sha256(head + bytes.fromhex(device)).digest())
    return frozenset(ranked[:size])
