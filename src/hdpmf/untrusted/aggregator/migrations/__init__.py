"""Alembic's migrations of a server's database; each is a module of ``versions``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hdpmf.errors import ConfigError, made_by_newer, needs

if TYPE_CHECKING:
    import sqlalchemy as sa


def upgrade(connection: sa.Connection) -> None:
    """Bring a database to the newest revision, in the caller's transaction."""
    with needs("alembic", "servers"):
        from alembic.config import Config
        from alembic.runtime.environment import EnvironmentContext
        from alembic.script import ScriptDirectory
        from alembic.util import CommandError

    scripts = ScriptDirectory(str(Path(__file__).parent))
    with EnvironmentContext(
        Config(), scripts, fn=lambda found, _: scripts._upgrade_revs("head", found)
    ) as environment:
        environment.configure(connection=connection)
        try:
            environment.run_migrations()
        except CommandError:  # it has a revision that is not here
            raise ConfigError(made_by_newer("this database")) from None
