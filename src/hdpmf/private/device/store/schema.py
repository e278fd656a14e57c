"""The schema of a device's store: the type of a row in each table.

``docs/store.md`` explains the data model. Rows are sealed one by one (``tables``). Ratings, runs
and the ledger have modules of their own.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hdpmf.common.protocol import Survey
from hdpmf.private.device.policy import Policy, Terms

FIRST = 1
"""The id of the first recommender; further ones have 2, 3 and so on."""

OWN_FILE = 0
"""In ``catalogues``: the items of the owner's own file."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the store. PRIVATE."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


class Device(Row, frozen=True, kw_only=True):
    """The device itself: the only row of its table.

    Attributes:
        identity: The signing key.
        policy: The terms that the device agrees to.
        scales: By item namespace, the scale (low, high, step) that the owner rates on.
        last_recommender: Address of the recommender that was used last.
        server_keys: By the signing key of a server (hex), the newest list of its keys, signed.
    """

    identity: bytes
    policy: Policy
    name: str = ""
    scales: dict[str, tuple[float, float, float | None]] = {}
    last_recommender: str = ""
    server_keys: dict[str, bytes] = {}


class Recommender(Row, frozen=True, kw_only=True):
    """A recommender, and what is pinned of it.

    Attributes:
        id: Its number on this device.
        address: Its URL; empty before it was joined.
        since: When it was joined.
        paused: It is not answered at the moment.
        left: The owner has left it. The row stays, for the ratings of its items.
        item_namespace: Of its items; None until its first catalogue.
        authority: Pinned certificates (PEM); empty for the public authorities, None until one is
            given.
        servers: The pinned pair of servers (JSON).
        name: What it calls itself in the invitation that the owner took; empty where another one
            here has a name that looks the same.
    """

    id: int
    address: str = ""
    since: str = ""
    paused: bool = False
    left: bool = False
    item_namespace: str | None = None
    authority: bytes | None = None
    servers: bytes = b""
    name: str = ""


class PublicData(Row, frozen=True, kw_only=True):
    """A recommender's catalogue, as it was pinned.

    Attributes:
        recommender_id: Whose; ``OWN_FILE`` for the owner's own items.
        data: Encoded; of a simulated device only its digest.
    """

    recommender_id: int
    data: bytes


class ItemsApart(Row, frozen=True, kw_only=True):
    """Items of a recommender that have ids of other items in its namespace (``item_identity``).

    Attributes:
        numbers: By id, the number of the namespace that each has for itself.
    """

    recommender_id: int
    numbers: dict[str, int] = {}


class LocalModel(Row, frozen=True, kw_only=True):
    """The model of the last finished run with a recommender.

    Attributes:
        survey: The Survey, encoded; a device that was no part of the run may lack it.
        numbers: The ItemFacts, encoded.
    """

    recommender: str
    run: str
    method: str
    view: str
    survey: bytes | None
    numbers: bytes
    recommender_id: int = FIRST

    def __repr__(self) -> str:
        return f"LocalModel({self.method}, run {self.run[:8]})"


class Downloaded(Row, frozen=True, kw_only=True):
    """Files of a recommender that were loaded, or refused.

    Attributes:
        begun: When the day began that is counted (Unix time).
        size: Bytes that came since then.
        refused: Digests of refusals (``published_files``), each with its time, oldest first.
    """

    begun: float = 0.0
    size: int = 0
    refused: tuple[tuple[str, float], ...] = ()


class RecommenderState(Row, frozen=True, kw_only=True):
    """Per-recommender protocol state that outlives runs. Not cleared by ``forget``.

    Attributes:
        recommender: Its address.
        collector: Digest of who gets the sums, as it was in the first task.
        task: Id of the task under way.
        until: When the last task that was agreed to ends; until then there is no other.
        survey: The last survey that a report left for, encoded.
        terms: What was agreed to then.
        reported: Id of that task.
        model: SHA-256 of the facts that were here then.
        downloaded: Its files.
        taken: When tasks were taken, of the last day (Unix time).
        never: When the owner said never to this recommender, whatever it asks for; empty if not.
    """

    recommender: str
    collector: bytes = b""
    task: bytes = b""
    until: int = 0
    survey: bytes | None = None
    terms: Terms | None = None
    reported: bytes = b""
    model: str = ""
    downloaded: Downloaded = Downloaded()
    taken: tuple[float, ...] = ()
    never: str = ""


class AgreedTask(Row, frozen=True, kw_only=True):
    """A task for two servers that was agreed to: it is kept as long as it may come again.

    Attributes:
        id: Digest of the task.
        end: When it ends (Unix time).
    """

    id: bytes
    end: int


class Question(Row, frozen=True, kw_only=True):
    """A question to the owner: the terms that a run asks for.

    Attributes:
        servers: Digest of the two servers that sum; empty where there are none.
        names: Who runs these.
        survey: What exactly is asked, where that is known beforehand.
        at: When it was asked first.
        until: When it is over (Unix), where that is known.
        later: The owner said "not now": not before this time again (Unix).
    """

    recommender: str
    terms: Terms
    servers: str = ""
    names: str = ""
    survey: Survey | None = None
    at: str = ""
    until: int = 0
    later: int = 0

    @property
    def key(self) -> str:
        """The identity of terms: who asks, for what, who sums, and how private that is.

        How many take part is not in it: it changes with every run, and the policy has a minimum.
        """
        terms = self.terms
        parts = (
            self.recommender,
            terms.method,
            terms.view,
            terms.epsilon,
            self.servers,
        )
        return "|".join(map(str, parts))


class Consent(Row, frozen=True, kw_only=True):
    """The owner's answer to a question.

    Attributes:
        run: Of an answer for once: the run that it was used for, until that is over.
    """

    asked: Question
    answer: Literal["once", "always", "never"]
    at: str = ""
    run: bytes = b""

    @property
    def key(self) -> str:
        """The question's key; an answer for once that is in use has the run in its key, too."""
        return f"{self.asked.key}|{self.run.hex()}" if self.run else self.asked.key


class HiddenItem(Row, frozen=True, kw_only=True):
    """An item that the owner does not want to see again, by its name on this device."""

    item: str


class PastItem(Row, frozen=True, kw_only=True):
    """Facts about an item from a catalogue that is not here any more.

    Attributes:
        recommender_id: Whose it was; ``OWN_FILE`` for the owner's own file.
        title: In its plain form; empty where there was none.
        year: Where it was known.
    """

    recommender_id: int
    title: str = ""
    year: int | None = None


class PastItems(Row, frozen=True, kw_only=True):
    """Items of forgotten catalogues that the owner has rated or marked: one row.

    By their names. So no other item passes for one of them, and none loses its mark.
    """

    items: dict[str, PastItem] = {}
