"""Two recommenders, of films and of books, that call their items by the same ids."""

from __future__ import annotations

import msgspec

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair
from hdpmf.common.protocol.identity import Invitation
from hdpmf.common.protocol.servers import Servers

from .reporting_world import KEYS, N_ITEMS, SERVERS, key_lists, server, table

TITLES = tuple(f"Film {place}" for place in range(N_ITEMS))
FILMS = table(titles=TITLES)
BOOKS = table(titles=tuple(f"Book {place}" for place in range(N_ITEMS)))
MORE_FILMS = msgspec.structs.replace(
    FILMS, ids=(*FILMS.ids, "item 99"), titles=(*TITLES, "Film 99")
)
OTHER_KEY = KeyPair(4, bytes(range(3, 35)))
OTHERS = Servers(leader=SERVERS.leader, helper=server("Others", OTHER_KEY, "d"))
OTHER_LISTS = key_lists(KEYS[0], OTHER_KEY)
FIRST = Invitation(address="https://films.example:9443", servers=SERVERS)
SECOND = Invitation(address="https://books.example:9443", servers=OTHERS)
