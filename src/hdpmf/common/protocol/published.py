"""What a recommender publishes: an index, and the documents and arrays that it names.

All files but ``index.json`` and ``invitation.json`` are named by their SHA-256, tasks by their ids,
and never change, so that any web server or CDN can serve them::

    index.json              what there is now; written last
    catalogue-DIGEST.json   the items, with all their versions
    keys-DIGEST.json        the keys of the two servers, each list signed by its server
    task-ID.json            what two servers sum, while they take reports
    model-DIGEST.json       what came of the last run, and which arrays belong to it
    array-DIGEST.bin        numbers, little-endian
    invitation.json         address, name and servers, for who has a link with its digest
"""

import re
from typing import Literal

from hdpmf.common.protocol.documents import (
    DIGEST_SIZE,
    RUN_SIZE,
    Array,
    Document,
    Text,
    Whole,
    from_base64,
)

INDEX, INVITATION = "index.json", "invitation.json"

Kind = Literal["catalogue", "keys", "task", "model", "array"]

_FILE = re.compile(r"((catalogue|keys|task|model)-[\w-]{43}\.json|array-[\w-]{43}\.bin)", re.ASCII)

MAX_INDEX = 16 << 10
"""Bytes of an index."""

MOST_ARRAYS = 32
"""Arrays of a model."""


class Index(Document, frozen=True, tag="index"):
    """What there is now. Files are named by their digests.

    Attributes:
        name: The recommender's, for people; nobody has checked it.
        servers: Digest of the pair that it works with, as people compare it; empty without one.
        task: Id of the task under way; empty if there is none.
    """

    catalogue: Text
    name: Text = ""
    servers: Text = ""
    keys: Text = ""
    task: Text = ""
    model: Text = ""

    def _check(self) -> None:
        for digest in (self.catalogue, *filter(None, (self.keys, self.task, self.model))):
            from_base64(digest, DIGEST_SIZE)


class Model(Document, frozen=True, tag="model"):
    """What came of a run, for everybody: lists and stars are made of it on the device.

    Attributes:
        catalogue: Fingerprint of the items that it is about.
        run: Id of the run.
        reports: How many were in each of its sums.
        mean: Of people's own means, in stars from 1 to 5.
        arrays: By name; each has a file. ``model.published_model`` says which there are.
    """

    catalogue: Text
    run: Text
    reports: tuple[Whole, ...]
    mean: float
    arrays: dict[Text, Array]

    def _check(self) -> None:
        from_base64(self.run, RUN_SIZE)
        self._require(len(self.arrays) <= MOST_ARRAYS, f"a model has at most {MOST_ARRAYS} arrays")

    @property
    def files(self) -> dict[str, Array]:
        """Its arrays, by the names of their files."""
        return {file_name("array", array.sha256): array for array in self.arrays.values()}


def file_name(kind: Kind, digest: str) -> str:
    """Return the name of a public file."""
    return f"{kind}-{digest}.{'bin' if kind == 'array' else 'json'}"


def is_public(name: str) -> bool:
    """Return True if this is the name of a file that anybody may ask for."""
    return name in (INDEX, INVITATION) or _FILE.fullmatch(name) is not None
