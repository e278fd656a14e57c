"""What recommenders publish: which files a device reads, and what it takes of them.

None of it is trusted. A request is the same for every device: a plain GET of a name that follows
from the index. A file that was refused is not read again for a week, and all files of a recommender
have a budget of bytes a day, so that one that lies costs little. What is refused here is refused
for what is public alone, by every device alike: ratings, limits and wishes play no part in it.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

import msgspec

from hdpmf.common.data.checks import IMPLICIT_SCALE
from hdpmf.common.model import published_model
from hdpmf.common.model.list_model import ListModel
from hdpmf.common.protocol import ItemFacts
from hdpmf.common.protocol.catalogue import (
    CatalogueTable,
    CatalogueVersion,
    KnownItems,
    check_chain,
    is_newer,
    known_items,
    read_catalogue,
)
from hdpmf.common.protocol.documents import file_digest, read_document, to_base64
from hdpmf.common.protocol.key_list import (
    MAX_PUBLISHED,
    follow_key_list,
    read_key_list,
    read_published_keys,
)
from hdpmf.common.protocol.published import INDEX, MAX_INDEX, Index, Kind, Model, file_name
from hdpmf.common.protocol.refusal import Known, Limits, why_refused
from hdpmf.common.protocol.servers import Server
from hdpmf.common.protocol.task import Task, read_task, task_id
from hdpmf.errors import ProtocolError
from hdpmf.private.device.state import DAY, Joined, State, changed

BYTES_PER_DAY = 512 << 20
"""Bytes of files that a recommender may have a device read within a day, at most."""

REFUSED_FOR = 7 * DAY
"""Seconds that a refusal holds, since what it rests on may have changed."""

MOST_TASKS = 8
"""Tasks of a recommender that a device takes within a day, at most."""

_MOST_CATALOGUE = 64 << 20
_FREE, _PER_ITEM = 1 << 21, 4096  # bytes of another file, and for each item


class NotNowError(ProtocolError):
    """A document that is not taken now, and is not refused either."""


class Wanted(NamedTuple):
    """A file to read: its name, its digest, and how long it may be."""

    name: str
    digest: str
    most: int


class Published(msgspec.Struct, frozen=True):
    """What was read of a recommender at one look.

    Attributes:
        files: By their digests, unchecked; empty where one was too long.
        read: Bytes that came, of files that broke off as well.
    """

    index: Index
    files: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    read: int = 0

    def __repr__(self) -> str:
        return f"Published({len(self.files)} files)"


class Items(NamedTuple):
    """The items of a catalogue that is here."""

    table: CatalogueTable
    known: KnownItems
    positions: Mapping[str, int]


def read_index(data: bytes) -> Index:
    """Return an index; ProtocolError if it is none."""
    return read_document(Index, data, "an index of public files", MAX_INDEX)


def index_wanted() -> Wanted:
    """Return what every look begins with."""
    return Wanted(INDEX, "", MAX_INDEX)


def wanted(state: State, joined: Joined, seen: Published, now: int) -> list[Wanted]:
    """Return the files to read next, of those that the index names and that are not here.

    It is asked again with what was read: a model names arrays. Only what is public decides it.
    """
    refused = {digest for digest, at in joined.refused if abs(now - at) < REFUSED_FOR}
    left = BYTES_PER_DAY - joined.read_today(now) - seen.read
    found = []
    for kind, digest in _named(state, joined, seen):
        most = min(_most_bytes(kind, state, joined), left)
        if digest not in refused and digest not in seen.files and most > 0:
            found.append(Wanted(file_name(kind, digest), digest, most))
    return found


def _named(state: State, joined: Joined, seen: Published) -> Iterator[tuple[Kind, str]]:
    index = seen.index
    if index.catalogue != joined.catalogue:
        yield "catalogue", index.catalogue
        if index.catalogue not in seen.files:
            return  # the rest is about items that are not here yet
    if index.keys not in ("", joined.keys_digest):
        yield "keys", index.keys
    if index.task and not any(to_base64(task) == index.task for task, _, _ in joined.seen):
        yield "task", index.task
    if index.model not in ("", joined.model):
        yield "model", index.model
        with suppress(ProtocolError):  # it is refused when it is taken
            for array in read_model(seen.files.get(index.model, b"")).arrays.values():
                if array.sha256 not in joined.arrays:  # another's tell nothing here
                    yield "array", array.sha256


def _most_bytes(kind: Kind, state: State, joined: Joined) -> int:
    if kind == "catalogue" or not joined.catalogue:
        return _MOST_CATALOGUE
    if kind == "keys":
        return MAX_PUBLISHED
    return _FREE + _PER_ITEM * len(items_of(state, joined).table.ids)


def check_digest(kind: Kind, digest: str, data: bytes) -> None:
    """Raise ProtocolError unless a file is the one that its name says."""
    found = to_base64(task_id(data)) if kind == "task" else file_digest(data)
    if found != digest:
        raise ProtocolError(f"refused: the {kind} is not what the index says: its digest differs")


def model_of(state: State, joined: Joined) -> tuple[ItemFacts, ListModel]:
    """Return the last model of a recommender; ProtocolError if its parts do not fit."""
    return published_model.read_model(
        read_model(state.files[joined.model]),
        {file_name("array", name): state.files[name] for name in joined.arrays},
    )


def read_model(data: bytes) -> Model:
    """Return a model's document; ProtocolError if it is none."""
    return read_document(Model, data, "a model")


def items_of(state: State, joined: Joined) -> Items:
    """Return the items of a recommender; ProtocolError before its catalogue has come."""
    if joined.catalogue not in state.files:
        raise ProtocolError("no catalogue is here yet; it comes with hdpmf device join")
    return _items(state.files[joined.catalogue])


def items_named(state: State, joined: Joined, fingerprint: str) -> Items:
    """Return the items of the version with this fingerprint, the newest or an earlier one.

    Raises:
        ProtocolError: There is none.
    """
    newest = _catalogue(state.files[joined.catalogue])
    for number in range(newest.number, 0, -1):
        found = _items(newest.at(number).to_bytes())
        if found.known.fingerprint == fingerprint:
            return found
    raise ProtocolError("refused: the model is about other items than those of the catalogue")


@lru_cache(maxsize=8)
def _items(data: bytes) -> Items:
    catalogue = _catalogue(data)
    return Items(
        catalogue.table,
        known_items(catalogue),
        {item: position for position, item in enumerate(catalogue.table.ids)},
    )


@lru_cache(maxsize=8)
def _catalogue(data: bytes) -> CatalogueVersion:
    catalogue = read_catalogue(data)
    check_chain(catalogue)
    return catalogue


def take_catalogue(state: State, joined: Joined, data: bytes) -> State:
    """Take a catalogue that is the first one, or follows from the one that is here.

    Raises:
        ProtocolError: It does not, is not signed as it says, or is on another scale.
    """
    offered = _catalogue(data)
    known_items(offered)
    if joined.catalogue:
        before = _catalogue(state.files[joined.catalogue])
        if not is_newer(before, offered):
            return state  # the same items, encoded in another way
        if _scale(before) != _scale(offered):
            raise ProtocolError("refused: the catalogue is for another scale than the one here")
    state, name = state.with_file(data)
    return state.with_joined(changed(joined, catalogue=name))


def _scale(catalogue: CatalogueVersion) -> tuple[float, float, float | None]:
    table = catalogue.table
    return table.scale_low, table.scale_high, table.scale_step


def take_keys(state: State, joined: Joined, digest: str, data: bytes) -> State:
    """Follow the lists of keys that both servers have signed; one that is missing stays.

    What another recommender has shown of the same servers counts as well, so that none can bring
    back an older list.

    Raises:
        ProtocolError: A list is older than a known one, or not signed by its server.
    """
    offered = read_published_keys(data)
    pair = joined.invitation.servers
    taken = []
    for place, server in enumerate((pair.leader, pair.helper)):
        signed, known = (offered.leader, offered.helper)[place], b""
        for other in state.joined:
            same = other.invitation.servers
            if (same.leader, same.helper)[place].signing == server.signing:
                known = _newer(known, other.keys[place], server)
        if signed is not None:
            follow_key_list(signed, known, server)
        taken.append(known if signed is None else signed.to_bytes())
    return state.with_joined(changed(joined, keys=(taken[0], taken[1]), keys_digest=digest))


def _newer(first: bytes, second: bytes, server: Server) -> bytes:
    if not (first and second):
        return first or second
    serials = [read_key_list(each, server).serial for each in (first, second)]
    return first if serials[0] >= serials[1] else second


def take_model(state: State, joined: Joined, digest: str, files: Mapping[str, bytes]) -> State:
    """Take a model with all of its arrays.

    Raises:
        ProtocolError: An array is not the one that the model names.
    """
    document = read_model(files[digest])
    arrays = {array.sha256: array for array in document.arrays.values()}
    kept = {digest: files[digest]}
    for name, array in arrays.items():
        data = files.get(name, state.files.get(name))
        if data is None:
            raise NotNowError("an array of the model has not come")
        array.read(data)
        kept[name] = data
    state = changed(state, files={**state.files, **kept})
    return state.with_joined(changed(joined, model=digest, arrays=tuple(arrays)))


class Asked(NamedTuple):
    """A task that a device may answer: by all that is public it is refused by nobody."""

    id: bytes
    task: Task


def read_asked(state: State, joined: Joined, document: bytes, limits: Limits, now: int) -> Asked:
    """Return the task in a document.

    Raises:
        ProtocolError: It is none, or breaks a rule of the wire.
    """
    task, name = read_task(document), task_id(document)
    if any(name == old for old, _, _ in joined.seen):
        raise NotNowError("this task was taken before")
    items = items_of(state, joined).known
    known = Known(
        servers=joined.invitation.servers,
        collector=task.collector if joined.collector is None else joined.collector,
        catalogue=items.fingerprint,
        items=len(items.items),
        stars=items.scale != IMPLICIT_SCALE,
    )
    refusal = why_refused(task, known, limits, now)
    today = sum(taken + DAY > now for _, taken, _ in joined.seen)
    if today >= MOST_TASKS or now < task.begin:
        raise NotNowError("the time of this task has not come")
    if refusal is not None:
        raise ProtocolError(f"rule {refusal.rule}: {refusal.why}")
    return Asked(name, task)
