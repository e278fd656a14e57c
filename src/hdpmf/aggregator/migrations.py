"""The steps from each schema of a server's database to the next.

Whoever changes ``tables`` adds a step. All steps that a database lacks are one transaction, together with its new
number: killed at any moment, it has the old schema or the new one.
"""

from __future__ import annotations

from collections.abc import Callable

from hdpmf.transport.extras import needs

with needs("sqlalchemy"):
    import sqlalchemy as sa

MIGRATIONS: tuple[Callable[[sa.Connection], None], ...] = ()
"""The first brings a database from schema 1 to 2, the second from 2 to 3, and so on, in SQLite and in PostgreSQL. None
may forget a report's id, a closed batch or a share that has left: what was counted or released stays so."""
