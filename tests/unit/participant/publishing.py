"""What an honest recommender would publish, and changes of it; the servers' keys are the test's."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from typing import Any

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair
from hdpmf.common.aggregation.two_servers.dap.messages import HpkeConfigList
from hdpmf.common.aggregation.two_servers.tokens import IssuerKey
from hdpmf.common.privacy.pairs import LINEAR_BITS, PAIR_BITS, limit_of
from hdpmf.common.protocol.catalogue import (
    CatalogueTable,
    CatalogueVersion,
    known_items,
    signed_first,
)
from hdpmf.common.protocol.documents import Array, file_digest, to_base64
from hdpmf.common.protocol.identity import Identity, Invitation
from hdpmf.common.protocol.key_list import KeyList, PublishedKeys, SignedKeyList
from hdpmf.common.protocol.published import Index, Model
from hdpmf.common.protocol.servers import Collector, Server, Servers
from hdpmf.common.protocol.task import EVERYBODY, Linear, Pairs, Task, task_id
from hdpmf.private.device.ledger import UNIT, Limits
from hdpmf.private.device.public import Published
from hdpmf.private.device.state import Joined, Rated, State, changed, new_state

N_ITEMS = 12
START = 1_800_000_000
PERIOD = 7200
DAY = 86_400
RUN = to_base64(bytes(16))

ITEMS = tuple(f"film {place}" for place in range(N_ITEMS))
CATALOGUE_KEY = Identity(bytes(range(7, 39)))
HPKE = tuple(KeyPair(place + 1, bytes(range(place, place + 32))) for place in range(3))
SIGNING = tuple(Identity(bytes(range(place, place + 32))) for place in range(2))


@cache
def issuer() -> IssuerKey:
    """The secret key of an issuer of tests."""
    return IssuerKey.generate()


LIMITS = Limits(life=4 * UNIT, month=4 * UNIT)


def _server(name: str, place: int) -> Server:
    return Server(
        organisation=name,
        url=f"https://{name.lower()}.example:8443",
        identity="ab"[place] * 42 + "A",
        signing=to_base64(SIGNING[place].public),
    )


SERVERS = Servers(leader=_server("North", 0), helper=_server("South", 1))
COLLECTOR = Collector(
    organisation="Films", hpke=to_base64(HPKE[2].config.encode()), identity="c" * 42 + "A"
)
FILMS = "https://films.example"


def invitation(address: str = FILMS) -> Invitation:
    return Invitation(address=address, servers=SERVERS)


def table(items: tuple[str, ...] = ITEMS, **scale: float | None) -> CatalogueTable:
    fields: dict[str, Any] = {"scale_low": 1.0, "scale_high": 5.0, "scale_step": 1.0} | scale
    return CatalogueTable(ids=items, integer_ids=False, titles=items, **fields)


def catalogue(items: tuple[str, ...] = ITEMS, **scale: float | None) -> CatalogueVersion:
    return signed_first(table(items, **scale), CATALOGUE_KEY.sign, CATALOGUE_KEY.public)


CATALOGUE = catalogue()


def keys(serial: int = 1, **changes: Any) -> bytes:
    """The lists of keys that both servers have signed."""
    lists = []
    for key, signing in zip(HPKE, SIGNING, strict=False):
        fields = {"serial": serial, "not_after": START + 100 * DAY} | changes
        configs = to_base64(HpkeConfigList((key.config,)).encode())
        lists.append(SignedKeyList.make(KeyList(configs=configs, **fields), signing.sign))
    return PublishedKeys(leader=lists[0], helper=lists[1]).to_bytes()


def linear(**changes: Any) -> Linear:
    fields: dict[str, Any] = {
        "bits": LINEAR_BITS,
        "bound": limit_of(LINEAR_BITS),
        "cap": 16,
        "items": N_ITEMS,
        "presence": 4000,
        "values": 2500,
    }
    return Linear(**(fields | changes))


def pairs(**changes: Any) -> Pairs:
    fields: dict[str, Any] = {
        "bits": PAIR_BITS,
        "bound": limit_of(PAIR_BITS),
        "cap": 16,
        "heads": (0, 1, 2, 5, 7),
        "weights": (64,) * 5,
        "deviation": 20_000_000,
    }
    return Pairs(**(fields | changes))


def task(key: IssuerKey | None = None, **changes: Any) -> bytes:
    """A task as it is published."""
    fields: dict[str, Any] = {
        "servers": SERVERS,
        "collector": COLLECTOR,
        "sums": linear(),
        "catalogue": known_items(CATALOGUE).fingerprint,
        "run": RUN,
        "asked": EVERYBODY,
        "begin": START,
        "end": START + PERIOD,
        "precision": 3600,
        "minimum": 100,
        "token_key": to_base64((key or issuer()).public.encoded),
    }
    return Task(**(fields | changes)).to_bytes()


def model(**arrays: Any) -> tuple[bytes, dict[str, bytes]]:
    """A model as it is published, and the files of its arrays by their digests."""
    described, files = {}, {}
    for name, array in arrays.items():
        described[name], data = Array.of(array)
        files[file_digest(data)] = data
    document = Model(
        catalogue=known_items(CATALOGUE).fingerprint,
        run=RUN,
        reports=(100, 100),
        mean=3.5,
        arrays=described,
    )
    return document.to_bytes(), files


def published(
    *,
    task: bytes = b"",
    model: tuple[bytes, dict[str, bytes]] | None = None,
    keys: bytes | None = None,
    catalogue: CatalogueVersion | bytes = CATALOGUE,
) -> Published:
    """What a device reads of these documents."""
    items = catalogue if isinstance(catalogue, bytes) else catalogue.to_bytes()
    lists = KEYS if keys is None else keys
    files = {file_digest(items): items, file_digest(lists): lists}
    index = Index(catalogue=file_digest(items), keys=file_digest(lists))
    if task:
        name = to_base64(task_id(task))
        files[name] = task
        index = changed(index, task=name)
    if model is not None:
        files |= {file_digest(model[0]): model[0], **model[1]}
        index = changed(index, model=file_digest(model[0]))
    return Published(index, files, sum(map(len, files.values())))


KEYS = keys()


def joined(address: str = FILMS, **changes: Any) -> Joined:
    """A recommender that has enrolled this device."""
    return changed(Joined(invitation=invitation(address), enrolled=True), **changes)


def state(
    ratings: dict[str, float] | None = None,
    *addresses: str,
    limits: Limits = LIMITS,
    **changes: Any,
) -> State:
    """A device that has joined, with ratings of every recommender's items."""
    fields = {"seed": sha256(b"of tests").digest(), **changes}
    made = changed(new_state(limits, name="ana"), **fields)
    for address in addresses or (FILMS,):
        made = made.with_joined(joined(address))
        for item, value in (ratings or {}).items():
            made = made.with_rating(address, item, Rated(value))
    return made
